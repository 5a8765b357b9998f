package apps

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// DaemonSets keep a pod on each board, or on those that are picked.
var DaemonSets = api.Define(api.Kind{Group: "apps", Version: "v1", Name: "DaemonSet", Resource: "daemonsets", Singular: "daemonset",
	Short: []string{"ds"}, Categories: []string{"all"}, Namespaced: true, Generation: true},
	api.Rules[*appsv1.DaemonSet]{
		New:      func() *appsv1.DaemonSet { return &appsv1.DaemonSet{} },
		NewList:  func() api.ListObject { return &appsv1.DaemonSetList{} },
		Default:  defaultDaemonSet,
		Fresh:    func(d *appsv1.DaemonSet) { d.Status = appsv1.DaemonSetStatus{} },
		Validate: func(d *appsv1.DaemonSet) field.ErrorList { return validateDaemonSet(&d.Spec) },
		ValidateUpdate: func(d, old *appsv1.DaemonSet, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateDaemonSetStatus(&d.Status, &old.Status)
			}
			return append(validateDaemonSet(&d.Spec), sameSelector(d.Spec.Selector, old.Spec.Selector)...)
		},
		Warn:     func(d *appsv1.DaemonSet) []string { return warnings(d.Name, &d.Spec.Template) },
		Spec:     func(d *appsv1.DaemonSet) any { return &d.Spec },
		Status:   func(d *appsv1.DaemonSet) any { return &d.Status },
		Beat:     daemonSetBeat,
		Template: func(d *appsv1.DaemonSet) *corev1.PodTemplateSpec { return &d.Spec.Template },
		Columns:  daemonSetColumns,
		Cells:    daemonSetCells,
	})

func defaultDaemonSet(d *appsv1.DaemonSet) {
	s := &d.Spec
	if s.UpdateStrategy.Type == "" {
		s.UpdateStrategy.Type = appsv1.RollingUpdateDaemonSetStrategyType
	}
	if s.UpdateStrategy.Type == appsv1.RollingUpdateDaemonSetStrategyType {
		setDefault(&s.UpdateStrategy.RollingUpdate, appsv1.RollingUpdateDaemonSet{})
		setDefault(&s.UpdateStrategy.RollingUpdate.MaxUnavailable, intstr.FromInt32(1))
		setDefault(&s.UpdateStrategy.RollingUpdate.MaxSurge, intstr.FromInt32(0))
	}
	setDefault(&s.RevisionHistoryLimit, 10)
	api.DefaultTemplate(&s.Template)
}

func validateDaemonSet(s *appsv1.DaemonSetSpec) field.ErrorList {
	at := field.NewPath("spec")
	errs := validateSelected(s.Selector, &s.Template, at, "daemonset")
	errs = append(errs, valid.NotNegative(s.MinReadySeconds, at.Child("minReadySeconds"))...)
	if n := s.RevisionHistoryLimit; n != nil {
		errs = append(errs, valid.NotNegative(*n, at.Child("revisionHistoryLimit"))...)
	}
	return append(errs, validateBoardByBoard(&s.UpdateStrategy, at.Child("updateStrategy"))...)
}

// validateBoardByBoard looks at how pods are replaced: before others are there or after, not both.
func validateBoardByBoard(s *appsv1.DaemonSetUpdateStrategy, at *field.Path) field.ErrorList {
	roll, inRoll := s.RollingUpdate, at.Child("rollingUpdate")
	switch s.Type {
	case appsv1.OnDeleteDaemonSetStrategyType:
		return nil
	case appsv1.RollingUpdateDaemonSetStrategyType:
	default:
		return field.ErrorList{field.NotSupported(at, s.Type,
			[]appsv1.DaemonSetUpdateStrategyType{appsv1.RollingUpdateDaemonSetStrategyType, appsv1.OnDeleteDaemonSetStrategyType})}
	}
	if roll == nil || roll.MaxUnavailable == nil || roll.MaxSurge == nil { // they have defaults
		return field.ErrorList{field.Required(inRoll, "")}
	}
	var errs field.ErrorList
	for _, n := range []struct {
		of   intstr.IntOrString
		name string
	}{{*roll.MaxUnavailable, "maxUnavailable"}, {*roll.MaxSurge, "maxSurge"}} {
		errs = append(errs, valid.Amount(n.of, inRoll.Child(n.name))...)
		errs = append(errs, valid.AtMostAll(n.of, inRoll.Child(n.name))...)
	}
	switch none, alone := isNone(*roll.MaxUnavailable), isNone(*roll.MaxSurge); {
	case !none && !alone:
		errs = append(errs, field.Invalid(inRoll.Child("maxSurge"), roll.MaxSurge, "may not be set when maxUnavailable is non-zero"))
	case none && alone:
		errs = append(errs, field.Required(inRoll.Child("maxUnavailable"), "cannot be 0 when maxSurge is 0"))
	}
	return errs
}

func validateDaemonSetStatus(s, old *appsv1.DaemonSetStatus) field.ErrorList {
	at := field.NewPath("status")
	var errs field.ErrorList
	for _, c := range []valid.Count{{Name: "currentNumberScheduled", N: s.CurrentNumberScheduled},
		{Name: "numberMisscheduled", N: s.NumberMisscheduled},
		{Name: "desiredNumberScheduled", N: s.DesiredNumberScheduled}, {Name: "numberReady", N: s.NumberReady},
		{Name: "updatedNumberScheduled", N: s.UpdatedNumberScheduled}, {Name: "numberAvailable", N: s.NumberAvailable},
		{Name: "numberUnavailable", N: s.NumberUnavailable}} {
		errs = append(errs, valid.NotNegative(c.N, at.Child(c.Name))...)
	}
	errs = append(errs, validateSeen(at, s.ObservedGeneration, nil, 0, 0)...)
	return append(errs, validateCollisions(s.CollisionCount, old.CollisionCount)...)
}

var daemonSetColumns = table.Columns{
	table.Name,
	table.Column("Desired", "integer", "How many boards are to have a pod."),
	table.Column("Current", "integer", "How many of them have one."),
	table.Column("Ready", "integer", "On how many it is ready."),
	table.Column("Up-to-date", "integer", "On how many it is made from the template as it is."),
	table.Column("Available", "integer", "On how many it has been ready for long enough."),
	table.Column("Node Selector", "string", "Which boards are to have a pod."),
	table.Age,
	table.Wide("Containers", "string", "The names of the containers."),
	table.Wide("Images", "string", "The images of the containers."),
	table.Wide("Selector", "string", "Which pods are counted."),
}

func daemonSetCells(d *appsv1.DaemonSet, l table.Look) []any {
	s, t := &d.Status, &d.Spec.Template.Spec
	names, images := table.Containers(t)
	return []any{d.Name, int64(s.DesiredNumberScheduled), int64(s.CurrentNumberScheduled), int64(s.NumberReady),
		int64(s.UpdatedNumberScheduled),
		int64(s.NumberAvailable), table.Selector(t.NodeSelector), l.AgeOf(d), names, images, metav1.FormatLabelSelector(d.Spec.Selector)}
}
