package rbac

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metavalidation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
)

// The kinds that say what somebody may do: in one namespace, and in each or in all.
var (
	Roles = api.Define(api.Kind{Group: rbacv1.GroupName, Version: "v1", Name: "Role", Resource: "roles", Singular: "role", Namespaced: true},
		api.Rules[*rbacv1.Role]{
			New: func() *rbacv1.Role { return &rbacv1.Role{} }, NewList: func() api.ListObject { return &rbacv1.RoleList{} },
			NameRule: nameRule,
			Validate: func(r *rbacv1.Role) field.ErrorList {
				return append(validateRules(r.Rules, true), validateWeight(r, field.NewPath("rules"))...)
			},
		})
	ClusterRoles = api.Define(api.Kind{Group: rbacv1.GroupName, Version: "v1", Name: "ClusterRole", Resource: "clusterroles",
		Singular: "clusterrole"},
		api.Rules[*rbacv1.ClusterRole]{
			New: func() *rbacv1.ClusterRole { return &rbacv1.ClusterRole{} }, NewList: func() api.ListObject { return &rbacv1.ClusterRoleList{} },
			NameRule: nameRule,
			Validate: validateClusterRole,
		})
)

// RulesOf are the rules of a Role or ClusterRole; !ok: obj is neither.
func RulesOf(obj api.Object) (rules []rbacv1.PolicyRule, ok bool) {
	switch r := obj.(type) {
	case *rbacv1.Role:
		return r.Rules, true
	case *rbacv1.ClusterRole:
		return r.Rules, true
	}
	return nil, false
}

// AggregationOf is what the rules of a ClusterRole are picked by; nil: they are its own.
func AggregationOf(obj api.Object) *rbacv1.AggregationRule {
	if r, ok := obj.(*rbacv1.ClusterRole); ok {
		return r.AggregationRule
	}
	return nil
}

func validateClusterRole(r *rbacv1.ClusterRole) field.ErrorList {
	errs := append(validateRules(r.Rules, false), validateWeight(r, field.NewPath("rules"))...)
	if r.AggregationRule == nil {
		return errs
	}
	at := field.NewPath("aggregationRule", "clusterRoleSelectors")
	if len(r.AggregationRule.ClusterRoleSelectors) == 0 {
		errs = append(errs, field.Required(at, "at least one clusterRoleSelector required if aggregationRule is non-nil"))
	}
	for i, s := range r.AggregationRule.ClusterRoleSelectors {
		bad := metavalidation.ValidateLabelSelector(&s, metavalidation.LabelSelectorValidationOptions{}, at.Index(i))
		if _, err := metav1.LabelSelectorAsSelector(&s); err != nil && len(bad) == 0 {
			bad = append(bad, field.Invalid(at.Index(i), s, "invalid label selector"))
		}
		errs = append(errs, bad...)
	}
	return errs
}

func validateRules(rules []rbacv1.PolicyRule, namespaced bool) field.ErrorList {
	var errs field.ErrorList
	for i, r := range rules {
		at := field.NewPath("rules").Index(i)
		if len(r.Verbs) == 0 {
			errs = append(errs, field.Required(at.Child("verbs"), "verbs must contain at least one value"))
		}
		if len(r.NonResourceURLs) > 0 {
			if namespaced {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs, "namespaced rules cannot apply to non-resource URLs"))
			}
			if len(r.APIGroups) > 0 || len(r.Resources) > 0 || len(r.ResourceNames) > 0 {
				errs = append(errs, field.Invalid(at.Child("nonResourceURLs"), r.NonResourceURLs,
					"rules cannot apply to both regular resources and non-resource URLs"))
			}
			continue
		}
		if len(r.APIGroups) == 0 {
			errs = append(errs, field.Required(at.Child("apiGroups"), "resource rules must supply at least one api group"))
		}
		if len(r.Resources) == 0 {
			errs = append(errs, field.Required(at.Child("resources"), "resource rules must supply at least one resource"))
		}
	}
	return errs
}

// MaxWeight is how much memory one role or binding may take: some 800 rules, or as many subjects.
const MaxWeight = 256 << 10

func validateWeight(obj api.Object, at *field.Path) field.ErrorList {
	if weight := Weight(obj); weight > MaxWeight {
		return field.ErrorList{field.Forbidden(at,
			fmt.Sprintf("it takes %d bytes of memory, and one role or binding may take %d: make several of it", weight, MaxWeight))}
	}
	return nil
}
