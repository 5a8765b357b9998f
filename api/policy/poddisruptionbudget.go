// Package policy has the kind of the group policy.
package policy

import (
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// PodDisruptionBudgets say how many of some pods must go on when others are evicted. Their status is counted on: nobody
// writes one blindly.
var PodDisruptionBudgets = api.Define(api.Kind{Group: "policy", Version: "v1", Name: "PodDisruptionBudget",
	Resource: "poddisruptionbudgets",
	Singular: "poddisruptionbudget", Short: []string{"pdb"}, Namespaced: true, Generation: true, Compared: true},
	api.Rules[*policyv1.PodDisruptionBudget]{
		New:      func() *policyv1.PodDisruptionBudget { return &policyv1.PodDisruptionBudget{} },
		NewList:  func() api.ListObject { return &policyv1.PodDisruptionBudgetList{} },
		Fresh:    func(b *policyv1.PodDisruptionBudget) { b.Status = policyv1.PodDisruptionBudgetStatus{} },
		Validate: validateBudget,
		ValidateUpdate: func(b, _ *policyv1.PodDisruptionBudget, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return validateBudgetStatus(&b.Status)
			}
			return validateBudget(b)
		},
		Warn:    budgetWarnings,
		Spec:    func(b *policyv1.PodDisruptionBudget) any { return &b.Spec },
		Status:  func(b *policyv1.PodDisruptionBudget) any { return &b.Status },
		Columns: budgetColumns,
		Cells:   budgetCells,
	})

// BudgetSelector is what picks the pods of a budget. Without a selector it is about none, with an empty one about all of
// its namespace; one that cannot be read picks none.
func BudgetSelector(b *policyv1.PodDisruptionBudget) labels.Selector {
	s, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	if err != nil {
		return labels.Nothing()
	}
	return s
}

// BudgetsOf picks the budgets that are about a pod.
func BudgetsOf(pod *corev1.Pod, budgets []*policyv1.PodDisruptionBudget) []*policyv1.PodDisruptionBudget {
	var out []*policyv1.PodDisruptionBudget
	for _, b := range budgets {
		if b.Namespace == pod.Namespace && BudgetSelector(b).Matches(labels.Set(pod.Labels)) {
			out = append(out, b)
		}
	}
	return out
}

// SetDisruptionAllowed says in a budget's condition what its numbers come to.
func SetDisruptionAllowed(s *policyv1.PodDisruptionBudgetStatus, now time.Time) {
	c := metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse, Reason: policyv1.InsufficientPodsReason,
		ObservedGeneration: s.ObservedGeneration, LastTransitionTime: metav1.NewTime(now)}
	if s.DisruptionsAllowed > 0 {
		c.Status, c.Reason = metav1.ConditionTrue, policyv1.SufficientPodsReason
	}
	meta.SetStatusCondition(&s.Conditions, c)
}

func validateBudget(b *policyv1.PodDisruptionBudget) field.ErrorList {
	at, s := field.NewPath("spec"), &b.Spec
	var errs field.ErrorList
	if s.MinAvailable != nil && s.MaxUnavailable != nil {
		errs = append(errs, field.Invalid(at, *s, "minAvailable and maxUnavailable cannot be both set"))
	}
	errs = append(errs, validateAmount(s.MinAvailable, at.Child("minAvailable"))...)
	errs = append(errs, validateAmount(s.MaxUnavailable, at.Child("maxUnavailable"))...)
	errs = append(errs, metav1validation.ValidateLabelSelector(s.Selector, metav1validation.LabelSelectorValidationOptions{},
		at.Child("selector"))...)
	if p := s.UnhealthyPodEvictionPolicy; p != nil && *p != policyv1.AlwaysAllow && *p != policyv1.IfHealthyBudget {
		errs = append(errs, field.NotSupported(at.Child("unhealthyPodEvictionPolicy"), *p,
			[]policyv1.UnhealthyPodEvictionPolicyType{policyv1.AlwaysAllow, policyv1.IfHealthyBudget}))
	}
	return errs
}

// validateAmount: a number of pods, or a part of them in percent.
func validateAmount(v *intstr.IntOrString, at *field.Path) field.ErrorList {
	if v == nil {
		return nil
	}
	return append(valid.Amount(*v, at), valid.AtMostAll(*v, at)...)
}

func validateBudgetStatus(s *policyv1.PodDisruptionBudgetStatus) field.ErrorList {
	at := field.NewPath("status")
	errs := metav1validation.ValidateConditions(s.Conditions, at.Child("conditions"))
	errs = append(errs, valid.NotNegative(s.DisruptionsAllowed, at.Child("disruptionsAllowed"))...)
	errs = append(errs, valid.NotNegative(s.CurrentHealthy, at.Child("currentHealthy"))...)
	errs = append(errs, valid.NotNegative(s.DesiredHealthy, at.Child("desiredHealthy"))...)
	return append(errs, valid.NotNegative(s.ExpectedPods, at.Child("expectedPods"))...)
}

// ByScale says that a budget counts by what controllers want, and so knows nothing of pods that have none.
func ByScale(b *policyv1.PodDisruptionBudget) bool {
	return b.Spec.MaxUnavailable != nil || b.Spec.MinAvailable != nil && b.Spec.MinAvailable.Type == intstr.String
}

// budgetWarnings: of pods without a controller such a budget lets none go, which nobody expects who writes one.
func budgetWarnings(b *policyv1.PodDisruptionBudget) []string {
	if !ByScale(b) {
		return nil
	}
	name := "maxUnavailable"
	if b.Spec.MaxUnavailable == nil {
		name = "a percentage of minAvailable"
	}
	return []string{fmt.Sprintf("%s counts by the scale of controllers, and none of these pods will be evicted that has no controller: set an integer minAvailable for them", name)}
}

var budgetColumns = table.Columns{
	table.Name,
	table.Column("Min Available", "string", "How many pods must go on."),
	table.Column("Max Unavailable", "string", "How many pods may be missing."),
	table.Column("Allowed Disruptions", "integer", "How many pods may be evicted now."),
	table.Age,
}

func budgetCells(b *policyv1.PodDisruptionBudget, l table.Look) []any {
	amount := func(v *intstr.IntOrString) string {
		if v == nil {
			return "N/A"
		}
		return v.String()
	}
	return []any{b.Name, amount(b.Spec.MinAvailable), amount(b.Spec.MaxUnavailable), int64(b.Status.DisruptionsAllowed),
		l.AgeOf(b)}
}
