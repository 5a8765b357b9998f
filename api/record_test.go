package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// eventServer keeps events and counts writes.
type eventServer struct {
	Client // anything else asked for is a bug of the Recorder and panics
	events map[string]*corev1.Event
	writes int

	mu   sync.Mutex
	fail error
	hang bool
}

// be sets how the server answers from now on.
func (s *eventServer) be(fail error, hang bool) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fail, s.hang = fail, hang
}

// answer waits or fails as told, and otherwise returns with the server locked.
func (s *eventServer) answer(ctx context.Context) error {
	s.mu.Lock()
	if s.hang {
		s.mu.Unlock()
		<-ctx.Done()
		return ctx.Err()
	}
	if s.fail != nil {
		defer s.mu.Unlock()
		return s.fail
	}
	s.writes++
	return nil
}

func (s *eventServer) Create(ctx context.Context, kind *Kind, obj Object, _ WriteOptions) (Object, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	key := obj.GetNamespace() + "/" + obj.GetName()
	if s.events[key] != nil {
		return nil, apierrors.NewAlreadyExists(kind.GR(), obj.GetName())
	}
	s.events[key] = obj.(*corev1.Event).DeepCopy()
	return obj, nil
}

func (s *eventServer) Patch(ctx context.Context, kind *Kind, namespace, name string, p Patch, _ WriteOptions) (Object, error) {
	if err := s.answer(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	e := s.events[namespace+"/"+name]
	if e == nil {
		return nil, apierrors.NewNotFound(kind.GR(), name)
	}
	return e, json.Unmarshal(p.Data, e) // what a merge patch of plain fields comes to
}

// all is what there is once everything that is going on has settled, and how many writes it took.
func (s *eventServer) all() (events []corev1.Event, writes int) {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		events = append(events, *e)
	}
	return events, s.writes
}

func (s *eventServer) only(t *testing.T) *corev1.Event {
	t.Helper()
	events, _ := s.all()
	if len(events) != 1 {
		t.Fatalf("%d events, want 1: %v", len(events), events)
	}
	return &events[0]
}

// recording runs fn beside a Recorder.
func recording(t *testing.T, fn func(s *eventServer, r *Recorder)) {
	synctest.Test(t, func(t *testing.T) {
		s := &eventServer{events: map[string]*corev1.Event{}}
		r := NewRecorder(s, "comp", "board")
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- r.Run(ctx) }()
		fn(s, r)
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// pass lets time pass, and everything that comes of it happen.
func pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func testPod(name string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, UID: "u-1", ResourceVersion: "7"}}
}

// TestEventFields: N-11.38.
func TestEventFields(t *testing.T) {
	recording(t, func(s *eventServer, r *Recorder) {
		r.Eventf(testPod("p"), corev1.EventTypeNormal, "Pulled", "got %s", "it")
		synctest.Wait()
		e := s.only(t)
		want := corev1.ObjectReference{Kind: "Pod", APIVersion: "v1", Namespace: "ns", Name: "p", UID: "u-1", ResourceVersion: "7"}
		if e.InvolvedObject != want || e.Namespace != "ns" || !strings.HasPrefix(e.Name, "p.") || e.Type != "Normal" || e.Reason != "Pulled" ||
			e.Message != "got it" || e.Count != 1 || e.Source != (corev1.EventSource{Component: "comp", Host: "board"}) ||
			e.ReportingController != "comp" || !e.FirstTimestamp.Equal(&e.LastTimestamp) || e.FirstTimestamp.IsZero() {
			t.Errorf("event %+v", e)
		}
	})
	recording(t, func(s *eventServer, r *Recorder) {
		r.Event(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n", UID: "n"}}, corev1.EventTypeNormal, "NodeReady", "m")
		synctest.Wait()
		if e := s.only(t); e.Namespace != "default" || e.InvolvedObject.UID != "n" || e.InvolvedObject.Kind != "Node" {
			t.Errorf("node events live in default: %+v", e)
		}
	})
}

func TestEventAnnotations(t *testing.T) { // N-6.32
	recording(t, func(s *eventServer, r *Recorder) {
		r.Annotated(corev1.ObjectReference{Kind: "Pod", Namespace: "ns", Name: "p"}, map[string]string{"starved_resource": "memory"},
			corev1.EventTypeWarning, "Evicted", "m")
		synctest.Wait()
		if e := s.only(t); e.Annotations["starved_resource"] != "memory" || e.Message != "m" {
			t.Errorf("event %+v", e)
		}
	})
}

// TestEventsAggregate: N-11.39. The count is exact in the end, and the writes are few.
func TestEventsAggregate(t *testing.T) {
	recording(t, func(s *eventServer, r *Recorder) {
		began := time.Now()
		for range 3600 {
			r.Event(testPod("p"), corev1.EventTypeWarning, "BackOff", "again")
			pass(time.Second)
		}
		// 10, 20, 40, 80, 160 s and then every 300 s.
		if _, writes := s.all(); writes > 20 {
			t.Errorf("%d writes in an hour", writes)
		}
		pass(6 * time.Minute)
		e := s.only(t)
		if e.Count != 3600 || e.LastTimestamp.Sub(e.FirstTimestamp.Time) < 3598*time.Second || e.FirstTimestamp.Sub(began) > time.Second {
			t.Errorf("count %d, %s to %s", e.Count, e.FirstTimestamp, e.LastTimestamp)
		}
		_, writes := s.all()
		pass(30 * time.Minute)
		if _, now := s.all(); now != writes {
			t.Error("writes with nothing new to say")
		}
		pass(time.Hour)
		r.Event(testPod("p"), corev1.EventTypeWarning, "BackOff", "again")
		if events, _ := s.all(); len(events) != 2 {
			t.Error("a repetition after an hour is a new event")
		}
	})
}

// TestEventExpiredMeanwhile: the object was swept between two writes.
func TestEventExpiredMeanwhile(t *testing.T) {
	recording(t, func(s *eventServer, r *Recorder) {
		r.Event(testPod("p"), corev1.EventTypeNormal, "R", "m")
		synctest.Wait()
		s.mu.Lock()
		clear(s.events)
		s.mu.Unlock()
		r.Event(testPod("p"), corev1.EventTypeNormal, "R", "m")
		pass(time.Minute)
		if e := s.only(t); e.Count != 2 {
			t.Errorf("count %d", e.Count)
		}
	})
}

// TestEventsWaitForServer: a server that is away, or hangs, blocks nobody, and is told later, in order.
func TestEventsWaitForServer(t *testing.T) {
	recording(t, func(s *eventServer, r *Recorder) {
		s.be(apierrors.NewServiceUnavailable("down"), false)
		began := time.Now()
		for i := range 300 {
			r.Event(testPod(fmt.Sprint(i)), corev1.EventTypeNormal, "R", "m")
		}
		if time.Since(began) != 0 {
			t.Error("Event blocked")
		}
		pass(time.Hour)
		s.be(nil, false)
		pass(time.Minute)
		if events, _ := s.all(); len(events) != 300 {
			t.Errorf("%d events delivered", len(events))
		}
	})
	recording(t, func(s *eventServer, r *Recorder) {
		s.be(nil, true)
		r.Event(testPod("p"), corev1.EventTypeNormal, "R", "m")
		synctest.Wait()
		r.Event(testPod("q"), corev1.EventTypeNormal, "R", "m")
		synctest.Wait()
		s.be(nil, false)
	})
}

// TestEventsAreBounded: neither objects nor messages without end take memory or disk without end.
func TestEventsAreBounded(t *testing.T) {
	recording(t, func(s *eventServer, r *Recorder) {
		s.be(apierrors.NewServiceUnavailable("down"), false)
		for i := range 5000 {
			r.Event(testPod(fmt.Sprint(i)), corev1.EventTypeNormal, "R", "m")
		}
		synctest.Wait()
		if len(r.entries) != eventsHeld || len(r.order) != eventsHeld || len(r.similar) != eventsHeld {
			t.Errorf("holds %d/%d/%d", len(r.entries), len(r.order), len(r.similar))
		}
		s.be(nil, false)
		pass(time.Minute)
		if events, _ := s.all(); len(events) != eventsHeld {
			t.Errorf("%d delivered", len(events))
		}
	})
	recording(t, func(s *eventServer, r *Recorder) {
		for i := range 1000 {
			r.Event(testPod("p"), corev1.EventTypeWarning, "Unhealthy", fmt.Sprintf("probe %d failed", i))
			pass(time.Second)
		}
		pass(10 * time.Minute)
		events, _ := s.all()
		if len(events) != similarMax+1 {
			t.Errorf("%d events for 1000 messages", len(events))
		}
		found := false
		for _, e := range events {
			if e.Message == "(combined from similar events): probe 999 failed" && e.Count == 990 {
				found = true
			}
		}
		if !found {
			t.Error("the last message is lost")
		}
		r.Event(testPod("q"), corev1.EventTypeWarning, "Long", strings.Repeat("é", 2000))
		events, _ = s.all()
		for _, e := range events {
			if len(e.Message) > eventMessageMax {
				t.Errorf("message of %d bytes", len(e.Message))
			}
		}
	})
}

// TestEventsRefused: one that can never be written does not hold up the others.
func TestEventsRefused(t *testing.T) {
	recording(t, func(s *eventServer, r *Recorder) {
		s.be(apierrors.NewForbidden(Events.GR(), "", errors.New("namespace is being terminated")), false)
		r.Event(testPod("p"), corev1.EventTypeNormal, "R", "m")
		synctest.Wait()
		s.be(nil, false)
		r.Event(testPod("q"), corev1.EventTypeNormal, "R", "m")
		synctest.Wait()
		if e := s.only(t); e.InvolvedObject.Name != "q" {
			t.Errorf("event %+v", e.InvolvedObject)
		}
	})
}

// TestEventsAtTheEnd: what was said last before the end is still written, such as the news of a shutdown.
func TestEventsAtTheEnd(t *testing.T) {
	var server *eventServer
	recording(t, func(s *eventServer, r *Recorder) {
		server = s
		r.Event(testPod("p"), corev1.EventTypeNormal, "R", "m")
		synctest.Wait()
		r.Event(testPod("p"), corev1.EventTypeNormal, "R", "m") // its next write is 10 s away
	})
	if len(server.events) != 1 {
		t.Fatalf("%d events", len(server.events))
	}
	for _, e := range server.events {
		if e.Count != 2 {
			t.Errorf("count %d", e.Count)
		}
	}
}
