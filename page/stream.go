package page

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
)

const (
	mostStreams = 32               // of all visitors, logs too
	calm        = time.Second      // between two looks at what changes, at least
	beat        = 10 * time.Second // after which a board is looked at without being told of a change: memory has no events
)

// thing is what errors of the page itself are about.
var thing = schema.GroupResource{Resource: "page"}

// streams tells all open pages what has changed. A kind is followed, once for all of them, while somebody looks at a view of it.
type streams struct {
	client api.Client

	mu     sync.Mutex
	open   int
	follow map[*api.Kind]*following
}

// following is one kind that is followed, and who is told.
type following struct {
	stop func()
	tell []chan struct{}
}

func newStreams(c api.Client) *streams {
	return &streams{client: c, follow: map[*api.Kind]*following{}}
}

// enter takes a place; leave gives it back.
func (s *streams) enter() (leave func(), err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open >= mostStreams {
		return nil, apierrors.NewTooManyRequests(fmt.Sprintf("%d pages are open at once; close one", mostStreams), 5)
	}
	s.open++
	return sync.OnceFunc(func() {
		s.mu.Lock()
		s.open--
		s.mu.Unlock()
	}), nil
}

// hear has ch told of changes of these kinds until the function that comes back is called.
func (s *streams) hear(kinds []*api.Kind, ch chan struct{}) (end func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range kinds {
		f := s.follow[k]
		if f == nil {
			ctx, stop := context.WithCancel(context.Background())
			f = &following{stop: stop}
			s.follow[k] = f
			go func() {
				_ = api.Follower{Client: s.client, Kind: k, All: func([]api.Object) { s.tell(k) }, One: func(e api.Event) {
					if e.Type != api.Bookmark {
						s.tell(k)
					}
				}, Unknown: time.Minute}.Run(ctx) // it ends with ctx alone
			}()
		}
		f.tell = append(f.tell, ch)
	}
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		for _, k := range kinds {
			f := s.follow[k]
			f.tell = slices.DeleteFunc(f.tell, func(c chan struct{}) bool { return c == ch })
			if len(f.tell) == 0 {
				f.stop()
				delete(s.follow, k)
			}
		}
	}
}

func (s *streams) tell(k *api.Kind) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f := s.follow[k]; f != nil {
		for _, ch := range f.tell {
			select {
			case ch <- struct{}{}:
			default:
			}
		}
	}
}

// sent is a section as the script replaces it.
type sent struct {
	ID   string `json:"id"`
	HTML markup `json:"html"`
}

// stream sends the sections of a view that have changed, as events.
func (p *Page) stream(w http.ResponseWriter, r *http.Request, v view) {
	out, leave, err := p.begin(w)
	if err != nil {
		fail(w, r, err)
		return
	}
	defer leave()
	ctx, cancel := p.until(r)
	defer cancel()
	r = r.WithContext(ctx)
	changed := make(chan struct{}, 1)
	defer p.waits.hear(v.follows, changed)()
	was := map[string]markup{}
	tick := time.NewTicker(beat)
	defer tick.Stop()
	for {
		vis := p.visit(r)
		found, err := v.look(vis)
		switch {
		case apierrors.IsNotFound(err):
			_ = out.event("gone", err.Error())
			return
		case ctx.Err() != nil:
			return
		case err != nil:
			err = out.event("trouble", err.Error())
		default:
			err = out.sections(found.sections(vis), was)
		}
		if err != nil {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(calm):
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-tick.C:
		}
	}
}

// until is the context of a request that goes on until the visitor or the server leaves.
func (p *Page) until(r *http.Request) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(r.Context())
	var undo []func() bool
	if p.c.Stopping != nil {
		undo = append(undo, context.AfterFunc(p.c.Stopping(r.Context()), cancel))
	}
	if done := visitorOf(r).Done; done != nil {
		go func() {
			select {
			case <-done:
				cancel()
			case <-ctx.Done():
			}
		}()
	}
	return ctx, func() {
		for _, u := range undo {
			u()
		}
		cancel()
	}
}

// events are what a browser calls an EventSource.
type events struct{ w http.ResponseWriter }

// begin answers with a stream of events, if there is a place.
func (p *Page) begin(w http.ResponseWriter) (events, func(), error) {
	leave, err := p.waits.enter()
	if err != nil {
		return events{}, nil, err
	}
	w.Header().Set("Content-Type", "text/event-stream")
	w.WriteHeader(http.StatusOK)
	return events{w}, leave, nil
}

func (e events) event(name string, data any) error {
	line, err := json.Marshal(data)
	if err != nil {
		return err
	}
	patient(e.w)
	if _, err := fmt.Fprintf(e.w, "event: %s\ndata: %s\n\n", name, line); err != nil {
		return err
	}
	return http.NewResponseController(e.w).Flush()
}

// sections sends those that are not as they were. A view whose sections come and go sends all.
func (e events) sections(now []section, was map[string]markup) error {
	var ids []string
	whole := len(now) != len(was) && len(was) > 0
	for _, s := range now {
		ids = append(ids, s.id)
		if _, ok := was[s.id]; !ok && len(was) > 0 {
			whole = true
		}
	}
	if whole {
		clear(was)
		if err := e.event("order", ids); err != nil {
			return err
		}
	}
	quiet := true
	for _, s := range now {
		m := s.markup()
		if was[s.id] == m {
			continue
		}
		was[s.id], quiet = m, false
		if err := e.event("section", sent{s.id, m}); err != nil {
			return err
		}
	}
	if quiet { // finds out whether somebody still listens
		return e.event("beat", time.Now().UTC().Format(time.RFC3339))
	}
	return nil
}
