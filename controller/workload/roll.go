// Package workload decides what controllers of pods do next. It is pure: what is wanted, what is, and the time go in, what to
// write comes out. It imports api and Kubernetes' types only.
//
//	Roll   a Deployment, its ReplicaSets, its pods -> what to write, and when to look again
//	Order  a StatefulSet, its ControllerRevisions, its pods -> the same
//	Cover  a DaemonSet, its ControllerRevisions, its pods, the nodes -> the same
//
// Whoever carries it out may die after any of the writes: the next look goes on from what is there. Nothing is remembered but
// what Kubernetes keeps in the objects themselves: annotations of ReplicaSets, revisions in the status of StatefulSets.
package workload

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What a step does with its ReplicaSet.
const (
	Adopt   = "adopt"
	Release = "release"
	Create  = "create"
	Update  = "update"
	Delete  = "delete"
)

// Step is one write.
type Step struct {
	Do   string
	Set  *appsv1.ReplicaSet // as it is to be
	Says string             // what users are told when it is done; "": nothing
}

// Plan is what one look at a Deployment comes to. The steps go first, in their order; status and revision are written together.
type Plan struct {
	Steps    []Step
	Status   appsv1.DeploymentStatus
	Revision string        // for the annotation of the Deployment; "": leave it
	Again    time.Duration // when to look again if nothing happens; 0: no need to
	Waits    bool          // for pods to end: look again whenever one changes
}

// Change puts what the plan says of a Deployment into it, and tells whether it is anything new.
func (p *Plan) Change(d *appsv1.Deployment) bool {
	changed := !sameStatus(&d.Status, &p.Status)
	d.Status = *p.Status.DeepCopy()
	if p.Revision != "" && d.Annotations[Revision] != p.Revision {
		d.Annotations = with(d.Annotations, Revision, p.Revision)
		changed = true
	}
	return changed
}

// roll is one look at one Deployment.
type roll struct {
	d      *appsv1.Deployment
	want   int32
	surge  int32 // how many more pods there may be
	absent int32 // how many fewer may be available
	now    time.Time
	was    []*appsv1.ReplicaSet // its sets, oldest first
	sets   []*appsv1.ReplicaSet // the same as they are to be
	fresh  *appsv1.ReplicaSet   // of them the one with today's template; nil: there is none
	old    []*appsv1.ReplicaSet // the others
	plan   Plan
}

// Roll decides what to do next for a Deployment. sets are the ReplicaSets of its namespace, pods the pods there; neither is
// changed. Pods are asked for with the strategy Recreate only.
func Roll(d *appsv1.Deployment, sets []*appsv1.ReplicaSet, pods func() []*corev1.Pod, now time.Time) Plan {
	r := &roll{d: d, want: wanted(d.Spec.Replicas), now: now, plan: Plan{Status: *d.Status.DeepCopy()}}
	r.surge, r.absent = r.slack()
	if d.Spec.Selector == nil || r.claim(sets) {
		return r.plan // the rest when it is so: others may want the same sets
	}
	r.find()
	if d.DeletionTimestamp != nil {
		r.count()
		return r.plan
	}
	deployed := !d.Spec.Paused
	switch {
	case d.Spec.Paused:
		r.revise()
		r.scale()
	case r.rolling() && r.scaled():
		r.revise()
		r.scale()
		deployed = false // a change of the size is no progress of a rollout
	case r.rolling():
		r.make()
		r.revise()
		r.grow()
		r.shrink()
	default:
		r.recreate(pods)
	}
	r.steps()
	r.pause()
	r.count()
	if deployed {
		r.progress()
	}
	if d.Spec.Paused || deployed && r.complete() {
		r.forget()
	}
	return r.plan
}

func wanted(replicas *int32) int32 {
	if replicas == nil {
		return 1
	}
	return *replicas
}

func (r *roll) rolling() bool {
	return r.d.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType
}

// claim finds the sets of the Deployment. If some have to be adopted or let go, it plans only that and returns false.
func (r *roll) claim(sets []*appsv1.ReplicaSet) bool {
	found := claim(r.d, selecting(r.d.Spec.Selector), nil, sets)
	for _, rs := range found.adopt {
		r.plan.Steps = append(r.plan.Steps, Step{Do: Adopt, Set: rs})
	}
	for _, rs := range found.release {
		r.plan.Steps = append(r.plan.Steps, Step{Do: Release, Set: rs})
	}
	r.was = found.own
	slices.SortFunc(r.was, olderFirst)
	for _, rs := range r.was {
		r.sets = append(r.sets, shallow(rs))
	}
	return len(r.plan.Steps) > 0
}

func olderFirst(a, b *appsv1.ReplicaSet) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// shallow is a copy of which the size and the annotations can be replaced.
func shallow(rs *appsv1.ReplicaSet) *appsv1.ReplicaSet {
	out := *rs
	return &out
}

// find tells the set of today's template from the others. Where there are several, it is the oldest, so that it stays the same.
func (r *roll) find() {
	for _, rs := range r.sets {
		if r.fresh == nil && rs.DeletionTimestamp == nil && SameTemplate(&rs.Spec.Template, &r.d.Spec.Template) {
			r.fresh = rs
		} else {
			r.old = append(r.old, rs)
		}
	}
}

// make has the set of today's template created, still without pods.
func (r *roll) make() {
	if r.fresh == nil {
		r.fresh = newSet(r.d)
		r.sets = append(r.sets, r.fresh)
	}
}

// steps are what has to be written for the sets to be as they are to be.
func (r *roll) steps() {
	before := map[string]*appsv1.ReplicaSet{}
	for _, rs := range r.was {
		before[rs.Name] = rs
	}
	order := r.old
	if r.fresh != nil { // the new set first: where pods may be added, they come before others go
		order = slices.Concat([]*appsv1.ReplicaSet{r.fresh}, r.old)
	}
	for _, rs := range order {
		was := before[rs.Name]
		switch size := wanted(rs.Spec.Replicas); {
		case was == nil:
			r.plan.Steps = append(r.plan.Steps, Step{Do: Create, Set: rs, Says: says(rs, 0)})
		case size != wanted(was.Spec.Replicas), !maps.Equal(rs.Annotations, was.Annotations), rs.Spec.MinReadySeconds != was.Spec.MinReadySeconds:
			r.plan.Steps = append(r.plan.Steps, Step{Do: Update, Set: rs, Says: says(rs, wanted(was.Spec.Replicas))})
		}
	}
}

// says is how a change of size is told: reason ScalingReplicaSet.
func says(rs *appsv1.ReplicaSet, was int32) string {
	how, is := "up", wanted(rs.Spec.Replicas)
	switch {
	case is == was:
		return ""
	case is < was:
		how = "down"
	}
	return fmt.Sprintf("Scaled %s replica set %s from %d to %d", how, rs.Name, was, is)
}

// recreate lets no pod of the new template be made while one of another may still run.
func (r *roll) recreate(pods func() []*corev1.Pod) {
	going := false
	for _, rs := range r.old {
		going = going || rs.Status.Replicas > 0 || wanted(rs.Spec.Replicas) > 0
		r.size(rs, 0)
	}
	made := r.fresh != nil && wanted(r.fresh.Spec.Replicas) == r.want
	if !going && !made {
		r.plan.Waits = r.stillRuns(pods())
	}
	if !going && !r.plan.Waits {
		r.make()
		r.revise()
		r.size(r.fresh, r.want)
		return
	}
	r.revise()
}

// stillRuns says that a pod of another template has not ended. One that is being deleted still runs.
func (r *roll) stillRuns(pods []*corev1.Pod) bool {
	return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
		of := metav1.GetControllerOf(p)
		return of != nil && !ended(p) && slices.ContainsFunc(r.old, func(rs *appsv1.ReplicaSet) bool { return rs.UID == of.UID })
	})
}

// forget deletes the oldest of the sets that nobody needs, beyond those that are kept to go back to.
func (r *roll) forget() {
	if r.d.Spec.RevisionHistoryLimit == nil {
		return
	}
	old := slices.DeleteFunc(slices.Clone(r.old), func(rs *appsv1.ReplicaSet) bool { return rs.DeletionTimestamp != nil })
	slices.SortStableFunc(old, func(a, b *appsv1.ReplicaSet) int { return cmp.Compare(revision(a), revision(b)) })
	for _, rs := range old[:max(len(old)-int(*r.d.Spec.RevisionHistoryLimit), 0)] {
		if rs.Status.Replicas == 0 && wanted(rs.Spec.Replicas) == 0 && rs.Status.ObservedGeneration >= rs.Generation {
			r.plan.Steps = append(r.plan.Steps, Step{Do: Delete, Set: rs})
		}
	}
}

// deadline is how long a rollout may show no progress; !ok: as long as it likes.
func (r *roll) deadline() (d time.Duration, ok bool) {
	if n := r.d.Spec.ProgressDeadlineSeconds; n != nil && *n != math.MaxInt32 {
		return time.Duration(*n) * time.Second, true
	}
	return 0, false
}
