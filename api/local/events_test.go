package local

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

func event(name string, last time.Time) *corev1.Event {
	return &corev1.Event{ObjectMeta: meta(name), InvolvedObject: corev1.ObjectReference{Namespace: "default"},
		LastTimestamp: metav1.NewTime(last)}
}

func eventNames(t *testing.T, c *Client) (names []string) {
	t.Helper()
	l, err := c.List(t.Context(), api.Events, api.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range l.Items {
		names = append(names, o.GetName())
	}
	return names
}

func TestEventsExpire(t *testing.T) { // N-11.39
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := open(t, Config{Now: func() time.Time { return now }})
	create(t, c, event("quiet", time.Time{}))
	create(t, c, event("told", now.Add(30*time.Minute)))
	series := event("series", time.Time{})
	series.Series = &corev1.EventSeries{Count: 2, LastObservedTime: metav1.NewMicroTime(now.Add(90 * time.Minute))}
	create(t, c, series)
	for after, want := range map[time.Duration]string{
		59 * time.Minute: "[quiet series told]", 61 * time.Minute: "[series told]", 91 * time.Minute: "[series]", 151 * time.Minute: "[]",
	} {
		c2 := open(t, Config{Now: func() time.Time { return now }})
		for _, e := range []*corev1.Event{event("quiet", time.Time{}), event("told", now.Add(30*time.Minute)), series} {
			create(t, c2, e)
		}
		if err := c2.Expire(now.Add(after)); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(eventNames(t, c2)); got != want {
			t.Errorf("after %v: got %s, want %s", after, got, want)
		}
	}
	rev := c.store.Revision()
	if err := c.Expire(now); err != nil || c.store.Revision() != rev {
		t.Errorf("nothing was old and something was written: %v", err)
	}
}

// However fast they come, there are never more events than the cap, and the newest are among them.
func TestEventsAreCapped(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := open(t, Config{Now: func() time.Time { return now }, MaxEvents: 20})
	for i := range 100 {
		now = now.Add(time.Second)
		create(t, c, event(fmt.Sprintf("e%03d", i), now))
		if got := eventNames(t, c); len(got) > 20 || got[len(got)-1] != fmt.Sprintf("e%03d", i) {
			t.Fatalf("after %d: %v", i+1, got)
		}
	}
	if got := eventNames(t, c); len(got) < 18 {
		t.Errorf("only %d are left", len(got))
	}
	// The count is right after a restart and after deletes as well.
	again, err := New(Config{Store: c.store, MaxEvents: 5, Now: c.cfg.Now})
	if err != nil {
		t.Fatal(err)
	}
	if got := eventNames(t, again); len(got) != 5 {
		t.Errorf("a lower cap left %v", got)
	}
	for _, name := range eventNames(t, again) {
		if _, err := again.Delete(t.Context(), api.Events, "default", name, api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	if again.events.count != 0 {
		t.Errorf("counted %d of none", again.events.count)
	}
}

// TestEventsAreShared: whoever floods pushes out its own events: a board in one namespace or in many, an account by as many names as it
// can make, somebody whose failing pods others tell of. What others have told before stays, or the newest of a fair share of it.
func TestEventsAreShared(t *testing.T) {
	const most = 40
	as := func(name string, groups ...string) context.Context {
		return api.WithUser(t.Context(), api.User{Name: name, Groups: groups})
	}
	for _, tc := range []struct {
		what  string
		flood func(i int) (ctx context.Context, namespace string)
	}{
		{"board", func(int) (context.Context, string) { return asNode(t, "bad"), "default" }},
		{"board in all namespaces", func(i int) (context.Context, string) { return asNode(t, "bad"), fmt.Sprint("ns", i%5) }},
		{"accounts", func(i int) (context.Context, string) { return as(fmt.Sprint("system:serviceaccount:ns1:sa", i)), "ns1" }},
		{"user", func(int) (context.Context, string) { return as("somebody"), "default" }},
		{"by the control plane's mouth", func(int) (context.Context, string) { return t.Context(), "ns1" }},
	} {
		now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
		c := open(t, Config{Now: func() time.Time { return now }, MaxEvents: most})
		for i := range 5 {
			create(t, c, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("ns", i)}})
		}
		tell := func(ctx context.Context, namespace, name string) {
			t.Helper()
			now = now.Add(time.Second)
			e := event(name, now)
			e.Namespace, e.InvolvedObject.Namespace = namespace, namespace
			e.Source.Host, _ = nodeIdentity(ctx)
			if _, err := c.Create(ctx, api.Events, e, api.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		for i := range 6 { // the evidence
			tell(t.Context(), "default", fmt.Sprint("plane", i))
			tell(asNode(t, "good"), "default", fmt.Sprint("good", i))
			tell(as("witness"), "ns0", fmt.Sprint("witness", i))
		}
		for i := range 10 * most {
			ctx, namespace := tc.flood(i)
			tell(ctx, namespace, fmt.Sprintf("x%04d", i))
		}
		names := eventNames(t, c)
		left := map[string]int{}
		for _, n := range names {
			left[strings.TrimRight(n, "0123456789")]++
		}
		if left["plane"] != 6 || left["good"] != 6 || left["witness"] != 6 || len(names) > most ||
			!slices.Contains(names, fmt.Sprintf("x%04d", 10*most-1)) {
			t.Errorf("%s: %v are left", tc.what, left)
		}
		if len(c.events.authors.made) > most {
			t.Errorf("%s: %d authors of %d events", tc.what, len(c.events.authors.made), most)
		}
	}
}

// An event that is told again while the sweep decides stays.
func TestExpireSparesWhatCameBack(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	c := open(t, Config{Now: func() time.Time { return now }})
	create(t, c, event("gone", now))
	back := create(t, c, event("back", now))
	old, err := c.events.old(now.Add(2 * time.Hour))
	if err != nil || len(old) != 2 {
		t.Fatalf("got %v, %v", old, err)
	}
	back.Count = 2
	if _, err := api.Update(t.Context(), c, api.Events, back); err != nil {
		t.Fatal(err)
	}
	if err := c.events.forget(old); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(eventNames(t, c)); got != "[back]" || c.events.count != 1 {
		t.Errorf("left %s, counted %d", got, c.events.count)
	}
}

func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config{})
		create(t, c, event("old", time.Time{}))
		if _, err := c.Delete(t.Context(), api.Namespaces, "", "kube-node-lease", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- c.Run(ctx) }()
		time.Sleep(time.Minute + time.Second)
		if _, err := c.Get(t.Context(), api.Namespaces, "", "kube-node-lease"); err != nil {
			t.Error(err)
		}
		if len(eventNames(t, c)) != 1 {
			t.Error("the event is gone too soon")
		}
		time.Sleep(time.Hour + expireEvery)
		if _, err := c.Get(t.Context(), api.Events, "default", "old"); !apierrors.IsNotFound(err) {
			t.Errorf("want 404, got %v", err)
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
