package local

import (
	"fmt"
	"math"
	"net/http"
	"testing"

	schedulingv1 "k8s.io/api/scheduling/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// Clients send back what they like as a continue token: it is refused as their mistake, or goes on after its key, from
// which a next token follows (N-11.29).
func FuzzContinue(f *testing.F) {
	c := open(f, Config{})
	for i := range 5 {
		class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("class-", i)}, Value: 1}
		if _, err := c.Create(f.Context(), api.PriorityClasses, class, api.WriteOptions{}); err != nil {
			f.Fatal(err)
		}
	}
	first, err := c.List(f.Context(), api.PriorityClasses, api.ListOptions{Limit: 2})
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
		list, err := c.List(t.Context(), api.PriorityClasses, api.ListOptions{Continue: token, Limit: 2})
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
