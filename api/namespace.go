package api

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// Finalize is the subresource of a namespace for who holds it.
const Finalize = "finalize"

// Namespaces are what most other objects live in.
var Namespaces = Define(Kind{Version: "v1", Name: "Namespace", Resource: "namespaces", Singular: "namespace", Short: []string{"ns"},
	Subresources: []string{Finalize}},
	Rules[*corev1.Namespace]{
		New: func() *corev1.Namespace { return &corev1.Namespace{} }, NewList: func() ListObject { return &corev1.NamespaceList{} },
		Default:  defaultNamespace,
		Fresh:    freshNamespace,
		NameRule: apivalidation.ValidateNamespaceName,
		Validate: validateNamespace,
		Spec:     func(n *corev1.Namespace) any { return &n.Spec },
		Status:   func(n *corev1.Namespace) any { return &n.Status },
		Keep:     keepNamespace,
		Fields:   []Field[*corev1.Namespace]{{"status.phase", func(n *corev1.Namespace) string { return string(n.Status.Phase) }}},
		Columns:  table.Columns{table.Name, table.Column("Status", "string", "Whether the namespace is in use or going away."), table.Age},
		Cells: func(n *corev1.Namespace, l table.Look) []any {
			return []any{n.Name, string(n.Status.Phase), l.AgeOf(n)}
		},
	})

func defaultNamespace(ns *corev1.Namespace) {
	if ns.Name == "" {
		return // generateName: called again once there is a name
	}
	if ns.Labels == nil {
		ns.Labels = map[string]string{}
	}
	ns.Labels[corev1.LabelMetadataName] = ns.Name
}

func freshNamespace(ns *corev1.Namespace) {
	ns.Status = corev1.NamespaceStatus{Phase: corev1.NamespaceActive}
	if len(ns.Spec.Finalizers) == 0 {
		ns.Spec.Finalizers = []corev1.FinalizerName{corev1.FinalizerKubernetes}
	}
}

// keepNamespace: its own finalizers have a subresource, which changes nothing else.
func keepNamespace(ns, was *corev1.Namespace, sub string) {
	if sub == Finalize {
		mine := ns.Spec.Finalizers
		was.DeepCopyInto(ns)
		ns.Spec.Finalizers = mine
		return
	}
	ns.Spec.Finalizers = slices.Clone(was.Spec.Finalizers)
}

// validateNamespace refuses finalizers in the spec beside the server's own: there is no finalize subresource to
// take them off again, so the namespace could never be deleted. Those in the metadata work.
func validateNamespace(ns *corev1.Namespace) field.ErrorList {
	var errs field.ErrorList
	for i, f := range ns.Spec.Finalizers {
		if f == corev1.FinalizerKubernetes {
			continue
		}
		at := field.NewPath("spec", "finalizers").Index(i)
		errs = append(errs, apivalidation.ValidateFinalizerName(string(f), at)...)
		if !strings.Contains(string(f), "/") {
			errs = append(errs, field.Invalid(at, f, "name is neither a standard finalizer name nor is it fully qualified"))
		}
	}
	return errs
}
