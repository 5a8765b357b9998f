package controller

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
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
	"ledge/internal/testrun"
	"ledge/storage"
)

func cronOf(schedule string) *batchv1.CronJob {
	c := &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "tick"}}
	c.Spec.Schedule, c.Spec.TimeZone = schedule, ptrTo("UTC")
	c.Spec.JobTemplate.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever,
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}
	return c
}

// ticking runs the loops with a CronJob.
func ticking(t *testing.T, schedule string, edit func(s *batchv1.CronJobSpec), believed func() bool, fn func(r *rig)) {
	t.Helper()
	plane(t, Config{Believed: believed}, func(r *rig) {
		c := cronOf(schedule)
		edit(&c.Spec)
		c, err := api.Create(r.ctx, r.Client, batch.CronJobs, c)
		must(r, c, err)
		r.pass(2 * time.Second)
		fn(r)
	})
}

func (r *rig) cron() *batchv1.CronJob {
	r.Helper()
	c, err := api.Get[*batchv1.CronJob](r.ctx, r.Client, batch.CronJobs, "default", "tick")
	return must(r, c, err)
}

func jobsOf(t testing.TB, c api.Client) (out []*batchv1.Job) {
	t.Helper()
	list, err := c.List(context.Background(), batch.Jobs, api.ListOptions{Selection: api.Selection{Namespace: "default"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range list.Items {
		out = append(out, o.(*batchv1.Job))
	}
	return out
}

// finish ends a Job that nobody runs.
func finish(t testing.TB, c api.Client, j *batchv1.Job, end batchv1.JobConditionType) {
	t.Helper()
	now := metav1.Now()
	before := batchv1.JobSuccessCriteriaMet
	if end == batchv1.JobFailed {
		before = batchv1.JobFailureTarget
	} else {
		j.Status.CompletionTime = &now
	}
	if j.Status.StartTime == nil {
		j.Status.StartTime = &now
	}
	for _, of := range []batchv1.JobConditionType{before, end} {
		j.Status.Conditions = append(j.Status.Conditions, batchv1.JobCondition{Type: of, Status: corev1.ConditionTrue})
	}
	if _, err := api.UpdateStatus(context.Background(), c, batch.Jobs, j); err != nil && !apierrors.IsConflict(err) &&
		!apierrors.IsNotFound(err) {
		t.Fatal(err)
	}
}

// byNobody: the Jobs are not run, the test ends them.
func byNobody(s *batchv1.CronJobSpec) { s.JobTemplate.Spec.ManagedBy = ptrTo("example.org/nobody") }

// isCron compares the number of Jobs, of those that run, and the last schedule.
func (r *rig) isCron(want string) {
	r.Helper()
	c := r.cron()
	got := fmt.Sprintf("%d jobs, %d active", len(jobsOf(r, r.Client)), len(c.Status.Active))
	if at := c.Status.LastScheduleTime; at != nil {
		got += ", " + at.UTC().Format("15:04")
	}
	if got != want {
		r.Errorf("it is %q, want %q", got, want)
	}
}

// TestCronJob: synctest begins at midnight.
func TestCronJob(t *testing.T) {
	ticking(t, "0 * * * *", byNobody, nil, func(r *rig) {
		r.isCron("0 jobs, 0 active")
		writes := r.writes.Load()
		r.pass(50 * time.Minute)
		if n := r.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes while nothing is due", n)
		}
		r.pass(10 * time.Minute)
		r.isCron("1 jobs, 1 active, 01:00")
		r.want("events", r.events("SuccessfulCreate"),
			"cronjob-controller Normal SuccessfulCreate tick: Created job "+jobsOf(t, r.Client)[0].Name)
		finish(t, r.Client, jobsOf(t, r.Client)[0], batchv1.JobComplete)
		r.pass(time.Second)
		r.isCron("1 jobs, 0 active, 01:00")
		if r.cron().Status.LastSuccessfulTime == nil {
			t.Error("it does not know that it succeeded")
		}
		writes = r.writes.Load()
		r.pass(50 * time.Minute)
		if n := r.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes at rest", n)
		}
		for range 6 { // the history keeps three
			r.pass(time.Hour)
			for _, j := range jobsOf(t, r.Client) {
				if !batch.Finished(&j.Status) {
					finish(t, r.Client, j, batchv1.JobComplete)
				}
			}
			r.pass(time.Second)
		}
		r.isCron("3 jobs, 0 active, 07:00")
	})
}

// TestCronJobWithoutTheTime: nothing begins before the clock is believed, and then once, whatever was missed.
func TestCronJobWithoutTheTime(t *testing.T) { // N-12.8
	var known atomic.Bool
	ticking(t, "*/5 * * * *", byNobody, known.Load, func(r *rig) {
		writes := r.writes.Load()
		r.pass(24 * time.Hour)
		r.isCron("0 jobs, 0 active")
		if n := r.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes while the time is not known", n)
		}
		known.Store(true)
		r.pass(15 * time.Second)
		r.isCron("1 jobs, 1 active, 00:00")
		r.pass(4 * time.Minute)
		r.isCron("1 jobs, 1 active, 00:00")
		if len(r.events("TooManyMissedTimes")) == 0 {
			t.Error("nobody says how many were missed")
		}
	})
}

// TestCronJobAgain: another schedule does not make up for what it would have missed; going on after a pause does.
func TestCronJobAgain(t *testing.T) {
	ticking(t, "0 12 * * *", byNobody, nil, func(r *rig) {
		r.pass(10 * time.Hour)
		c := r.cron()
		c.Spec.Schedule = "0 9 * * *"
		must(r, c, second(api.Update(r.ctx, r.Client, batch.CronJobs, c)))
		r.pass(22 * time.Hour)
		r.isCron("0 jobs, 0 active")
		r.pass(2 * time.Hour)
		r.isCron("1 jobs, 1 active, 09:00")
		for _, on := range []bool{true, false} {
			c = r.cron()
			c.Spec.Suspend = &on
			must(r, c, second(api.Update(r.ctx, r.Client, batch.CronJobs, c)))
			r.pass(48 * time.Hour)
		}
		r.isCron("4 jobs, 4 active, 09:00") // one at once, and those of two days
	})
}

func second[T any](_ T, err error) error { return err }

func TestCronJobReplaces(t *testing.T) {
	ticking(t, "* * * * *", func(s *batchv1.CronJobSpec) { byNobody(s); s.ConcurrencyPolicy = batchv1.ReplaceConcurrent }, nil, func(r *rig) {
		r.pass(2*time.Minute + 5*time.Second)
		first := jobsOf(t, r.Client)
		if len(first) != 1 {
			t.Fatalf("%d jobs", len(first))
		}
		r.pass(time.Minute)
		if now := jobsOf(t, r.Client); len(now) != 1 || now[0].UID == first[0].UID {
			t.Errorf("%d jobs, after %s", len(now), first[0].Name)
		}
		if len(r.events("MissingJob")) != 0 {
			t.Error("what was replaced is said to be missing")
		}
	})
}

// TestCronJobTaken: somebody else has a Job of that name. It is tried again, ever more rarely, and the next one is made.
func TestCronJobTaken(t *testing.T) {
	ticking(t, "0 * * * *", byNobody, nil, func(r *rig) {
		at := time.Now().Truncate(time.Hour).Add(time.Hour)
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: fmt.Sprintf("tick-%d", at.Unix()/60)}}
		j.Spec = *cronOf("").Spec.JobTemplate.Spec.DeepCopy()
		j.Spec.ManagedBy = ptrTo("example.org/nobody")
		must(r, j, second(api.Create(r.ctx, r.Client, batch.Jobs, j)))
		tries := r.writes.Load()
		r.pass(110 * time.Minute)
		if n := r.writes.Load() - tries; n > 60 {
			t.Errorf("tried %d times", n)
		}
		if len(r.events("FailedCreate")) == 0 {
			t.Error("nobody says so")
		}
		r.pass(30 * time.Minute)
		r.isCron("2 jobs, 1 active, 02:00")
	})
}

// TestCronJobsAtRandom: a loop that is killed after any of its writes makes one Job for a moment, none beside another where that is
// forbidden, and keeps what the history says.
func TestCronJobsAtRandom(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for i := range testrun.Rounds(12) {
		random := rand.New(rand.NewPCG(seed, uint64(i)))
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			dir := t.TempDir()
			synctest.Test(t, func(t *testing.T) { runClockwork(t, dir, random) })
		})
	}
}

// clockwork is a store with one CronJob, and a loop that is killed again and again.
type clockwork struct {
	workshop
	policy batchv1.ConcurrencyPolicy
	seen   map[string]types.UID // by name, the Jobs there were
}

func (w *clockwork) live(ctx context.Context, writes int) {
	if w.kill != nil {
		w.kill()
		<-w.ran
	}
	w.left.Store(int64(writes))
	w.kills++
	ctx, w.kill = context.WithCancel(ctx)
	w.ran = make(chan struct{})
	world := NewWorld(doomed{w.Client, &w.workshop}, nil)
	loop, ended := NewCronJobs(world, nil, api.NewRecorder(w.Client, "cronjob-controller", "")), make(chan error, 1)
	go func() { ended <- world.Run(ctx) }()
	go func() {
		defer close(w.ran)
		loop.Run(ctx)
		<-ended
	}()
}

// look holds what is there to what may be.
func (w *clockwork) look() {
	running := 0
	for _, j := range jobsOf(w, w.Client) {
		if was, ok := w.seen[j.Name]; ok && was != j.UID {
			w.Errorf("%s was made twice", j.Name)
		}
		w.seen[j.Name] = j.UID
		if !batch.Finished(&j.Status) && j.DeletionTimestamp == nil {
			running++
		}
	}
	if running > 1 && w.policy != batchv1.AllowConcurrent {
		w.Errorf("%d run at once with %s", running, w.policy)
	}
}

func runClockwork(t *testing.T, dir string, random *rand.Rand) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	c, err := local.New(local.Config{Store: store})
	if err != nil {
		t.Fatal(err)
	}
	policies := []batchv1.ConcurrencyPolicy{batchv1.AllowConcurrent, batchv1.ForbidConcurrent, batchv1.ReplaceConcurrent}
	w := &clockwork{workshop: workshop{T: t, Client: c, random: random}, policy: policies[random.IntN(3)], seen: map[string]types.UID{}}
	cron := cronOf("*/2 * * * *")
	byNobody(&cron.Spec)
	cron.Spec.ConcurrencyPolicy = w.policy
	if _, err := api.Create(t.Context(), c, batch.CronJobs, cron); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	for range 150 {
		if w.left.Load() <= 0 {
			synctest.Wait()
			w.live(ctx, 1+random.IntN(4))
		}
		if jobs := jobsOf(t, c); len(jobs) > 0 {
			j := jobs[random.IntN(len(jobs))]
			switch over := batch.Finished(&j.Status); random.IntN(6) {
			case 0:
				if over {
					c.Delete(ctx, batch.Jobs, j.Namespace, j.Name, api.DeleteOptions{Propagation: metav1.DeletePropagationBackground})
				}
			case 1, 2:
				if !over {
					finish(t, c, j, batchv1.JobComplete)
				}
			case 3:
				if !over {
					finish(t, c, j, batchv1.JobFailed)
				}
			}
		}
		time.Sleep(time.Duration(random.IntN(120_000)) * time.Millisecond)
		synctest.Wait()
		w.look()
	}
	w.live(ctx, 1<<30)
	for _, j := range jobsOf(t, c) {
		if !batch.Finished(&j.Status) {
			finish(t, c, j, batchv1.JobComplete)
		}
	}
	time.Sleep(5 * time.Second)
	synctest.Wait()
	w.look()
	good, bad := 0, 0
	for _, j := range jobsOf(t, c) {
		switch {
		case batch.Is(&j.Status, batchv1.JobComplete):
			good++
		case batch.Is(&j.Status, batchv1.JobFailed):
			bad++
		}
	}
	if good > 3 || bad > 1 {
		t.Errorf("%d that succeeded and %d that failed are kept", good, bad)
	}
	is, err := api.Get[*batchv1.CronJob](ctx, c, batch.CronJobs, "default", "tick")
	if err != nil || is.Status.LastScheduleTime == nil || len(w.seen) < 5 {
		t.Errorf("%d jobs were made; %+v, %v", len(w.seen), is.Status, err)
	}
	for _, ref := range is.Status.Active {
		if !strings.HasPrefix(ref.Name, "tick-") || w.seen[ref.Name] != ref.UID {
			t.Errorf("active: %+v", ref)
		}
	}
	cancel()
	<-w.ran
}
