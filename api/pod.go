package api

import (
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// Pods are what boards run.
var Pods = Define(Kind{Version: "v1", Name: "Pod", Resource: "pods", Singular: "pod", Short: []string{"po"}, Categories: []string{"all"},
	Namespaced: true, Generation: true, Subresources: []string{Resize, Ephemeral}},
	Rules[*corev1.Pod]{
		New: func() *corev1.Pod { return &corev1.Pod{} }, NewList: func() ListObject { return &corev1.PodList{} },
		Default:        defaultPod,
		Fresh:          func(p *corev1.Pod) { p.Status = corev1.PodStatus{Phase: corev1.PodPending} },
		Validate:       validatePod,
		ValidateUpdate: validatePodChange,
		Warn:           podWarnings,
		Spec:           func(p *corev1.Pod) any { return &p.Spec },
		Status:         func(p *corev1.Pod) any { return &p.Status },
		Keep:           keepPod,
		Beat:           podBeat,
		Grace:          podGrace,
		Fields: []Field[*corev1.Pod]{
			{"spec.nodeName", func(p *corev1.Pod) string { return p.Spec.NodeName }},
			{"spec.restartPolicy", func(p *corev1.Pod) string { return string(p.Spec.RestartPolicy) }},
			{"spec.schedulerName", func(p *corev1.Pod) string { return p.Spec.SchedulerName }},
			{"spec.serviceAccountName", func(p *corev1.Pod) string { return p.Spec.ServiceAccountName }},
			{"spec.hostNetwork", func(p *corev1.Pod) string { return strconv.FormatBool(p.Spec.HostNetwork) }},
			{"status.phase", func(p *corev1.Pod) string { return string(p.Status.Phase) }},
			{"status.podIP", func(p *corev1.Pod) string { return p.Status.PodIP }},
			{"status.nominatedNodeName", func(p *corev1.Pod) string { return p.Status.NominatedNodeName }},
		},
		Charge:     podCharge,
		Bound:      boundPod,
		Columns:    podColumns,
		Cells:      podCells,
		Conditions: podConditions,
	})

func validatePodChange(p, old *corev1.Pod, sub string) field.ErrorList {
	switch sub {
	case StatusSub:
		return validatePodStatusUpdate(p, old)
	case Resize:
		return validatePodResize(p, old)
	case Ephemeral:
		return validateEphemeral(p, old)
	}
	return validatePodUpdate(p, old)
}

func keepPod(p, was *corev1.Pod, sub string) {
	switch {
	case sub == Ephemeral: // nothing else of the spec
		come := p.Spec.EphemeralContainers
		was.Spec.DeepCopyInto(&p.Spec)
		p.Spec.EphemeralContainers = come
	case sub == StatusSub && p.Status.QOSClass == "":
		p.Status.QOSClass = was.Status.QOSClass
	}
}

func podBeat(p, was *corev1.Pod) *corev1.Pod {
	c := *p
	c.Status.ObservedGeneration = was.Status.ObservedGeneration
	c.Status.Conditions = slices.Clone(c.Status.Conditions)
	for i := range min(len(c.Status.Conditions), len(was.Status.Conditions)) {
		c.Status.Conditions[i].LastProbeTime = was.Status.Conditions[i].LastProbeTime
		c.Status.Conditions[i].ObservedGeneration = was.Status.Conditions[i].ObservedGeneration
	}
	return &c
}

// podGrace is how long a pod may take to end (N-7.23).
func podGrace(p *corev1.Pod, asked *int64) int64 {
	var grace int64
	switch {
	case asked != nil:
		grace = *asked
	case p.Spec.TerminationGracePeriodSeconds != nil:
		grace = *p.Spec.TerminationGracePeriodSeconds
	}
	if p.Spec.NodeName == "" || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return 0 // nothing runs
	}
	if grace < 0 {
		return 1
	}
	return grace
}

// PoweredOff says that an orderly power-off of its board ended a pod, today's way or that of Kubernetes 1.21, or had the board
// refuse it.
func PoweredOff(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed && slices.Contains([]string{"Terminated", "Shutdown", "NodeShutdown"}, p.Status.Reason)
}
