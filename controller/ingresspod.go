package controller

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api/networking"
)

// Ports inside the pods that take requests in (network/ingress/door, which says the same).
const (
	ingressPlain  = 8080
	ingressTLS    = 8443
	ingressHealth = 8081
)

// nobody is the user of the self image's programs that need no rights.
const nobody = 65534

func ingressPod() corev1.PodSpec {
	var (
		yes, no = true, false
		user    = int64(nobody)
		grace   = int64(30)
		asks    = func(path string) corev1.ProbeHandler {
			return corev1.ProbeHandler{HTTPGet: &corev1.HTTPGetAction{Path: path, Port: intstr.FromInt32(ingressHealth)}}
		}
		fieldRef = func(path string) *corev1.EnvVarSource {
			return &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}
		}
	)
	return corev1.PodSpec{
		ServiceAccountName: networking.Pods, TerminationGracePeriodSeconds: &grace, PriorityClassName: "system-cluster-critical",
		Affinity: takesTrafficOnly(), EnableServiceLinks: &no, DNSPolicy: corev1.DNSDefault,
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: &yes, RunAsUser: &user, RunAsGroup: &user,
			SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
		Containers: []corev1.Container{{
			Name: "ingress", Image: "ledge.local/self", ImagePullPolicy: corev1.PullIfNotPresent,
			Args: []string{"ingress", "-node=$(NODE)"},
			Env: []corev1.EnvVar{{Name: "NODE", ValueFrom: fieldRef("spec.nodeName")}, {Name: "GOMEMLIMIT", Value: "160MiB"},
				{Name: "GOGC", Value: "200"}},
			Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: ingressPlain, HostPort: 80, Protocol: corev1.ProtocolTCP},
				{Name: "https", ContainerPort: ingressTLS, HostPort: 443, Protocol: corev1.ProtocolTCP},
				{Name: "metrics", ContainerPort: ingressHealth, Protocol: corev1.ProtocolTCP}},
			Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("192Mi")},
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("24Mi")}},
			// The first Ingress should not wait for the second look of the readiness probe. While the control plane is away none is ready.
			StartupProbe:   &corev1.Probe{ProbeHandler: asks("/readyz"), PeriodSeconds: 1, TimeoutSeconds: 5, FailureThreshold: 3600},
			ReadinessProbe: &corev1.Probe{ProbeHandler: asks("/readyz"), PeriodSeconds: 10, TimeoutSeconds: 5},
			LivenessProbe:  &corev1.Probe{ProbeHandler: asks("/healthz"), PeriodSeconds: 30, TimeoutSeconds: 10},
			SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: &no, ReadOnlyRootFilesystem: &yes,
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
}

// takesTrafficOnly keeps pods from boards that people take out of traffic: what such a board cannot serve it need not hold the keys of.
func takesTrafficOnly() *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelNodeExcludeBalancers, Operator: corev1.NodeSelectorOpDoesNotExist}}}}}}}
}
