package api

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// PodTemplates are templates that stand alone.
var PodTemplates = Define(Kind{Version: "v1", Name: "PodTemplate", Resource: "podtemplates", Singular: "podtemplate", Namespaced: true},
	Rules[*corev1.PodTemplate]{
		New: func() *corev1.PodTemplate { return &corev1.PodTemplate{} }, NewList: func() ListObject { return &corev1.PodTemplateList{} },
		Default: func(t *corev1.PodTemplate) { DefaultTemplate(&t.Template) },
		Validate: func(t *corev1.PodTemplate) field.ErrorList {
			return validateTemplate(&t.Template, field.NewPath("template"))
		},
		Template: func(t *corev1.PodTemplate) *corev1.PodTemplateSpec { return &t.Template },
		Columns: table.Columns{
			table.Name,
			table.Column("Containers", "string", "The names of the containers."),
			table.Column("Images", "string", "The images of the containers."),
			table.Column("Pod Labels", "string", "The labels of pods made from it."),
		},
		Cells: func(t *corev1.PodTemplate, _ table.Look) []any {
			names, images := table.Containers(&t.Template.Spec)
			return []any{t.Name, names, images, table.Selector(t.Template.Labels)}
		},
	})

// DefaultTemplate fills what a template leaves empty as it would be in a pod.
func DefaultTemplate(t *corev1.PodTemplateSpec) { defaultPodSpec(&t.Spec) }

// validateTemplate: a template is what a pod made from it will be, so it is held to the same. What ledge does not support
// in one that stands alone is refused when a pod is made.
func validateTemplate(t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	errs = append(errs, validatePodAnnotations(t.Annotations, t.Spec.NodeName, at.Child("annotations"))...)
	return append(errs, validatePodSpec(&t.Spec, at.Child("spec"))...)
}

// ValidateTemplate looks at the template of a workload. What ledge does not support is refused here: nobody watches when the pods
// are made.
func ValidateTemplate(t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := validateTemplate(t, at)
	if len(t.Spec.EphemeralContainers) > 0 {
		errs = append(errs, field.Forbidden(at.Child("spec", "ephemeralContainers"), "ephemeral containers not allowed in pod template"))
	}
	for _, err := range Unsupported(&corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec}) {
		err.Field = at.String() + "." + err.Field
		errs = append(errs, err)
	}
	return errs
}

// ValidateReplicated looks at a template whose pods are made again whenever one is missing: they must be found by the
// selector, and not end by themselves.
func ValidateReplicated(t *corev1.PodTemplateSpec, selector labels.Selector, at *field.Path) field.ErrorList {
	errs := ValidateTemplate(t, at)
	spec := at.Child("spec")
	if !selector.Matches(labels.Set(t.Labels)) {
		errs = append(errs, field.Invalid(at.Child("metadata", "labels"), t.Labels, "`selector` does not match template `labels`"))
	}
	if t.Spec.RestartPolicy != corev1.RestartPolicyAlways {
		errs = append(errs, field.NotSupported(spec.Child("restartPolicy"), t.Spec.RestartPolicy,
			[]corev1.RestartPolicy{corev1.RestartPolicyAlways}))
	}
	if t.Spec.ActiveDeadlineSeconds != nil {
		errs = append(errs, field.Forbidden(spec.Child("activeDeadlineSeconds"), "pods that are made again may not have a deadline"))
	}
	return errs
}

// TemplateWarnings says what pods made from a template will not get as it is written.
func TemplateWarnings(t *corev1.PodTemplateSpec, at *field.Path) []string {
	out := podWarnings(&corev1.Pod{ObjectMeta: t.ObjectMeta, Spec: t.Spec})
	for i := range out {
		out[i] = at.String() + "." + out[i]
	}
	return out
}
