package jobs

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/batch"
	"ledge/controller/workload"
)

// size says which pods are too many and which are missing. It does one or the other, and what is too many goes first.
func (l *look) size(pause time.Duration) {
	want := l.wanted()
	if l.Drop = l.surplus(want); len(l.Drop) > 0 {
		l.Drop = l.Drop[:min(len(l.Drop), mostDeleted)]
		return
	}
	missing := want - len(l.active)
	if l.replacesFailed() {
		missing -= len(l.going)
	}
	if missing <= 0 {
		l.clear()
		return
	}
	room := mostWaiting
	for _, p := range l.active {
		if p.Spec.NodeName == "" {
			room--
		}
	}
	missing = min(missing, max(room, 0))
	if !l.perIndex {
		pause = max(pause, l.backOff())
	}
	if pause > 0 {
		l.again(pause)
		return
	}
	if !l.indexed {
		for range missing {
			l.Make = append(l.Make, l.pod(-1, nil))
		}
		return
	}
	l.makeIndexes(missing)
}

// wanted is how many pods are to run at once.
func (l *look) wanted() int {
	at := *l.Spec.Parallelism
	switch {
	case l.suspended():
		return 0
	case l.Spec.Completions != nil:
		return int(max(min(at, *l.Spec.Completions-l.succeeded), 0))
	case l.succeeded > 0: // one success is enough; what runs may end
		return len(l.active)
	}
	return int(at)
}

// surplus are the pods that are too many: those that do no work of the Job, all but the worthiest of an index, and then those
// that are worth least.
func (l *look) surplus(want int) []*corev1.Pod {
	left := slices.Clone(l.active)
	workload.InOrderOfWorth(left, nil, l.now)
	var out []*corev1.Pod
	if l.indexed {
		rest := left[:0:0]
		seen := map[int]bool{}
		for _, p := range slices.Backward(left) {
			if i := index(p); !l.valid(p) || seen[i] {
				out = append(out, p)
			} else {
				seen[i], rest = true, append(rest, p)
			}
		}
		slices.Reverse(rest)
		left = rest
	}
	more := min(max(len(l.active)-want-len(out), 0), len(left))
	return append(out, left[:more]...)
}

// clear deletes the pods that a power-off ended and that have been counted: others do their work by now.
func (l *look) clear() {
	for _, p := range l.pods {
		if api.PoweredOff(p) && !Tracked(p) && p.DeletionTimestamp == nil {
			l.Delete = append(l.Delete, p)
		}
	}
}

// makeIndexes makes the pods of the first indexes that nobody works on. Where each index has its own back-off, one that has to
// wait does not keep the others.
func (l *look) makeIndexes(missing int) {
	working := l.active
	if l.replacesFailed() {
		working = slices.Concat(working, l.going)
	}
	var taken []int
	for _, p := range working {
		if l.valid(p) {
			taken = append(taken, index(p))
		}
	}
	busy := l.done.With(l.broken).With(batch.SetOf(taken))
	for _, i := range busy.Missing(missing+len(l.last), int(*l.Spec.Completions)) {
		if len(l.Make) == missing {
			return
		}
		before := l.last[i]
		if before != nil {
			if wait := l.wait(allFailures(before)+1, ended(before)); wait > 0 {
				l.again(wait)
				continue
			}
		}
		l.Make = append(l.Make, l.pod(i, before))
	}
}

const indexVariable = "JOB_COMPLETION_INDEX"

// pod is a new one: of an index, or -1, and after one that failed.
func (l *look) pod(i int, before *corev1.Pod) *corev1.Pod {
	p := batch.Jobs.PodOf(l.Job)
	if !Tracked(p) {
		p.Finalizers = append(p.Finalizers, batchv1.JobTrackingFinalizer)
	}
	if i < 0 {
		return p
	}
	number := strconv.Itoa(i)
	mark(&p.Annotations, batchv1.JobCompletionIndexAnnotation, number)
	mark(&p.Labels, batchv1.JobCompletionIndexAnnotation, number)
	p.Spec.Hostname = l.Name + "-" + number
	const longest = 58 // the server adds five letters
	suffix := "-" + number + "-"
	p.GenerateName = l.Name[:min(len(l.Name), longest-len(suffix))] + suffix
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for c := range list {
			if !slices.ContainsFunc(list[c].Env, func(e corev1.EnvVar) bool { return e.Name == indexVariable }) {
				list[c].Env = append(list[c].Env, corev1.EnvVar{Name: indexVariable, ValueFrom: &corev1.EnvVarSource{
					FieldRef: &corev1.ObjectFieldSelector{FieldPath: fmt.Sprintf("metadata.labels['%s']", batchv1.JobCompletionIndexAnnotation)}}})
			}
		}
	}
	if l.perIndex {
		l.countOn(p, before)
	}
	return p
}

// countOn notes in a pod how often its index has failed before.
func (l *look) countOn(p, before *corev1.Pod) {
	var fails, ignored int32
	if before != nil {
		fails, ignored = failures(before, batchv1.JobIndexFailureCountAnnotation), failures(before, batchv1.JobIndexIgnoredFailureCountAnnotation)
		if l.counts(before) {
			fails++
		} else {
			ignored++
		}
	}
	mark(&p.Annotations, batchv1.JobIndexFailureCountAnnotation, strconv.Itoa(int(fails)))
	if ignored > 0 {
		mark(&p.Annotations, batchv1.JobIndexIgnoredFailureCountAnnotation, strconv.Itoa(int(ignored)))
	}
}

func mark(m *map[string]string, key, value string) {
	if *m == nil {
		*m = map[string]string{}
	}
	(*m)[key] = value
}
