package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// scripted answers lists and watches as a test tells it.
type scripted struct {
	Client // everything else panics
	mu     sync.Mutex
	items  []Object
	lists  []time.Time
	fail   error
	events chan Event // of the running watch; closed: the watch breaks
	after  string
}

func (s *scripted) List(context.Context, *Kind, ListOptions) (List, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lists = append(s.lists, time.Now())
	return List{Items: slices.Clone(s.items), Revision: "7"}, s.fail
}

func (s *scripted) Watch(ctx context.Context, _ *Kind, o WatchOptions) (Watch, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.after = o.Revision
	s.events = make(chan Event)
	return &scriptedWatch{ctx, s.events}, nil
}

type scriptedWatch struct {
	ctx    context.Context
	events chan Event
}

func (w *scriptedWatch) Next() (Event, error) {
	select {
	case e, ok := <-w.events:
		if !ok {
			return e, errors.New("cut")
		}
		return e, nil
	case <-w.ctx.Done():
		return Event{}, w.ctx.Err()
	}
}

func (w *scriptedWatch) Close() {}

func named(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "ns"}, Data: map[string]string{"v": value}}
}

func contents(v *View[*corev1.ConfigMap]) string {
	var out []string
	for _, c := range v.List() {
		out = append(out, c.Name+"="+c.Data["v"])
	}
	slices.Sort(out)
	s := ""
	for _, o := range out {
		s += o + " "
	}
	return s
}

func TestView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{items: []Object{named("a", "1"), named("b", "1")}}
		v := NewView[*corev1.ConfigMap](s, ConfigMaps, Selection{})
		select {
		case <-v.Synced():
			t.Fatal("synced before it ran")
		default:
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- v.Run(ctx) }()
		synctest.Wait()
		<-v.Synced()
		<-v.Changed()
		if got := contents(v); got != "a=1 b=1 " || s.after != "7" {
			t.Errorf("got %s, watching after %s", got, s.after)
		}

		s.events <- Event{Added, named("c", "1")}
		s.events <- Event{Modified, named("a", "2")}
		s.events <- Event{Deleted, named("b", "1")}
		synctest.Wait()
		if got := contents(v); got != "a=2 c=1 " {
			t.Errorf("got %s", got)
		}
		if c, ok := v.Get("ns", "a"); !ok || c.Data["v"] != "2" {
			t.Errorf("got %v", c)
		}
		if _, ok := v.Get("ns", "b"); ok {
			t.Error("b is still there")
		}
		<-v.Changed() // three changes, one mark
		s.events <- Event{Bookmark, &corev1.ConfigMap{}}
		synctest.Wait()
		select {
		case <-v.Changed():
			t.Error("marked without a change")
		default:
		}

		// A break loses nothing: what went meanwhile is gone after the next list.
		s.mu.Lock()
		s.items = []Object{named("c", "3")}
		s.mu.Unlock()
		close(s.events)
		time.Sleep(time.Second)
		<-v.Changed()
		if got := contents(v); got != "c=3 " {
			t.Errorf("got %s", got)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// While the server cannot be reached a view asks less and less often, keeps what it has, and comes back.
func TestViewBackOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &scripted{fail: errors.New("away")}
		v := NewView[*corev1.ConfigMap](s, ConfigMaps, Selection{})
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- v.Run(ctx) }()
		time.Sleep(10 * time.Minute)
		select {
		case <-v.Synced():
			t.Error("synced with nothing heard")
		default:
		}
		s.mu.Lock()
		n := len(s.lists)
		first, last := s.lists[1].Sub(s.lists[0]), s.lists[n-1].Sub(s.lists[n-2])
		s.fail, s.items = nil, []Object{named("a", "1")}
		s.mu.Unlock()
		if first > 200*time.Millisecond || last != 10*time.Second || n > 100 {
			t.Errorf("%d lists, the first wait %v, the last %v", n, first, last)
		}
		time.Sleep(11 * time.Second)
		if got := contents(v); got != "a=1 " {
			t.Errorf("got %s", got)
		}
		cancel()
		<-done
	})
}
