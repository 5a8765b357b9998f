package api

import (
	"maps"
	"strconv"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
	"ledge/api/valid"
)

// ReplicationControllers keep a number of pods going that are made from one template. Who deletes one without a word about
// its pods leaves them, as on Kubernetes; kubectl does say something.
var ReplicationControllers = Define(Kind{Version: "v1", Name: "ReplicationController", Resource: "replicationcontrollers",
	Singular: "replicationcontroller", Short: []string{"rc"}, Categories: []string{"all"}, Namespaced: true, Generation: true,
	Propagation: metav1.DeletePropagationOrphan},
	Rules[*corev1.ReplicationController]{
		New:      func() *corev1.ReplicationController { return &corev1.ReplicationController{} },
		NewList:  func() ListObject { return &corev1.ReplicationControllerList{} },
		Default:  defaultReplicationController,
		Fresh:    func(rc *corev1.ReplicationController) { rc.Status = corev1.ReplicationControllerStatus{} },
		Validate: validateReplicationController,
		ValidateUpdate: func(rc, _ *corev1.ReplicationController, sub string) field.ErrorList {
			if sub == StatusSub {
				return validateReplicationStatus(&rc.Status)
			}
			return validateReplicationController(rc)
		},
		Spec:   func(rc *corev1.ReplicationController) any { return &rc.Spec },
		Status: func(rc *corev1.ReplicationController) any { return &rc.Status },
		Beat: func(rc, was *corev1.ReplicationController) *corev1.ReplicationController { // counts are found anew
			out := *rc
			out.Status = was.Status
			out.Status.Conditions = rc.Status.Conditions
			return &out
		},
		Template: func(rc *corev1.ReplicationController) *corev1.PodTemplateSpec { return rc.Spec.Template },
		Scale: func(rc *corev1.ReplicationController) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: wanted(rc)},
				autoscalingv1.ScaleStatus{Replicas: rc.Status.Replicas, Selector: labels.SelectorFromSet(rc.Spec.Selector).String()}
		},
		SetScale: func(rc *corev1.ReplicationController, n int32) { rc.Spec.Replicas = &n },
		Fields: []Field[*corev1.ReplicationController]{
			{"status.replicas", func(rc *corev1.ReplicationController) string { return strconv.Itoa(int(rc.Status.Replicas)) }}},
		Columns: replicationColumns,
		Cells:   replicationCells,
	})

// wanted is how many pods a controller wants.
func wanted(rc *corev1.ReplicationController) int32 {
	if rc.Spec.Replicas == nil {
		return 1
	}
	return *rc.Spec.Replicas
}

func defaultReplicationController(rc *corev1.ReplicationController) {
	setDefault(&rc.Spec.Replicas, 1)
	t := rc.Spec.Template
	if t == nil {
		return
	}
	if len(rc.Spec.Selector) == 0 {
		rc.Spec.Selector = maps.Clone(t.Labels)
	}
	if len(rc.Labels) == 0 {
		rc.Labels = maps.Clone(t.Labels)
	}
	DefaultTemplate(t)
}

func validateReplicationController(rc *corev1.ReplicationController) field.ErrorList {
	at, s := field.NewPath("spec"), &rc.Spec
	errs := valid.NotNegative(s.MinReadySeconds, at.Child("minReadySeconds"))
	if len(s.Selector) == 0 {
		errs = append(errs, field.Required(at.Child("selector"), ""))
	}
	errs = append(errs, valid.NotNegative(wanted(rc), at.Child("replicas"))...)
	at = at.Child("template")
	if s.Template == nil {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, ValidateReplicated(s.Template, labels.SelectorFromSet(s.Selector), at)...)
}

func validateReplicationStatus(s *corev1.ReplicationControllerStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := valid.Counts(at, s.Replicas, valid.Count{Name: "fullyLabeledReplicas", N: s.FullyLabeledReplicas},
		valid.Count{Name: "readyReplicas", N: s.ReadyReplicas}, valid.Count{Name: "availableReplicas", N: s.AvailableReplicas})
	errs = append(errs, apivalidation.ValidateNonnegativeField(s.ObservedGeneration, at.Child("observedGeneration"))...)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(at.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return errs
}

var replicationColumns = table.Columns{
	table.Name,
	table.Column("Desired", "integer", "How many pods there are to be."),
	table.Column("Current", "integer", "How many pods there are."),
	table.Column("Ready", "integer", "How many of them are ready."),
	table.Age,
	table.Wide("Containers", "string", "The names of the containers."),
	table.Wide("Images", "string", "The images of the containers."),
	table.Wide("Selector", "string", "Which pods are counted."),
}

func replicationCells(rc *corev1.ReplicationController, l table.Look) []any {
	var names, images string
	if t := rc.Spec.Template; t != nil {
		names, images = table.Containers(&t.Spec)
	}
	return []any{rc.Name, int64(wanted(rc)), int64(rc.Status.Replicas), int64(rc.Status.ReadyReplicas), l.AgeOf(rc),
		names, images, table.Selector(rc.Spec.Selector)}
}
