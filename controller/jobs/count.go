package jobs

import (
	"slices"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/batch"
)

// count sees how far the pods are, and counts those that the status knows as ended and that have lost their finalizer since.
func (l *look) count() {
	s := &l.Plan.Status
	l.indexed, l.perIndex = batch.IsIndexed(&l.Spec) && l.Spec.Completions != nil, l.Spec.BackoffLimitPerIndex != nil
	l.uncounted = map[types.UID]bool{}
	held := map[types.UID]bool{}
	for _, p := range l.pods {
		held[p.UID] = Tracked(p)
	}
	if s.UncountedTerminatedPods == nil {
		s.UncountedTerminatedPods = &batchv1.UncountedTerminatedPods{}
	}
	counted := func(list *[]types.UID, n *int32) {
		was := len(*list)
		*list = slices.DeleteFunc(*list, func(uid types.UID) bool { return !held[uid] })
		*n += int32(was - len(*list))
		for _, uid := range *list {
			l.uncounted[uid] = true
		}
	}
	counted(&s.UncountedTerminatedPods.Succeeded, &s.Succeeded)
	counted(&s.UncountedTerminatedPods.Failed, &s.Failed)
	l.succeeded = s.Succeeded + int32(len(s.UncountedTerminatedPods.Succeeded))
	l.failed = s.Failed + int32(len(s.UncountedTerminatedPods.Failed))
	var ready int32
	for _, p := range l.pods {
		switch {
		case over(p):
		case p.DeletionTimestamp != nil:
			l.going = append(l.going, p)
		default:
			l.active = append(l.active, p)
			if _, ok := api.ReadySince(p); ok {
				ready++
			}
		}
		if Tracked(p) && !l.uncounted[p.UID] && l.valid(p) && (p.Status.Phase == corev1.PodSucceeded || l.hasFailed(p)) {
			l.ended = append(l.ended, p)
		}
	}
	for _, p := range l.ended {
		switch {
		case p.Status.Phase == corev1.PodSucceeded:
			l.succeeded++
		case l.counts(p):
			l.failed++
		}
	}
	going := int32(len(l.going))
	s.Active, s.Ready, s.Terminating = int32(len(l.active)), &ready, &going
	l.countIndexes()
}

// countIndexes sees which indexes have succeeded and which have failed for good.
func (l *look) countIndexes() {
	if !l.indexed {
		return
	}
	n := int(*l.Spec.Completions)
	l.former = indexesOf(l.Plan.Status.CompletedIndexes).Below(n)
	var done, broken []int
	for _, p := range l.pods {
		switch {
		case !Tracked(p) || !l.valid(p):
		case p.Status.Phase == corev1.PodSucceeded && !l.uncounted[p.UID]:
			done = append(done, index(p))
		case l.perIndex && l.breaks(p):
			broken = append(broken, index(p))
		}
	}
	l.done = l.former.With(batch.SetOf(done))
	l.succeeded = int32(l.done.Len())
	if !l.perIndex {
		return
	}
	if text := l.Plan.Status.FailedIndexes; text != nil {
		l.broken = indexesOf(*text).Below(n)
	}
	broken = slices.DeleteFunc(broken, l.done.Has) // an index that has succeeded stays so
	l.broken = l.broken.With(batch.SetOf(broken))
	l.last = l.lastFailures()
}

// indexesOf reads what this package wrote; what cannot be read is none.
func indexesOf(text string) batch.Indexes {
	out, err := batch.ParseIndexes(text)
	if err != nil {
		return nil
	}
	return out
}

// breaks says that with this failure of a pod its index has failed for good.
func (l *look) breaks(p *corev1.Pod) bool {
	if !l.hasFailed(p) {
		return false
	}
	action := l.action(p)
	return action == batchv1.PodFailurePolicyActionFailIndex ||
		action != batchv1.PodFailurePolicyActionIgnore && failures(p, batchv1.JobIndexFailureCountAnnotation) >= *l.Spec.BackoffLimitPerIndex
}

// mostFailures is the highest number that is believed: whoever may change pods may write any, and two of them are added.
const mostFailures = 1 << 29

// failures is what an annotation of a pod says of those before it.
func failures(p *corev1.Pod, key string) int32 {
	n, err := strconv.ParseUint(p.Annotations[key], 10, 31)
	if err != nil {
		return 0
	}
	return int32(min(n, mostFailures))
}

func allFailures(p *corev1.Pod) int32 {
	return failures(p, batchv1.JobIndexFailureCountAnnotation) + failures(p, batchv1.JobIndexIgnoredFailureCountAnnotation)
}

// lastFailures are the failed pods of indexes that are to be tried again: they keep the finalizer, and so their count of
// failures, until there is a successor that has it.
func (l *look) lastFailures() map[int]*corev1.Pod {
	busy := map[int]bool{}
	for _, p := range l.active {
		busy[index(p)] = true
	}
	out := map[int]*corev1.Pod{}
	for _, p := range l.pods {
		i := index(p)
		if !Tracked(p) || !l.valid(p) || !l.hasFailed(p) || busy[i] || l.done.Has(i) || l.broken.Has(i) {
			continue
		}
		if is := out[i]; is == nil || allFailures(is) <= allFailures(p) && !ended(p).Before(ended(is)) {
			out[i] = p
		}
	}
	return out
}

// track puts pods that have ended into the status, and has their finalizers taken once that is written.
func (l *look) track() {
	s := &l.Plan.Status
	u := s.UncountedTerminatedPods
	known, done := len(u.Succeeded)+len(u.Failed), []int{}
	for _, p := range l.pods {
		if !Tracked(p) || !l.mayFree(p) {
			continue
		}
		if !l.uncounted[p.UID] && l.valid(p) {
			if known >= mostUncounted {
				break // the next look goes on
			}
			switch {
			case p.Status.Phase == corev1.PodSucceeded && l.indexed:
				if i := index(p); !l.former.Has(i) { // the index is what is counted, once
					done = append(done, i)
					known++
				}
			case p.Status.Phase == corev1.PodSucceeded:
				u.Succeeded = append(u.Succeeded, p.UID)
				known++
			case l.endsFailed(p) && l.counts(p):
				u.Failed = append(u.Failed, p.UID)
				known++
			}
		}
		l.Free = append(l.Free, p)
	}
	if l.indexed {
		l.done = l.former.With(batch.SetOf(done))
		s.Succeeded, s.CompletedIndexes = int32(l.done.Len()), l.done.String()
		s.FailedIndexes = nil
		if l.perIndex {
			text := l.broken.String()
			s.FailedIndexes = &text
		}
	}
}

// endsFailed says that a pod counts as failed, now that it is to be let go: it has failed, or the Job has and takes it along.
func (l *look) endsFailed(p *corev1.Pod) bool {
	switch {
	case l.verdict == nil:
		return l.hasFailed(p)
	case l.verdict.Type == batchv1.JobFailureTarget:
		return true
	}
	return p.Status.Phase == corev1.PodFailed
}

// mayFree says that nothing has to be known of a pod any more but that it is counted.
func (l *look) mayFree(p *corev1.Pod) bool {
	if l.DeletionTimestamp != nil || l.verdict != nil || p.Status.Phase == corev1.PodSucceeded {
		return true
	}
	return l.hasFailed(p) && l.last[index(p)] != p
}
