package api

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// podCharge: a pod takes resources until it has ended, or should have.
var podCharge = &Charge[*corev1.Pod]{Covers: coversPods, Uses: podUses, Until: podUntil, In: podIn, Lacks: podLacks}

const (
	requestsPrefix = corev1.DefaultResourceRequestsPrefix
	limitsPrefix   = "limits."
)

func coversPods(name corev1.ResourceName) bool {
	s := string(name)
	switch name {
	case corev1.ResourceRequestsEphemeralStorage, corev1.ResourceLimitsEphemeralStorage, corev1.ResourceEphemeralStorage:
		return true
	}
	return slices.Contains(computeNames, name) || isHugePage(name) || strings.HasPrefix(s, corev1.ResourceRequestsHugePagesPrefix) ||
		strings.HasPrefix(s, requestsPrefix) && strings.Contains(s, "/") && !strings.Contains(s, "kubernetes.io/")
}

func podUses(p *corev1.Pod) corev1.ResourceList {
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return nil
	}
	return quotaUse(held(p, Requests), held(p, limitsSum))
}

// quotaUse is what some requests and limits are called in a quota.
func quotaUse(requests, limits corev1.ResourceList) corev1.ResourceList {
	out := corev1.ResourceList{corev1.ResourcePods: unit()}
	for name, q := range requests {
		switch name {
		case corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
			out[name], out[requestsPrefix+name] = q, q
		default:
			if isHugePage(name) {
				out[name] = q
			}
			if isHugePage(name) || IsExtended(name) {
				out[requestsPrefix+name] = q
			}
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
		if q, ok := limits[name]; ok {
			out[limitsPrefix+name] = q
		}
	}
	return out
}

func unit() resource.Quantity { return *resource.NewQuantity(1, resource.DecimalSI) }

// limitsSum is what the limits of a pod come to; a container without one adds nothing.
func limitsSum(p *corev1.Pod) corev1.ResourceList {
	out := aggregate(p, limitsOf)
	for name, q := range p.Spec.Overhead {
		if sum, ok := out[name]; ok && !sum.IsZero() {
			sum.Add(q)
			out[name] = sum
		}
	}
	return out
}

// podUntil: a pod that has not ended long after its grace is over, such as one of a lost board, keeps nobody from making another.
func podUntil(p *corev1.Pod) time.Time {
	if p.DeletionTimestamp == nil || p.DeletionGracePeriodSeconds == nil {
		return time.Time{}
	}
	return p.DeletionTimestamp.Add(time.Duration(*p.DeletionGracePeriodSeconds) * time.Second)
}

func podIn(p *corev1.Pod, r corev1.ScopedResourceSelectorRequirement) bool {
	switch r.ScopeName {
	case corev1.ResourceQuotaScopeTerminating:
		return hasDeadline(p)
	case corev1.ResourceQuotaScopeNotTerminating:
		return !hasDeadline(p)
	case corev1.ResourceQuotaScopeBestEffort:
		return QOSClass(p) == corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopeNotBestEffort:
		return QOSClass(p) != corev1.PodQOSBestEffort
	case corev1.ResourceQuotaScopePriorityClass:
		if p.Spec.PriorityClassName == "" {
			return inScope(r)
		}
		return inScope(r, p.Spec.PriorityClassName)
	case corev1.ResourceQuotaScopeCrossNamespacePodAffinity:
		return looksAcross(p.Spec.Affinity)
	}
	return false
}

func hasDeadline(p *corev1.Pod) bool {
	return p.Spec.ActiveDeadlineSeconds != nil && *p.Spec.ActiveDeadlineSeconds >= 0
}

// looksAcross says whether pods of other namespaces matter to where a pod may go.
func looksAcross(a *corev1.Affinity) bool {
	if a == nil {
		return false
	}
	across := func(t corev1.PodAffinityTerm) bool { return len(t.Namespaces) > 0 || t.NamespaceSelector != nil }
	weighted := func(t corev1.WeightedPodAffinityTerm) bool { return across(t.PodAffinityTerm) }
	to, from := a.PodAffinity, a.PodAntiAffinity
	return to != nil && (slices.ContainsFunc(to.RequiredDuringSchedulingIgnoredDuringExecution, across) ||
		slices.ContainsFunc(to.PreferredDuringSchedulingIgnoredDuringExecution, weighted)) ||
		from != nil && (slices.ContainsFunc(from.RequiredDuringSchedulingIgnoredDuringExecution, across) ||
			slices.ContainsFunc(from.PreferredDuringSchedulingIgnoredDuringExecution, weighted))
}

// podLacks: a quota of cpu or memory wants every container to say how much it takes, unless the pod says so as a whole.
func podLacks(p *corev1.Pod, names []corev1.ResourceName) string {
	if r := p.Spec.Resources; r != nil && len(r.Requests)+len(r.Limits) > 0 {
		return ""
	}
	lacks := map[corev1.ResourceName][]string{}
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			said := quotaUse(c.Resources.Requests, c.Resources.Limits)
			for _, name := range names {
				if _, ok := said[name]; !ok && name != corev1.ResourcePods && slices.Contains(computeNames, name) {
					lacks[name] = append(lacks[name], c.Name)
				}
			}
		}
	}
	var all []string
	for _, name := range slices.Sorted(maps.Keys(lacks)) {
		slices.Sort(lacks[name])
		all = append(all, fmt.Sprintf("%s for: %s", name, strings.Join(slices.Compact(lacks[name]), ",")))
	}
	if len(all) == 0 {
		return ""
	}
	return "must specify " + strings.Join(all, "; ")
}

// serviceCharge: ports of boards and load balancers, as a service asks for them.
var serviceCharge = &Charge[*corev1.Service]{
	Covers: func(name corev1.ResourceName) bool {
		return name == corev1.ResourceServicesNodePorts || name == corev1.ResourceServicesLoadBalancers
	},
	Uses: func(s *corev1.Service) corev1.ResourceList {
		ports, balancers := int64(0), int64(0)
		for _, p := range s.Spec.Ports {
			if IsExternal(s) && (WantsNodePorts(s) || p.NodePort != 0) {
				ports++
			}
		}
		if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
			balancers = 1
		}
		return corev1.ResourceList{corev1.ResourceServicesNodePorts: *resource.NewQuantity(ports, resource.DecimalSI),
			corev1.ResourceServicesLoadBalancers: *resource.NewQuantity(balancers, resource.DecimalSI)}
	},
}

// claimCharge: how many claims there are, and of what size, together and by class.
var claimCharge = &Charge[*corev1.PersistentVolumeClaim]{
	Covers: func(name corev1.ResourceName) bool {
		_, of, byClass := strings.Cut(string(name), OfClass)
		return name == corev1.ResourceRequestsStorage ||
			byClass && (of == string(corev1.ResourceRequestsStorage) || of == string(corev1.ResourcePersistentVolumeClaims))
	},
	Uses: claimUses,
	In: func(c *corev1.PersistentVolumeClaim, r corev1.ScopedResourceSelectorRequirement) bool {
		return r.ScopeName == corev1.ResourceQuotaScopeVolumeAttributesClass && inScope(r, attributesClasses(c)...)
	},
}

// OfClass stands in the names of what claims of one class take, between the class and what it is.
const OfClass = ".storageclass.storage.k8s.io/"

func claimUses(c *corev1.PersistentVolumeClaim) corev1.ResourceList {
	out := corev1.ResourceList{}
	count := func(name corev1.ResourceName, q resource.Quantity) {
		out[name] = q
		if class := ClassOfClaim(c); class != "" {
			out[corev1.ResourceName(class+OfClass)+name] = q
		}
	}
	count(corev1.ResourcePersistentVolumeClaims, unit())
	if size, ok := c.Spec.Resources.Requests[corev1.ResourceStorage]; ok {
		if given := c.Status.AllocatedResources[corev1.ResourceStorage]; given.Cmp(size) > 0 { // a smaller size was asked for since
			size = given
		}
		size = size.DeepCopy()
		size.RoundUp(0)
		count(corev1.ResourceRequestsStorage, size)
	}
	return out
}

// attributesClasses are all that a claim has, or is to have.
func attributesClasses(c *corev1.PersistentVolumeClaim) (out []string) {
	all := []*string{c.Spec.VolumeAttributesClassName, c.Status.CurrentVolumeAttributesClassName}
	if m := c.Status.ModifyVolumeStatus; m != nil {
		all = append(all, &m.TargetVolumeAttributesClassName)
	}
	for _, name := range all {
		if name != nil && *name != "" {
			out = append(out, *name)
		}
	}
	return out
}
