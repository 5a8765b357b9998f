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
	old, err := c.old(now)
	if err != nil || len(old) == 0 {
		return status(err, "look for old events")
	}
	return status(c.forget(old), "expire events")
}

func (c *Client) old(now time.Time) (old []*corev1.Event, err error) {
	err = c.store.View(func(tx *storage.Tx) error {
		events, err := c.byAge(tx)
		if err != nil {
			return err
		}
		c.setEvents(len(events))
		c.authors.keep(events)
		old = c.surplus(events, now, c.cfg.MaxEvents)
		return nil
	})
	return old, err
}

// forget removes events that are still as they were seen.
func (c *Client) forget(old []*corev1.Event) error {
	removed := 0
	err := c.store.Update(func(tx *storage.Tx) error {
		removed = 0
		for _, e := range old {
			found, err := tx.Get(api.Events, e.Namespace, e.Name)
			if err != nil || found.GetResourceVersion() != e.ResourceVersion {
				continue // gone, or told again meanwhile
			}
			if err := dropObject(c, tx, api.Events, found); err != nil {
				return err
			}
			removed++
		}
		return nil
	})
	if err == nil {
		c.countEvents(-removed)
	}
	return err
}

// makeRoom keeps a burst of events below the cap between two sweeps. It removes more than one, so that it
// need not look again at every event that follows. When it looked it says how many there will be with the new one.
func (c *Client) makeRoom(tx *storage.Tx) (events int, err error) {
	c.mu.Lock()
	full := c.events >= c.cfg.MaxEvents
	c.mu.Unlock()
	if !full {
		return 0, nil
	}
	all, err := c.byAge(tx)
	if err != nil {
		return 0, err
	}
	old := c.surplus(all, c.cfg.Now(), c.cfg.MaxEvents-max(1, c.cfg.MaxEvents/10))
	for _, e := range old {
		if err := dropObject(c, tx, api.Events, e); err != nil {
			return 0, err
		}
	}
	c.authors.keep(all)
	return len(all) - len(old) + 1, nil
}

// byAge lists all events, the one longest silent first.
func (c *Client) byAge(tx *storage.Tx) ([]*corev1.Event, error) {
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
func (c *Client) surplus(events []*corev1.Event, now time.Time, most int) []*corev1.Event {
	var old, rest []*corev1.Event
	for _, e := range events {
		if now.Sub(lastTold(e)) > c.cfg.EventTTL {
			old = append(old, e)
		} else {
			rest = append(rest, e)
		}
	}
	return append(old, greediest(rest, len(rest)-most, c.authors.of)...)
}

// greediest are n of sorted events: each time the oldest of the author who has the most, in the namespace where that one has the most.
// So nobody pushes out the events of others, who have fewer, and nobody those of another namespace by what is told about its own.
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

// authors knows who made each event since this start; what is older, and what the control plane says itself, is nobody's. No field of
// an event says it: those are their authors' to choose.
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

// authorOf is who shares among themselves: all service accounts of a namespace are one, since whoever has it can make more of them.
// The control plane itself is "".
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

// eventMade notes a new event, and how many there are if that was counted.
func (c *Client) eventMade(ctx context.Context, e api.Object, counted int) {
	c.authors.note(ctx, e)
	if counted > 0 {
		c.setEvents(counted)
		return
	}
	c.countEvents(1)
}

func (c *Client) countEvents(by int) {
	c.mu.Lock()
	c.events += by
	c.mu.Unlock()
}

func (c *Client) setEvents(n int) {
	c.mu.Lock()
	c.events = n
	c.mu.Unlock()
}
