// Package apps has the kinds of the group apps.
package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// ReplicaSets keep a number of pods going that are made from one template. A Deployment makes one for each of its templates.
var ReplicaSets = api.Define(api.Kind{Group: "apps", Version: "v1", Name: "ReplicaSet", Resource: "replicasets", Singular: "replicaset",
	Short: []string{"rs"}, Categories: []string{"all"}, Namespaced: true, Generation: true},
	api.Rules[*appsv1.ReplicaSet]{
		New:     func() *appsv1.ReplicaSet { return &appsv1.ReplicaSet{} },
		NewList: func() api.ListObject { return &appsv1.ReplicaSetList{} },
		Default: func(rs *appsv1.ReplicaSet) {
			setDefault(&rs.Spec.Replicas, 1)
			api.DefaultTemplate(&rs.Spec.Template)
		},
		Fresh:    func(rs *appsv1.ReplicaSet) { rs.Status = appsv1.ReplicaSetStatus{} },
		Validate: func(rs *appsv1.ReplicaSet) field.ErrorList { return validateReplicaSet(&rs.Spec) },
		ValidateUpdate: func(rs, old *appsv1.ReplicaSet, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateReplicaSetStatus(&rs.Status)
			}
			return append(validateReplicaSet(&rs.Spec), sameSelector(rs.Spec.Selector, old.Spec.Selector)...)
		},
		Warn:     func(rs *appsv1.ReplicaSet) []string { return warnings(rs.Name, &rs.Spec.Template) },
		Spec:     func(rs *appsv1.ReplicaSet) any { return &rs.Spec },
		Status:   func(rs *appsv1.ReplicaSet) any { return &rs.Status },
		Beat:     replicaSetBeat,
		Template: func(rs *appsv1.ReplicaSet) *corev1.PodTemplateSpec { return &rs.Spec.Template },
		Scale: func(rs *appsv1.ReplicaSet) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: wanted(rs.Spec.Replicas)},
				autoscalingv1.ScaleStatus{Replicas: rs.Status.Replicas, Selector: selectorOf(rs.Spec.Selector).String()}
		},
		SetScale: func(rs *appsv1.ReplicaSet, n int32) { rs.Spec.Replicas = &n },
		Columns:  replicaSetColumns,
		Cells:    replicaSetCells,
	})

func validateReplicaSet(s *appsv1.ReplicaSetSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := valid.NotNegative(wanted(s.Replicas), at.Child("replicas"))
	errs = append(errs, valid.NotNegative(s.MinReadySeconds, at.Child("minReadySeconds"))...)
	return append(errs, validateSelected(s.Selector, &s.Template, at, "deployment")...)
}

func validateReplicaSetStatus(s *appsv1.ReplicaSetStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := valid.Counts(at, s.Replicas, valid.Count{Name: "fullyLabeledReplicas", N: s.FullyLabeledReplicas},
		valid.Count{Name: "readyReplicas", N: s.ReadyReplicas}, valid.Count{Name: "availableReplicas", N: s.AvailableReplicas})
	return append(errs, validateSeen(at, s.ObservedGeneration, s.TerminatingReplicas, s.AvailableReplicas, s.ReadyReplicas)...)
}

// validateSeen looks at what the statuses of both kinds have, beside the counts that are parts of their replicas.
func validateSeen(at *field.Path, generation int64, terminating *int32, available, ready int32) field.ErrorList {
	errs := apivalidation.ValidateNonnegativeField(generation, at.Child("observedGeneration"))
	if terminating != nil {
		errs = append(errs, valid.NotNegative(*terminating, at.Child("terminatingReplicas"))...)
	}
	if available > ready {
		errs = append(errs, field.Invalid(at.Child("availableReplicas"), available, "cannot be greater than readyReplicas"))
	}
	return errs
}

var replicaSetColumns = table.Columns{
	table.Name,
	table.Column("Desired", "integer", "How many pods there are to be."),
	table.Column("Current", "integer", "How many pods there are."),
	table.Column("Ready", "integer", "How many of them are ready."),
	table.Age,
	table.Wide("Containers", "string", "The names of the containers."),
	table.Wide("Images", "string", "The images of the containers."),
	table.Wide("Selector", "string", "Which pods are counted."),
}

func replicaSetCells(rs *appsv1.ReplicaSet, l table.Look) []any {
	names, images := table.Containers(&rs.Spec.Template.Spec)
	return []any{rs.Name, int64(wanted(rs.Spec.Replicas)), int64(rs.Status.Replicas), int64(rs.Status.ReadyReplicas), l.AgeOf(rs),
		names, images, metav1.FormatLabelSelector(rs.Spec.Selector)}
}
