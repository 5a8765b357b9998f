package api

import (
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
	check := func(list, was []corev1.Container, at *field.Path, can func(*corev1.Container) bool) {
		for i := range list {
			at := at.Index(i).Child("resources")
			if can(&was[i]) {
				errs = append(errs, validateResources(&list[i].Resources, at)...)
				errs = append(errs, validateResized(list[i].Resources, was[i].Resources, at)...)
			} else if !apiequality.Semantic.DeepEqual(list[i].Resources, was[i].Resources) {
				errs = append(errs, field.Forbidden(at, "resources of non-sidecar init containers are immutable"))
			}
			list[i].Resources = was[i].Resources
		}
	}
	errs = append(errs, validatePodResources(s, at.Child("resources"))...)
	check(s.Containers, o.Containers, at.Child("containers"), func(*corev1.Container) bool { return true })
	check(s.InitContainers, o.InitContainers, at.Child("initContainers"), IsSidecar)
	if !apiequality.Semantic.DeepEqual(s.Resources, o.Resources) {
		errs = append(errs, field.Forbidden(at.Child("resources"), "a resize of the whole pod's resources is "+notYet))
		s.Resources = o.Resources
	}
	if !apiequality.Semantic.DeepEqual(s, o) {
		errs = append(errs, field.Forbidden(at, onlyResize))
	}
	if qos := QOSClass(p); old.Status.QOSClass != "" && qos != old.Status.QOSClass {
		errs = append(errs, field.Invalid(at, qos, "Pod QOS Class may not change as a result of resizing"))
	}
	return errs
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
		errs = append(errs, oneOf(p.RestartPolicy, at.Child("restartPolicy"), corev1.NotRequired, corev1.RestartContainer)...)
		if restart == corev1.RestartPolicyNever && p.RestartPolicy == corev1.RestartContainer {
			errs = append(errs, field.Invalid(at, p.RestartPolicy, "must be 'NotRequired' when `restartPolicy` is 'Never'"))
		}
	}
	return errs
}

// defaultResizePolicy: what a container asks for can be changed without a restart unless it says otherwise.
func defaultResizePolicy(c *corev1.Container) {
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		_, asked := c.Resources.Requests[name]
		_, limited := c.Resources.Limits[name]
		known := slices.ContainsFunc(c.ResizePolicy, func(p corev1.ContainerResizePolicy) bool { return p.ResourceName == name })
		if (asked || limited) && !known {
			c.ResizePolicy = append(c.ResizePolicy, corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.NotRequired})
		}
	}
}

// Granted is what each container of a pod has been given by its node, by name: what its status says, and where it says
// nothing yet, what the spec asks for.
func Granted(pod *corev1.Pod) map[string]corev1.ResourceRequirements {
	out := map[string]corev1.ResourceRequirements{}
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out[list[i].Name] = list[i].Resources
		}
	}
	for _, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for i := range list {
			if have, ok := out[list[i].Name]; ok && list[i].Resources != nil {
				have.Requests, have.Limits = list[i].AllocatedResources, list[i].Resources.Limits
				out[list[i].Name] = have
			}
		}
	}
	return out
}

// WithResources is a copy of the pod whose containers ask for the given resources.
func WithResources(pod *corev1.Pod, of map[string]corev1.ResourceRequirements) *corev1.Pod {
	out := pod.DeepCopy()
	for _, list := range [][]corev1.Container{out.Spec.InitContainers, out.Spec.Containers} {
		for i := range list {
			if r, ok := of[list[i].Name]; ok {
				list[i].Resources = *r.DeepCopy()
			}
		}
	}
	return out
}

// Held is what a pod that has a node takes from it while it is being resized: the larger of what it has and what it
// asks for, unless its node has said that it can never have that.
func Held(pod *corev1.Pod) corev1.ResourceList {
	want := Requests(pod)
	if pod.Spec.NodeName == "" || !slices.ContainsFunc(pod.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.Resources != nil }) {
		return want
	}
	have := Requests(WithResources(pod, Granted(pod)))
	for _, c := range pod.Status.Conditions {
		if c.Type == corev1.PodResizePending && c.Reason == corev1.PodReasonInfeasible {
			return have
		}
	}
	raise(have, want)
	return have
}
