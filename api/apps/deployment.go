package apps

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// Deployments keep a number of pods going, by ReplicaSets, and replace them by others when the template changes. Their
// annotations are copied to the ReplicaSets, so a change of them is something to do as well.
var Deployments = api.Define(api.Kind{Group: "apps", Version: "v1", Name: "Deployment", Resource: "deployments", Singular: "deployment",
	Short: []string{"deploy"}, Categories: []string{"all"}, Namespaced: true, Generation: true, Annotated: true},
	api.Rules[*appsv1.Deployment]{
		New:      func() *appsv1.Deployment { return &appsv1.Deployment{} },
		NewList:  func() api.ListObject { return &appsv1.DeploymentList{} },
		Default:  defaultDeployment,
		Fresh:    func(d *appsv1.Deployment) { d.Status = appsv1.DeploymentStatus{} },
		Validate: func(d *appsv1.Deployment) field.ErrorList { return validateDeployment(&d.Spec) },
		ValidateUpdate: func(d, old *appsv1.Deployment, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateDeploymentStatus(&d.Status, &old.Status)
			}
			return append(validateDeployment(&d.Spec), sameSelector(d.Spec.Selector, old.Spec.Selector)...)
		},
		Warn:   func(d *appsv1.Deployment) []string { return warnings(d.Name, &d.Spec.Template) },
		Spec:   func(d *appsv1.Deployment) any { return &d.Spec },
		Status: func(d *appsv1.Deployment) any { return &d.Status },
		Beat:   deploymentBeat,
		Keep: func(d, old *appsv1.Deployment, sub string) {
			if sub == api.StatusSub {
				d.Labels = old.Labels
			}
		},
		Template: func(d *appsv1.Deployment) *corev1.PodTemplateSpec { return &d.Spec.Template },
		Scale: func(d *appsv1.Deployment) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: wanted(d.Spec.Replicas)},
				autoscalingv1.ScaleStatus{Replicas: d.Status.Replicas, Selector: selectorOf(d.Spec.Selector).String()}
		},
		SetScale: func(d *appsv1.Deployment, n int32) { d.Spec.Replicas = &n },
		Columns:  deploymentColumns,
		Cells:    deploymentCells,
	})

func defaultDeployment(d *appsv1.Deployment) {
	s := &d.Spec
	setDefault(&s.Replicas, 1)
	if s.Strategy.Type == "" {
		s.Strategy.Type = appsv1.RollingUpdateDeploymentStrategyType
	}
	if s.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		setDefault(&s.Strategy.RollingUpdate, appsv1.RollingUpdateDeployment{})
		setDefault(&s.Strategy.RollingUpdate.MaxUnavailable, intstr.FromString("25%"))
		setDefault(&s.Strategy.RollingUpdate.MaxSurge, intstr.FromString("25%"))
	}
	setDefault(&s.RevisionHistoryLimit, 10)
	setDefault(&s.ProgressDeadlineSeconds, 600)
	api.DefaultTemplate(&s.Template)
}

func validateDeployment(s *appsv1.DeploymentSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := valid.NotNegative(wanted(s.Replicas), at.Child("replicas"))
	errs = append(errs, validateSelected(s.Selector, &s.Template, at, "deployment")...)
	errs = append(errs, validateStrategy(&s.Strategy, at.Child("strategy"))...)
	errs = append(errs, valid.NotNegative(s.MinReadySeconds, at.Child("minReadySeconds"))...)
	if n := s.RevisionHistoryLimit; n != nil {
		errs = append(errs, valid.NotNegative(*n, at.Child("revisionHistoryLimit"))...)
	}
	if n := s.ProgressDeadlineSeconds; n != nil {
		at := at.Child("progressDeadlineSeconds")
		errs = append(errs, valid.NotNegative(*n, at)...)
		if *n <= s.MinReadySeconds {
			errs = append(errs, field.Invalid(at, *n, "must be greater than minReadySeconds"))
		}
	}
	return errs
}

func validateStrategy(s *appsv1.DeploymentStrategy, at *field.Path) field.ErrorList {
	roll, inRoll := s.RollingUpdate, at.Child("rollingUpdate")
	switch s.Type {
	case appsv1.RecreateDeploymentStrategyType:
		if roll != nil {
			return field.ErrorList{field.Forbidden(inRoll, "may not be specified when strategy `type` is 'Recreate'")}
		}
		return nil
	case appsv1.RollingUpdateDeploymentStrategyType:
	default:
		return field.ErrorList{field.NotSupported(at, s.Type,
			[]appsv1.DeploymentStrategyType{appsv1.RecreateDeploymentStrategyType, appsv1.RollingUpdateDeploymentStrategyType})}
	}
	if roll == nil || roll.MaxUnavailable == nil || roll.MaxSurge == nil { // they have defaults
		return field.ErrorList{field.Required(inRoll, "")}
	}
	out, more := *roll.MaxUnavailable, *roll.MaxSurge
	errs := valid.Amount(out, inRoll.Child("maxUnavailable"))
	errs = append(errs, valid.Amount(more, inRoll.Child("maxSurge"))...)
	if isNone(out) && isNone(more) {
		errs = append(errs, field.Invalid(inRoll.Child("maxUnavailable"), out, "may not be 0 when `maxSurge` is 0"))
	}
	return append(errs, valid.AtMostAll(out, inRoll.Child("maxUnavailable"))...)
}

// isNone says that an amount is 0 or 0 %.
func isNone(v intstr.IntOrString) bool {
	n, err := intstr.GetScaledValueFromIntOrPercent(&v, 100, true)
	return err == nil && n == 0
}

func validateDeploymentStatus(s, old *appsv1.DeploymentStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := valid.Counts(at, s.Replicas, valid.Count{Name: "updatedReplicas", N: s.UpdatedReplicas},
		valid.Count{Name: "readyReplicas", N: s.ReadyReplicas}, valid.Count{Name: "availableReplicas", N: s.AvailableReplicas})
	errs = append(errs, valid.NotNegative(s.UnavailableReplicas, at.Child("unavailableReplicas"))...)
	errs = append(errs, validateSeen(at, s.ObservedGeneration, s.TerminatingReplicas, s.AvailableReplicas, s.ReadyReplicas)...)
	return append(errs, validateCollisions(s.CollisionCount, old.CollisionCount)...)
}

var deploymentColumns = table.Columns{
	table.Name,
	table.Column("Ready", "string", "How many pods are ready, of how many there are to be."),
	table.Column("Up-to-date", "string", "How many pods are made from the template as it is."),
	table.Column("Available", "string", "How many pods have been ready for long enough."),
	table.Age,
	table.Wide("Containers", "string", "The names of the containers."),
	table.Wide("Images", "string", "The images of the containers."),
	table.Wide("Selector", "string", "Which pods are counted."),
}

func deploymentCells(d *appsv1.Deployment, l table.Look) []any {
	names, images := table.Containers(&d.Spec.Template.Spec)
	return []any{d.Name, fmt.Sprintf("%d/%d", d.Status.ReadyReplicas, wanted(d.Spec.Replicas)), int64(d.Status.UpdatedReplicas),
		int64(d.Status.AvailableReplicas), l.AgeOf(d), names, images, metav1.FormatLabelSelector(d.Spec.Selector)}
}
