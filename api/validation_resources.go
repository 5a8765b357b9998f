package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

func validateResources(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	errs := validateQuantities(r.Limits, at.Child("limits"))
	errs = append(errs, validateQuantities(r.Requests, at.Child("requests"))...)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		limit, limited := r.Limits[name]
		switch {
		case !limited && scarce(name):
			errs = append(errs, field.Required(at.Child("limits"), "Limit must be set for non overcommitable resources"))
		case !limited:
		case scarce(name) && request.Cmp(limit) != 0:
			errs = append(errs, field.Invalid(at.Child("requests"), request.String(),
				fmt.Sprintf("must be equal to %s limit of %s", name, limit.String())))
		case request.Cmp(limit) > 0:
			errs = append(errs, field.Invalid(at.Child("requests"), request.String(),
				fmt.Sprintf("must be less than or equal to %s limit of %s", name, limit.String())))
		}
	}
	return append(errs, hugePagesNeedMore(r, at)...)
}

func isHugePage(name corev1.ResourceName) bool {
	return strings.HasPrefix(string(name), corev1.ResourceHugePagesPrefix)
}

// IsExtended tells the resources that somebody has added to a node beside those that Kubernetes knows: example.com/radio.
// They are counted, and given to pods whole.
func IsExtended(name corev1.ResourceName) bool {
	s := string(name)
	return strings.Contains(s, "/") && !strings.Contains(s, "kubernetes.io/") && !strings.HasPrefix(s, corev1.DefaultResourceRequestsPrefix) &&
		len(validation.IsQualifiedName(corev1.DefaultResourceRequestsPrefix+s)) == 0
}

// scarce resources are not given to more pods than there are: their limit is what is requested.
func scarce(name corev1.ResourceName) bool { return isHugePage(name) || IsExtended(name) }

// ExtendedOf are the extended resources of a list.
func ExtendedOf(list corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{}
	for name, q := range list {
		if IsExtended(name) {
			out[name] = q
		}
	}
	return out
}

// hugePagesNeedMore: a container of nothing but huge pages would be of the best effort class and be bounded.
func hugePagesNeedMore(r *corev1.ResourceRequirements, at *field.Path) field.ErrorList {
	huge, more := false, false
	for _, list := range []corev1.ResourceList{r.Requests, r.Limits} {
		for name := range list {
			huge = huge || isHugePage(name)
			more = more || name == corev1.ResourceCPU || name == corev1.ResourceMemory
		}
	}
	if huge && !more {
		return field.ErrorList{field.Forbidden(at, "HugePages require cpu or memory")}
	}
	return nil
}

// mostOf bounds how much of a resource may be named: sums of a node's pods are numbers of 64 bits, of CPU in thousandths, and more
// would turn over and seem to be less than nothing.
func mostOf(name corev1.ResourceName) int64 {
	if name == corev1.ResourceCPU {
		return 1 << 40
	}
	return 1 << 53
}

func validateQuantities(list corev1.ResourceList, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	for _, name := range slices.Sorted(maps.Keys(list)) {
		q := list[name]
		if q.Sign() < 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), "must be greater than or equal to 0"))
		}
		if most := mostOf(name); q.CmpInt64(most) > 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), fmt.Sprintf("must be less than or equal to %d", most)))
		}
		if IsExtended(name) && q.MilliValue()%1000 != 0 {
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(), "must be an integer"))
		}
		if !isHugePage(name) {
			continue
		}
		size, err := resource.ParseQuantity(strings.TrimPrefix(string(name), corev1.ResourceHugePagesPrefix))
		switch {
		case err != nil || size.Value() <= 0:
			errs = append(errs, field.Invalid(at.Key(string(name)), name, "must name a page size, such as hugepages-2Mi"))
		case q.Value()%size.Value() != 0:
			errs = append(errs, field.Invalid(at.Key(string(name)), q.String(),
				fmt.Sprintf("%s is not positive integer multiple of %s", q.String(), name)))
		}
	}
	return errs
}

// podLevel are the resources a pod may have as a whole.
var podLevel = []string{"cpu", "hugepages-", "memory"}

func ofContainers(s *corev1.PodSpec, of func(*corev1.ResourceRequirements) corev1.ResourceList) corev1.ResourceList {
	return aggregate(&corev1.Pod{Spec: corev1.PodSpec{Containers: s.Containers, InitContainers: s.InitContainers}}, of)
}

// validatePodResources checks what a pod asks for as a whole against what its containers do.
func validatePodResources(s *corev1.PodSpec, at *field.Path) field.ErrorList {
	r := s.Resources
	if r == nil {
		return nil
	}
	errs := validateResources(r, at)
	for child, list := range map[string]corev1.ResourceList{"limits": r.Limits, "requests": r.Requests} {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if name != corev1.ResourceCPU && name != corev1.ResourceMemory && !isHugePage(name) {
				errs = append(errs, field.NotSupported(at.Child(child), string(name), podLevel))
			}
		}
	}
	sum := ofContainers(s, requestsOf)
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		if q, all := r.Requests[name], sum[name]; all.Cmp(q) > 0 {
			errs = append(errs, field.Invalid(at.Child("requests").Key(string(name)), q.String(),
				fmt.Sprintf("must be greater than or equal to aggregate container requests of %s", all.String())))
		}
	}
	eachContainer(&corev1.Pod{Spec: *s}, func(c *corev1.Container, at *field.Path) {
		for _, name := range slices.Sorted(maps.Keys(c.Resources.Limits)) {
			q := c.Resources.Limits[name]
			if most, ok := r.Limits[name]; ok && q.Cmp(most) > 0 {
				errs = append(errs, field.Invalid(at.Child("resources", "limits").Key(string(name)), q.String(),
					fmt.Sprintf("must be less than or equal to pod limits of %s", most.String())))
			}
		}
	})
	return errs
}
