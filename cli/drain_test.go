package cli

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// chained lets a pod go only when the one behind it in the list has gone.
type chained struct {
	api.Client
	left  []string
	never string
	log   []string
}

func (c *chained) Create(ctx context.Context, _ *api.Kind, obj api.Object, _ api.WriteOptions) (api.Object, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	name := obj.GetName()
	if name != c.left[len(c.left)-1] || name == c.never {
		err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
		err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: "The disruption budget b needs 1"}}
		return nil, err
	}
	c.left = c.left[:len(c.left)-1]
	c.log = append(c.log, name)
	return nil, nil
}

func (c *chained) Get(_ context.Context, k *api.Kind, _, name string) (api.Object, error) {
	if slices.Contains(c.left, name) {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}}, nil
	}
	return nil, apierrors.NewNotFound(k.GR(), name)
}

// TestDrainAsksAgain: a pod that its budget keeps is asked for every 5 s, and holds up no other (N-11.10).
func TestDrainAsksAgain(t *testing.T) {
	pods := func(names ...string) (out []*corev1.Pod) {
		for _, n := range names {
			out = append(out, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: n}})
		}
		return out
	}
	synctest.Test(t, func(t *testing.T) {
		began := time.Now()
		c, said := &chained{left: []string{"a", "b", "c"}}, &strings.Builder{}
		if err := evictAll(t.Context(), c, pods("a", "b", "c"), drainOpts{grace: -1}, said); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 2*againAfter || fmt.Sprint(c.log) != "[c b a]" {
			t.Errorf("after %v: %v", took, c.log)
		}
		if got := strings.Count(said.String(), "stays for now, asking again in 5s: The disruption budget b needs 1"); got != 3 {
			t.Errorf("said %d times:\n%s", got, said)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 12*time.Second)
		defer cancel()
		c := &chained{left: []string{"a", "b"}, never: "a"}
		err := evictAll(ctx, c, pods("a", "b"), drainOpts{grace: -1}, &strings.Builder{})
		if !errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "evict pod default/a: The disruption budget b needs 1") ||
			strings.Contains(err.Error(), "default/b") {
			t.Errorf("given up with %v", err)
		}
	})
}
