package api

import (
	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api/table"
)

// PodTemplates are templates that stand alone.
var PodTemplates = Define(Kind{Version: "v1", Name: "PodTemplate", Resource: "podtemplates", Singular: "podtemplate", Namespaced: true},
	Rules[*corev1.PodTemplate]{
		New: func() *corev1.PodTemplate { return &corev1.PodTemplate{} }, NewList: func() ListObject { return &corev1.PodTemplateList{} },
		Default: func(t *corev1.PodTemplate) { defaultPodSpec(&t.Template.Spec) },
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

// validateTemplate: a template is what a pod made from it will be, so it is held to the same. What ledge does not support
// in one that stands alone is refused when a pod is made.
func validateTemplate(t *corev1.PodTemplateSpec, at *field.Path) field.ErrorList {
	errs := metav1validation.ValidateLabels(t.Labels, at.Child("labels"))
	errs = append(errs, apivalidation.ValidateAnnotations(t.Annotations, at.Child("annotations"))...)
	errs = append(errs, validatePodAnnotations(t.Annotations, t.Spec.NodeName, at.Child("annotations"))...)
	return append(errs, validatePodSpec(&t.Spec, at.Child("spec"))...)
}
