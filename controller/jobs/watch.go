package jobs

import (
	"math"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
)

// Watch is how long a Job has been waiting, active or over, as far as its observer knows. The clock of a board may be set by a month
// at any moment, so what counts is the time that the observer saw pass. Only what was before it looked is told by the clock, once that
// is believed.
type Watch struct {
	stage  stage
	since  time.Time     // it is in that stage; zero: nobody has looked
	before time.Duration // and was so when it was first seen
	told   bool          // before is known
	Doubts bool          // the Job may be older than it seems, and that matters
}

type stage int

const (
	waits stage = iota // it is suspended, or nobody has begun it
	runs
	hasEnded
)

// stageOf is the stage of a Job, and since when it says it is in it.
func stageOf(j *batchv1.Job) (s stage, at time.Time) {
	for i := range j.Status.Conditions {
		c := &j.Status.Conditions[i]
		if (c.Type == batchv1.JobComplete || c.Type == batchv1.JobFailed) && c.Status == corev1.ConditionTrue {
			return hasEnded, c.LastTransitionTime.Time
		}
	}
	if j.Status.StartTime != nil {
		return runs, j.Status.StartTime.Time
	}
	return waits, at
}

// Look sees a Job. believed says whether the clock is right; it is asked only if that matters.
func (w *Watch) Look(j *batchv1.Job, now time.Time, believed func() bool) {
	s, at := stageOf(j)
	if first := w.since.IsZero(); first || s != w.stage {
		*w = Watch{stage: s, since: now, told: !first || s == waits}
	}
	w.Doubts = !w.told && (s == runs && j.Spec.ActiveDeadlineSeconds != nil || s == hasEnded && j.Spec.TTLSecondsAfterFinished != nil)
	if w.Doubts && believed() {
		w.told, w.Doubts, w.before = true, false, max(now.Sub(at)-now.Sub(w.since), 0)
	}
}

// age is how long a Job has been in its stage.
func (w *Watch) age(now time.Time) time.Duration { return w.before + now.Sub(w.since) }

// Expires says in how long a Job that is over is to be deleted; !ok: never.
func (w *Watch) Expires(j *batchv1.Job, now time.Time) (left time.Duration, ok bool) {
	if w.stage != hasEnded || j.Spec.TTLSecondsAfterFinished == nil || j.DeletionTimestamp != nil {
		return 0, false
	}
	return time.Duration(*j.Spec.TTLSecondsAfterFinished)*time.Second - w.age(now), true
}

// left is how much of the Job's deadline is left; !ok: it has none.
func (w *Watch) left(j *batchv1.Job, now time.Time) (left time.Duration, ok bool) {
	most := j.Spec.ActiveDeadlineSeconds
	if most == nil {
		return 0, false
	}
	left = time.Duration(min(*most, math.MaxInt64/int64(time.Second))) * time.Second
	if w.stage == runs {
		left -= w.age(now)
	}
	return left, true
}
