// Package jobs decides what Jobs do next. It is pure: a Job, the pods of its namespace and the time go in, a Plan comes
// out.
//
// No pod of a Job may be counted twice or be lost, whoever dies between which two writes. So each pod carries a finalizer
// from its creation on, and a plan is carried out in this order:
//
//	pods are claimed      nothing else is planned before that is done
//	the status is written pods that have ended stand in uncountedTerminatedPods by now, the verdict in the conditions
//	pods are deleted      those of a Job that has its verdict; then those that are too many, and these lose the finalizer first
//	finalizers are taken  only of pods that the written status knows
//	pods are made
//
// The next look counts the pods of that list that have no finalizer any more. A pod with one that the status does not know has
// not been counted; a pod without one has.
package jobs

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
)

// Bounds of one look.
const (
	mostUncounted = 500 // uids in a status: 20 KB
	mostDeleted   = 500
	mostWaiting   = 100 // pods of one Job without a node: more of them would only fill the card
)

// Plan is what one Job needs.
type Plan struct {
	Adopt, Release []*corev1.Pod
	Status         batchv1.JobStatus
	Delete         []*corev1.Pod // as they are: with the finalizer
	Drop           []*corev1.Pod // without it: they do not count
	Free           []*corev1.Pod // of the finalizer
	Make           []*corev1.Pod
	Again          time.Duration // when to look again; 0: when something has changed
	Says           []Event
}

// Event is one to record of the Job, once the status is written.
type Event struct{ Type, Reason, Message string }

// Idle says that there is nothing to do.
func (p *Plan) Idle(j *batchv1.Job) bool {
	return len(p.Adopt)+len(p.Release)+len(p.Delete)+len(p.Drop)+len(p.Free)+len(p.Make) == 0 && p.Same(j)
}

// Same says that the status stays as it is.
func (p *Plan) Same(j *batchv1.Job) bool { return apiequality.Semantic.DeepEqual(&p.Status, &j.Status) }

func (p *Plan) again(in time.Duration) {
	if in > 0 && (p.Again == 0 || in < p.Again) {
		p.Again = in
	}
}

func (p *Plan) says(kind, reason, message string) {
	p.Says = append(p.Says, Event{kind, reason, message})
}

// Ours says that nobody else runs a Job.
func Ours(j *batchv1.Job) bool {
	return j.Spec.ManagedBy == nil || *j.Spec.ManagedBy == batchv1.JobControllerName
}

// Tracked says that a pod is still to be counted, or does not know yet that it was.
func Tracked(p *corev1.Pod) bool { return slices.Contains(p.Finalizers, batchv1.JobTrackingFinalizer) }

// look is what is seen of a Job at one moment.
type look struct {
	*batchv1.Job
	Plan
	now                  time.Time
	watch                Watch
	pods                 []*corev1.Pod // its own, by index and age
	active               []*corev1.Pod // neither ended nor going
	going                []*corev1.Pod // not ended, but deleted
	ended                []*corev1.Pod // that count and are not in the status yet
	uncounted            map[types.UID]bool
	indexed, perIndex    bool
	succeeded, failed    int32 // with those that are still to be counted
	done, former, broken batch.Indexes
	last                 map[int]*corev1.Pod // the failed pod of an index that the next one counts on from
	verdict              *batchv1.JobCondition
}

// Next says what to do about a Job of ours. pods are those of its namespace, pause is how long the caller wants no pod to be made, w is
// what the caller has seen of the Job so far.
func Next(j *batchv1.Job, pods []*corev1.Pod, pause time.Duration, w Watch, now time.Time) Plan {
	l := look{Job: j, watch: w, now: now}
	l.Plan.Status = *j.Status.DeepCopy()
	if batch.Finished(&j.Status) {
		l.wrapUp(pods)
		return l.Plan
	}
	if l.claim(pods); len(l.Adopt)+len(l.Release) > 0 {
		return l.Plan
	}
	l.count()
	l.judge()
	switch {
	case l.verdict != nil:
		l.Delete = l.active
	case j.DeletionTimestamp == nil:
		l.suspend()
		l.size(pause)
	}
	l.track()
	l.finish()
	return l.Plan
}

// claim finds the pods of the Job, and those that are to become or no longer to be its own.
func (l *look) claim(pods []*corev1.Pod) {
	selector, err := metav1.LabelSelectorAsSelector(l.Spec.Selector)
	if err != nil {
		selector = labels.Nothing() // refused by validation
	}
	for _, p := range pods {
		of, selected, going := metav1.GetControllerOf(p), selector.Matches(labels.Set(p.Labels)), l.DeletionTimestamp != nil
		mine := of != nil && of.UID == l.UID
		switch {
		case mine && !selected && !going:
			l.Release = append(l.Release, p)
		case mine && !selected:
		case mine && !Tracked(p) && !over(p) && p.DeletionTimestamp == nil && !going && !l.hasVerdict():
			l.Adopt = append(l.Adopt, p) // it was to go, and the one who took its finalizer died
		case mine:
			l.pods = append(l.pods, p)
		case of == nil && selected && !going && p.DeletionTimestamp == nil:
			l.Adopt = append(l.Adopt, p)
		}
	}
	slices.SortFunc(l.pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(index(a), index(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
	})
}

func (l *look) hasVerdict() bool {
	return batch.Is(&l.Job.Status, batchv1.JobFailureTarget) || batch.Is(&l.Job.Status, batchv1.JobSuccessCriteriaMet)
}

// over says that a pod has ended.
func over(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed
}

// index is that of a pod of an Indexed Job; -1: it has none.
func index(p *corev1.Pod) int {
	n, err := strconv.ParseUint(p.Annotations[batchv1.JobCompletionIndexAnnotation], 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// valid says that a pod does work of this Job: one of an Indexed Job has an index below the number of completions.
func (l *look) valid(p *corev1.Pod) bool {
	i := index(p)
	return !l.indexed || i >= 0 && i < int(*l.Spec.Completions)
}

// hasFailed says that a pod counts as failed. One that is deleted does so at once where its successor need not wait for its end.
func (l *look) hasFailed(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed ||
		!l.replacesFailed() && p.DeletionTimestamp != nil && p.Status.Phase != corev1.PodSucceeded
}

func (l *look) replacesFailed() bool {
	return l.Spec.PodReplacementPolicy != nil && *l.Spec.PodReplacementPolicy == batchv1.Failed
}

func (l *look) suspended() bool { return l.Spec.Suspend != nil && *l.Spec.Suspend }

// suspend notes when the Job begins, and when it is halted and goes on. A Job that goes on begins anew.
func (l *look) suspend() {
	s := &l.Plan.Status
	if batch.Is(s, batchv1.JobSuspended) == l.suspended() {
		return
	}
	if l.suspended() {
		s.StartTime = nil
		l.set(batchv1.JobSuspended, corev1.ConditionTrue, "JobSuspended", "Job suspended")
		l.says(corev1.EventTypeNormal, "Suspended", "Job suspended")
		return
	}
	now := l.stamp()
	s.StartTime = &now
	l.set(batchv1.JobSuspended, corev1.ConditionFalse, "JobResumed", "Job resumed")
	l.says(corev1.EventTypeNormal, "Resumed", "Job resumed")
}

// set puts a condition into the status that is to be written.
func (l *look) set(t batchv1.JobConditionType, status corev1.ConditionStatus, reason, message string) {
	c := l.condition(t, reason, message)
	c.Status = status
	list := &l.Plan.Status.Conditions
	if i := slices.IndexFunc(*list, func(c batchv1.JobCondition) bool { return c.Type == t }); i >= 0 {
		(*list)[i] = c
		return
	}
	*list = append(*list, c)
}

// stamp is the time as objects carry it: whole seconds. Else what was written would differ from what is read.
func (l *look) stamp() metav1.Time { return metav1.NewTime(l.now).Rfc3339Copy() }

func (l *look) condition(t batchv1.JobConditionType, reason, message string) batchv1.JobCondition {
	now := l.stamp()
	return batchv1.JobCondition{Type: t, Status: corev1.ConditionTrue, Reason: reason, Message: message, LastProbeTime: now,
		LastTransitionTime: now}
}

// finish ends a Job that has its verdict, when all of its pods have ended and are counted.
func (l *look) finish() {
	s := &l.Plan.Status
	u := s.UncountedTerminatedPods
	if l.verdict == nil || len(l.active)+len(l.going)+len(l.Free) > 0 || u != nil && len(u.Succeeded)+len(u.Failed) > 0 {
		return
	}
	now := l.stamp()
	if s.StartTime == nil { // it ends while it is suspended
		s.StartTime = &now
	}
	if l.verdict.Type == batchv1.JobFailureTarget {
		l.set(batchv1.JobFailed, corev1.ConditionTrue, l.verdict.Reason, l.verdict.Message)
		l.says(corev1.EventTypeWarning, l.verdict.Reason, l.verdict.Message)
		return
	}
	l.set(batchv1.JobComplete, corev1.ConditionTrue, l.verdict.Reason, l.verdict.Message)
	if now.Before(s.StartTime) { // the clock was set back
		now = *s.StartTime
	}
	s.CompletionTime = &now
	if n := l.Spec.Completions; n != nil && s.Succeeded > *n {
		l.says(corev1.EventTypeWarning, "TooManySucceededPods", "Too many succeeded pods running after completion count reached")
	}
	l.says(corev1.EventTypeNormal, "Completed", "Job completed")
}

// wrapUp is what is left to do of a Job that has ended: no pod is held any longer, and those that a power-off ended go.
func (l *look) wrapUp(pods []*corev1.Pod) {
	for _, p := range pods {
		if of := metav1.GetControllerOf(p); of == nil || of.UID != l.UID {
			continue
		}
		switch {
		case Tracked(p):
			l.Free = append(l.Free, p)
		case api.PoweredOff(p) && p.DeletionTimestamp == nil:
			l.Delete = append(l.Delete, p)
		}
	}
}
