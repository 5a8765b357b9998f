package local

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

func TestBookmarks(t *testing.T) { // N-11.31
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config{})
		start := time.Now()
		nobody := api.Selection{Labels: labels.SelectorFromSet(labels.Set{"app": "nobody"})}
		w, err := c.Watch(t.Context(), api.Pods, api.WatchOptions{Selection: nobody, Bookmarks: true})
		if err != nil {
			t.Fatal(err)
		}
		defer w.Close()
		for i := range 3 {
			create(t, c, newPod(fmt.Sprintf("p%d", i), "")) // moves the revision, not this watch
			e, err := w.Next()
			if err != nil || e.Type != api.Bookmark || e.Object.GetAnnotations() != nil {
				t.Fatalf("got %+v, %v", e, err)
			}
			if e.Object.GetResourceVersion() != strconv.FormatUint(c.store.Revision(), 10) {
				t.Errorf("at %s of %d", e.Object.GetResourceVersion(), c.store.Revision())
			}
			if at := time.Since(start); at != time.Duration(i+1)*time.Minute {
				t.Errorf("bookmark %d after %v", i, at)
			}
		}
		// Who did not ask gets none.
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		quiet, err := c.Watch(ctx, api.Pods, api.WatchOptions{Selection: nobody})
		if err != nil {
			t.Fatal(err)
		}
		defer quiet.Close()
		if e, err := quiet.Next(); err == nil {
			t.Errorf("got %+v", e)
		}
	})
}

// A reader that falls behind is told so; it does not hold up or grow anything.
func TestLappedWatch(t *testing.T) {
	c := open(t, Config{})
	w, err := c.Watch(t.Context(), api.ConfigMaps, api.WatchOptions{Revision: strconv.FormatUint(c.store.Revision(), 10)})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	cm := create(t, c, &corev1.ConfigMap{ObjectMeta: meta("a"), Data: map[string]string{}})
	page, err := c.List(t.Context(), api.Namespaces, api.ListOptions{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 600 { // the ring under test holds 512
		cm.Data["i"] = strconv.Itoa(i)
		cm.ResourceVersion = ""
		if cm, err = api.Update(t.Context(), c, api.ConfigMaps, cm); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Next(); !apierrors.IsResourceExpired(err) {
		t.Errorf("want 410, got %v", err)
	}
	_, err = c.List(t.Context(), api.Namespaces, api.ListOptions{Continue: page.Continue})
	if !apierrors.IsResourceExpired(err) {
		t.Errorf("want 410, got %v", err)
	}
}

// Whatever happens between two pages, the pages together are the list as it was at the first.
func TestPagesProperty(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 30 {
		c := open(t, Config{})
		change := churn(t, c, r)
		for range 40 {
			change()
		}
		sel := api.Selection{Namespace: []string{"", "default"}[r.IntN(2)]}
		if r.IntN(2) == 0 {
			sel.Labels = labels.SelectorFromSet(labels.Set{"app": "x"})
		}
		want, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: sel})
		if err != nil {
			t.Fatal(err)
		}
		var got []api.Object
		opts := api.ListOptions{Selection: sel, Limit: 1 + r.Int64N(4)}
		for {
			l, err := c.List(t.Context(), api.ConfigMaps, opts)
			if err != nil {
				t.Fatal(err)
			}
			got = append(got, l.Items...)
			sameJSON(t, c, api.ConfigMaps, opts, l)
			if l.Revision != want.Revision {
				t.Fatalf("a page of %s in a list of %s", l.Revision, want.Revision)
			}
			if opts.Continue = l.Continue; opts.Continue == "" {
				break
			}
			for range r.IntN(5) {
				change()
			}
		}
		if !slices.EqualFunc(got, want.Items, same) {
			t.Fatalf("got %v\nwant %v", summary(got), summary(want.Items))
		}
		exact, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: sel, Revision: want.Revision, Match: "Exact"})
		if err != nil || !slices.EqualFunc(exact.Items, want.Items, same) {
			t.Fatalf("exact: %v, %v", summary(exact.Items), err)
		}
	}
}

// What is written between the reading of a list and its rewinding belongs to neither.
func TestRewindStopsWhereTheListWasRead(t *testing.T) {
	c := open(t, Config{})
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("a")})
	then := c.store.Revision()
	create(t, c, &corev1.ConfigMap{ObjectMeta: meta("b")})
	l := newLook(api.ConfigMaps, api.Selection{}, decoded)
	if err := l.read(c); err != nil {
		t.Fatal(err)
	}
	now, read := l.rev, slices.Clone(l.items)
	if _, err := c.Delete(t.Context(), api.ConfigMaps, "default", "a", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	keys := func(at uint64) (keys []string) {
		l.items, l.rev, l.exact = slices.Clone(read), now, at
		if err := l.rewind(c.store); err != nil {
			t.Fatal(err)
		}
		for _, i := range l.items {
			keys = append(keys, i.key)
		}
		return keys
	}
	if got := keys(now); !slices.Equal(got, []string{"default/a", "default/b"}) {
		t.Errorf("to where it was read: %s", got)
	}
	if got := keys(then); !slices.Equal(got, []string{"default/a"}) {
		t.Errorf("to before b: %s", got)
	}
}

func same(a, b api.Object) bool {
	return api.Key(a) == api.Key(b) && a.GetResourceVersion() == b.GetResourceVersion() && a.GetLabels()["app"] == b.GetLabels()["app"]
}

func summary(objs []api.Object) string {
	var out []string
	for _, o := range objs {
		out = append(out, keyOf(o)+"@"+o.GetResourceVersion())
	}
	return strings.Join(out, " ")
}

// churn answers a function that makes, changes or removes one of a few config maps.
func churn(t *testing.T, c *Client, r *rand.Rand) func() {
	create(t, c, &corev1.Namespace{ObjectMeta: metav1Name("default-2")}) // sorts before default/ as a key
	return func() {
		t.Helper()
		m := meta(fmt.Sprintf("c%d", r.IntN(12)))
		if r.IntN(3) == 0 {
			m.Namespace = "default-2"
		}
		m.Labels = map[string]string{"app": []string{"x", "y"}[r.IntN(2)]}
		cm := &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{"n": strconv.Itoa(r.Int())}}
		var err error
		switch r.IntN(4) {
		case 0:
			_, err = c.Delete(t.Context(), api.ConfigMaps, m.Namespace, m.Name, api.DeleteOptions{})
		default:
			if _, err = api.Update(t.Context(), c, api.ConfigMaps, cm); apierrors.IsNotFound(err) {
				_, err = api.Create(t.Context(), c, api.ConfigMaps, cm)
			}
		}
		if err != nil && !apierrors.IsNotFound(err) {
			t.Fatal(err)
		}
	}
}

// A reader that applies the events of a selection to what it listed holds, at every moment, what a list would
// answer; and no event comes that a correct reader does not expect.
func TestWatchProperty(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	for range 20 {
		c := open(t, Config{})
		change := churn(t, c, r)
		for range r.IntN(20) {
			change()
		}
		sel := api.Selection{Namespace: []string{"", "default"}[r.IntN(2)], Labels: labels.SelectorFromSet(labels.Set{"app": "x"})}
		l, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: sel})
		if err != nil {
			t.Fatal(err)
		}
		have := map[types.NamespacedName]api.Object{}
		for _, o := range l.Items {
			have[api.Key(o)] = o
		}
		w, err := c.Watch(t.Context(), api.ConfigMaps, api.WatchOptions{Selection: sel, Revision: l.Revision})
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			for range 1 + r.IntN(10) {
				change()
			}
			want, err := c.List(t.Context(), api.ConfigMaps, api.ListOptions{Selection: sel})
			if err != nil {
				t.Fatal(err)
			}
			drain(t, w.(*watch[api.Object]), have)
			if len(have) != len(want.Items) {
				t.Fatalf("%d held, %d listed", len(have), len(want.Items))
			}
			for _, o := range want.Items {
				if h := have[api.Key(o)]; h == nil || !same(h, o) {
					t.Fatalf("held %v, listed %v", h, o)
				}
			}
		}
		w.Close()
	}
}

// drain applies every change there is.
func drain(t *testing.T, w *watch[api.Object], have map[types.NamespacedName]api.Object) {
	t.Helper()
	for {
		ch, err := w.changes.Next(noWait)
		if err != nil {
			return
		}
		e, ok, err := w.event(ch)
		if err != nil {
			t.Fatal(err)
		}
		bytes := &watch[[]byte]{kind: w.kind, opts: w.opts, as: asJSON}
		if b, some, err := bytes.event(ch); err != nil || some != ok || some && (b.Type != e.Type || string(b.Object) != encoded(t, e.Object)) {
			t.Fatalf("%s %s in JSON, %s %s decoded (%v)", b.Type, b.Object, e.Type, encoded(t, e.Object), err)
		}
		if !ok {
			continue
		}
		k := api.Key(e.Object)
		if _, held := have[k]; held != (e.Type != api.Added) {
			t.Fatalf("%s of %s, held: %v", e.Type, k, held)
		}
		if e.Type == api.Deleted {
			delete(have, k)
		} else {
			have[k] = e.Object
		}
	}
}

// A token that has become too old is refused with another, which goes on in what there is now (N-11.29).
func TestPagesGrowOld(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	c := open(t, Config{Now: func() time.Time { return now }})
	for _, name := range []string{"a", "b", "c", "d", "e"} {
		create(t, c, &corev1.PodTemplate{ObjectMeta: in("default", name), Template: corev1.PodTemplateSpec{
			Spec: newPod("x", "").Spec}})
	}
	list := func(token string) (api.List, error) {
		return c.List(t.Context(), api.PodTemplates, api.ListOptions{Selection: api.Selection{Namespace: "default"}, Limit: 2, Continue: token})
	}
	first, err := list("")
	if err != nil || len(first.Items) != 2 {
		t.Fatalf("%d items, %v", len(first.Items), err)
	}
	now = now.Add(4 * time.Minute)
	if second, err := list(first.Continue); err != nil || second.Revision != first.Revision {
		t.Errorf("in time: %+v, %v", second, err)
	}
	create(t, c, &corev1.PodTemplate{ObjectMeta: in("default", "f"), Template: corev1.PodTemplateSpec{Spec: newPod("x", "").Spec}})
	now = now.Add(2 * time.Minute)
	_, err = list(first.Continue)
	var s apierrors.APIStatus
	if !apierrors.IsResourceExpired(err) || !errors.As(err, &s) || s.Status().ListMeta.Continue == "" {
		t.Fatalf("want 410 with a token, got %v", err)
	}
	var names []string
	for token := s.Status().ListMeta.Continue; token != ""; {
		page, err := list(token)
		if err != nil {
			t.Fatal(err)
		}
		if page.Revision == first.Revision {
			t.Error("shows the old moment")
		}
		for _, o := range page.Items {
			names = append(names, o.GetName())
		}
		token = page.Continue
	}
	if strings.Join(names, "") != "cdef" {
		t.Errorf("went on with %v", names)
	}
}
