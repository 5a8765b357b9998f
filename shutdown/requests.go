package shutdown

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"
)

// RequestSource is the name of Requests among sources.
const RequestSource = "request"

// Requests is the power source for people: ledge shutdown, and the API behind it. Make it with NewRequests.
type Requests struct {
	off   func(reboot bool)
	asked chan request

	mu  sync.Mutex
	due time.Time
}

type request struct {
	at     time.Time
	reboot bool
	cancel bool
}

// NewRequests makes the source; off is called once the pods have stopped.
func NewRequests(off func(reboot bool)) *Requests {
	return &Requests{off: off, asked: make(chan request, 4)}
}

// Live implements Liver.
func (r *Requests) Live() string { return "requests" }

// Ask has the board shut down after a wait. It takes the place of an earlier request.
func (r *Requests) Ask(in time.Duration, reboot bool) error {
	return r.send(request{at: time.Now().Add(in), reboot: reboot})
}

// Cancel takes a request back, and breaks off a shutdown that has begun.
func (r *Requests) Cancel() error { return r.send(request{cancel: true}) }

// Due is when the shutdown that was asked for begins; zero when none is.
func (r *Requests) Due() time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.due
}

func (r *Requests) send(q request) error {
	select {
	case r.asked <- q:
		return nil
	default:
		return errors.New("too many requests to shut down at once; look with 'ledge shutdown --plan'")
	}
}

func (r *Requests) setDue(t time.Time) {
	r.mu.Lock()
	r.due = t
	r.mu.Unlock()
}

// Run waits for requests until ctx ends.
func (r *Requests) Run(ctx context.Context, tell func(Event)) error {
	var next request
	var begins <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return nil
		case q := <-r.asked:
			if q.cancel {
				begins = nil
				r.setDue(time.Time{})
				tell(Event{Kind: Cancelled, Source: RequestSource})
				continue
			}
			next, begins = q, time.After(time.Until(q.at))
			r.setDue(q.at)
			slog.Info("a shutdown was asked for", "at", q.at.Format(time.RFC3339), "reboot", q.reboot)
		case <-begins:
			begins = nil
			r.setDue(time.Time{})
			after := ThenOff
			if next.reboot {
				after = ThenReboot
			}
			tell(Event{Kind: Down, Source: RequestSource, After: after, Done: func() { r.off(next.reboot) }})
		}
	}
}
