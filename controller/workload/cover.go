package workload

import (
	"cmp"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
)

// cover is one look at one DaemonSet.
type cover struct {
	ds       *appsv1.DaemonSet
	now      time.Time
	minReady time.Duration
	boards   []*place // by name; also those that are gone, or that their pods say
	hash     string   // the label of pods of today's template
	desired  int      // on how many boards there is to be a pod
	surge    int      // on how many there may be two
	absent   int      // on how many there may be none
	course   Course
	status   appsv1.DaemonSetStatus
}

// place is a board, as a DaemonSet sees it.
type place struct {
	name       string
	known      bool          // there is such a Node
	run, stay  bool          // a pod is to be there; one that is there may stay
	pods       []*corev1.Pod // oldest first, those that have a board before those that wait for it
	fresh, old *corev1.Pod   // of them, those that are not going: one of today's template, one of another
	many       bool          // there are more
	moved      bool          // there is a step for it
}

// Cover decides what to do next for a DaemonSet. revisions and pods are those of its namespace; nothing is changed.
func Cover(ds *appsv1.DaemonSet, revisions []*appsv1.ControllerRevision, pods []*corev1.Pod, nodes []*corev1.Node, now time.Time) (
	Course, appsv1.DaemonSetStatus) {
	c := &cover{ds: ds, now: now, minReady: time.Duration(ds.Spec.MinReadySeconds) * time.Second, status: *ds.Status.DeepCopy()}
	own, ok := c.course.claim(ds, ds.Spec.Selector, nil, pods)
	if !ok || ds.DeletionTimestamp != nil {
		return c.course, c.status
	}
	was, ok := c.course.recall(ds, "DaemonSet", appsv1.DefaultDaemonSetUniqueLabelKey, ds.Spec.Selector, &ds.Spec.Template,
		ds.Status.CollisionCount, revisions)
	if !ok {
		return c.course, c.status
	}
	c.hash = hashOf(was.fresh)
	c.place(own, nodes)
	c.allow()
	for _, p := range c.boards {
		c.settle(p)
	}
	if ds.Spec.UpdateStrategy.Type != appsv1.OnDeleteDaemonSetStrategyType {
		if c.surge > 0 {
			c.surpass()
		} else {
			c.replace()
		}
	}
	c.count()
	c.course.forget(&was, ds.Spec.RevisionHistoryLimit, func(r *appsv1.ControllerRevision) bool {
		return slices.ContainsFunc(own, func(p *corev1.Pod) bool { return p.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == hashOf(r) })
	})
	return c.course, c.status
}

// hashOf is the label of the pods of a revision.
func hashOf(r *appsv1.ControllerRevision) string {
	return r.Labels[appsv1.DefaultDaemonSetUniqueLabelKey]
}

// place says of each board whether a pod is to be there, and which pods are.
func (c *cover) place(own []*corev1.Pod, nodes []*corev1.Node) {
	at := map[string]*place{}
	probe := &corev1.Pod{Spec: *c.ds.Spec.Template.Spec.DeepCopy()}
	tolerate(&probe.Spec)
	for _, n := range nodes {
		p := &place{name: n.Name, known: true}
		p.run, p.stay = belongs(probe, n)
		at[n.Name] = p
	}
	c.course.Places = map[string][]*corev1.Pod{}
	for _, pod := range own {
		name := target(pod)
		if name == "" || ended(pod) && pod.DeletionTimestamp != nil {
			continue // anybody can make a pod that fits, for no board; and this one only waits for its board
		}
		if at[name] == nil {
			at[name] = &place{name: name}
		}
		at[name].pods = append(at[name].pods, pod)
		if !ended(pod) && pod.DeletionTimestamp == nil {
			c.course.Places[name] = append(c.course.Places[name], pod)
		}
	}
	for _, p := range at {
		slices.SortFunc(p.pods, boundAndOlderFirst)
		c.boards = append(c.boards, p)
	}
	slices.SortFunc(c.boards, func(a, b *place) int { return cmp.Compare(a.name, b.name) })
}

func boundAndOlderFirst(a, b *corev1.Pod) int {
	waits := func(p *corev1.Pod) int {
		if p.Spec.NodeName == "" {
			return 1
		}
		return 0
	}
	return cmp.Or(cmp.Compare(waits(a), waits(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// belongs says whether a pod is to be on a board, and whether one that is there may stay: no taint drives it away.
func belongs(pod *corev1.Pod, n *corev1.Node) (run, stay bool) {
	if of := pod.Spec.NodeName; of != "" && of != n.Name || !api.MatchesNode(pod, n) {
		return false, false
	}
	run, stay = true, true
	for i := range n.Spec.Taints {
		t := &n.Spec.Taints[i]
		if t.Effect == corev1.TaintEffectPreferNoSchedule || api.Tolerated(pod.Spec.Tolerations, t) != nil {
			continue
		}
		run = false
		stay = stay && t.Effect != corev1.TaintEffectNoExecute
	}
	return run, stay
}

// target is the board that a pod is made for; "": it says none.
func target(p *corev1.Pod) string {
	if p.Spec.NodeName != "" {
		return p.Spec.NodeName
	}
	a := p.Spec.Affinity
	if a == nil || a.NodeAffinity == nil || a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution == nil {
		return ""
	}
	for _, t := range a.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms {
		for _, f := range t.MatchFields {
			if f.Key == metav1.ObjectNameField && f.Operator == corev1.NodeSelectorOpIn && len(f.Values) == 1 {
				return f.Values[0]
			}
		}
	}
	return ""
}

// tolerate adds what every pod of a DaemonSet puts up with: a board that is not well is one that it may be there for.
func tolerate(s *corev1.PodSpec) {
	add := func(key string, effect corev1.TaintEffect) {
		t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
		i := slices.IndexFunc(s.Tolerations, func(is corev1.Toleration) bool {
			return is.Key == key && is.Effect == effect && is.Operator == t.Operator && is.Value == ""
		})
		if i < 0 {
			s.Tolerations = append(s.Tolerations, t)
		} else {
			s.Tolerations[i] = t // for ever
		}
	}
	add(corev1.TaintNodeNotReady, corev1.TaintEffectNoExecute)
	add(corev1.TaintNodeUnreachable, corev1.TaintEffectNoExecute)
	for _, key := range []string{corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure, corev1.TaintNodePIDPressure,
		corev1.TaintNodeUnschedulable} {
		add(key, corev1.TaintEffectNoSchedule)
	}
	if s.HostNetwork {
		add(corev1.TaintNodeNetworkUnavailable, corev1.TaintEffectNoSchedule)
	}
}

// create makes a pod for a board. The scheduler binds it, as it does others, and nowhere else.
func (c *cover) create(p *place) {
	pod := podOf(c.ds, "DaemonSet", &c.ds.Spec.Template)
	pod.GenerateName = c.ds.Name + "-"
	pod.Labels = with(pod.Labels, appsv1.DefaultDaemonSetUniqueLabelKey, c.hash)
	tolerate(&pod.Spec)
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution = &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn,
				Values: []string{p.name}}}}}}
	c.course.pod(Create, pod, p.name)
	p.moved = true
}

func (c *cover) remove(p *place, do string, pod *corev1.Pod) {
	c.course.pod(do, pod, p.name)
	p.moved = true
}

func (c *cover) available(p *corev1.Pod) bool {
	ok, left := Available(p, c.minReady, c.now)
	c.course.again(left)
	return ok
}

// allow counts the boards that are to have a pod, and says on how many there may be two, or none: parts of them, rounded up.
func (c *cover) allow() {
	for _, p := range c.boards {
		if p.run {
			c.desired++
		}
	}
	roll := c.ds.Spec.UpdateStrategy.RollingUpdate
	if c.ds.Spec.UpdateStrategy.Type != appsv1.RollingUpdateDaemonSetStrategyType || roll == nil {
		return
	}
	part := func(of *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(of, intstr.FromInt32(0)), c.desired, true)
		if err != nil {
			return 0 // refused by validation
		}
		return max(n, 0)
	}
	c.surge, c.absent = part(roll.MaxSurge), part(roll.MaxUnavailable)
	if c.surge == 0 && c.absent == 0 {
		c.absent = 1
	}
}

// settle brings the pods of one board to one where there is to be one, or in a rollout two, and to none elsewhere. One that has
// ended is deleted: there is to be another.
func (c *cover) settle(p *place) {
	if !p.known { // the collector of pods sees to those that ran there, but not to those that wait for it
		for _, pod := range p.pods {
			if pod.Spec.NodeName == "" && pod.DeletionTimestamp == nil {
				c.remove(p, Delete, pod)
			}
		}
		return
	}
	var runs []*corev1.Pod
	for _, pod := range p.pods {
		switch {
		case pod.DeletionTimestamp != nil:
		case !p.stay:
			c.remove(p, Delete, pod)
		case ended(pod):
			c.remove(p, Replace, pod)
		default:
			runs = append(runs, pod)
		}
	}
	if p.run && (len(p.pods) == 0 || c.surge > 0 && len(runs) == 0 && !p.moved) {
		c.create(p)
	}
	slices.SortStableFunc(runs, func(a, b *corev1.Pod) int { return c.rank(a) - c.rank(b) })
	for _, pod := range runs {
		switch {
		case c.surge == 0 && p.fresh == nil && p.old == nil, c.surge > 0 && *c.side(p, pod) == nil:
			*c.side(p, pod) = pod
		default:
			c.remove(p, Delete, pod)
			p.many = true
		}
	}
}

// rank has pods that serve stay before others, also where Kubernetes keeps the older one.
func (c *cover) rank(p *corev1.Pod) int {
	if c.available(p) {
		return 0
	}
	return 1
}

// side is where a place has its pod of the template that a pod is of.
func (c *cover) side(p *place, pod *corev1.Pod) **corev1.Pod {
	if pod.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == c.hash {
		return &p.fresh
	}
	return &p.old
}

// replace deletes pods of another template than today's, so that as many boards keep a pod that is available as are to. One that
// is not available is missing anyway.
func (c *cover) replace() {
	missing, old := 0, []*place{}
	for _, p := range c.boards {
		switch {
		case !p.known || !p.run && len(p.pods) == 0:
		case p.moved || p.fresh == nil && p.old == nil:
			missing++
		case p.fresh != nil:
			if !c.available(p.fresh) {
				missing++
			}
		case !c.available(p.old):
			c.remove(p, Delete, p.old)
			missing++
		default:
			old = append(old, p)
		}
	}
	for _, p := range old[:max(min(c.absent-missing, len(old)), 0)] {
		c.remove(p, Delete, p.old)
	}
}

// surpass makes pods of today's template beside those of another, on as many boards at once as are allowed, and deletes those once
// the new ones are available. Where a pod is not available, its successor takes nothing away.
func (c *cover) surpass() {
	twice, serving := 0, 0
	var old, strange []*place // with a pod of another template that is available; of them, where none is to be made
	for _, p := range c.boards {
		if !p.known || p.fresh == nil && p.old == nil {
			continue
		}
		serves := c.available(cmp.Or(p.old, p.fresh))
		if serves {
			serving++
		}
		switch {
		case p.old == nil:
		case p.fresh != nil && (!api.PodReady(p.old) || c.available(p.fresh)):
			c.remove(p, Delete, p.old)
		case p.fresh != nil:
			twice++
		case p.moved:
		case !p.run && !serves:
			c.remove(p, Delete, p.old)
		case !p.run:
			strange = append(strange, p)
		case !serves:
			c.create(p)
		default:
			old = append(old, p)
		}
	}
	for _, p := range strange[:max(min(serving-c.desired, len(strange)), 0)] {
		c.remove(p, Delete, p.old)
	}
	for _, p := range old[:max(min(c.surge-twice, len(old)), 0)] {
		c.create(p)
	}
}

// count fills in how far the boards are: of each, its oldest pod counts.
func (c *cover) count() {
	s := &c.status
	*s = appsv1.DaemonSetStatus{ObservedGeneration: c.ds.Generation, DesiredNumberScheduled: int32(c.desired),
		CollisionCount: s.CollisionCount, Conditions: s.Conditions}
	for _, p := range c.boards {
		switch {
		case !p.known || len(p.pods) == 0:
			continue
		case !p.run:
			s.NumberMisscheduled++
			continue
		}
		s.CurrentNumberScheduled++
		oldest := p.pods[0]
		if api.PodReady(oldest) {
			s.NumberReady++
			if c.available(oldest) {
				s.NumberAvailable++
			}
		}
		if oldest.Labels[appsv1.DefaultDaemonSetUniqueLabelKey] == c.hash {
			s.UpdatedNumberScheduled++
		}
	}
	s.NumberUnavailable = s.DesiredNumberScheduled - s.NumberAvailable
}
