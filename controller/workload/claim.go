package workload

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
)

// claimed is what a controller has of a kind: its own, those that it is to adopt, and those that it is to let go.
type claimed[T metav1.Object] struct{ own, adopt, release []T }

// claim looks for what belongs to a controller, and for what fits and has none. A controller that goes keeps what it has and
// takes nothing.
func claim[T metav1.Object](by metav1.Object, selector labels.Selector, fits func(T) bool, all []T) (out claimed[T]) {
	going := by.GetDeletionTimestamp() != nil
	for _, it := range all {
		if it.GetNamespace() != by.GetNamespace() {
			continue
		}
		of := metav1.GetControllerOfNoCopy(it)
		mine, fit := of != nil && of.UID == by.GetUID(), selector.Matches(labels.Set(it.GetLabels())) && (fits == nil || fits(it))
		switch {
		case of != nil && !mine, of == nil && !fit:
		case mine && (fit || going):
			out.own = append(out.own, it)
		case going, it.GetDeletionTimestamp() != nil:
		case mine:
			out.release = append(out.release, it)
		default:
			out.adopt = append(out.adopt, it)
		}
	}
	return out
}

// selecting is a selector; one that cannot be read, which validation refuses, picks nothing.
func selecting(s *metav1.LabelSelector) labels.Selector {
	out, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		return labels.Nothing()
	}
	return out
}

// Available says that a pod has been ready for long enough, or how long that takes still. One that is ready since a moment that is
// still to come is available: the clock was wrong.
func Available(p *corev1.Pod, minReady time.Duration, now time.Time) (ok bool, left time.Duration) {
	since, ready := api.ReadySince(p)
	if !ready {
		return false, 0
	}
	if left := since.Add(minReady).Sub(now); left > 0 && left <= minReady {
		return false, left
	}
	return true, 0
}

// ended says that a pod runs no more and never will.
func ended(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}
