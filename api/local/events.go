package local

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

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
			if err := drop(tx, api.Events, found); err != nil {
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
		if err := drop(tx, api.Events, e); err != nil {
			return 0, err
		}
	}
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
	n := max(0, len(events)-most)
	for n < len(events) && now.Sub(lastTold(events[n])) > c.cfg.EventTTL {
		n++
	}
	return events[:n]
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
func (c *Client) eventMade(counted int) {
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
