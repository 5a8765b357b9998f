package api

import (
	"maps"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// ReplicationControllers keep a number of pods going that are made from one template. Who deletes one without a word about
// its pods leaves them, as on Kubernetes; kubectl does say something.
var ReplicationControllers = &Kind{Version: "v1", Name: "ReplicationController", Resource: "replicationcontrollers",
	Singular: "replicationcontroller", Short: []string{"rc"}, Categories: []string{"all"}, Namespaced: true, HasStatus: true,
	Propagation: metav1.DeletePropagationOrphan,
	New:         func() Object { return &corev1.ReplicationController{} }, NewList: func() ListObject { return &corev1.ReplicationControllerList{} }}

// Scales are how the number of pods is seen and set, whatever kind of controller has them. They are not kept.
var Scales = &Kind{Group: "autoscaling", Version: "v1", Name: "Scale", Resource: "scales", Singular: "scale", Namespaced: true,
	New: func() Object { return &autoscalingv1.Scale{} }}

// Scale is the subresource that they are.
const Scale = "scale"

// ScaleOf is what a controller shows of its number of pods.
func ScaleOf(rc *corev1.ReplicationController) *autoscalingv1.Scale {
	out := &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: rc.Name, Namespace: rc.Namespace, UID: rc.UID, ResourceVersion: rc.ResourceVersion,
			CreationTimestamp: rc.CreationTimestamp},
		Spec:   autoscalingv1.ScaleSpec{Replicas: Replicas(rc)},
		Status: autoscalingv1.ScaleStatus{Replicas: rc.Status.Replicas, Selector: labels.SelectorFromSet(rc.Spec.Selector).String()},
	}
	Scales.Stamp(out)
	return out
}

// Replicas is how many pods a controller wants.
func Replicas(rc *corev1.ReplicationController) int32 {
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
	defaultPodSpec(&t.Spec)
}

func validateReplicationController(rc *corev1.ReplicationController) field.ErrorList {
	at, s := field.NewPath("spec"), &rc.Spec
	errs := notNegative(s.MinReadySeconds, at.Child("minReadySeconds"))
	if len(s.Selector) == 0 {
		errs = append(errs, field.Required(at.Child("selector"), ""))
	}
	errs = append(errs, notNegative(Replicas(rc), at.Child("replicas"))...)
	at = at.Child("template")
	if s.Template == nil {
		return append(errs, field.Required(at, ""))
	}
	return append(errs, validateReplicated(s.Template, s.Selector, at)...)
}

// validateReplicated looks at a template whose pods are made again whenever one is missing: they must be found by the
// selector, and not end by themselves. What ledge does not support is refused here: nobody watches when the pods are made.
func validateReplicated(t *corev1.PodTemplateSpec, selector map[string]string, at *field.Path) field.ErrorList {
	errs := validateTemplate(t, at)
	spec := at.Child("spec")
	if len(selector) > 0 && !labels.SelectorFromSet(selector).Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), t.Spec.RestartPolicy, []corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(spec.Child("activeDeadlineSeconds"), "pods that are made again may not have a deadline"))
	}
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(spec.Child("ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	for _, err := range Unsupported(&corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}) {
		err.Field = at.String() + "." + err.Field
		errs = append(errs, err)
	}
	return errs
}

func validateReplicationStatus(s *corev1.ReplicationControllerStatus) field.ErrorList {
	at := field.NewPath("status")
	var errs field.ErrorList
	for _, n := range []struct {
		name  string
		value int32
	}{{"replicas", s.Replicas}, {"fullyLabeledReplicas", s.FullyLabeledReplicas}, {"readyReplicas", s.ReadyReplicas}, {"availableReplicas", s.AvailableReplicas}} {
		errs = append(errs, notNegative(n.value, at.Child(n.name))...)
		if n.value > s.Replicas {
			errs = append(errs, field.Invalid(at.Child(n.name), n.value, "cannot be greater than status.replicas"))
		}
	}
	errs = append(errs, apivalidation.ValidateNonnegativeField(s.ObservedGeneration, at.Child("observedGeneration"))...)
	if s.AvailableReplicas > s.ReadyReplicas {
		errs = append(errs, field.Invalid(at.Child("availableReplicas"), s.AvailableReplicas, "cannot be greater than readyReplicas"))
	}
	return errs
}

// PodOf is a pod as a controller's template has it, without a name: the server makes one.
func PodOf(rc *corev1.ReplicationController) *corev1.Pod {
	t := rc.Spec.Template.DeepCopy()
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: rc.Namespace, GenerateName: rc.Name + "-", Labels: t.Labels, Annotations: t.Annotations, Finalizers: t.Finalizers,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(rc, ReplicationControllers.GVK())}},
		Spec: t.Spec,
	}
}
