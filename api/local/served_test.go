package local

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"

	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/networking"
	"ledge/storage"
)

// TestIngressClassesOf: the index answers as a look at all Ingresses does, whatever has happened to them and however much of it since
// the last question; the ring here is so small that it begins anew now and then.
func TestIngressClassesOf(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	db, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true, RingSize: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	c, err := New(Config{Store: db})
	if err != nil {
		t.Fatal(err)
	}
	yes, begun := 0, 0
	var was *tail
	for round := range 100 {
		for range r.IntN(6) {
			i := newIngress(fmt.Sprintf("i%d", r.IntN(5)), fmt.Sprintf("c%d", r.IntN(2)), nil)
			for range r.IntN(3) {
				i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{SecretName: []string{"", "s1", "s2", "s3"}[r.IntN(4)]})
			}
			switch r.IntN(3) {
			case 0:
				_, err = c.Create(t.Context(), networking.Ingresses, i, api.WriteOptions{})
			case 1:
				_, err = c.Update(t.Context(), networking.Ingresses, i, api.WriteOptions{})
			case 2:
				_, err = c.Delete(t.Context(), networking.Ingresses, i.Namespace, i.Name, api.DeleteOptions{})
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) {
				t.Fatal(err)
			}
		}
		secret := fmt.Sprintf("s%d", 1+r.IntN(3))
		list, err := c.List(t.Context(), networking.Ingresses, api.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]bool{}
		for _, o := range list.Items {
			i := o.(*networkingv1.Ingress)
			if slices.ContainsFunc(i.Spec.TLS, func(t networkingv1.IngressTLS) bool { return t.SecretName == secret }) {
				want[networking.ClassOf(i)] = true
			}
		}
		got, err := c.IngressClassesOf("default", secret)
		if err != nil || !slices.Equal(got, slices.Sorted(maps.Keys(want))) {
			t.Fatalf("round %d: %s is of %v (%v), want %v", round, secret, got, err, want)
		}
		if len(got) > 0 {
			yes++
		}
		if c.served.tail != was {
			was, begun = c.served.tail, begun+1
		}
	}
	if yes < 10 || yes > 95 || begun < 2 || begun > 98 {
		t.Errorf("%d of 100 answers were yes, and it began %d times: the test shows little", yes, begun)
	}
	if other, err := c.IngressClassesOf("other", "s1"); len(other) > 0 || err != nil {
		t.Errorf("of another namespace: %v %v", other, err)
	}
}
