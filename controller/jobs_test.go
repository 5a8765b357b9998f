package controller

import (
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
	"ledge/api/local"
	"ledge/controller/jobs"
)

// working runs the loops and a board, with a Job.
func working(t *testing.T, edit func(s *batchv1.JobSpec), fn func(r *rig)) {
	t.Helper()
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}
		j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		edit(&j.Spec)
		j, err := api.Create(r.ctx, r.Client, batch.Jobs, j)
		must(r, j, err)
		r.pass(2 * time.Second)
		fn(r)
	})
}

func (r *rig) job() *batchv1.Job {
	r.Helper()
	j, err := api.Get[*batchv1.Job](r.ctx, r.Client, batch.Jobs, "default", "work")
	return must(r, j, err)
}

// isJob compares what a Job says of its pods: active, succeeded, failed, and its conditions.
func (r *rig) isJob(want string) {
	r.Helper()
	s := &r.job().Status
	got := fmt.Sprintf("%d %d %d", s.Active, s.Succeeded, s.Failed)
	for _, c := range s.Conditions {
		got += fmt.Sprintf(" %s=%s", c.Type, c.Status)
	}
	if got != want {
		r.Errorf("the job is %q, want %q", got, want)
	}
}

// ends lets the pods that have not ended end.
func (r *rig) ends(n int, phase corev1.PodPhase, edit ...func(*corev1.Pod)) {
	r.Helper()
	for _, p := range r.pods() {
		if n > 0 && p.Status.Phase == corev1.PodPending {
			r.report(p.Name, phase, append(edit, func(p *corev1.Pod) {
				p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "c", State: corev1.ContainerState{
					Terminated: &corev1.ContainerStateTerminated{FinishedAt: metav1.Now()}}}}
			})...)
			n--
		}
	}
	if n > 0 {
		r.Errorf("%d pods are missing", n)
	}
	r.pass(2 * time.Second)
}

// collect does what the store does by itself where it runs.
func (r *rig) collect() {
	r.Helper()
	for range 2 {
		if err := r.Client.(*local.Client).Collect(r.ctx); err != nil {
			r.Fatal(err)
		}
		r.pass(5 * time.Second)
	}
}

func TestJob(t *testing.T) {
	working(t, func(s *batchv1.JobSpec) { s.Completions, s.Parallelism = ptrTo(int32(3)), ptrTo(int32(2)) }, func(r *rig) {
		r.isJob("2 0 0")
		r.ends(1, corev1.PodSucceeded)
		r.isJob("2 1 0")
		r.ends(1, corev1.PodFailed)
		r.isJob("1 1 1") // the next one waits
		r.pass(10 * time.Second)
		r.isJob("2 1 1")
		writes := r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes while nothing happens", n)
		}
		r.ends(2, corev1.PodSucceeded)
		r.isJob("0 3 1 SuccessCriteriaMet=True Complete=True")
		if j := r.job(); j.Status.CompletionTime == nil || len(j.Status.UncountedTerminatedPods.Succeeded) != 0 {
			t.Errorf("%+v", j.Status)
		}
		for _, p := range r.pods() {
			if jobs.Tracked(p) {
				t.Errorf("%s is still held", p.Name)
			}
		}
		r.want("events", r.events("Completed"), "job-controller Normal Completed work: Job completed")
		writes = r.writes.Load()
		r.pass(time.Hour)
		if n := r.writes.Load() - writes; n != 0 {
			t.Errorf("%d writes after the end", n)
		}
	})
}

func TestJobSuspended(t *testing.T) {
	working(t, func(s *batchv1.JobSpec) { s.Suspend = ptrTo(true) }, func(r *rig) {
		r.isJob("0 0 0 Suspended=True")
		change := func(edit func(s *batchv1.JobSpec)) {
			j := r.job()
			edit(&j.Spec)
			out, err := api.Update(r.ctx, r.Client, batch.Jobs, j)
			must(r, out, err)
			r.pass(2 * time.Second)
		}
		change(func(s *batchv1.JobSpec) {
			s.Template.Spec.NodeSelector = map[string]string{"kubernetes.io/hostname": "n"}
		})
		change(func(s *batchv1.JobSpec) { *s.Suspend = false })
		r.isJob("1 0 0 Suspended=False")
		if p := r.pods()[0]; p.Spec.NodeSelector["kubernetes.io/hostname"] != "n" {
			t.Errorf("%+v", p.Spec)
		}
		change(func(s *batchv1.JobSpec) { *s.Suspend = true })
		r.isJob("0 0 0 Suspended=True")
		if j := r.job(); j.Status.StartTime != nil {
			t.Errorf("begun at %v", j.Status.StartTime)
		}
	})
}

// TestJobWrites: a Job with many indexes in its status is not written at the pace at which its pods end.
func TestJobWrites(t *testing.T) {
	var indexes []string
	for i := range 50_000 {
		indexes = append(indexes, fmt.Sprint(2*i))
	}
	s := batchv1.JobStatus{}
	if restOf(&s) != jobRest {
		t.Errorf("a Job without indexes rests for %v", restOf(&s))
	}
	s.CompletedIndexes = strings.Join(indexes, ",")
	failed := s.CompletedIndexes
	s.FailedIndexes = &failed
	bytes := float64(2 * len(failed))
	if rate := bytes / restOf(&s).Seconds(); rate > restText {
		t.Errorf("%.0f bytes a second", rate)
	}
}

// TestJobAround: pods without an owner cost a Job nothing once it has ended.
func TestJobAround(t *testing.T) {
	j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", UID: "job"}}
	owned := map[types.UID][]*corev1.Pod{"job": {{}}}
	free := map[string][]*corev1.Pod{"default": {{}, {}}}
	if n := len(around(j, owned, free)); n != 3 {
		t.Errorf("a Job looks at %d pods, want 3", n)
	}
	j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	if n := len(around(j, owned, free)); n != 1 {
		t.Errorf("a Job that has ended looks at %d pods, want its own", n)
	}
}

// TestJobExpires: a Job goes some time after its end, with its pods.
func TestJobExpires(t *testing.T) {
	working(t, func(s *batchv1.JobSpec) { s.TTLSecondsAfterFinished = ptrTo(int32(60)) }, func(r *rig) {
		p := r.pods()[0].Name
		r.ends(1, corev1.PodSucceeded)
		r.pass(50 * time.Second)
		r.isJob("0 1 0 SuccessCriteriaMet=True Complete=True")
		r.pass(20 * time.Second)
		r.collect()
		if !r.gone(batch.Jobs, "default", "work") || !r.gone(api.Pods, "default", p) {
			t.Error("it stays")
		}
	})
}

// TestJobOfAnotherTime: by its clock, which nobody has set yet, a board comes back long after the deadline of a Job. That is over when
// the time is known, and not before.
func TestJobOfAnotherTime(t *testing.T) { // N-12.7
	var believed atomic.Bool
	begun := func(r *rig) {
		j := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "work"}}
		j.Spec.ActiveDeadlineSeconds = ptrTo(int64(3600))
		j.Spec.Template.Spec = corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "c", Image: "i"}}}
		j, err := api.Create(r.ctx, r.Client, batch.Jobs, j)
		must(r, j, err)
		j.Status.StartTime = ptrTo(metav1.NewTime(time.Now().Add(-2 * time.Hour)).Rfc3339Copy())
		j, err = api.UpdateStatus(r.ctx, r.Client, batch.Jobs, j)
		must(r, j, err)
	}
	const judged = "0 0 1 FailureTarget=True Failed=True"
	resumed(t, Config{Believed: believed.Load}, begun, func(r *rig) {
		r.pass(30 * time.Minute)
		r.isJob("1 0 0")
		believed.Store(true)
		r.pass(jobDoubt + 2*time.Second)
		r.isJob(judged)
	})
	believed.Store(false) // nobody ever knows: what was seen counts
	resumed(t, Config{Believed: believed.Load}, begun, func(r *rig) {
		r.pass(59 * time.Minute)
		r.isJob("1 0 0")
		r.pass(2 * time.Minute)
		r.isJob(judged)
	})
}

// TestJobDeleted: its pods go with it, or stay and are held by nobody.
func TestJobDeleted(t *testing.T) {
	for _, how := range []metav1.DeletionPropagation{metav1.DeletePropagationBackground, metav1.DeletePropagationForeground,
		metav1.DeletePropagationOrphan} {
		working(t, func(*batchv1.JobSpec) {}, func(r *rig) {
			p := r.pods()[0]
			if _, err := r.Delete(r.ctx, batch.Jobs, "default", "work", api.DeleteOptions{Propagation: how}); err != nil {
				t.Fatal(err)
			}
			r.collect()
			if how == metav1.DeletePropagationOrphan {
				if p = r.getPod(p.Name); jobs.Tracked(p) || p.DeletionTimestamp != nil || len(p.OwnerReferences) != 0 {
					t.Errorf("%s: %+v", how, p.ObjectMeta)
				}
				return
			}
			if p = r.getPod(p.Name); jobs.Tracked(p) || p.DeletionTimestamp == nil {
				t.Errorf("%s: %+v", how, p.ObjectMeta)
			}
		})
	}
}

// TestJobPoweredOff: what an orderly power-off ended is no failure, leaves no corpse, and is done again at once.
func TestJobPoweredOff(t *testing.T) { // N-12.6
	working(t, func(s *batchv1.JobSpec) { s.BackoffLimit = new(int32) }, func(r *rig) {
		was := r.pods()[0].Name
		r.ends(1, corev1.PodFailed, func(p *corev1.Pod) { p.Status.Reason = "Terminated" })
		r.isJob("1 0 0")
		if list := r.pods(); len(list) != 1 || list[0].Name == was {
			t.Errorf("%d pods", len(list))
		}
	})
}

// A Job that somebody else runs is left alone.
func TestJobManagedBy(t *testing.T) {
	working(t, func(s *batchv1.JobSpec) { s.ManagedBy = ptrTo("example.org/queue") }, func(r *rig) {
		if r.isJob("0 0 0"); len(r.pods()) != 0 || r.job().Status.StartTime != nil {
			t.Error("it was touched")
		}
	})
}
