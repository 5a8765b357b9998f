package api

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
)

func defaultPod(p *corev1.Pod) {
	defaultPodSpec(&p.Spec)
	defaultPodStatus(&p.Status)
}

func defaultPodSpec(s *corev1.PodSpec) {
	setEmpty(&s.RestartPolicy, corev1.RestartPolicyAlways)
	setEmpty(&s.DNSPolicy, corev1.DNSClusterFirst)
	setEmpty(&s.SchedulerName, corev1.DefaultSchedulerName)
	setDefault(&s.TerminationGracePeriodSeconds, int64(corev1.DefaultTerminationGracePeriodSeconds))
	setDefault(&s.EnableServiceLinks, corev1.DefaultEnableServiceLinks)
	if s.SecurityContext == nil {
		s.SecurityContext = &corev1.PodSecurityContext{}
	}
	// serviceAccount is the old spelling of serviceAccountName; both are shown.
	if s.ServiceAccountName == "" {
		s.ServiceAccountName = s.DeprecatedServiceAccount
	}
	s.DeprecatedServiceAccount = s.ServiceAccountName
	for i := range s.Volumes {
		defaultVolume(&s.Volumes[i])
	}
	for i := range s.InitContainers {
		defaultContainer(&s.InitContainers[i], s.HostNetwork)
	}
	for i := range s.Containers {
		defaultContainer(&s.Containers[i], s.HostNetwork)
	}
	for i := range s.EphemeralContainers {
		defaultContainer(asContainer(&s.EphemeralContainers[i]), false)
	}
	defaultPodResources(s)
}

// defaultPodResources fills in what a pod with resources of its own leaves out. Its limit of huge pages is the sum of its containers'.
// Where it has any limit, what it requests of processor and memory is what its containers request, or else the limit itself.
func defaultPodResources(s *corev1.PodSpec) {
	r := s.Resources
	if r == nil || len(r.Requests) == 0 && len(r.Limits) == 0 {
		return
	}
	roundUp(r.Limits)
	roundUp(r.Requests)
	fill := func(to *corev1.ResourceList, from corev1.ResourceList, may func(corev1.ResourceName) bool) {
		for name, q := range from {
			if _, ok := (*to)[name]; !ok && may(name) {
				if *to == nil {
					*to = corev1.ResourceList{}
				}
				(*to)[name] = q.DeepCopy()
			}
		}
	}
	amount := func(name corev1.ResourceName) bool {
		return name == corev1.ResourceCPU || name == corev1.ResourceMemory
	}
	fill(&r.Limits, ofContainers(s, limitsOf), func(name corev1.ResourceName) bool {
		_, asked := r.Requests[name]
		return isHugePage(name) && !asked
	})
	if len(r.Limits) == 0 {
		return
	}
	fill(&r.Requests, ofContainers(s, requestsOf), amount)
	fill(&r.Requests, r.Limits, func(name corev1.ResourceName) bool { return amount(name) || isHugePage(name) })
}

func defaultPodStatus(s *corev1.PodStatus) {
	switch {
	case len(s.PodIPs) == 0 && s.PodIP != "":
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	case len(s.PodIPs) > 0 && s.PodIP == "":
		s.PodIP = s.PodIPs[0].IP
	case len(s.PodIPs) > 0 && !sameIP(s.PodIP, s.PodIPs[0].IP):
		s.PodIPs = []corev1.PodIP{{IP: s.PodIP}}
	}
}

func defaultVolume(v *corev1.Volume) {
	if v.VolumeSource == (corev1.VolumeSource{}) {
		v.EmptyDir = &corev1.EmptyDirVolumeSource{}
	}
	switch {
	case v.HostPath != nil:
		setDefault(&v.HostPath.Type, corev1.HostPathUnset)
	case v.Image != nil:
		setEmpty(&v.Image.PullPolicy, pullPolicyOf(v.Image.Reference))
	case v.ConfigMap != nil:
		setDefault(&v.ConfigMap.DefaultMode, corev1.ConfigMapVolumeSourceDefaultMode)
	case v.Secret != nil:
		setDefault(&v.Secret.DefaultMode, corev1.SecretVolumeSourceDefaultMode)
	case v.DownwardAPI != nil:
		setDefault(&v.DownwardAPI.DefaultMode, corev1.DownwardAPIVolumeSourceDefaultMode)
		defaultDownward(v.DownwardAPI.Items)
	case v.Ephemeral != nil && v.Ephemeral.VolumeClaimTemplate != nil:
		setDefault(&v.Ephemeral.VolumeClaimTemplate.Spec.VolumeMode, corev1.PersistentVolumeFilesystem)
	case v.Projected != nil:
		setDefault(&v.Projected.DefaultMode, corev1.ProjectedVolumeSourceDefaultMode)
		for i := range v.Projected.Sources {
			s := &v.Projected.Sources[i]
			if s.DownwardAPI != nil {
				defaultDownward(s.DownwardAPI.Items)
			}
			if s.ServiceAccountToken != nil {
				setDefault(&s.ServiceAccountToken.ExpirationSeconds, tokenSeconds)
			}
		}
	}
}

// tokenSeconds is how long a service-account token is good for unless the pod says so: an hour.
const tokenSeconds = int64(60 * 60)

func defaultDownward(items []corev1.DownwardAPIVolumeFile) {
	for i := range items {
		if items[i].FieldRef != nil {
			setEmpty(&items[i].FieldRef.APIVersion, "v1")
		}
	}
}

func defaultContainer(c *corev1.Container, hostNetwork bool) {
	setEmpty(&c.ImagePullPolicy, pullPolicyOf(c.Image))
	setEmpty(&c.TerminationMessagePath, corev1.TerminationMessagePathDefault)
	setEmpty(&c.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
	for i := range c.Ports {
		setEmpty(&c.Ports[i].Protocol, corev1.ProtocolTCP)
		if hostNetwork && c.Ports[i].HostPort == 0 {
			c.Ports[i].HostPort = c.Ports[i].ContainerPort
		}
	}
	for i := range c.Env {
		f := c.Env[i].ValueFrom
		if f != nil && f.FieldRef != nil {
			setEmpty(&f.FieldRef.APIVersion, "v1")
		}
		if f != nil && f.FileKeyRef != nil {
			setDefault(&f.FileKeyRef.Optional, false)
		}
	}
	defaultLife(c)
	roundUp(c.Resources.Limits)
	roundUp(c.Resources.Requests)
	for name, q := range c.Resources.Limits {
		if _, ok := c.Resources.Requests[name]; ok {
			continue
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[name] = q.DeepCopy()
	}
}

// pullPolicyOf an image that nobody said more about: the latest may be another tomorrow.
func pullPolicyOf(image string) corev1.PullPolicy {
	if imageTag(image) == "latest" {
		return corev1.PullAlways
	}
	return corev1.PullIfNotPresent
}

// imageTag is the tag of an image reference: "latest" when it has none, "" when a digest pins it.
func imageTag(ref string) string {
	if strings.Contains(ref, "@") {
		return ""
	}
	if i := strings.LastIndex(ref, ":"); i > strings.LastIndex(ref, "/") {
		return ref[i+1:]
	}
	return "latest"
}
