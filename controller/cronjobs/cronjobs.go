// Package cronjobs decides what CronJobs do next. It is pure: a CronJob, its Jobs, the time and whether that is believed go in, a Plan
// comes out.
//
// A plan is one step, the first of these that there is something to do for; what follows is the plan of the next look:
//
//	the status is written     what has ended and begun, so that it is known before a Job goes
//	ended Jobs are deleted    that are more than the history keeps
//	a Job is made             or those are deleted that it replaces
//
// Nothing has to be remembered between them. What was begun is read from the Jobs themselves: each says for which moment it was made,
// and its name is that moment's. So whoever dies after a Job was made makes it neither twice nor beside another that forbids it.
package cronjobs

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api/batch"
)

const (
	mostMissed = 100 // beyond these, a clock or a deadline is wrong
	mostActive = 100 // Jobs of one CronJob that have not ended: more of them would only fill the card

	// ahead is how far a moment of the past may lie in the future: a clock is set back by seconds all the time.
	ahead = 10 * time.Minute
	// doubt is how long nothing is begun before the clock is asked again.
	doubt = 10 * time.Second
)

// Clock is what the time is, and what is known of it.
type Clock struct {
	Now      time.Time
	Believed bool      // somebody who knows the time has set it, or nobody doubts it
	Since    time.Time // what was due before is not made up for: the schedule was another one; zero: it was not
}

// Plan is the next step for one CronJob.
type Plan struct {
	Status batchv1.CronJobStatus
	Delete []*batchv1.Job
	Make   *batchv1.Job
	Again  time.Duration // when to look again; 0: when something has changed
	Says   []Event       // once the status is written
	Warns  []Event       // when they are news
}

// Event is one to record of the CronJob.
type Event struct{ Type, Reason, Message string }

// Same says that the status stays as it is.
func (p *Plan) Same(c *batchv1.CronJob) bool {
	return apiequality.Semantic.DeepEqual(&p.Status, &c.Status)
}

func (p *Plan) says(reason, format string, args ...any) {
	p.Says = append(p.Says, Event{corev1.EventTypeNormal, reason, fmt.Sprintf(format, args...)})
}

func (p *Plan) warns(kind, reason, format string, args ...any) {
	p.Warns = append(p.Warns, Event{kind, reason, fmt.Sprintf(format, args...)})
}

func (p *Plan) again(in time.Duration) {
	if in > 0 && (p.Again == 0 || in < p.Again) {
		p.Again = in
	}
}

// look is what is seen of a CronJob at one moment.
type look struct {
	*batchv1.CronJob
	Plan
	Clock
	jobs    []*batchv1.Job // its own, by name
	running []*batchv1.Job // that its schedule made, and that have not ended
}

// Next is the next step for a CronJob, in view of the Jobs that it owns.
func Next(c *batchv1.CronJob, schedule batch.Schedule, jobs []*batchv1.Job, clock Clock) Plan {
	l := look{CronJob: c, Clock: clock, jobs: slices.Clone(jobs)}
	l.Plan.Status = *c.Status.DeepCopy()
	slices.SortFunc(l.jobs, func(a, b *batchv1.Job) int { return cmp.Compare(a.Name, b.Name) })
	l.count()
	l.time()
	if !l.Same(c) {
		return l.Plan
	}
	if l.tidy(); len(l.Delete) == 0 && c.DeletionTimestamp == nil {
		l.start(schedule)
	}
	return l.Plan
}

// count says in the status which Jobs run, and when one last succeeded.
func (l *look) count() {
	s, by := &l.Plan.Status, map[types.UID]*batchv1.Job{}
	for _, j := range l.jobs {
		by[j.UID] = j
	}
	known := map[types.UID]bool{}
	s.Active = nil
	for _, ref := range l.CronJob.Status.Active {
		switch j := by[ref.UID]; {
		case j == nil && l.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent: // it was replaced
		case j == nil:
			l.says("MissingJob", "Active job went missing: %s", ref.Name)
		case batch.Finished(&j.Status):
			l.says("SawCompletedJob", "Saw completed job: %s, condition: %s", j.Name, verdict(j))
		case !known[ref.UID]:
			known[ref.UID], s.Active, l.running = true, append(s.Active, ref), append(l.running, j)
		}
	}
	for _, j := range l.jobs {
		switch _, ours := l.madeFor(j); {
		case batch.Finished(&j.Status):
			at := j.Status.CompletionTime
			if batch.Is(&j.Status, batchv1.JobComplete) && at != nil && (s.LastSuccessfulTime == nil || s.LastSuccessfulTime.Before(at)) {
				s.LastSuccessfulTime = at.DeepCopy()
			}
		case known[j.UID]:
		case ours:
			s.Active, l.running = append(s.Active, reference(j)), append(l.running, j)
		case j.DeletionTimestamp == nil:
			l.warns(corev1.EventTypeWarning, "UnexpectedJob", "Saw a job that the controller did not create or forgot: %s", j.Name)
		}
	}
}

func reference(j *batchv1.Job) corev1.ObjectReference {
	return corev1.ObjectReference{APIVersion: batch.Jobs.APIVersion(), Kind: batch.Jobs.Name, Namespace: j.Namespace, Name: j.Name, UID: j.UID,
		ResourceVersion: j.ResourceVersion}
}

func verdict(j *batchv1.Job) batchv1.JobConditionType {
	if batch.Is(&j.Status, batchv1.JobComplete) {
		return batchv1.JobComplete
	}
	return batchv1.JobFailed
}

// madeFor is the moment for which the schedule made a Job; !ok: somebody else made it.
func (l *look) madeFor(j *batchv1.Job) (at time.Time, ok bool) {
	at, err := time.Parse(time.RFC3339, j.Annotations[batchv1.CronJobScheduledTimestampAnnotation])
	return at, err == nil && j.Name == name(l.CronJob, at)
}

// name is that of the Job for a moment: two Jobs for one cannot be.
func name(c *batchv1.CronJob, at time.Time) string { return fmt.Sprintf("%s-%d", c.Name, at.Unix()/60) }

// time says in the status for which moment a Job was last made. A moment far in the future means that the clock was set back: a CronJob
// that waited until then would do nothing for years.
func (l *look) time() {
	s := &l.Plan.Status
	tooFar := func(at time.Time) bool { return l.Believed && at.After(l.Now.Add(ahead)) }
	for _, j := range l.jobs {
		at, ok := l.madeFor(j)
		if ok && !tooFar(at) && (s.LastScheduleTime == nil || s.LastScheduleTime.Time.Before(at)) {
			s.LastScheduleTime = &metav1.Time{Time: at.Local()}
		}
	}
	if from := l.from(); tooFar(from) {
		now := metav1.NewTime(l.Now).Rfc3339Copy()
		s.LastScheduleTime = &now
		l.says("ClockSetBack", "The clock was set back: goes on from now, not from %s", from.UTC().Format(time.RFC1123Z))
	}
}

// from is the moment that what is due comes after.
func (l *look) from() time.Time {
	if at := l.Plan.Status.LastScheduleTime; at != nil {
		return at.Time
	}
	return l.CreationTimestamp.Time
}

// tidy deletes the oldest of the Jobs that have ended, beyond the numbers that are kept.
func (l *look) tidy() {
	var good, bad []*batchv1.Job
	for _, j := range l.jobs {
		switch {
		case !batch.Finished(&j.Status) || j.DeletionTimestamp != nil:
		case verdict(j) == batchv1.JobComplete:
			good = append(good, j)
		default:
			bad = append(bad, j)
		}
	}
	l.Delete = append(beyond(good, l.Spec.SuccessfulJobsHistoryLimit), beyond(bad, l.Spec.FailedJobsHistoryLimit)...)
}

func beyond(jobs []*batchv1.Job, limit *int32) []*batchv1.Job {
	if limit == nil || len(jobs) <= int(*limit) {
		return nil
	}
	slices.SortStableFunc(jobs, func(a, b *batchv1.Job) int {
		x, y := a.Status.StartTime, b.Status.StartTime
		switch {
		case x == nil && y == nil:
			return 0
		case x == nil:
			return 1
		case y == nil:
			return -1
		}
		return x.Compare(y.Time)
	})
	return jobs[:len(jobs)-int(*limit)]
}

// start makes the Job that is due: of all that were missed only the last, and none that is later than it may be.
func (l *look) start(schedule batch.Schedule) {
	if l.Spec.Suspend != nil && *l.Spec.Suspend {
		return
	}
	from := l.from()
	if from.Before(l.Since) {
		from = l.Since
	}
	at, next := schedule.Around(from, l.Now)
	if next.IsZero() && at.IsZero() {
		l.warns(corev1.EventTypeWarning, "InvalidSchedule", "invalid schedule: %s : it never comes", l.Spec.Schedule)
		return
	}
	if !next.IsZero() {
		l.again(next.Sub(l.Now))
	}
	deadline := from
	if s := l.Spec.StartingDeadlineSeconds; s != nil {
		deadline = l.Now.Add(-seconds(*s))
	}
	switch {
	case at.IsZero():
	case !l.Believed:
		l.again(doubt)
	case at.Before(deadline):
		l.warns(corev1.EventTypeWarning, "MissSchedule", "Missed scheduled time to start a job: %s", at.UTC().Format(time.RFC1123Z))
	case slices.ContainsFunc(l.jobs, func(j *batchv1.Job) bool { return j.Name == name(l.CronJob, at) }): // every second is every minute
		l.Again = l.Now.Truncate(time.Minute).Add(time.Minute).Sub(l.Now)
	case l.Spec.ConcurrencyPolicy == batchv1.ForbidConcurrent && len(l.running) > 0:
		l.warns(corev1.EventTypeNormal, "JobAlreadyActive",
			"Not starting job because prior execution is running and concurrency policy is Forbid")
	case l.Spec.ConcurrencyPolicy == batchv1.ReplaceConcurrent && l.replace():
	case len(l.running) >= mostActive:
		l.warns(corev1.EventTypeWarning, "TooManyActive", "Not starting job because %d have not ended", len(l.running))
	default:
		if deadline.After(from) {
			from = deadline
		}
		if schedule.Missed(from, l.Now, mostMissed+1) > mostMissed {
			l.warns(corev1.EventTypeWarning, "TooManyMissedTimes",
				"too many missed start times. Set or decrease .spec.startingDeadlineSeconds or check clock skew")
		}
		l.Make = l.job(at, schedule)
	}
}

// seconds is a number of seconds as a duration; more than a century is one.
func seconds(n int64) time.Duration {
	const century = 100 * 365 * 24 * 3600
	return time.Duration(min(n, century)) * time.Second
}

// replace deletes what runs, for another to take its place once it is gone or about to go.
func (l *look) replace() bool {
	for _, j := range l.running {
		if j.DeletionTimestamp == nil {
			l.Delete = append(l.Delete, j)
		}
	}
	return len(l.Delete) > 0
}

// job is the Job for a moment.
func (l *look) job(at time.Time, schedule batch.Schedule) *batchv1.Job {
	t := l.Spec.JobTemplate.DeepCopy()
	j := &batchv1.Job{Spec: t.Spec}
	j.Namespace, j.Name, j.Labels, j.Annotations = l.Namespace, name(l.CronJob, at), t.Labels, t.Annotations
	if j.Annotations == nil {
		j.Annotations = map[string]string{}
	}
	j.Annotations[batchv1.CronJobScheduledTimestampAnnotation] = schedule.Stamp(at)
	j.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(l.CronJob, batch.CronJobs.GVK())}
	return j
}
