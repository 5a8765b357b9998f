package dns

import (
	"context"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

// told is an API that lists what it is told to, and whose watches say what is sent to them.
type told struct {
	api.Client
	mu     sync.Mutex
	lists  [][]api.Object // one for each time
	events chan api.Event // closed: the watch breaks
	begin  func()
	asked  int
}

func (a *told) WhenAny(_ *api.Kind, do func()) bool { a.begin = do; return true }

func (a *told) List(context.Context, *api.Kind, api.ListOptions) (api.List, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.asked++; len(a.lists) == 0 {
		return api.List{}, apierrors.NewServiceUnavailable("no uplink")
	}
	items := a.lists[0]
	a.lists = a.lists[1:]
	return api.List{Items: items}, nil
}

func (a *told) Watch(ctx context.Context, _ *api.Kind, _ api.WatchOptions) (api.Watch, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return heard{ctx, a.events}, nil
}

type heard struct {
	ctx    context.Context
	events chan api.Event
}

func (w heard) Close() {}

func (w heard) Next() (api.Event, error) {
	select {
	case e, ok := <-w.events:
		if !ok {
			return e, io.EOF
		}
		return e, nil
	case <-w.ctx.Done():
		return api.Event{}, w.ctx.Err()
	}
}

// TestFollow: nothing is asked before there is a Service. What is heard is answered, also while the API is gone, until another list
// says otherwise.
func TestFollow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		z := newZone(t)
		a := &told{events: make(chan api.Event), lists: [][]api.Object{{svc("default", "web", withIPs("10.3.0.1"))}}}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() { _ = z.Follow(ctx, a) }()
		synctest.Wait()
		if a.asked != 0 {
			t.Error("it was asked for Services where there are none")
		}
		see := func(when, web, db string) {
			t.Helper()
			synctest.Wait()
			for name, want := range map[string]string{"web": web, "db": db} {
				if got, _ := z.Answer(question(name+".default.svc.cluster.local.", "A")); said(got) != want {
					t.Errorf("%s: %s: %s, want %s", when, name, said(got), want)
				}
			}
		}
		const none = "no such name"
		a.begin()
		see("listed", "10.3.0.1", none)
		a.events <- api.Event{Type: api.Added, Object: svc("default", "db", withIPs("10.3.0.2"))}
		see("added", "10.3.0.1", "10.3.0.2")
		a.events <- api.Event{Type: api.Deleted, Object: svc("default", "web", withIPs("10.3.0.1"))}
		a.events <- api.Event{Type: api.Bookmark, Object: &corev1.Service{}}
		see("deleted", none, "10.3.0.2")
		close(a.events)
		time.Sleep(time.Minute)
		see("the API is gone", none, "10.3.0.2")
		if a.asked > 20 {
			t.Errorf("it was asked %d times in a minute", a.asked)
		}
		a.mu.Lock()
		a.events = make(chan api.Event)
		a.lists = [][]api.Object{{svc("default", "web", withIPs("10.3.0.3"))}}
		a.mu.Unlock()
		time.Sleep(11 * time.Second)
		see("it is back", "10.3.0.3", none)
	})
}
