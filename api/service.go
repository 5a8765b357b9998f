package api

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// Services are names and addresses for pods that come and go. What addresses and ports one gets, the store decides (api/local), since
// no two may have the same.
var Services = Define(Kind{Version: "v1", Name: "Service", Resource: "services", Singular: "service", Short: []string{"svc"},
	Categories: []string{"all"}, Namespaced: true},
	Rules[*corev1.Service]{
		New: func() *corev1.Service { return &corev1.Service{} }, NewList: func() ListObject { return &corev1.ServiceList{} },
		Default:  defaultService,
		Fresh:    func(s *corev1.Service) { s.Status = corev1.ServiceStatus{} },
		NameRule: apivalidation.NameIsDNSLabel,
		Validate: func(s *corev1.Service) field.ErrorList { return validateService(s, nil) },
		ValidateUpdate: func(s, old *corev1.Service, sub string) field.ErrorList {
			if sub == StatusSub {
				return validateServiceStatus(s, old)
			}
			return append(validateServiceChange(s, old), validateService(s, old)...)
		},
		Warn:   serviceWarnings,
		Spec:   func(s *corev1.Service) any { return &s.Spec },
		Status: func(s *corev1.Service) any { return &s.Status },
		Keep: func(s, old *corev1.Service, sub string) {
			if sub == "" {
				defaultService(s) // what a type needs is a question of the type that is meant
				keepAllocated(s, old)
				dropForeign(s, old)
			}
		},
		Fields: []Field[*corev1.Service]{
			{"spec.clusterIP", func(s *corev1.Service) string { return s.Spec.ClusterIP }},
			{"spec.type", func(s *corev1.Service) string { return string(s.Spec.Type) }}},
		Charge:  serviceCharge,
		Columns: serviceColumns,
		Cells:   serviceCells,
	})

// IsHeadless says that a service has no address of its own, by its own wish: its name means the addresses of its pods.
func IsHeadless(s *corev1.Service) bool {
	return len(s.Spec.ClusterIPs) == 1 && s.Spec.ClusterIPs[0] == corev1.ClusterIPNone
}

// HasClusterIP says that a service has an address of its own, or is to get one.
func HasClusterIP(s *corev1.Service) bool {
	return s.Spec.Type != corev1.ServiceTypeExternalName && s.Spec.ClusterIP != corev1.ClusterIPNone
}

// IsExternal says that a service can be reached from outside of the cluster. Then it matters through which board somebody comes.
func IsExternal(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer || s.Spec.Type == corev1.ServiceTypeNodePort
}

// HasHealthCheck says that each board answers, on a port of its own, whether it has endpoints of a service.
func HasHealthCheck(s *corev1.Service) bool {
	return s.Spec.Type == corev1.ServiceTypeLoadBalancer && s.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal
}

// WantsNodePorts says that each port of a service gets one on the boards where it names none.
func WantsNodePorts(s *corev1.Service) bool {
	allocate := s.Spec.AllocateLoadBalancerNodePorts
	return s.Spec.Type == corev1.ServiceTypeNodePort || s.Spec.Type == corev1.ServiceTypeLoadBalancer && (allocate == nil || *allocate)
}

func defaultService(s *corev1.Service) {
	setEmpty(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	switch a := s.Spec.SessionAffinityConfig; s.Spec.SessionAffinity {
	case corev1.ServiceAffinityNone:
		s.Spec.SessionAffinityConfig = nil
	case corev1.ServiceAffinityClientIP:
		if a == nil || a.ClientIP == nil || a.ClientIP.TimeoutSeconds == nil {
			seconds := corev1.DefaultClientIPServiceAffinitySeconds
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &seconds}}
		}
	}
	setEmpty(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	for i := range s.Spec.Ports {
		p := &s.Spec.Ports[i]
		setEmpty(&p.Protocol, corev1.ProtocolTCP)
		if p.TargetPort == intstr.FromInt32(0) || p.TargetPort == intstr.FromString("") {
			p.TargetPort = intstr.FromInt32(p.Port)
		}
	}
	if IsExternal(s) {
		setEmpty(&s.Spec.ExternalTrafficPolicy, corev1.ServiceExternalTrafficPolicyCluster)
	}
	if s.Spec.Type != corev1.ServiceTypeExternalName {
		setDefault(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
	}
	if s.Spec.Type != corev1.ServiceTypeLoadBalancer {
		return
	}
	setDefault(&s.Spec.AllocateLoadBalancerNodePorts, true)
	for i := range s.Status.LoadBalancer.Ingress {
		if in := &s.Status.LoadBalancer.Ingress[i]; in.IP != "" {
			setDefault(&in.IPMode, corev1.LoadBalancerIPModeVIP)
		}
	}
}

var serviceColumns = table.Columns{
	table.Name,
	table.Column("Type", "string", "How the service is exposed."),
	table.Column("Cluster-IP", "string", "The address of the service."),
	table.Column("External-IP", "string", "The addresses it has outside."),
	table.Column("Port(s)", "string", "The ports of the service."),
	table.Age,
	table.Wide("Selector", "string", "Which pods are behind it."),
}

func serviceCells(s *corev1.Service, l table.Look) []any {
	address := table.None
	if len(s.Spec.ClusterIPs) > 0 {
		address = s.Spec.ClusterIPs[0]
	}
	ports := make([]string, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		if ports[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol); p.NodePort > 0 {
			ports[i] = fmt.Sprintf("%d:%d/%s", p.Port, p.NodePort, p.Protocol)
		}
	}
	return []any{s.Name, string(s.Spec.Type), address, outside(s), table.OrNone(strings.Join(ports, ",")), l.AgeOf(s),
		table.Selector(s.Spec.Selector)}
}

// outside is how a service is called outside of the cluster.
func outside(s *corev1.Service) string {
	switch s.Spec.Type {
	case corev1.ServiceTypeExternalName:
		return s.Spec.ExternalName
	case corev1.ServiceTypeLoadBalancer:
		var all []string
		for _, in := range s.Status.LoadBalancer.Ingress {
			all = append(all, table.OrElse(in.IP, in.Hostname))
		}
		slices.Sort(all)
		return table.OrElse(strings.Join(slices.Compact(all), ","), "<pending>")
	}
	return table.None
}
