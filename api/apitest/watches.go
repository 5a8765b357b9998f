package apitest

import (
	"context"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

var watchCases = []Case{
	{"Watch", testWatch},
	{"WatchPresent", testWatchPresent},
	{"WatchInitialEvents", testWatchInitialEvents},
	{"WatchBookmarks", testWatchBookmarks},
	{"WatchSelectors", testWatchSelectors},
	{"WatchFields", testWatchFields},
	{"WatchGone", testWatchGone},
	{"WatchEnds", testWatchEnds},
	{"WatchManyChanges", testWatchManyChanges},
}

// follow opens a watch of pods in the case's namespace.
func (e *env) follow(opts api.WatchOptions) *follower {
	e.Helper()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	e.Cleanup(cancel)
	opts.Namespace = e.ns
	w, err := e.c.Watch(ctx, api.Pods, opts)
	e.must(err)
	e.Cleanup(w.Close)
	return &follower{e, w}
}

type follower struct {
	*env
	w api.Watch
}

// next is the next event that is not a bookmark and must be of a type about an object of a name.
func (f *follower) next(typ api.EventType, name string) api.Object {
	f.Helper()
	for {
		ev, err := f.w.Next()
		if err != nil {
			f.Fatalf("waiting for %s %s: %v", typ, name, err)
		}
		if ev.Type == api.Bookmark && typ != api.Bookmark {
			continue
		}
		// kube-apiserver marks a pod that nobody runs before it removes it in the same request.
		if typ == api.Deleted && ev.Type == api.Modified && ev.Object.GetName() == name && ev.Object.GetDeletionTimestamp() != nil {
			continue
		}
		if ev.Type != typ || ev.Object.GetName() != name {
			f.Fatalf("want %s %s, got %s %s", typ, name, ev.Type, ev.Object.GetName())
		}
		if k := ev.Object.GetObjectKind().GroupVersionKind(); k != api.Pods.GVK() {
			f.Fatalf("%s %s is a %v", typ, name, k)
		}
		return ev.Object
	}
}

func (e *env) label(name, key, value string) api.Object {
	e.Helper()
	v := "null"
	if value != "" {
		v = `"` + value + `"`
	}
	out, err := e.patch(api.Pods, e.ns, name, "application/merge-patch+json", `{"metadata":{"labels":{"`+key+`":`+v+`}}}`, api.WriteOptions{})
	e.must(err)
	return out
}

func testWatch(t *testing.T, c api.Client) { // N-11.30
	e := begin(t, c)
	start := e.list(api.Pods, api.ListOptions{}).Revision
	f := e.follow(api.WatchOptions{Revision: start})
	made := e.create(e.pod("a"))
	changed := e.label("a", "app", "x")
	e.create(e.pod("b"))
	e.delete(made, api.DeleteOptions{})

	added := f.next(api.Added, "a")
	modified := f.next(api.Modified, "a")
	f.next(api.Added, "b")
	deleted := f.next(api.Deleted, "a")
	if added.GetResourceVersion() != made.GetResourceVersion() || modified.GetResourceVersion() != changed.GetResourceVersion() {
		t.Errorf("events carry %s and %s, writes answered %s and %s", added.GetResourceVersion(), modified.GetResourceVersion(),
			made.GetResourceVersion(), changed.GetResourceVersion())
	}
	if rv(t, modified) <= rv(t, added) || rv(t, deleted) <= rv(t, modified) {
		t.Errorf("revisions do not rise: %s %s %s", added.GetResourceVersion(), modified.GetResourceVersion(), deleted.GetResourceVersion())
	}
	if deleted.GetUID() != made.GetUID() || deleted.GetLabels()["app"] != "x" {
		t.Errorf("a deletion shows the last state: %+v", deleted)
	}

	// From any event's revision on, the same changes come again.
	f = e.follow(api.WatchOptions{Revision: added.GetResourceVersion()})
	f.next(api.Modified, "a")
	f.next(api.Added, "b")
	f.next(api.Deleted, "a")
	f = e.follow(api.WatchOptions{Revision: deleted.GetResourceVersion()})
	e.create(e.pod("c"))
	f.next(api.Added, "c")
}

func testWatchPresent(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.pod("a"))
	e.create(e.pod("b"))
	for _, from := range []string{"", "0"} {
		name := "c" + from
		f := e.follow(api.WatchOptions{Revision: from})
		seen := map[string]bool{}
		for !seen["a"] || !seen["b"] {
			ev, err := f.w.Next()
			e.must(err)
			if ev.Type != api.Added && ev.Type != api.Bookmark {
				t.Fatalf("got %s %s", ev.Type, ev.Object.GetName())
			}
			seen[ev.Object.GetName()] = true
		}
		if from == "" {
			e.create(e.pod(name))
			f.next(api.Added, name)
		}
	}
}

func testWatchInitialEvents(t *testing.T, c api.Client) { // N-11.31
	e := begin(t, c)
	e.create(e.pod("a"))
	made := e.create(e.pod("b"))
	f := e.follow(api.WatchOptions{InitialEvents: true, Bookmarks: true})
	seen := map[string]bool{}
	for {
		ev, err := f.w.Next()
		e.must(err)
		if ev.Type == api.Bookmark && ev.Object.GetAnnotations()[metav1.InitialEventsAnnotationKey] == "true" {
			if rv(t, ev.Object) < rv(t, made) {
				t.Errorf("the state is of %s, which is before %s", ev.Object.GetResourceVersion(), made.GetResourceVersion())
			}
			break
		}
		if ev.Type != api.Added {
			t.Fatalf("got %s %s before the end of the present state", ev.Type, ev.Object.GetName())
		}
		seen[ev.Object.GetName()] = true
	}
	if len(seen) != 2 || !seen["a"] || !seen["b"] {
		t.Errorf("present: %v", seen)
	}
	e.delete(made, api.DeleteOptions{})
	f.next(api.Deleted, "b")
}

// A bookmark lets a reader of a quiet selection resume from now. How often one comes is the server's affair;
// a case that waits for one is only run where that is soon.
func testWatchBookmarks(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.pod("a"))
	f := e.follow(api.WatchOptions{InitialEvents: true, Bookmarks: true, Selection: fieldSel("metadata.name=nobody")})
	ev, err := f.w.Next()
	e.must(err)
	if ev.Type != api.Bookmark || ev.Object.GetName() != "" || ev.Object.GetResourceVersion() == "" {
		t.Fatalf("got %s %+v", ev.Type, ev.Object)
	}
	g := e.follow(api.WatchOptions{Revision: ev.Object.GetResourceVersion()})
	e.create(e.pod("b"))
	g.next(api.Added, "b")
}

func testWatchSelectors(t *testing.T, c api.Client) { // N-11.30
	e := begin(t, c)
	start := e.list(api.Pods, api.ListOptions{}).Revision
	f := e.follow(api.WatchOptions{Revision: start, Selection: labelSel(t, "app=x")})
	e.create(e.pod("a"))             // not in the set
	e.label("a", "app", "x")         // comes in
	e.label("a", "tier", "1")        // changes inside
	left := e.label("a", "app", "y") // leaves
	e.label("a", "tier", "2")        // outside
	e.label("a", "app", "x")         // comes back
	e.delete(e.pod("a"), api.DeleteOptions{})

	f.next(api.Added, "a")
	f.next(api.Modified, "a")
	out := f.next(api.Deleted, "a")
	if out.GetResourceVersion() != left.GetResourceVersion() || out.GetLabels()["app"] != "x" {
		t.Errorf("leaving shows the last state that was in, under the revision of the change: %+v", out)
	}
	back := f.next(api.Added, "a")
	if back.GetLabels()["tier"] != "2" {
		t.Errorf("got %+v", back)
	}
	f.next(api.Deleted, "a")
}

func testWatchFields(t *testing.T, c api.Client) {
	e := begin(t, c)
	start := e.list(api.Pods, api.ListOptions{}).Revision
	f := e.follow(api.WatchOptions{Revision: start, Selection: fieldSel("spec.nodeName=apitest-no-such-node")})
	e.create(e.pod("a"))
	e.bind("a", "apitest-no-such-node")
	f.next(api.Added, "a")
	g := e.follow(api.WatchOptions{Revision: start, Selection: fieldSel("spec.nodeName=")})
	g.next(api.Added, "a")
	g.next(api.Deleted, "a")
}

func (e *env) bind(pod, node string) {
	e.Helper()
	_, err := e.c.Create(e.ctx, api.Pods, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: e.ns},
		Target: corev1.ObjectReference{Kind: "Node", Name: node}}, api.WriteOptions{Subresource: "binding"})
	e.must(err)
}

func testWatchGone(t *testing.T, c api.Client) { // N-11.30
	e := begin(t, c)
	old := e.forgotten()
	ctx, cancel := context.WithTimeout(e.ctx, patience)
	defer cancel()
	w, err := c.Watch(ctx, api.Pods, api.WatchOptions{Selection: api.Selection{Namespace: e.ns}, Revision: old})
	if err == nil { // over HTTP the answer comes as the first event
		defer w.Close()
		_, err = w.Next()
	}
	if !apierrors.IsResourceExpired(err) && !apierrors.IsGone(err) {
		t.Errorf("want 410, got %v", err)
	}
}

// forgotten is a revision that the server no longer holds: its first, and on a server so fresh that it still
// knows that one, only after some traffic. (Give the store under test a small ring.)
func (e *env) forgotten() string {
	e.Helper()
	const first, most = "1", 5000
	e.create(e.configMap("churn"))
	for i := range most {
		if i%100 == 0 {
			_, err := e.c.List(e.ctx, api.Pods, api.ListOptions{Selection: api.Selection{Namespace: e.ns},
				Revision: first, Match: metav1.ResourceVersionMatchExact})
			if apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
				return first
			}
			e.must(err)
		}
		e.update(e.configMap("churn", "i", counted(i)))
	}
	e.Fatalf("after %d changes revision %s is still held", most, first)
	return ""
}

func testWatchEnds(t *testing.T, c api.Client) {
	e := begin(t, c)
	for what, end := range map[string]func(cancel func(), w api.Watch){
		"context": func(cancel func(), _ api.Watch) { cancel() },
		"close":   func(_ func(), w api.Watch) { w.Close(); w.Close() },
	} {
		ctx, cancel := context.WithTimeout(e.ctx, patience)
		w, err := c.Watch(ctx, api.Pods, api.WatchOptions{Selection: api.Selection{Namespace: e.ns}})
		e.must(err)
		done := make(chan error)
		go func() {
			_, err := w.Next()
			done <- err
		}()
		end(cancel, w)
		if err := <-done; err == nil {
			t.Errorf("%s: the watch went on", what)
		}
		w.Close()
		cancel()
	}
}

// No change is lost or told twice, however fast they come and whoever reads.
func testWatchManyChanges(t *testing.T, c api.Client) {
	e := begin(t, c)
	start := e.list(api.Pods, api.ListOptions{}).Revision
	const n = 50
	f, g := e.follow(api.WatchOptions{Revision: start}), e.follow(api.WatchOptions{Revision: start})
	go func() {
		for i := range n {
			if _, err := c.Create(e.ctx, api.Pods, e.pod(counted(i)), api.WriteOptions{}); err != nil {
				t.Error(err)
			}
		}
	}()
	last := uint64(0)
	for i := range n {
		o := f.next(api.Added, counted(i))
		if rv(t, o) <= last {
			t.Fatalf("%s after %d", o.GetResourceVersion(), last)
		}
		last = rv(t, o)
	}
	for i := range n {
		g.next(api.Added, counted(i))
	}
}
