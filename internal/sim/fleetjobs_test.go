package sim

import (
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/batch"
)

// Some of the fleet's pods come to an end: a CronJob begins a Job now and then, whatever happens meanwhile.

// tally is what a Job has counted.
type tally struct{ succeeded, failed int32 }

// perJob is how many pods of a Job have to succeed.
const perJob = 3

// employ makes the CronJob. A pod that a lost board takes along is one more failure, and there may be many.
func (f *fleet) employ() {
	f.Helper()
	one := Pod("work", WantEnd, corev1.RestartPolicyNever, "exit=40s:0")
	at, most, many := int32(perJob), int32(1000), int64(60)
	_, err := api.Create(f.user(), f.local, batch.CronJobs, &batchv1.CronJob{ObjectMeta: one.ObjectMeta, Spec: batchv1.CronJobSpec{
		Schedule: "*/20 * * * *", StartingDeadlineSeconds: &many, ConcurrencyPolicy: batchv1.AllowConcurrent,
		JobTemplate: batchv1.JobTemplateSpec{Spec: batchv1.JobSpec{Completions: &at, Parallelism: &at, BackoffLimit: &most,
			Template: corev1.PodTemplateSpec{ObjectMeta: one.ObjectMeta, Spec: one.Spec}}}}})
	f.must(err)
}

// passing are the pods that do not stay: those that come to an end, and those of which there are sometimes more.
func (f *fleet) passing() map[string]bool {
	out := map[string]bool{}
	for _, p := range f.all.List() {
		if l := p.Labels[wantLabel]; l == WantEnd || l == wantScaled {
			out[string(p.UID)] = true
		}
	}
	return out
}

// judgeJobs: no Job counts a pod twice, or loses one that it has counted; one that is complete has as many as it is to have, and a CronJob
// begins one for each time at most.
func (f *fleet) judgeJobs() {
	f.Helper()
	for _, j := range f.jobs.List() {
		s, was := &j.Status, f.tallies[j.UID]
		if s.Succeeded > perJob || s.Succeeded < was.succeeded || s.Failed < was.failed {
			f.Errorf("job %s counts %d and %d, after %d and %d", j.Name, s.Succeeded, s.Failed, was.succeeded, was.failed)
		}
		if batch.Finished(s) && (s.Succeeded != perJob || s.Active != 0 || uncounted(s) != 0) {
			f.Errorf("job %s is over: %+v", j.Name, s)
		}
		f.tallies[j.UID] = tally{s.Succeeded, s.Failed}
		f.judgeTime(j)
	}
}

func (f *fleet) judgeTime(j *batchv1.Job) {
	f.Helper()
	at := j.Annotations[batchv1.CronJobScheduledTimestampAnnotation]
	if of, ok := f.began[at]; ok && of != j.UID {
		f.Errorf("job %s is the second for %s", j.Name, at)
	}
	f.began[at] = j.UID
}

func uncounted(s *batchv1.JobStatus) int {
	if s.UncountedTerminatedPods == nil {
		return 0
	}
	return len(s.UncountedTerminatedPods.Succeeded) + len(s.UncountedTerminatedPods.Failed)
}
