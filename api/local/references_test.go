package local

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/storage"
)

// allOn are the pods of a node, as a look at all pods finds them, at a revision; "": now.
func allOn(tb testing.TB, c *Client, node, revision string) (out []api.Object) {
	tb.Helper()
	opts := api.ListOptions{Revision: revision}
	if revision != "" {
		opts.Match = metav1.ResourceVersionMatchExact
	}
	list, err := c.List(tb.Context(), api.Pods, opts)
	if err != nil {
		tb.Fatal(err)
	}
	for _, o := range list.Items {
		if o.(*corev1.Pod).Spec.NodeName == node {
			out = append(out, o)
		}
	}
	return out
}

// bySelector is a list of a node's pods as its agent asks for it.
func bySelector(tb testing.TB, c *Client, node string) api.List {
	tb.Helper()
	list, err := c.List(tb.Context(), api.Pods,
		api.ListOptions{Selection: api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", node)}})
	if err != nil {
		tb.Fatal(err)
	}
	return list
}

func versions(objs []api.Object) (out []string) {
	for _, o := range objs {
		out = append(out, o.GetNamespace()+"/"+o.GetName()+" "+o.GetResourceVersion()+" "+o.(*corev1.Pod).Spec.NodeName)
	}
	return out
}

// listed is NodeRefers by looking at all pods, as it was before there was an index.
func listed(tb testing.TB, c *Client, node string, kind *api.Kind, namespace, name string) bool {
	tb.Helper()
	return slices.ContainsFunc(allOn(tb, c, node, ""), func(o api.Object) bool {
		if o.GetNamespace() != namespace {
			return false
		}
		configMaps, secrets := api.References(o.(*corev1.Pod))
		if kind == api.ConfigMaps {
			return slices.Contains(configMaps, name)
		}
		return slices.Contains(secrets, name)
	})
}

// naming is a pod that names some ConfigMaps and Secrets, each maybe more than once.
func naming(r *rand.Rand, name string) *corev1.Pod {
	p := aPod(name)
	for range r.IntN(3) {
		p.Spec.ImagePullSecrets = append(p.Spec.ImagePullSecrets, corev1.LocalObjectReference{Name: fmt.Sprintf("o%d", r.IntN(3))})
	}
	from := &p.Spec.Containers[0].EnvFrom
	for range r.IntN(3) {
		ref := corev1.LocalObjectReference{Name: fmt.Sprintf("o%d", r.IntN(3))}
		if r.IntN(2) == 0 {
			*from = append(*from, corev1.EnvFromSource{ConfigMapRef: &corev1.ConfigMapEnvSource{LocalObjectReference: ref}})
		} else {
			*from = append(*from, corev1.EnvFromSource{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: ref}})
		}
	}
	return p
}

// TestNodeRefers: the index answers as a look at all pods does, whatever has happened to them and however much of it since the
// last question; the ring here is so small that it begins anew now and then.
func TestNodeRefers(t *testing.T) {
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
	names := func(what string) string { return fmt.Sprintf("%s%d", what, r.IntN(3)) }
	yes, begun := 0, 0
	var was *tail
	for round := range 100 {
		for range r.IntN(16) {
			name := fmt.Sprintf("p%d", r.IntN(8))
			switch r.IntN(4) {
			case 0, 1:
				p := naming(r, name)
				if r.IntN(2) == 0 {
					p.Spec.NodeName = names("n")
				}
				_, err = c.Create(t.Context(), api.Pods, p, api.WriteOptions{})
			case 2:
				_, err = c.Create(t.Context(), api.Pods, &corev1.Binding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name},
					Target: corev1.ObjectReference{Kind: "Node", Name: names("n")}}, api.WriteOptions{Subresource: "binding"})
			case 3:
				var now int64
				_, err = c.Delete(t.Context(), api.Pods, "default", name, api.DeleteOptions{Grace: &now})
			}
			if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) {
				t.Fatal(err)
			}
		}
		node, kind, object := names("n"), []*api.Kind{api.ConfigMaps, api.Secrets}[r.IntN(2)], names("o")
		got, err := c.NodeRefers(node, kind, "default", object)
		if want := listed(t, c, node, kind, "default", object); err != nil || got != want {
			t.Fatalf("round %d: %s reads %s %s: %v (%v), want %v", round, node, kind, object, got, err, want)
		}
		if got {
			yes++
		}
		if got, want := versions(bySelector(t, c, node).Items), versions(allOn(t, c, node, "")); !slices.Equal(got, want) {
			t.Fatalf("round %d: %s has %v, want %v", round, node, got, want)
		}
		if c.references.tail != was {
			was, begun = c.references.tail, begun+1
		}
	}
	if yes < 10 || yes > 90 || begun < 2 {
		t.Errorf("%d of 100 answers were yes, and it began %d times: the test shows little", yes, begun)
	}
	if other, err := c.NodeRefers("n0", api.Secrets, "other", "o0"); other || err != nil {
		t.Errorf("of another namespace: %v %v", other, err)
	}
}

// TestListOfNodeIsOfOneMoment: while others write, and ask so that the index moves on, a list of a node's pods is what there was at
// the revision that it names: whoever goes on from there misses nothing.
func TestListOfNodeIsOfOneMoment(t *testing.T) {
	c := open(t, Config{})
	const writers, rounds = 2, 40
	var busy sync.WaitGroup
	for w := range writers {
		busy.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 0))
			for i := range rounds {
				name := fmt.Sprintf("p%d-%d", w, i%4)
				p := naming(r, name)
				p.Spec.NodeName = fmt.Sprintf("n%d", r.IntN(2))
				var now int64
				_, errCreate := c.Create(t.Context(), api.Pods, p, api.WriteOptions{})
				_, errRefers := c.NodeRefers("n0", api.Secrets, "default", "o1")
				if err := errors.Join(errCreate, errRefers); err != nil {
					t.Error(err)
				}
				if i%4 == 3 {
					for k := range 4 {
						if _, err := c.Delete(t.Context(), api.Pods, "default", fmt.Sprintf("p%d-%d", w, k), api.DeleteOptions{Grace: &now}); err != nil {
							t.Error(err)
						}
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { busy.Wait(); close(done) }()
	for n := 0; ; n++ {
		list := bySelector(t, c, "n1")
		if got, want := versions(list.Items), versions(allOn(t, c, "n1", list.Revision)); !slices.Equal(got, want) {
			t.Fatalf("at %s: %v, want %v", list.Revision, got, want)
		}
		select {
		case <-done:
			return
		default:
		}
	}
}

// BenchmarkNodeRefers: a read of a Secret by one of a hundred boards with ten pods each, with a change of a pod before it.
func BenchmarkNodeRefers(b *testing.B) {
	db, err := storage.Open(b.Context(), storage.Config{Dir: filepath.Join(b.TempDir(), "store"), NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer db.Close()
	c, err := New(Config{Store: db})
	if err != nil {
		b.Fatal(err)
	}
	r := rand.New(rand.NewPCG(1, 0))
	for i := range 1000 {
		p := naming(r, fmt.Sprintf("p%d", i))
		p.Spec.NodeName = fmt.Sprintf("n%d", i%100)
		if _, err := c.Create(b.Context(), api.Pods, p, api.WriteOptions{}); err != nil {
			b.Fatal(err)
		}
	}
	for name, ask := range map[string]func(node string){
		"index": func(node string) {
			if _, err := c.NodeRefers(node, api.Secrets, "default", "o1"); err != nil {
				b.Fatal(err)
			}
		},
		"list":    func(node string) { listed(b, c, node, api.Secrets, "default", "o1") },
		"pods":    func(node string) { bySelector(b, c, node) },
		"allPods": func(node string) { allOn(b, c, node, "") },
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				ask(fmt.Sprintf("n%d", i%100))
			}
		})
	}
}
