package workload

import (
	"cmp"
	"math"
	"math/bits"
	"slices"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// InOrderOfWorth sorts pods so that the first to delete come first, by Kubernetes' rules: not running yet, not ready,
// lower deletion cost, more pods of their kin on the node, ready for a shorter time, more restarts,
// younger. Ages within the same power of two are equal and are sorted at random, so that pods of the same moment do
// not all go together.
func InOrderOfWorth(pods []*corev1.Pod, company map[string]int, now time.Time) {
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		aSince, aReady := api.ReadySince(a)
		bSince, bReady := api.ReadySince(b)
		return cmp.Or(
			compareBool(a.Spec.NodeName != "", b.Spec.NodeName != ""),
			cmp.Compare(progress(a), progress(b)),
			compareBool(aReady, bReady),
			cmp.Compare(deletionCost(a), deletionCost(b)),
			cmp.Compare(company[b.Spec.NodeName], company[a.Spec.NodeName]),
			cmp.Compare(magnitude(now.Sub(aSince)), magnitude(now.Sub(bSince))),
			cmp.Compare(restarts(b), restarts(a)),
			cmp.Compare(magnitude(now.Sub(a.CreationTimestamp.Time)), magnitude(now.Sub(b.CreationTimestamp.Time))),
			cmp.Compare(a.UID, b.UID),
		)
	})
}

// magnitude is how many digits an age has, counted in twos; below 0 it is from a clock that was wrong.
func magnitude(age time.Duration) int { return bits.Len64(uint64(max(age, 0))) }

func compareBool(a, b bool) int {
	switch {
	case a == b:
		return 0
	case b:
		return -1
	}
	return 1
}

// progress ranks the phases of pods that have not ended.
func progress(p *corev1.Pod) int {
	return slices.Index([]corev1.PodPhase{corev1.PodPending, corev1.PodUnknown, corev1.PodRunning}, p.Status.Phase)
}

// deletionCost is what the annotation of that name says; what cannot be read counts as nought.
func deletionCost(p *corev1.Pod) int64 {
	n, err := strconv.ParseInt(p.Annotations[corev1.PodDeletionCost], 10, 32)
	if err != nil {
		return 0
	}
	return n
}

// restarts are those of the container that was restarted most.
func restarts(p *corev1.Pod) int32 {
	most := int32(math.MinInt32)
	for _, c := range p.Status.ContainerStatuses {
		most = max(most, c.RestartCount)
	}
	return most
}
