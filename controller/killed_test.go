package controller

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sync/errgroup"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/autoscaling"
	"ledge/api/batch"
	"ledge/api/local"
	"ledge/internal/testrun"
	"ledge/storage"
)

// mortal is the Client of all loops of one life. After the write that it dies of, which is done, nobody hears of it, and it writes no more.
// Events are not counted: they may be lost.
type mortal struct {
	faulty
	writes *atomic.Int64 // of all lives
	last   int64         // write that it dies of; zero: none
	dead   *atomic.Bool
	kill   context.CancelFunc
	made   func(k *api.Kind)
}

func (m mortal) write(k *api.Kind, do func() (api.Object, error)) (api.Object, error) {
	if m.dead.Load() {
		return nil, errDead
	}
	out, err := do()
	if err != nil || k == api.Events {
		return out, err
	}
	if m.writes.Add(1) == m.last {
		m.dead.Store(true)
		m.kill()
		return nil, errDead
	}
	return out, nil
}

func (m mortal) Create(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	return m.write(k, func() (api.Object, error) {
		out, err := m.faulty.Create(ctx, k, o, opts)
		if err == nil && opts.Subresource == "" {
			m.made(k)
		}
		return out, err
	})
}

func (m mortal) Update(ctx context.Context, k *api.Kind, o api.Object, opts api.WriteOptions) (api.Object, error) {
	return m.write(k, func() (api.Object, error) { return m.faulty.Update(ctx, k, o, opts) })
}

func (m mortal) Delete(ctx context.Context, k *api.Kind, ns, name string, opts api.DeleteOptions) (api.Object, error) {
	return m.write(k, func() (api.Object, error) { return m.faulty.Delete(ctx, k, ns, name, opts) })
}

// tale is what happens to objects of a kind, at a board that runs their pods.
type tale struct {
	name  string
	most  int // pods at once, those that go left out
	usage *loaded
	tell  func(r *rig, board func(rounds int))
}

// outcome is what a tale comes to.
type outcome struct {
	writes int64
	lives  int
	end    string // the objects
	made   string // how many Pods, ReplicaSets, Jobs and revisions were made on the way
}

// live tells the tale to loops that die right after a write, and to their successors. Zero: they do not die.
func (s tale) live(t *testing.T, last int64) (out outcome) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		store, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer store.Close()
		c, err := local.New(local.Config{Store: store})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		r, ended := &rig{T: t, Client: c, ctx: ctx, began: time.Now(), beats: &errgroup.Group{}}, make(chan struct{})
		var writes, pods, sets, works, revisions atomic.Int64
		counts := map[*api.Kind]*atomic.Int64{api.Pods: &pods, apps.ReplicaSets: &sets, batch.Jobs: &works, apps.ControllerRevisions: &revisions}
		made := func(k *api.Kind) {
			if n := counts[k]; n != nil {
				n.Add(1)
			}
		}
		cfg := Config{}
		if s.usage != nil {
			s.usage.r, cfg.Usage = r, s.usage
		}
		go func() {
			defer close(ended)
			for ; ctx.Err() == nil; out.lives++ {
				life, kill := context.WithCancel(ctx)
				cfg.Client = mortal{faulty{c, r}, &writes, last, &atomic.Bool{}, kill, made}
				if err := Run(life, cfg); err != nil && !errors.Is(err, errDead) && life.Err() == nil {
					t.Errorf("Run: %v", err)
				}
				kill()
			}
		}()
		synctest.Wait()
		r.node("n", hostnamed)
		beats := r.alive("n")
		s.tell(r, func(rounds int) {
			for range rounds {
				r.live(1)
				s.tooMany(r)
			}
		})
		out.writes, out.end = writes.Load(), r.ended()
		out.made = fmt.Sprint(pods.Load(), sets.Load(), works.Load(), revisions.Load())
		beats()
		cancel()
		<-ended
		if err := r.beats.Wait(); err != nil {
			t.Error(err)
		}
	})
	return out
}

func (s tale) tooMany(r *rig) {
	r.Helper()
	n := 0
	for _, p := range r.pods() {
		if p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded {
			n++
		}
	}
	if n > s.most {
		r.Errorf("there are %d pods, at most %d may be", n, s.most)
	}
}

// ended is what is there in the end, without what differs from one run to the next.
func (r *rig) ended() string {
	r.Helper()
	var out []string
	for _, kind := range []*api.Kind{api.Pods, apps.Deployments, apps.StatefulSets, apps.DaemonSets, batch.Jobs, batch.CronJobs,
		autoscaling.HorizontalPodAutoscalers, api.PersistentVolumeClaims, api.PersistentVolumes} {
		list, err := r.List(r.ctx, kind, api.ListOptions{})
		if err != nil {
			r.Fatal(err)
		}
		for _, o := range list.Items {
			out = append(out, kind.Resource+" "+summary(o))
		}
	}
	slices.Sort(out)
	return strings.Join(slices.Concat(out, r.replicaSets(), r.revisions()), "\n")
}

func summary(o api.Object) string {
	switch o := o.(type) {
	case *corev1.Pod:
		return fmt.Sprint(o.Spec.Containers[0].Image, " ", o.Status.Phase, " ", o.DeletionTimestamp != nil, " ", o.Finalizers)
	case *appsv1.Deployment:
		s := o.Status
		return fmt.Sprint(*o.Spec.Replicas, s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, s.ObservedGeneration == o.Generation)
	case *appsv1.StatefulSet:
		s := o.Status
		return fmt.Sprint(s.Replicas, s.UpdatedReplicas, s.AvailableReplicas, s.CurrentReplicas, s.CurrentRevision == s.UpdateRevision)
	case *appsv1.DaemonSet:
		s := o.Status
		return fmt.Sprint(s.DesiredNumberScheduled, s.CurrentNumberScheduled, s.UpdatedNumberScheduled, s.NumberAvailable, s.NumberMisscheduled)
	case *batchv1.Job:
		s := o.Status
		uncounted := 0
		if u := s.UncountedTerminatedPods; u != nil {
			uncounted = len(u.Succeeded) + len(u.Failed)
		}
		return fmt.Sprint(o.Name, " ", s.Active, s.Succeeded, s.Failed, uncounted, batch.Finished(&s))
	case *batchv1.CronJob:
		return fmt.Sprint(len(o.Status.Active), o.Status.LastScheduleTime)
	case *autoscalingv2.HorizontalPodAutoscaler:
		return fmt.Sprint(o.Status.CurrentReplicas, o.Status.DesiredReplicas)
	case *corev1.PersistentVolumeClaim:
		return fmt.Sprint(o.Name, " ", o.Status.Phase, " ", o.Spec.VolumeName != "")
	case *corev1.PersistentVolume:
		return fmt.Sprint(o.Status.Phase, " ", o.Spec.ClaimRef.Name)
	}
	return o.GetName()
}

var tales = []tale{
	{name: "Deployment", most: 4, tell: func(r *rig, board func(int)) {
		r.deployment(3, imaged("one"))
		board(6)
		r.redeploy(imaged("two"))
		board(14)
	}},
	{name: "StatefulSet", most: 2, tell: func(r *rig, board func(int)) {
		r.statefulSet(2)
		board(8)
		r.retemplate(apps.StatefulSets, "two")
		board(14)
	}},
	{name: "DaemonSet", most: 1, tell: func(r *rig, board func(int)) {
		r.daemonSet()
		board(5)
		r.retemplate(apps.DaemonSets, "two")
		board(10)
	}},
	{name: "Job", most: 2, tell: func(r *rig, board func(int)) {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"},
			Spec: *cronOf("").Spec.JobTemplate.Spec.DeepCopy()}
		j.Spec.Completions, j.Spec.Parallelism = ptrTo(int32(4)), ptrTo(int32(2))
		j, err := api.Create(r.ctx, r.Client, batch.Jobs, j)
		must(r, j, err)
		for range 12 {
			board(2)
			r.succeed()
		}
	}},
	{name: "CronJob", most: 1, tell: func(r *rig, board func(int)) {
		c, err := api.Create(r.ctx, r.Client, batch.CronJobs, cronOf("*/10 * * * *"))
		must(r, c, err)
		r.pass(time.Until(time.Now().Truncate(10 * time.Minute).Add(10*time.Minute + time.Second)))
		for range 6 {
			board(2)
			r.succeed()
		}
		r.pass(time.Minute)
	}},
	{name: "HorizontalPodAutoscaler", most: 4, usage: &loaded{}, tell: func(r *rig, board func(int)) {
		r.deployment(2, imaged("one"), func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("100m")}
		})
		board(4)
		r.autoscaler("web", func(h *autoscalingv2.HorizontalPodAutoscaler) { h.Spec.MaxReplicas = 4 })
		board(50)
	}},
	{name: "PersistentVolumeClaim", most: 1, tell: func(r *rig, board func(int)) {
		c, err := api.Create(r.ctx, r.Client, api.PersistentVolumeClaims, wanted("c"))
		must(r, c, err)
		r.pod("p", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c"}}}}
		})
		r.pass(5 * time.Second)
		r.board(r.claimed("c"))
		board(10)
	}},
}

// succeed lets the pods that run end well.
func (r *rig) succeed() {
	r.Helper()
	for _, p := range r.pods() {
		if p.Status.Phase == corev1.PodRunning && p.DeletionTimestamp == nil {
			r.report(p.Name, corev1.PodSucceeded)
		}
	}
	r.pass(2 * time.Second)
}

// TestKilledBetweenWrites: all loops die right after any of their writes, and it comes to the same: the same objects, and as many of them
// made on the way. The short run takes some of the writes, the long one all.
func TestKilledBetweenWrites(t *testing.T) {
	testrun.OnHost(t)
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for _, s := range tales {
		t.Run(s.name, func(t *testing.T) {
			if s.usage != nil {
				s.usage.use("100m", nil)
			}
			want := s.live(t, 0)
			t.Logf("%d writes, made %s:\n%s", want.writes, want.made, want.end)
			at := rand.New(rand.NewPCG(seed, 0)).Perm(int(want.writes))
			if os.Getenv("LEDGE_LONG") == "" {
				at = at[:min(3, len(at))]
			}
			for _, k := range at {
				got := s.live(t, int64(k+1))
				if got.lives != 2 && got.writes >= int64(k+1) {
					t.Errorf("write %d: %d lives, want 2", k+1, got.lives)
				}
				if got.end != want.end || got.made != want.made {
					t.Errorf("killed after write %d: made %s\n%s\nwant %s\n%s", k+1, got.made, got.end, want.made, want.end)
				}
			}
		})
	}
}
