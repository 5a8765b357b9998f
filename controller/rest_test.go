package controller

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/batch"
	"ledge/api/local"
	"ledge/controller/workload"
	"ledge/storage"
)

// atRest has n Deployments in one namespace; every third is of the kind Recreate. Each has a ready pod and three sets of former
// templates. It also has the two loops that look at them, and they find nothing to do.
func atRest(tb testing.TB, n int) (*Deployments, *Replicas, *writes) {
	tb.Helper()
	c, closed := freshStore(tb, nil)
	ctx, cancel := context.WithCancel(tb.Context())
	counted := &writes{Client: c}
	w := NewWorld(counted, nil)
	d, r := NewDeployments(w, quiet{}), NewReplicas(w, replicaSets(w, quiet{}))
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		closed()
	})
	for i := range n {
		name, one := fmt.Sprintf("app-%d", i), int32(1)
		labels := map[string]string{"app": name}
		it := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: appsv1.DeploymentSpec{Replicas: &one,
			Selector: &metav1.LabelSelector{MatchLabels: labels}, Template: *webs(1).Spec.Template}}
		it.Spec.Template.Labels = labels
		if i%3 == 0 {
			it.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType
		}
		if _, err := api.Create(ctx, c, apps.Deployments, it); err != nil {
			tb.Fatal(err)
		}
	}
	settled := func() {
		for quiet := 0; quiet < 3; {
			before := counted.n
			d.pass(ctx, time.Now())
			r.pass(ctx, time.Now())
			for _, p := range (Of[*corev1.Pod]{r.pods.View}).List() {
				if _, ready := api.ReadySince(p); ready || p.DeletionTimestamp != nil {
					continue
				}
				p = p.DeepCopy()
				p.Status.Phase = corev1.PodRunning
				p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.PodReady, Status: corev1.ConditionTrue,
					LastTransitionTime: metav1.Now()})
				_, _ = api.UpdateStatus(ctx, counted, api.Pods, p)
			}
			if quiet++; counted.n != before {
				quiet = 0
			}
			time.Sleep(5 * time.Millisecond)
		}
	}
	settled()
	for i := range 3 {
		for _, it := range d.all.List() {
			_, _, err := amend(ctx, c, apps.Deployments, it, "", func(it *appsv1.Deployment) bool {
				it.Spec.Template.Annotations = map[string]string{"version": fmt.Sprint(i)}
				return true
			})
			if err != nil {
				tb.Fatal(err)
			}
		}
		settled()
	}
	return d, r, counted
}

// freshStore is a Client over a store of its own, which closed closes.
func freshStore(tb testing.TB, of *api.Kinds) (c api.Client, closed func()) {
	tb.Helper()
	store, err := storage.Open(tb.Context(), storage.Config{Dir: tb.TempDir(), NoSync: true, Kinds: of})
	if err != nil {
		tb.Fatal(err)
	}
	if c, err = local.New(local.Config{Store: store}); err != nil {
		tb.Fatal(err)
	}
	return c, func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	}
}

// writes counts what is written. A pod that is deleted is gone: nobody runs it.
type writes struct {
	api.Client
	n      int
	listed atomic.Int64 // by loops and views
}

func (w *writes) List(ctx context.Context, k *api.Kind, opts api.ListOptions) (api.List, error) {
	w.listed.Add(1)
	return w.Client.List(ctx, k, opts)
}

func (w *writes) Create(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	w.n++
	return w.Client.Create(ctx, k, o, opts)
}

func (w *writes) Update(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	w.n++
	return w.Client.Update(ctx, k, o, opts)
}

func (w *writes) Delete(ctx context.Context, k *api.Kind, ns, name string, opts api.DeleteOptions) (api.Object, error) {
	w.n++
	if k == api.Pods {
		opts.Grace = new(int64)
	}
	return w.Client.Delete(ctx, k, ns, name, opts)
}

type quiet struct{}

func (quiet) Event(api.Object, string, string, string) {}

// TestAtRest: Deployments at rest are not written, and a look at them costs next to nothing: each change of a pod, whosever it is,
// makes the loops look. Compared with their templates and pods they cost 1,500 allocations each.
func TestAtRest(t *testing.T) { // N-12.10
	const n, most = 20, 20
	d, r, counted := atRest(t, n)
	before := counted.n
	allocs := testing.AllocsPerRun(10, func() {
		d.pass(t.Context(), time.Now())
		r.pass(t.Context(), time.Now())
	})
	if counted.n != before || allocs > n*most {
		t.Errorf("%d writes, and %v allocations for each of %d Deployments", counted.n-before, allocs/n, n)
	}
	pod := r.pods.List()[0].DeepCopy()
	pod.Status.Conditions = nil
	if _, err := api.UpdateStatus(t.Context(), r.w.Client, api.Pods, pod); err != nil {
		t.Fatal(err)
	}
	for before = counted.n; counted.n == before; time.Sleep(time.Millisecond) { // what does change is seen
		r.pass(t.Context(), time.Now())
	}
}

func BenchmarkAtRest(b *testing.B) {
	d, r, _ := atRest(b, 100)
	b.Run("Deployments", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			d.pass(b.Context(), time.Now())
		}
	})
	b.Run("Replicas", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			r.pass(b.Context(), time.Now())
		}
	})
}

// endedJobs has n Jobs of one namespace that have ended, each with its pod, and the loop that looks at them and has seen that.
func endedJobs(tb testing.TB, n int) (*Jobs, *writes) {
	tb.Helper()
	c, closed := freshStore(tb, nil)
	ctx, cancel := context.WithCancel(tb.Context())
	counted := &writes{Client: c}
	w := NewWorld(counted, nil)
	d := NewJobs(w, nil, quiet{})
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	tb.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			tb.Error(err)
		}
		closed()
	})
	for i := range n {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("job-%d", i)}}
		j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		if _, err := api.Create(ctx, c, batch.Jobs, j); err != nil {
			tb.Fatal(err)
		}
	}
	ended, now := func() (ended int) {
		for _, j := range d.all.List() {
			if batch.Finished(&j.Status) {
				ended++
			}
		}
		return ended
	}, time.Now()
	for ended() < n {
		now = now.Add(time.Minute) // past what a Job is left alone
		d.pass(ctx, now)
		for _, p := range d.pods.List() {
			if p.Status.Phase == corev1.PodPending {
				p = p.DeepCopy()
				p.Status.Phase = corev1.PodSucceeded
				_, _ = api.UpdateStatus(ctx, c, api.Pods, p)
			}
		}
		time.Sleep(time.Millisecond)
	}
	for before := -1; before != counted.n || len(d.made)+len(d.saw) > 0; time.Sleep(5 * time.Millisecond) {
		before = counted.n
		d.pass(ctx, now.Add(time.Minute))
	}
	return d, counted
}

// TestJobsAtRest: a Job that has ended costs next to nothing when any pod changes.
func TestJobsAtRest(t *testing.T) { // N-12.10
	const n, most = 20, 8
	d, counted := endedJobs(t, n)
	if len(d.rests) != n {
		t.Fatalf("%d of %d Jobs are at rest", len(d.rests), n)
	}
	before, now := counted.n, time.Now()
	allocs := testing.AllocsPerRun(10, func() { d.pass(t.Context(), now) })
	if counted.n != before || allocs > n*most {
		t.Errorf("%d writes, and %v allocations for each of %d Jobs", counted.n-before, allocs/n, n)
	}
}

func BenchmarkJobsAtRest(b *testing.B) {
	d, _ := endedJobs(b, 100)
	now := time.Now().Add(24 * time.Hour) // past what a Job is left alone
	for name, passedOver := range map[string]bool{"compared": false, "passed over": true} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if !passedOver {
					clear(d.rests)
				}
				d.pass(b.Context(), now)
			}
		})
	}
}

// TestPlacedAtRest: a StatefulSet at rest is passed over, until a pod of it changes.
func TestPlacedAtRest(t *testing.T) { // N-12.10
	deploying(t, func(r *rig) {
		w := NewWorld(r.Client, nil)
		kind := statefulSets(w, quiet{})
		looks, decide := 0, kind.decide
		kind.decide = func(obj api.Object, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, now time.Time) (workload.Course, any) {
			looks++
			return decide(obj, revisions, pods, now)
		}
		p := NewPlaced(w, kind)
		ctx, cancel := context.WithCancel(r.ctx)
		r.beats.Go(func() error { return w.Run(ctx) })
		defer cancel()
		r.statefulSet(2)
		r.serve(4)
		pass := func(want int) {
			t.Helper()
			before := looks
			for range 5 {
				p.pass(ctx, time.Now())
			}
			if looks-before != want {
				t.Errorf("looked %d times, want %d", looks-before, want)
			}
		}
		pass(1)
		pass(0)
		r.pod("another") // nobody's, and it might be
		pass(1)
		r.report("web-0", corev1.PodRunning, func(p *corev1.Pod) { p.Status.Message = "x" })
		pass(1)
		r.pass(idle)
		pass(1)
	})
}
