package local

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/api/quota"
	"ledge/storage"
)

// A write's own transaction decides whether the write fits into the quotas of its namespace. It adds two sums: what the committed objects
// use, which is kept in memory and follows the store's ring, and what the writes before it in the same commit have taken. So two writes
// never take the same last piece, and a write that fails or is a dry run takes nothing: after a crash there is nothing to give back. In
// a namespace without quotas a write asks the store once whether there are any.

const (
	quotaPause = 100 * time.Millisecond // from a change to the statuses that tell of it, so that one write tells of many
	quotaAgain = 10 * time.Second       // after a write that failed
	quotaHeal  = 5 * time.Minute        // how often all is counted anew
)

// quotas knows what the namespaces take that have some.
type quotas struct {
	store *storage.Store
	kept  bool // there are quotas on this server at all

	mu     sync.Mutex
	tail   *tail                   // of all kinds; nil: nothing is known
	spaces map[string]*quota.Space // as of what was taken from the tail; those that somebody has asked for
	stale  map[string]bool         // namespaces where a status may have to be written
}

func newQuotas(s *storage.Store) *quotas {
	return &quotas{store: s, kept: slices.Contains(s.Kinds().Kept, api.ResourceQuotas), stale: map[string]bool{}}
}

// admit refuses a write that takes more than a quota has left (N-13.13).
func (q *quotas) admit(tx *storage.Tx, a admission, now time.Time) error {
	if !q.kept || !quota.Counted(a.kind) || a.old != nil && a.kind.Charge().Uses(a.obj) == nil {
		return nil
	}
	namespace := a.obj.GetNamespace()
	if some, err := tx.Any(api.ResourceQuotas, namespace); err != nil || !some {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s, err := q.seen(tx, namespace)
	if err != nil {
		return err
	}
	if err := s.Check(a.kind, a.obj, a.old, now); err != nil {
		return forbidden(a.kind, a.obj.GetName(), "%w", err)
	}
	return nil
}

// seen is what a namespace takes as a transaction sees it. The caller holds mu.
func (q *quotas) seen(tx *storage.Tx, namespace string) (*quota.Space, error) {
	s, err := q.committed(tx.Committed(), namespace)
	if err != nil {
		return nil, err
	}
	own := false
	for ch := range tx.Pending() {
		switch {
		case ch.Object.GetNamespace() != namespace:
			continue
		case otherBounds(ch):
			return q.count(tx, namespace)
		case !own:
			s, own = s.Clone(), true
		}
		apply(s, ch)
	}
	return s, nil
}

// committed is what the committed objects of a namespace use; tx is a view of them. The caller holds mu, and held it when the view began.
func (q *quotas) committed(tx *storage.Tx, namespace string) (*quota.Space, error) {
	if err := q.catchUp(tx); err != nil {
		return nil, err
	}
	if s := q.spaces[namespace]; s != nil {
		return s, nil
	}
	s, err := q.count(tx, namespace)
	if err == nil {
		q.spaces[namespace] = s
	}
	return s, err
}

// catchUp takes in what has happened; after too much of it, it begins anew.
func (q *quotas) catchUp(tx *storage.Tx) error {
	if q.tail != nil && q.tail.take(tx.Revision(), q.take) {
		return nil
	}
	q.tail, q.spaces = nil, map[string]*quota.Space{}
	all, err := tx.List(api.ResourceQuotas, "")
	if err != nil {
		return err
	}
	for _, o := range all {
		q.stale[o.GetNamespace()] = true
	}
	w, err := q.store.Watch(nil, tx.Revision())
	if err == nil {
		q.tail = &tail{watch: w}
		q.tail.take(tx.Revision(), q.take) // so that it is known what wakes it
	}
	return err
}

func (q *quotas) take(ch storage.Change) {
	namespace := ch.Object.GetNamespace()
	if otherBounds(ch) {
		delete(q.spaces, namespace)
		q.stale[namespace] = true
	}
	if s := q.spaces[namespace]; s != nil && apply(s, ch) {
		q.stale[namespace] = true
	}
}

func apply(s *quota.Space, ch storage.Change) bool {
	obj := ch.Object
	if ch.Type == api.Deleted {
		obj = nil
	}
	return s.Apply(ch.Kind, ch.Old, obj)
}

// otherBounds says that a change is one of what a namespace may have.
func otherBounds(ch storage.Change) bool {
	if ch.Kind != api.ResourceQuotas {
		return false
	}
	if ch.Type != api.Modified || ch.Old == nil {
		return true
	}
	return !apiequality.Semantic.DeepEqual(ch.Object.(*corev1.ResourceQuota).Spec, ch.Old.(*corev1.ResourceQuota).Spec)
}

// count reads all that the quotas of a namespace are about.
func (q *quotas) count(tx *storage.Tx, namespace string) (*quota.Space, error) {
	found, err := list(tx, api.ResourceQuotas, namespace)
	if err != nil {
		return nil, err
	}
	s := quota.NewSpace(q.store.Kinds(), typed[*corev1.ResourceQuota](found))
	for _, kind := range s.Kinds() {
		objs, err := list(tx, kind, namespace)
		if err != nil {
			return nil, err
		}
		for _, o := range objs {
			s.Apply(kind, nil, o)
		}
	}
	return s, nil
}

func typed[T api.Object](objs []api.Object) (out []T) {
	for _, o := range objs {
		out = append(out, o.(T))
	}
	return out
}

// Run keeps the statuses of quotas true until ctx ends.
func (q *quotas) Run(ctx context.Context, now func() time.Time) error {
	for q.kept {
		some := make(chan struct{})
		q.store.WhenAny(api.ResourceQuotas, func() { close(some) })
		select {
		case <-ctx.Done():
			return nil
		case <-some:
		}
		if !q.follow(ctx, now) {
			return nil
		}
	}
	<-ctx.Done()
	return nil
}

// follow is Run for as long as there are quotas; !ok: ctx has ended.
func (q *quotas) follow(ctx context.Context, now func() time.Time) (ok bool) {
	heal := time.NewTicker(quotaHeal)
	defer heal.Stop()
	for {
		wake, next, err := q.tell(now())
		switch {
		case err != nil && ctx.Err() == nil:
			slog.Warn("cannot write the status of quotas; trying again", "err", err)
			next = now().Add(quotaAgain)
		case err == nil && !q.any():
			return true
		}
		until := time.NewTimer(quotaHeal)
		if !next.IsZero() {
			until.Reset(max(next.Sub(now()), 0) + time.Millisecond)
		}
		select {
		case <-ctx.Done():
		case <-wake:
		case <-until.C:
			q.lookAgain()
		case <-heal.C:
			q.heal(now())
		}
		until.Stop()
		if !pause(ctx, quotaPause) {
			return false
		}
	}
}

func (q *quotas) any() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return len(q.spaces) > 0
}

// tell writes the statuses that are not true any more. It says what will wake it, and when something changes by itself.
func (q *quotas) tell(now time.Time) (wake <-chan struct{}, next time.Time, err error) {
	stale, wake, err := q.lacking()
	if err == nil && len(stale) > 0 {
		err = q.store.Update(func(tx *storage.Tx) error {
			for _, namespace := range stale {
				if err := q.write(tx, namespace, now); err != nil {
					return err
				}
			}
			return nil
		})
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, namespace := range stale {
		if err != nil {
			q.stale[namespace] = true
		}
	}
	for _, s := range q.spaces {
		if at := s.Next(now); !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return wake, next, err
}

// lacking takes the namespaces where there may be something to write.
func (q *quotas) lacking() (stale []string, wake <-chan struct{}, err error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if err := q.store.View(q.catchUp); err != nil {
		return nil, nil, err
	}
	stale = slices.Sorted(maps.Keys(q.stale))
	clear(q.stale)
	if wake = q.tail.wake; wake == nil { // more has happened since the view began
		now := make(chan struct{})
		close(now)
		wake = now
	}
	return stale, wake, nil
}

// write writes the statuses of a namespace. A power cut may forget them: what they tell can be counted.
func (q *quotas) write(tx *storage.Tx, namespace string, now time.Time) error {
	found, err := list(tx, api.ResourceQuotas, namespace)
	if err != nil || len(found) == 0 {
		return err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	s, err := q.seen(tx, namespace)
	if err != nil {
		return err
	}
	wanted := s.Status(now)
	for _, o := range typed[*corev1.ResourceQuota](found) {
		if want := wanted[o.Name]; !apiequality.Semantic.DeepEqual(o.Status, want) {
			o.Status = want
			if err := put(tx, api.ResourceQuotas, o, true); err != nil {
				return err
			}
		}
	}
	return nil
}

// lookAgain has the statuses of all compared with what they should say.
func (q *quotas) lookAgain() {
	q.mu.Lock()
	defer q.mu.Unlock()
	for namespace := range q.spaces {
		q.stale[namespace] = true
	}
}

// heal counts everything anew, and says where that comes to something else.
func (q *quotas) heal(now time.Time) {
	q.mu.Lock()
	defer q.mu.Unlock()
	err := q.store.View(func(tx *storage.Tx) error {
		if err := q.catchUp(tx); err != nil {
			return err
		}
		for namespace, s := range q.spaces {
			fresh, err := q.count(tx, namespace)
			if err != nil {
				return err
			}
			if !apiequality.Semantic.DeepEqual(s.Status(now), fresh.Status(now)) {
				slog.Error("ledge bug: what the quotas of a namespace count had drifted from its objects", "namespace", namespace)
			}
			q.spaces[namespace], q.stale[namespace] = fresh, true
		}
		return nil
	})
	if err != nil {
		slog.Warn("cannot count anew what quotas are about; trying again", "err", err)
	}
}
