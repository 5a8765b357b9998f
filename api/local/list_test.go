package local

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/api/scheduling"
)

// Clients send back what they like as a continue token: it is refused as their mistake, or goes on after its key, from
// which a next token follows (N-11.29).
func FuzzContinue(f *testing.F) {
	c := open(f, Config{})
	for i := range 5 {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("class-", i)}, Value: 1}
		if _, err := c.Create(f.Context(), scheduling.PriorityClasses, class, api.WriteOptions{}); err != nil {
			f.Fatal(err)
		}
	}
	first, err := c.List(f.Context(), scheduling.PriorityClasses, api.ListOptions{Limit: 2})
	if err != nil {
		f.Fatal(err)
	}
	from, err := readToken(first.Continue)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(first.Continue, uint64(0), int64(0), "")
	f.Add("eyJhZnRlciI6e319", uint64(0), int64(0), "")
	f.Add("", from.Revision, from.Time, from.After)
	f.Add("", from.Revision, int64(math.MinInt64), "/class-0")
	f.Add("", uint64(math.MaxUint64), int64(math.MaxInt64), "../x")
	f.Add("", uint64(1), from.Time, "\x00")
	f.Add("", uint64(0), int64(0), "/class-3")
	f.Fuzz(func(t *testing.T, token string, revision uint64, at int64, after string) {
		if token == "" {
			token = page{revision, at, after}.token()
		}
		list, err := c.List(t.Context(), scheduling.PriorityClasses, api.ListOptions{Continue: token, Limit: 2})
		if err != nil {
			if st, ok := err.(apierrors.APIStatus); !ok || st.Status().Code == http.StatusInternalServerError {
				t.Fatalf("%q: %v", token, err)
			}
			return
		}
		p, err := readToken(token)
		if err != nil || len(list.Items) > 2 {
			t.Fatalf("%q: %d items, %v", token, len(list.Items), err)
		}
		last := p.After
		for _, obj := range list.Items {
			if key := keyOf(obj); key <= last {
				t.Fatalf("%q: %s after %q", token, key, last)
			}
			last = keyOf(obj)
		}
		if list.Continue == "" {
			return
		}
		if next, err := readToken(list.Continue); err != nil || next.After != last {
			t.Fatalf("%q: goes on after %q, the last is %q: %v", token, next.After, last, err)
		}
	})
}

// A list and a watch by name answer what is picked out of all, at any revision, and cost what one object costs.
func TestByName(t *testing.T) {
	c := open(t, Config{})
	for i := range 200 {
		create(t, c, newPod(fmt.Sprintf("p%03d", i), "n"))
	}
	other := newPod("p007", "n")
	other.Namespace = "kube-system"
	create(t, c, other)
	before := strconv.FormatUint(c.store.Revision(), 10)
	create(t, c, newPod("late", "n"))
	for _, name := range []string{"p001", "p002"} {
		zero := int64(0)
		if _, err := c.Delete(t.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: &zero}); err != nil {
			t.Fatal(err)
		}
	}
	create(t, c, newPod("p002", "m"))
	by := func(selector, namespace string) api.Selection {
		sel, err := fields.ParseSelector(selector)
		if err != nil {
			t.Fatal(err)
		}
		return api.Selection{Namespace: namespace, Fields: sel}
	}
	for _, namespace := range []string{"default", "kube-system", "none", ""} {
		for _, opts := range []api.ListOptions{{}, {Revision: "0"}, {Revision: before, Match: metav1.ResourceVersionMatchExact}} {
			opts.Namespace = namespace
			all, err := c.List(t.Context(), api.Pods, opts)
			if err != nil {
				t.Fatal(err)
			}
			for _, selector := range []string{"metadata.name=p000", "metadata.name=p001", "metadata.name=p002", "metadata.name=late",
				"metadata.name=none",
				"metadata.name=", "metadata.name=p007,spec.nodeName=n", "metadata.name=p002,spec.nodeName=m", "metadata.name!=p000",
				"metadata.name=p000,metadata.name=p003"} {
				sel := by(selector, namespace)
				want := slices.DeleteFunc(slices.Clone(all.Items), func(o api.Object) bool { return !sel.Fields.Matches(api.Pods.Fields(o)) })
				opts.Selection = sel
				got, err := c.List(t.Context(), api.Pods, opts)
				if err != nil || summary(got.Items) != summary(want) {
					t.Errorf("%q in %q at %+v: %s %v, want %s", selector, namespace, opts, summary(got.Items), err, summary(want))
				}
				if opts.Match != "" {
					continue
				}
				w, err := c.Watch(t.Context(), api.Pods, api.WatchOptions{Selection: sel, InitialEvents: true})
				if err != nil {
					t.Fatal(err)
				}
				if state := w.(*watch[api.Object]).State(); len(state) != len(want)+1 {
					t.Errorf("watch %q in %q begins with %d objects, want %d", selector, namespace, len(state)-1, len(want))
				}
				w.Close()
			}
		}
	}
	cost := func(sel api.Selection) float64 {
		return testing.AllocsPerRun(5, func() {
			w, err := c.Watch(t.Context(), api.Pods, api.WatchOptions{Selection: sel})
			if err != nil {
				t.Fatal(err)
			}
			w.Close()
		})
	}
	if one, all := cost(by("metadata.name=p005", "default")), cost(by("spec.nodeName=n", "default")); one > all/20 {
		t.Errorf("a watch by name allocates %.0f times, one of all %.0f times", one, all)
	}
}
