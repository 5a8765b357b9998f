package api

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/valid"
)

// Resize is the subresource through which the resources of a pod's containers are changed while they run.
const Resize = "resize"

const onlyResize = "only cpu and memory resources are mutable"

// validatePodResize lets through a change of cpu and memory of containers that can be changed while they run.
func validatePodResize(p, old *corev1.Pod) field.ErrorList {
	at := field.NewPath("spec")
	var errs field.ErrorList
	switch {
	case IsMirror(old):
		errs = append(errs, field.Forbidden(field.NewPath(""), "static pods cannot be resized"))
	case old.Status.Phase == corev1.PodSucceeded || old.Status.Phase == corev1.PodFailed:
		errs = append(errs, field.Forbidden(field.NewPath(""), "a pod that has ended cannot be resized"))
	}
	s, o := p.Spec.DeepCopy(), &old.Spec
	if len(s.Containers) != len(o.Containers) || len(s.InitContainers) != len(o.InitContainers) {
		return append(errs, field.Forbidden(at, "pod updates may not add or remove containers"))
	}
	errs = append(errs, validatePodResources(s, at.Child("resources"))...)
	errs = append(errs, validatePodResized(s.Resources, o.Resources, at.Child("resources"))...)
	s.Resources = o.Resources
	check := func(list, was []corev1.Container, at *field.Path) {
		for i := range list {
			at := at.Index(i).Child("resources")
			errs = append(errs, validateResources(&list[i].Resources, at)...)
			errs = append(errs, validateResized(list[i].Resources, was[i].Resources, at)...)
			list[i].Resources = was[i].Resources
		}
	}
	check(s.Containers, o.Containers, at.Child("containers"))
	check(s.InitContainers, o.InitContainers, at.Child("initContainers"))
	if !apiequality.Semantic.DeepEqual(s, o) {
		errs = append(errs, field.Forbidden(at, onlyResize))
	}
	if qos := QOSClass(p); old.Status.QOSClass != "" && qos != old.Status.QOSClass {
		errs = append(errs, field.Invalid(at, qos, "Pod QOS Class may not change as a result of resizing"))
	}
	return errs
}

// validatePodResized: the pod as a whole may be given resources while it runs, and other amounts of them, but not lose them.
func validatePodResized(r, was *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	switch {
	case r == nil && was == nil:
		return nil
	case r == nil:
		return field.ErrorList{field.Forbidden(at, "pod-level resources cannot be removed")}
	case was == nil:
		was = &corev1.ResourceRequirements{}
	}
	return validateResized(*r, *was, at)
}

func validateResized(r, was corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, x := range []struct {
		child, what string
		now, was    corev1.ResourceList
	}{{"limits", "limits", r.Limits, was.Limits}, {"requests", "requests", r.Requests, was.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(x.was)) {
			if _, ok := x.now[name]; !ok {
				errs = append(errs, field.Forbidden(at.Child(x.child), fmt.Sprintf("resource %s cannot be removed", x.what)))
			}
		}
		for _, name := range slices.Sorted(maps.Keys(x.now)) {
			now, was := x.now[name], x.was[name]
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && now.Cmp(was) != 0 {
				errs = append(errs, field.Forbidden(at.Child(x.child), onlyResize))
			}
		}
	}
	return errs
}

func validateResizePolicy(list []corev1.ContainerResizePolicy, restart corev1.RestartPolicy, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	seen := map[corev1.ResourceName]bool{}
	for i, p := range list {
		at := at.Index(i)
		switch p.ResourceName {
		case "":
			errs = append(errs, field.Required(at.Child("resourceName"), ""))
		case corev1.ResourceCPU, corev1.ResourceMemory:
			if seen[p.ResourceName] {
				errs = append(errs, field.Duplicate(at, p.ResourceName))
			}
		default:
			errs = append(errs, field.NotSupported(at.Child("resourceName"), p.ResourceName,
				[]corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}))
		}
		seen[p.ResourceName] = true
		if p.RestartPolicy == "" {
			errs = append(errs, field.Required(at.Child("restartPolicy"), ""))
			continue
		}
		errs = append(errs, valid.OneOf(p.RestartPolicy, at.Child("restartPolicy"), corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy == corev1.RestartContainer {
			errs = append(errs, field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// WholePod is the name under which Granted has what a pod has been given as a whole. No container has it.
const WholePod = ""

// Granted is what the containers of a pod, and the pod itself, have been given by their node, by name: what the status
// says, and where it says nothing yet, what the spec asks for.
func Granted(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	out := Wanted(pod)
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if have, ok := out[list[i].Name]; ok && list[i].Resources != nil {
				have.Requests, have.Limits = list[i].AllocatedResources, list[i].Resources.Limits
				out[list[i].Name] = have
			}
		}
	}
	if whole, ok := out[WholePod]; ok && pod.Status.Resources != nil {
		out[WholePod] = corev1.ResourceRequirements{Requests: given(whole.Requests, pod.Status.AllocatedResources, pod.Spec.Overhead),
			Limits: given(whole.Limits, pod.Status.Resources.Limits, pod.Spec.Overhead)}
	}
	return out
}

// Wanted is what a pod's spec asks for, by the same names.
func Wanted(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	out := map[string]corev1.ResourceRequirements{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out[list[i].Name] = list[i].Resources
		}
	}
	if pod.Spec.Resources != nil {
		out[WholePod] = *pod.Spec.Resources
	}
	return out
}

// given picks from a status the resources that a pod asks for as a whole. The status tells them with the overhead; given takes it off.
func given(asked, told, overhead corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name := range asked {
		if q, ok := told[name]; ok {
			q = q.DeepCopy()
			if more, ok := overhead[name]; ok {
				q.Sub(more)
			}
			out[name] = q
		}
	}
	return out
}

// WithResources is a copy of the pod that asks for the given resources, as a whole and in its containers.
func WithResources(pod *corev1.Pod, of map[string]corev1.ResourceRequirements) *corev1.Pod {
	return withResources(pod, of).DeepCopy()
}

// withResources is such a pod to look at only: it shares what it has with pod and of. A scheduler asks it of all pods, again and again.
func withResources(pod *corev1.Pod, of map[string]corev1.ResourceRequirements) *corev1.Pod {
	out := *pod
	out.Spec.InitContainers, out.Spec.Containers = slices.Clone(pod.Spec.InitContainers), slices.Clone(pod.Spec.Containers)
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			if r, ok := of[list[i].Name]; ok {
				list[i].Resources = r
			}
		}
	}
	out.Spec.Resources = nil
	if r, ok := of[WholePod]; ok {
		out.Spec.Resources = &r
	}
	return &out
}

// WithPodLimits is what bounds a container: what the pod is limited to as a whole limits each container that has no limit
// of its own.
func WithPodLimits(c *corev1.Container, pod *corev1.Pod) *corev1.Container {
	if pod.Spec.Resources == nil {
		return c
	}
	limits := maps.Clone(c.Resources.Limits)
	for name, q := range pod.Spec.Resources.Limits {
		if own, ok := limits[name]; !ok || own.IsZero() {
			if limits == nil {
				limits = corev1.ResourceList{}
			}
			limits[name] = q
		}
	}
	out := *c
	out.Resources.Limits = limits
	return &out
}

// Held is what a pod takes from its node. While it is being resized that is the larger of what it has and what it asks for; only what it
// has, once its node has said that it can never have more.
func Held(pod *corev1.Pod) corev1.ResourceList { return held(pod, Requests) }

func held(pod *corev1.Pod, sum func(*corev1.Pod) corev1.ResourceList) corev1.ResourceList {
	want := sum(pod)
	if pod.Spec.NodeName == "" || !slices.ContainsFunc(pod.Status.ContainerStatuses,
		func(c corev1.ContainerStatus) bool { return c.Resources != nil }) {
		return want
	}
	have := sum(withResources(pod, Granted(pod)))
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible {
			return have
		}
	}
	raise(have, want)
	return have
}
