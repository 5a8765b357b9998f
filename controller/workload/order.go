package workload

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// revisionHash is the label of a StatefulSet's ControllerRevisions.
const revisionHash = "controller.kubernetes.io/hash"

// MostWaiting is how many pods of one controller may be without a board: more of them would only fill the card.
const MostWaiting = 100

// order is one look at one StatefulSet.
type order struct {
	set      *appsv1.StatefulSet
	now      time.Time
	minReady time.Duration
	inOrder  bool      // one after the other, each when those before it are available
	start    int       // the first ordinal
	end      int       // the one after the last
	pods     []*member // those that there are to be, as far as they are there, by ordinal
	excess   []*member // the others, by ordinal
	was      past
	current  string // the revision that all pods had when the last rollout was over
	update   string // that of today's template
	course   Course
	status   appsv1.StatefulSetStatus
}

// member is a pod of the set.
type member struct {
	*corev1.Pod
	ordinal   int
	ready     bool // and running
	available bool
	going     bool // it is being deleted, or is to be
}

// present says that a member serves.
func (m *member) present() bool { return m.available && !m.going }

func (m *member) revision() string { return m.Labels[appsv1.StatefulSetRevisionLabel] }

// Order decides what to do next for a StatefulSet. revisions and pods are those of its namespace; neither is changed.
func Order(set *appsv1.StatefulSet, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, now time.Time) (Course,
	appsv1.StatefulSetStatus) {
	o := &order{set: set, now: now, minReady: time.Duration(set.Spec.MinReadySeconds) * time.Second,
		inOrder: set.Spec.PodManagementPolicy != appsv1.ParallelPodManagement, status: *set.Status.DeepCopy()}
	own, ok := o.course.claim(set, set.Spec.Selector, func(p *corev1.Pod) bool { return Ordinal(set, p) >= 0 }, pods)
	if !ok {
		return o.course, o.status
	}
	o.line(own)
	if set.DeletionTimestamp != nil {
		o.current, o.update = set.Status.CurrentRevision, set.Status.UpdateRevision
		o.count()
		return o.course, o.status
	}
	o.was, ok = o.course.recall(set, "StatefulSet", revisionHash, set.Spec.Selector, &set.Spec.Template, set.Status.CollisionCount, revisions)
	if !ok {
		return o.course, o.status
	}
	o.current, o.update = o.was.fresh.Name, o.was.fresh.Name
	if o.was.named(set.Status.CurrentRevision) != nil {
		o.current = set.Status.CurrentRevision
	}
	if o.keep() && o.shrink() && set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
		o.replace()
	}
	o.count()
	o.course.forget(&o.was, set.Spec.RevisionHistoryLimit, func(r *appsv1.ControllerRevision) bool {
		return r.Name == o.current || slices.ContainsFunc(own,
			func(p *corev1.Pod) bool { return p.Labels[appsv1.StatefulSetRevisionLabel] == r.Name })
	})
	return o.course, o.status
}

// Ordinal is the number of a pod of a StatefulSet, which is in its name; -1: it is none of its pods.
func Ordinal(set *appsv1.StatefulSet, p *corev1.Pod) int {
	text, ok := strings.CutPrefix(p.Name, set.Name+"-")
	n, err := strconv.ParseInt(text, 10, 32)
	if !ok || err != nil || n < 0 || strconv.FormatInt(n, 10) != text {
		return -1
	}
	return int(n)
}

// line puts the pods in their order, and says how each is.
func (o *order) line(own []*corev1.Pod) {
	if s := o.set.Spec.Ordinals; s != nil {
		o.start = int(s.Start)
	}
	o.end = o.start + int(wanted(o.set.Spec.Replicas))
	o.course.Places = map[string][]*corev1.Pod{}
	for _, p := range own {
		m := &member{Pod: p, ordinal: Ordinal(o.set, p), going: p.DeletionTimestamp != nil}
		if p.Status.Phase == corev1.PodRunning {
			var left time.Duration
			m.available, left = Available(p, o.minReady, o.now)
			m.ready = m.available || left > 0
			o.course.again(left)
		}
		if !ended(p) && !m.going {
			o.course.Places[p.Name] = append(o.course.Places[p.Name], p)
		}
		if m.ordinal >= o.start && m.ordinal < o.end {
			o.pods = append(o.pods, m)
		} else {
			o.excess = append(o.excess, m)
		}
	}
	for _, list := range [][]*member{o.pods, o.excess} {
		slices.SortFunc(list, func(a, b *member) int { return cmp.Compare(a.ordinal, b.ordinal) })
	}
}

// keep makes missing pods, makes ended ones again, and gives adopted ones their names. In order it stops at the first pod that is not
// available and returns false.
func (o *order) keep() bool {
	room := MostWaiting
	for _, m := range o.pods {
		if m.Spec.NodeName == "" && !ended(m.Pod) {
			room--
		}
	}
	next := o.start
	for _, m := range o.pods {
		if !o.make(next, m.ordinal, &room) {
			return false
		}
		next = m.ordinal + 1
		switch {
		case !ended(m.Pod):
		case !m.going:
			o.remove(Replace, m)
			fallthrough
		default:
			if o.inOrder {
				return false
			}
			continue
		}
		if o.inOrder && !m.present() {
			return false
		}
		if m.Labels[appsv1.StatefulSetPodNameLabel] != m.Name && !m.going {
			named := *m.Pod
			named.Labels = o.identity(m.Labels, m.Name, m.ordinal)
			o.course.pod(Update, &named, m.Name)
		}
	}
	return o.make(next, o.end, &room)
}

// make makes the pods from one ordinal to before another, as far as there is room. It is false if that is to end the look.
func (o *order) make(from, to int, room *int) bool {
	for n := from; n < to; n++ {
		if *room <= 0 {
			return !o.inOrder
		}
		p := o.pod(n)
		o.course.pod(Create, p, p.Name)
		if *room--; o.inOrder {
			return false
		}
	}
	return true
}

// pod is a new one of an ordinal, of today's template or of the one before, by how far the rollout may be.
func (o *order) pod(ordinal int) *corev1.Pod {
	template, revision := &o.set.Spec.Template, o.update
	if o.current != o.update && o.former(ordinal) {
		if template, revision = Remembered(o.was.named(o.current)), o.current; template == nil {
			template, revision = &o.set.Spec.Template, o.update
		}
	}
	p := podOf(o.set, "StatefulSet", template)
	p.Name = fmt.Sprintf("%s-%d", o.set.Name, ordinal)
	p.Labels = with(o.identity(p.Labels, p.Name, ordinal), appsv1.StatefulSetRevisionLabel, revision)
	p.Spec.Hostname, p.Spec.Subdomain = p.Name, o.set.Spec.ServiceName
	withClaims(o.set, p, ordinal)
	return p
}

// identity is labels, and those by which a pod of a StatefulSet is known.
func (o *order) identity(labels map[string]string, name string, ordinal int) map[string]string {
	return with(with(labels, appsv1.StatefulSetPodNameLabel, name), appsv1.PodIndexLabel, strconv.Itoa(ordinal))
}

// former says that a pod of an ordinal is still to have the template before today's.
func (o *order) former(ordinal int) bool {
	s := &o.set.Spec.UpdateStrategy
	switch {
	case s.Type != appsv1.RollingUpdateStatefulSetStrategyType:
		return false
	case s.RollingUpdate == nil: // the rollout comes from the end
		return ordinal < o.start+int(o.set.Status.CurrentReplicas)
	}
	return ordinal < o.partition()
}

// partition is the first ordinal that is to have today's template.
func (o *order) partition() int {
	if roll := o.set.Spec.UpdateStrategy.RollingUpdate; roll != nil && roll.Partition != nil {
		return int(min(int64(o.start)+int64(*roll.Partition), math.MaxInt32)) // an int may have 32 bits
	}
	return o.start
}

// shrink deletes the pods beyond those that there are to be: in order from the last on, one when the one after it is gone and all
// others are available, or it is the first that is not. One that has ended keeps nobody waiting, though on Kubernetes it does.
func (o *order) shrink() bool {
	var ill *member // the first of all pods that is not available
	for _, m := range slices.Concat(o.pods, o.excess) {
		if !m.present() && !ended(m.Pod) {
			ill = m
			break
		}
	}
	for _, m := range slices.Backward(o.excess) {
		switch {
		case m.going && o.inOrder, o.inOrder && !m.available && m != ill && !ended(m.Pod):
			return false
		case m.going:
			continue
		}
		if o.remove(Delete, m); o.inOrder {
			return false
		}
	}
	return true
}

// replace deletes pods of another template than today's, from the last on, so that as many stay available as are to.
func (o *order) replace() {
	absent, old := o.end-o.start-len(o.pods), []*member{}
	for _, m := range o.pods {
		if !m.present() {
			absent++
		}
		if m.ordinal >= o.partition() && m.revision() != o.update && !m.going {
			old = append(old, m)
		}
	}
	slices.Reverse(old)
	if !o.inOrder { // those that serve nobody first: they are missing anyway
		for _, m := range old {
			if !m.available {
				o.remove(Delete, m)
			}
		}
		old = slices.DeleteFunc(old, func(m *member) bool { return !m.available })
	}
	for _, m := range old[:max(min(o.slack()-absent, len(old)), 0)] {
		o.remove(Delete, m)
	}
}

// remove has a pod deleted. It counts as going from now on: how many are of the former template decides what the next one is.
func (o *order) remove(do string, m *member) {
	o.course.pod(do, m.Pod, m.Name)
	m.going = true
}

// slack is how many pods may be missing in a rollout: at least one, or nothing would move.
func (o *order) slack() int {
	var of *intstr.IntOrString
	if roll := o.set.Spec.UpdateStrategy.RollingUpdate; roll != nil {
		of = roll.MaxUnavailable
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(of, intstr.FromInt32(1)), o.end-o.start, false)
	if err != nil {
		return 1 // refused by validation
	}
	return min(max(n, 1), math.MaxInt32)
}

// count fills in how far the pods are. A rollout is over when all are of today's template and ready, and there are no others.
func (o *order) count() {
	s := &o.status
	s.ObservedGeneration, s.CurrentRevision, s.UpdateRevision = o.set.Generation, o.current, o.update
	s.Replicas, s.ReadyReplicas, s.AvailableReplicas, s.CurrentReplicas, s.UpdatedReplicas = 0, 0, 0, 0, 0
	add := func(n *int32, is bool) {
		if is {
			*n++
		}
	}
	for _, m := range slices.Concat(o.pods, o.excess) {
		s.Replicas++
		add(&s.ReadyReplicas, m.ready)
		add(&s.AvailableReplicas, m.available)
		add(&s.CurrentReplicas, !m.going && m.revision() == o.current)
		add(&s.UpdatedReplicas, !m.going && m.revision() == o.update)
	}
	if want := wanted(o.set.Spec.Replicas); s.UpdatedReplicas == want && s.ReadyReplicas == want && s.Replicas == want {
		s.CurrentReplicas, s.CurrentRevision = s.UpdatedReplicas, s.UpdateRevision
	}
}

// Same says that two statuses say the same.
func Same[T any](a, b *T) bool { return apiequality.Semantic.DeepEqual(a, b) }
