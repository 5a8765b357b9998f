package jobs

import (
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestWatch: how long a Job has been active, or over, while the clock is set. A clock that is set forward by a month makes a Job say
// that it began a month ago.
func TestWatch(t *testing.T) { // N-12.7
	const month = 30 * 24 * time.Hour
	began := func(j *batchv1.Job, ago time.Duration) {
		j.Status.StartTime = pointer(metav1.NewTime(now.Add(-ago)))
	}
	ended := func(j *batchv1.Job, ago time.Duration) {
		j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue,
			LastTransitionTime: metav1.NewTime(now.Add(-ago))}}
	}
	nothing := func(*batchv1.Job, time.Duration) {}
	type seen struct {
		at       time.Duration // of a look, from the first one
		what     func(*batchv1.Job, time.Duration)
		ago      time.Duration // as the Job says it, by the clock of that moment
		believed bool
		left     time.Duration
		doubts   bool
	}
	for name, looks := range map[string][]seen{
		"begins under our eyes": {{what: nothing, left: time.Hour}, {at: time.Second, what: began, left: time.Hour},
			{at: time.Minute, what: began, ago: 59 * time.Second, believed: true, left: time.Hour - 59*time.Second}},
		"the clock is set forward": {{what: nothing, left: time.Hour}, {what: began, left: time.Hour},
			{at: 59 * time.Minute, what: began, ago: month, believed: true, left: time.Minute},
			{at: time.Hour, what: began, ago: month, believed: true}},
		"the clock is set back": {{what: nothing, left: time.Hour}, {what: began, left: time.Hour},
			{at: time.Hour, what: began, ago: -month, believed: true}},
		"it had begun": {{what: began, ago: 20 * time.Minute, believed: true, left: 40 * time.Minute},
			{at: 40 * time.Minute, what: began, ago: time.Hour, believed: true}},
		"it had begun, and the clock is set": {{what: began, ago: 20 * time.Minute, believed: true, left: 40 * time.Minute},
			{at: 10 * time.Minute, what: began, ago: month, believed: true, left: 30 * time.Minute}},
		"it had begun, who knows when": {{what: began, ago: month, left: time.Hour, doubts: true},
			{at: 10 * time.Minute, what: began, ago: 40 * time.Minute, believed: true, left: 20 * time.Minute},
			{at: 20 * time.Minute, what: began, ago: month, left: 10 * time.Minute}},
		"nobody ever knows": {{what: began, ago: -month, left: time.Hour, doubts: true},
			{at: time.Hour, what: began, ago: -month, doubts: true}},
		"it had begun in a time to come": {{what: began, ago: -month, believed: true, left: time.Hour}},
		"ends under our eyes": {{what: began, believed: true, left: time.Hour}, {at: time.Minute, what: ended, left: time.Hour},
			{at: 2 * time.Minute, what: ended, ago: month, believed: true, left: 59 * time.Minute}},
		"it had ended": {{what: ended, ago: 20 * time.Minute, believed: true, left: 40 * time.Minute}},
		"it had ended, who knows when": {{what: ended, ago: month, left: time.Hour, doubts: true},
			{what: ended, ago: month, believed: true, left: time.Hour - month}},
		"it begins anew": {{what: began, ago: 20 * time.Minute, believed: true, left: 40 * time.Minute}, {what: nothing, left: time.Hour},
			{at: time.Minute, what: began, ago: month, left: time.Hour}},
	} {
		var w Watch
		for i, look := range looks {
			j := work(func(j *batchv1.Job) {
				j.Spec.ActiveDeadlineSeconds, j.Spec.TTLSecondsAfterFinished = pointer(int64(3600)), pointer(int32(3600))
			})
			at := now.Add(look.at)
			look.what(j, look.ago-look.at) // both count from now
			w.Look(j, at, func() bool { return look.believed })
			left, ok := w.Expires(j, at)
			if !ok {
				left, _ = w.left(j, at)
			}
			if left != look.left || w.Doubts != look.doubts {
				t.Errorf("%s, look %d: %v are left (doubts: %v), want %v (%v)", name, i, left, w.Doubts, look.left, look.doubts)
			}
		}
	}
}

// TestWatchOfNothing: the clock is not asked about a Job that has no time.
func TestWatchOfNothing(t *testing.T) {
	j := work(status(func(s *batchv1.JobStatus) { s.StartTime = pointer(metav1.NewTime(now)) }))
	var w Watch
	w.Look(j, now, func() bool { t.Error("asked"); return true })
	if _, ok := w.left(j, now); ok || w.Doubts {
		t.Error("it has a deadline")
	}
	j.Spec.TTLSecondsAfterFinished = pointer(int32(9))
	w.Look(j, now, func() bool { t.Error("asked"); return true })
	if _, ok := w.Expires(j, now); ok {
		t.Error("it goes before it ends")
	}
}
