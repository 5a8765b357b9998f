package controller

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/lease"
	"ledge/storage"
)

// rig is a control plane with a real store, in a bubble of simulated time.
type rig struct {
	watched sync.Map // by *api.Kind
	*testing.T
	api.Client // counts and can be made to fail
	ctx        context.Context
	began      time.Time
	writes     atomic.Int64
	reads      atomic.Int64 // objects and lists that the loops asked for, and watches
	broken     atomic.Pointer[func(verb string, kind *api.Kind) error]
	beats      *errgroup.Group
}

// faulty is the client the loops get: what they write is counted, and may fail.
type faulty struct {
	api.Client
	r *rig
}

func (f faulty) touch(verb string, kind *api.Kind) error {
	if fail := f.r.broken.Load(); fail != nil {
		if err := (*fail)(verb, kind); err != nil {
			return err
		}
	}
	f.r.writes.Add(1)
	return nil
}

// WhenAny makes it an api.Sparse, as the Client of a board is.
func (f faulty) WhenAny(k *api.Kind, do func()) bool {
	if sparse, ok := f.Client.(api.Sparse); ok {
		return sparse.WhenAny(k, do)
	}
	do()
	return false
}

func (f faulty) Get(ctx context.Context, k *api.Kind, ns, name string) (api.Object, error) {
	f.r.reads.Add(1)
	return f.Client.Get(ctx, k, ns, name)
}

func (f faulty) List(ctx context.Context, k *api.Kind, opts api.ListOptions) (api.List, error) {
	f.r.reads.Add(1)
	return f.Client.List(ctx, k, opts)
}

func (f faulty) Watch(ctx context.Context, k *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	f.r.reads.Add(1)
	f.r.watched.Store(k, true)
	return f.Client.Watch(ctx, k, opts)
}

func (f faulty) Create(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := f.touch(strings.TrimSpace("create "+opts.Subresource), k); err != nil {
		return nil, err
	}
	return f.Client.Create(ctx, k, o, opts)
}

func (f faulty) Update(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := f.touch(strings.TrimSpace("update "+opts.Subresource), k); err != nil {
		return nil, err
	}
	return f.Client.Update(ctx, k, o, opts)
}

func (f faulty) Delete(ctx context.Context, k *api.Kind, ns, name string, opts api.DeleteOptions) (api.Object, error) {
	if err := f.touch("delete", k); err != nil {
		return nil, err
	}
	return f.Client.Delete(ctx, k, ns, name, opts)
}

// plane runs the loops over a fresh store while fn looks at it.
func plane(t *testing.T, cfg Config, fn func(r *rig)) {
	t.Helper()
	resumed(t, cfg, func(*rig) {}, fn)
}

// resumed runs the loops over what former left in the store.
func resumed(t *testing.T, cfg Config, former, fn func(r *rig)) {
	t.Helper()
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true, Kinds: cfg.Kinds})
		if err != nil {
			t.Fatal(err)
		}
		defer func() {
			if err := store.Close(); err != nil {
				t.Errorf("close: %v", err)
			}
		}()
		c, err := local.New(local.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		g, ctx := errgroup.WithContext(ctx)
		r := &rig{T: t, Client: c, ctx: ctx, began: time.Now(), beats: g}
		former(r)
		cfg.Client = faulty{Client: c, r: r}
		g.Go(func() error { return Run(ctx, cfg) })
		synctest.Wait()
		fn(r)
		cancel()
		if err := g.Wait(); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// fail makes the loops' writes of a kind fail; nil ends it.
func (r *rig) fail(match string) {
	if match == "" {
		r.broken.Store(nil)
		return
	}
	f := func(verb string, kind *api.Kind) error {
		if verb+" "+kind.Resource == match {
			return apierrors.NewServiceUnavailable("injected")
		}
		return nil
	}
	r.broken.Store(&f)
}

func (r *rig) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

func must[T api.Object](r *rig, obj T, err error) T {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
	return obj
}

func (r *rig) node(name string, edit ...func(*corev1.Node)) *corev1.Node {
	r.Helper()
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}}
	for _, f := range edit {
		f(n)
	}
	n, err := api.Create(r.ctx, r.Client, api.Nodes, n)
	must(r, n, err)
	synctest.Wait()
	r.post(name, corev1.ConditionTrue)
	return r.getNode(name)
}

// post is the agent's status report.
func (r *rig) post(name string, ready corev1.ConditionStatus) {
	r.Helper()
	n := r.getNode(name)
	now := metav1.Now()
	n.Status.Capacity = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("4Gi"),
		corev1.ResourcePods: resource.MustParse("110")}
	n.Status.Allocatable = n.Status.Capacity
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready, LastHeartbeatTime: now, LastTransitionTime: now,
		Reason: "Kubelet"}}
	_, err := api.UpdateStatus(r.ctx, r.Client, api.Nodes, n)
	must(r, n, err)
	synctest.Wait()
}

// alive renews the node's lease until the returned function is called.
func (r *rig) alive(name string) (stop func()) {
	r.Helper()
	renewer, err := lease.NewRenewer(lease.RenewerConfig{Client: r.Client, Node: name})
	if err != nil {
		r.Fatal(err)
	}
	ctx, cancel := context.WithCancel(r.ctx)
	r.beats.Go(func() error { return renewer.Run(ctx) })
	synctest.Wait()
	return func() { cancel(); synctest.Wait() }
}

func (r *rig) getNode(name string) *corev1.Node {
	r.Helper()
	n, err := api.Get[*corev1.Node](r.ctx, r.Client, api.Nodes, "", name)
	return must(r, n, err)
}

func (r *rig) pod(name string, edit ...func(*corev1.Pod)) *corev1.Pod {
	r.Helper()
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	p.Spec.Containers = []corev1.Container{{Name: "c", Image: "ledge.local/self"}}
	for _, f := range edit {
		f(p)
	}
	p, err := api.Create(r.ctx, r.Client, api.Pods, p)
	must(r, p, err)
	synctest.Wait()
	return p
}

func (r *rig) getPod(name string) *corev1.Pod {
	r.Helper()
	p, err := api.Get[*corev1.Pod](r.ctx, r.Client, api.Pods, "default", name)
	return must(r, p, err)
}

func (r *rig) gone(kind *api.Kind, namespace, name string) bool {
	r.Helper()
	_, err := r.Get(r.ctx, kind, namespace, name)
	if err != nil && !apierrors.IsNotFound(err) {
		r.Fatal(err)
	}
	return err != nil
}

// report is the agent's word on a pod.
func (r *rig) report(name string, phase corev1.PodPhase, edit ...func(*corev1.Pod)) {
	r.Helper()
	p := r.getPod(name)
	p.Status.Phase = phase
	for _, f := range edit {
		f(p)
	}
	_, err := api.UpdateStatus(r.ctx, r.Client, api.Pods, p)
	must(r, p, err)
	synctest.Wait()
}

// confirm is the agent's end of a deletion: the containers have stopped.
func (r *rig) confirm(name string) {
	r.Helper()
	p := r.getPod(name)
	if p.DeletionTimestamp == nil {
		r.Fatalf("%s is not being deleted", name)
	}
	if _, err := r.Delete(r.ctx, api.Pods, "default", name, force()); err != nil {
		r.Fatal(err)
	}
	synctest.Wait()
}

// events lists "type reason object: message", sorted.
func (r *rig) events(reasons ...string) []string {
	r.Helper()
	r.pass(0)
	list, err := r.List(r.ctx, api.Events, api.ListOptions{})
	if err != nil {
		r.Fatal(err)
	}
	var out []string
	for _, o := range list.Items {
		e := o.(*corev1.Event)
		if slices.Contains(reasons, e.Reason) {
			out = append(out, fmt.Sprintf("%s %s %s %s: %s", e.Source.Component, e.Type, e.Reason, e.InvolvedObject.Name, e.Message))
		}
	}
	slices.Sort(out)
	return out
}

func (r *rig) want(what string, got []string, want ...string) {
	r.Helper()
	if !slices.Equal(got, want) {
		r.Errorf("%s:\ngot  %q\nwant %q", what, got, want)
	}
}

func taintsOf(n *corev1.Node) []string {
	var out []string
	for _, t := range n.Spec.Taints {
		out = append(out, strings.TrimPrefix(t.Key, "node.kubernetes.io/")+":"+string(t.Effect))
	}
	slices.Sort(out)
	return out
}

func condition(p *corev1.Pod, t corev1.PodConditionType) corev1.PodCondition {
	for _, c := range p.Status.Conditions {
		if c.Type == t {
			return c
		}
	}
	return corev1.PodCondition{}
}

func asks(cpu string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}
	}
}

func tolerating(ts ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = ts }
}
