package local

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// Expire removes the events that nobody has touched for EventTTL before now (N-11.39), and the oldest of what
// is beyond MaxEvents. When there is nothing to remove, nothing is written.
func (c *Client) Expire(now time.Time) error {
	old, err := c.events.old(now)
	if err != nil || len(old) == 0 {
		return status(err, "look for old events")
	}
	return status(c.events.forget(old), "expire events")
}

// eventBounds keeps events from being too many, and too old.
type eventBounds struct {
	store   *storage.Store
	now     func() time.Time
	ttl     time.Duration
	most    int
	authors authors

	mu    sync.Mutex
	count int // about how many there are
}

func (v *eventBounds) old(now time.Time) (old []*corev1.Event, err error) {
	err = v.store.View(func(tx *storage.Tx) error {
		events, err := v.byAge(tx)
		if err != nil {
			return err
		}
		v.set(len(events))
		v.authors.keep(events)
		old = v.surplus(events, now, v.most)
		return nil
	})
	return old, err
}

// forget removes events that are still as they were seen.
func (v *eventBounds) forget(old []*corev1.Event) error {
	removed := 0
	err := v.store.Update(func(tx *storage.Tx) error {
		removed = 0
		for _, e := range old {
			found, err := tx.Get(api.Events, e.Namespace, e.Name)
			if err != nil || found.GetResourceVersion() != e.ResourceVersion {
				continue // gone, or told again meanwhile
			}
			if err := removeObject(tx, api.Events, found); err != nil {
				return err
			}
			removed++
		}
		return nil
	})
	if err == nil {
		v.add(-removed)
	}
	return err
}

// makeRoom keeps a burst of events below the cap between two sweeps. It removes more than one, so that it
// need not look again at every event that follows. When it looked it says how many there will be with the new one.
func (v *eventBounds) makeRoom(tx *storage.Tx) (events int, err error) {
	v.mu.Lock()
	full := v.count >= v.most
	v.mu.Unlock()
	if !full {
		return 0, nil
	}
	all, err := v.byAge(tx)
	if err != nil {
		return 0, err
	}
	old := v.surplus(all, v.now(), v.most-max(1, v.most/10))
	for _, e := range old {
		if err := removeObject(tx, api.Events, e); err != nil {
			return 0, err
		}
	}
	v.authors.keep(all)
	return len(all) - len(old) + 1, nil
}

// byAge lists all events, the one longest silent first.
func (v *eventBounds) byAge(tx *storage.Tx) ([]*corev1.Event, error) {
	objs, err := list(tx, api.Events, "")
	if err != nil {
		return nil, err
	}
	events := make([]*corev1.Event, 0, len(objs))
	for _, o := range objs {
		events = append(events, o.(*corev1.Event))
	}
	slices.SortStableFunc(events, func(a, b *corev1.Event) int { return lastTold(a).Compare(lastTold(b)) })
	return events, nil
}

// surplus is the part of sorted events that is too old or too many.
func (v *eventBounds) surplus(events []*corev1.Event, now time.Time, most int) []*corev1.Event {
	var old, rest []*corev1.Event
	for _, e := range events {
		if now.Sub(lastTold(e)) > v.ttl {
			old = append(old, e)
		} else {
			rest = append(rest, e)
		}
	}
	return append(old, greediest(rest, len(rest)-most, v.authors.of)...)
}

// greediest picks n of the sorted events to drop. Each time it looks for the author who has the most events, then for the namespace in
// which that author has the most, and picks the oldest there. So an author with many events loses only its own, and only in the
// namespace that it floods.
func greediest(events []*corev1.Event, n int, author func(*corev1.Event) string) []*corev1.Event {
	type share struct{ author, namespace string }
	var out []*corev1.Event
	total, left := map[string]int{}, map[share][]*corev1.Event{}
	for _, e := range events {
		s := share{author(e), e.Namespace}
		total[s.author]++
		left[s] = append(left[s], e)
	}
	for range n {
		var most share
		for s, mine := range left {
			if len(mine) > 0 && cmp.Or(cmp.Compare(total[s.author], total[most.author]), cmp.Compare(len(mine), len(left[most])),
				cmp.Compare(s.author, most.author), cmp.Compare(s.namespace, most.namespace)) > 0 {
				most = s
			}
		}
		out = append(out, left[most][0])
		left[most] = left[most][1:]
		total[most.author]--
	}
	return out
}

// authors knows who made each event since this start. Events from before, and those of the control plane itself, have no author. The
// fields of an event cannot tell: whoever makes it chooses them.
type authors struct {
	mu   sync.Mutex
	made map[types.UID]string
}

func (a *authors) of(e *corev1.Event) string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.made[e.UID]
}

func (a *authors) note(ctx context.Context, e api.Object) {
	author := authorOf(ctx)
	if author == "" {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.made == nil {
		a.made = map[types.UID]string{}
	}
	a.made[e.GetUID()] = author
}

func (a *authors) forget(e api.Object) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.made, e.GetUID())
}

// keep forgets the authors of events that are gone.
func (a *authors) keep(events []*corev1.Event) {
	there := make(map[types.UID]bool, len(events))
	for _, e := range events {
		there[e.UID] = true
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	maps.DeleteFunc(a.made, func(uid types.UID, _ string) bool { return !there[uid] })
}

// authorOf is the author of what a request writes. All service accounts of a namespace are one author: whoever has one account there can
// make more. The control plane itself is "".
func authorOf(ctx context.Context) string {
	u, _ := api.UserFrom(ctx)
	if namespace, _, ok := api.AccountOf(u.Name); ok {
		return "accounts of " + namespace
	}
	return u.Name
}

func lastTold(e *corev1.Event) time.Time {
	last := e.CreationTimestamp.Time
	for _, t := range []time.Time{e.LastTimestamp.Time, e.EventTime.Time} {
		if t.After(last) {
			last = t
		}
	}
	if e.Series != nil && e.Series.LastObservedTime.After(last) {
		last = e.Series.LastObservedTime.Time
	}
	return last
}

// made notes a new event, and how many there are if that was counted.
func (v *eventBounds) made(ctx context.Context, e api.Object, counted int) {
	v.authors.note(ctx, e)
	if counted > 0 {
		v.set(counted)
		return
	}
	v.add(1)
}

func (v *eventBounds) add(by int) {
	v.mu.Lock()
	v.count += by
	v.mu.Unlock()
}

func (v *eventBounds) set(n int) {
	v.mu.Lock()
	v.count = n
	v.mu.Unlock()
}
