package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
	"ledge/api/local"
	"ledge/controller/jobs"
	"ledge/internal/testrun"
	"ledge/storage"
)

// doomed is the Client of a loop that dies after some of its writes: the write is done, and nobody hears of it.
type doomed struct {
	api.Client
	w *workshop
}

var errDead = errors.New("killed")

func (d doomed) after(out api.Object, err error) (api.Object, error) {
	if err != nil {
		return out, err
	}
	if d.w.left.Add(-1) <= 0 {
		d.w.kill()
		return nil, errDead
	}
	return out, nil
}

func (d doomed) before() error {
	if d.w.left.Load() <= 0 {
		return errDead
	}
	return nil
}

func (d doomed) Create(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := d.before(); err != nil || k == api.Events {
		return o, err
	}
	return d.after(d.Client.Create(ctx, k, o, opts))
}

func (d doomed) Update(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	if err := d.before(); err != nil {
		return nil, err
	}
	out, err := d.Client.Update(ctx, k, o, opts)
	if p, ok := out.(*corev1.Pod); err == nil && ok && !jobs.Tracked(p) { // each is written once more, at most: to be tracked
		d.w.freed(p)
	}
	return d.after(out, err)
}

func (d doomed) Delete(ctx context.Context, k *api.Kind, ns, name string, opts api.DeleteOptions) (api.Object, error) {
	if err := d.before(); err != nil {
		return nil, err
	}
	return d.after(d.Client.Delete(ctx, k, ns, name, opts))
}

// workshop is a store with one Job, its pods and what happens to them, and a loop that is killed again and again.
type workshop struct {
	*testing.T
	api.Client
	random *rand.Rand
	mu     sync.Mutex
	left   atomic.Int64 // writes until the loop dies
	kill   context.CancelFunc
	ran    chan struct{}
	kills  int

	succeeded, failed map[types.UID]int // by the index, what the pods were when they lost their finalizer
}

// freed notes how a pod that loses its finalizer is to be counted.
func (w *workshop) freed(p *corev1.Pod) {
	w.mu.Lock()
	defer w.mu.Unlock()
	j := w.job()
	u := j.Status.UncountedTerminatedPods
	if u == nil {
		u = &batchv1.UncountedTerminatedPods{}
	}
	switch {
	case slices.Contains(u.Failed, p.UID):
		w.failed[p.UID]++
	case p.Status.Phase == corev1.PodSucceeded:
		w.succeeded[p.UID]++
	case p.Status.Phase == corev1.PodFailed && !api.PoweredOff(p):
		w.failed[p.UID]++
	}
}

func (w *workshop) job() *batchv1.Job {
	j, err := api.Get[*batchv1.Job](context.Background(), w.Client, batch.Jobs, "default", "work")
	if err != nil {
		w.Fatal(err)
	}
	return j
}

// live starts the loop anew. It dies after some writes.
func (w *workshop) live(ctx context.Context, writes int) {
	if w.kill != nil {
		w.kill()
		<-w.ran
	}
	w.left.Store(int64(writes))
	w.kills++
	ctx, w.kill = context.WithCancel(ctx)
	w.ran = make(chan struct{})
	world := NewWorld(doomed{w.Client, w}, nil)
	loop, events := NewJobs(world, nil, api.NewRecorder(w.Client, "job-controller", "")), make(chan error, 2)
	go func() { events <- world.Run(ctx) }()
	go func() {
		defer close(w.ran)
		loop.Run(ctx)
		<-events
	}()
}

func (w *workshop) pods() (out []*corev1.Pod) {
	list, err := w.List(context.Background(), api.Pods, api.ListOptions{Selection: api.Selection{Namespace: "default"}})
	if err != nil {
		w.Fatal(err)
	}
	for _, o := range list.Items {
		out = append(out, o.(*corev1.Pod))
	}
	return out
}

// happen does something to a pod, or to the Job.
func (w *workshop) happen() {
	ctx := context.Background()
	pods := w.pods()
	if w.random.IntN(12) == 0 {
		j := w.job()
		switch w.random.IntN(3) {
		case 0:
			*j.Spec.Suspend = !*j.Spec.Suspend
		case 1:
			*j.Spec.Suspend = false
		default:
			*j.Spec.Parallelism = 1 + w.random.Int32N(6)
		}
		if batch.IsIndexed(&j.Spec) {
			*j.Spec.Parallelism = max(*j.Spec.Parallelism, 1)
		}
		if _, err := api.Update(ctx, w.Client, batch.Jobs, j); err != nil && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
		return
	}
	if len(pods) == 0 {
		return
	}
	p := pods[w.random.IntN(len(pods))]
	over := p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
	end := func(phase corev1.PodPhase, reason string) {
		if over {
			return
		}
		p.Status.Phase, p.Status.Reason = phase, reason
		if _, err := api.UpdateStatus(ctx, w.Client, api.Pods, p); err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
			w.Fatal(err)
		}
	}
	switch w.random.IntN(12) {
	case 0:
		end(corev1.PodFailed, "")
	case 1:
		end(corev1.PodFailed, "Terminated")
	case 2: // evicted, drained, deleted
		if _, err := w.Delete(ctx, api.Pods, p.Namespace, p.Name, api.DeleteOptions{}); err != nil && !apierrors.IsNotFound(err) {
			w.Fatal(err)
		}
	case 3, 4:
		if p.DeletionTimestamp != nil {
			w.Delete(ctx, api.Pods, p.Namespace, p.Name, force())
		}
	case 5:
		end(corev1.PodRunning, "")
	default:
		end(corev1.PodSucceeded, "")
	}
}

// agree compares the counters with what was seen.
func (w *workshop) agree(j *batchv1.Job) {
	for what, of := range map[string]map[types.UID]int{"succeeded": w.succeeded, "failed": w.failed} {
		for uid, n := range of {
			if n > 1 {
				w.Errorf("%s: pod %s lost its finalizer %d times", what, uid, n)
			}
		}
	}
	s := &j.Status
	if !batch.IsIndexed(&j.Spec) && int(s.Succeeded) != len(w.succeeded) {
		w.Errorf("succeeded: %d counted, %d there were", s.Succeeded, len(w.succeeded))
	}
	if done, err := batch.ParseIndexes(s.CompletedIndexes); batch.IsIndexed(&j.Spec) && (err != nil || done.Len() != int(s.Succeeded)) {
		w.Errorf("indexes %q, %d succeeded", s.CompletedIndexes, s.Succeeded)
	}
	if int(s.Failed) != len(w.failed) {
		w.Errorf("failed: %d counted, %d there were", s.Failed, len(w.failed))
	}
}

// TestJobsAtRandom: a loop that is killed after any of its writes counts every pod that ends once, and ends every Job.
func TestJobsAtRandom(t *testing.T) { // N-12.5
	runs := testrun.Rounds(24)
	if os.Getenv("LEDGE_LONG") != "" {
		runs = 1000
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range runs {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { runWorkshop(t, dir, random) })
		})
	}
}

func runWorkshop(t *testing.T, dir string, random *rand.Rand) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := local.New(local.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	w := &workshop{T: t, Client: c, random: random, succeeded: map[types.UID]int{}, failed: map[types.UID]int{}}
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}
	j.Spec.Completions, j.Spec.Parallelism = ptrTo(1+random.Int32N(12)), ptrTo(1+random.Int32N(6))
	j.Spec.BackoffLimit = ptrTo(random.Int32N(30))
	j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	if random.IntN(2) == 0 {
		j.Spec.CompletionMode = ptrTo(batchv1.IndexedCompletion)
		if random.IntN(2) == 0 {
			j.Spec.BackoffLimitPerIndex = ptrTo(random.Int32N(4))
			j.Spec.BackoffLimit = nil
		}
	}
	if random.IntN(2) == 0 {
		j.Spec.PodReplacementPolicy = ptrTo(batchv1.Failed)
	}
	if _, err := api.Create(t.Context(), c, batch.Jobs, j); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 400 {
		if w.left.Load() <= 0 {
			synctest.Wait()
			w.live(ctx, 1+random.IntN(8))
		}
		w.happen()
		time.Sleep(time.Duration(random.IntN(20_000)) * time.Millisecond)
		synctest.Wait()
		if batch.Finished(&w.job().Status) {
			break
		}
	}
	w.live(ctx, 1<<30)
	for range 400 { // it ends, now that nobody kills it and all pods do their work
		j = w.job()
		if batch.Finished(&j.Status) {
			break
		}
		if *j.Spec.Suspend {
			*j.Spec.Suspend = false
			api.Update(ctx, c, batch.Jobs, j)
		}
		for _, p := range w.pods() {
			if p.DeletionTimestamp != nil {
				if p.Status.Phase != corev1.PodSucceeded {
					p.Status.Phase = corev1.PodFailed
					api.UpdateStatus(ctx, c, api.Pods, p)
				}
				c.Delete(ctx, api.Pods, p.Namespace, p.Name, force())
			} else if p.Status.Phase != corev1.PodFailed && p.Status.Phase != corev1.PodSucceeded {
				p.Status.Phase = corev1.PodSucceeded
				api.UpdateStatus(ctx, c, api.Pods, p)
			}
		}
		time.Sleep(time.Minute)
		synctest.Wait()
	}
	time.Sleep(time.Minute)
	synctest.Wait()
	if j = w.job(); !batch.Finished(&j.Status) {
		t.Errorf("it does not end: %+v", j.Status)
	}
	w.agree(j)
	for _, p := range w.pods() {
		if jobs.Tracked(p) {
			t.Errorf("pod %s is still tracked", p.Name)
		}
	}
	cancel()
	<-w.ran
}

func ptrTo[T any](v T) *T { return &v }
