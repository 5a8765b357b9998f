package workload

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// How many pods each set is to have.

// slack is how many more pods there may be than are wanted, and how many fewer available ones. Percentages of the first are
// rounded up and of the second down; when both come to nothing, nothing could move: then one may be missing.
func (r *roll) slack() (surge, absent int32) {
	roll := r.d.Spec.Strategy.RollingUpdate
	if !r.rolling() || r.want == 0 || roll == nil {
		return 0, 0
	}
	part := func(of *intstr.IntOrString, up bool) int32 {
		n, err := intstr.GetScaledValueFromIntOrPercent(intstr.ValueOrDefault(of, intstr.FromInt32(0)), int(r.want), up)
		if err != nil {
			return 0 // refused by validation
		}
		return int32(min(max(n, 0), math.MaxInt32))
	}
	surge, absent = part(roll.MaxSurge, true), part(roll.MaxUnavailable, false)
	if surge == 0 && absent == 0 {
		absent = 1
	}
	return surge, min(absent, r.want)
}

// most is how many pods there may be.
func (r *roll) most() int32 { return int32(min(int64(r.want)+int64(r.surge), math.MaxInt32)) }

// size sets how many pods a set is to have, and notes what the Deployment wanted then.
func (r *roll) size(rs *appsv1.ReplicaSet, n int32) {
	if wanted(rs.Spec.Replicas) == n && rs.UID != "" {
		return
	}
	rs.Spec.Replicas = &n
	r.note(rs)
}

func (r *roll) note(rs *appsv1.ReplicaSet) {
	rs.Annotations = with(rs.Annotations, DesiredReplicas, strconv.Itoa(int(r.want)))
	rs.Annotations = with(rs.Annotations, MaxReplicas, strconv.Itoa(int(r.most())))
}

// planned is how many pods there are to be.
func planned(sets []*appsv1.ReplicaSet) (n int32) {
	for _, rs := range sets {
		n += wanted(rs.Spec.Replicas)
	}
	return n
}

// available is how many pods of a set will still be so: its count may be from before it was made smaller.
func available(rs *appsv1.ReplicaSet) int32 {
	return min(rs.Status.AvailableReplicas, wanted(rs.Spec.Replicas))
}

func active(sets []*appsv1.ReplicaSet) (out []*appsv1.ReplicaSet) {
	for _, rs := range sets {
		if wanted(rs.Spec.Replicas) > 0 {
			out = append(out, rs)
		}
	}
	return out
}

// grow gives the set of today's template as many pods as there is room for, or takes away what is too much.
func (r *roll) grow() {
	has := wanted(r.fresh.Spec.Replicas)
	if has >= r.want {
		r.size(r.fresh, r.want)
		return
	}
	room := max(r.most()-planned(r.sets), 0)
	r.size(r.fresh, has+min(room, r.want-has))
}

// shrink takes pods from the other sets: first those that are not available, since they may be what the rollout is to mend, then
// others, oldest set first, as long as enough stay available. Pods of the new set that are not available yet count as missing.
func (r *roll) shrink() {
	least := r.want - r.absent
	more := planned(r.sets) - least - (wanted(r.fresh.Spec.Replicas) - available(r.fresh))
	if more <= 0 {
		return
	}
	take := func(rs *appsv1.ReplicaSet, n int32) int32 {
		n = max(min(n, wanted(rs.Spec.Replicas)), 0)
		r.size(rs, wanted(rs.Spec.Replicas)-n)
		return n
	}
	for _, rs := range r.old {
		more -= take(rs, min(more, wanted(rs.Spec.Replicas)-available(rs)))
	}
	spare := -least
	for _, rs := range r.sets {
		spare += available(rs)
	}
	for _, rs := range r.old {
		if spare > 0 {
			spare -= take(rs, spare)
		}
	}
}

// scaled says that the Deployment was given another size since its sets got theirs.
func (r *roll) scaled() bool {
	return slices.ContainsFunc(active(r.sets), func(rs *appsv1.ReplicaSet) bool {
		n, ok := number(rs, DesiredReplicas)
		return ok && n != r.want
	})
}

// scale brings the sets to the size of the Deployment without going on with a rollout: a single one gets all, several get their
// share, so that what was broken before does not become a greater part.
func (r *roll) scale() {
	all := active(r.sets)
	switch {
	case len(all) == 0:
		if only := cmp.Or(r.fresh, last(r.old)); only != nil {
			r.size(only, r.want)
		}
	case len(all) == 1:
		r.size(all[0], r.want)
		r.note(all[0])
	case r.saturated():
		for _, rs := range r.old {
			r.size(rs, 0)
		}
	case r.rolling():
		r.share(all)
	}
}

func last(sets []*appsv1.ReplicaSet) *appsv1.ReplicaSet {
	if len(sets) == 0 {
		return nil
	}
	return sets[len(sets)-1]
}

// saturated says that the new set has all pods that are wanted, and they are available.
func (r *roll) saturated() bool {
	if r.fresh == nil {
		return false
	}
	n, ok := number(r.fresh, DesiredReplicas)
	return ok && n == r.want && wanted(r.fresh.Spec.Replicas) == r.want && r.fresh.Status.AvailableReplicas == r.want
}

// share gives each set its part of the new size: of what there may be now, as much as it had of what there might be then. What
// rounding leaves goes to the largest.
func (r *roll) share(all []*appsv1.ReplicaSet) {
	allowed := int32(0)
	if r.want > 0 {
		allowed = r.most()
	}
	add := allowed - planned(all)
	slices.SortStableFunc(all, func(a, b *appsv1.ReplicaSet) int {
		age := olderFirst(a, b)
		if add > 0 {
			age = -age
		}
		return cmp.Or(cmp.Compare(wanted(b.Spec.Replicas), wanted(a.Spec.Replicas)), age)
	})
	left := add
	for _, rs := range all {
		part := r.part(rs)
		if add >= 0 {
			part = max(min(part, left), 0)
		} else {
			part = min(max(part, left), 0)
		}
		left -= part
		r.size(rs, wanted(rs.Spec.Replicas)+part)
	}
	r.size(all[0], max(wanted(all[0].Spec.Replicas)+left, 0))
	for _, rs := range all {
		r.note(rs)
	}
}

// part is by how much a set grows with the Deployment, or, negative, shrinks.
func (r *roll) part(rs *appsv1.ReplicaSet) int32 {
	has := wanted(rs.Spec.Replicas)
	if r.want == 0 {
		return -has
	}
	then, ok := number(rs, MaxReplicas)
	if !ok || then <= 0 {
		if then = r.d.Status.Replicas; then <= 0 {
			return 0
		}
	}
	part := math.Round(float64(has)*float64(r.most())/float64(then)) - float64(has)
	return int32(min(part, math.MaxInt32))
}
