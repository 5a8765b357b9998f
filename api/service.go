package api

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/table"
)

// Services has one object, default/kubernetes: where this API is.
var Services = Define(Kind{Version: "v1", Name: "Service", Resource: "services", Singular: "service", Short: []string{"svc"},
	Categories: []string{"all"}, Namespaced: true, ServerOnly: true,
	Refusal: "services are not supported by ledge: there is only default/kubernetes, which the server keeps"},
	Rules[*corev1.Service]{
		New: func() *corev1.Service { return &corev1.Service{} }, NewList: func() ListObject { return &corev1.ServiceList{} },
		Default: defaultService,
		Columns: serviceColumns,
		Cells:   serviceCells,
	})

func defaultService(s *corev1.Service) {
	setEmpty(&s.Spec.Type, corev1.ServiceTypeClusterIP)
	setEmpty(&s.Spec.SessionAffinity, corev1.ServiceAffinityNone)
	setDefault(&s.Spec.InternalTrafficPolicy, corev1.ServiceInternalTrafficPolicyCluster)
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
	ports := make([]string, len(s.Spec.Ports))
	for i, p := range s.Spec.Ports {
		ports[i] = fmt.Sprintf("%d/%s", p.Port, p.Protocol)
	}
	return []any{s.Name, string(s.Spec.Type), table.OrNone(s.Spec.ClusterIP), table.None, table.OrNone(strings.Join(ports, ",")),
		l.AgeOf(s), table.Selector(s.Spec.Selector)}
}
