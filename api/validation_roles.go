package api

import (
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/validate/content"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// roleName is what bindings may be called: as on Kubernetes, anything that can stand in a path (system:x).
func roleName(name string, prefix bool) []string {
	if prefix {
		return content.IsPathSegmentPrefix(name)
	}
	return content.IsPathSegmentName(name)
}

func defaultBinding(ref *rbacv1.RoleRef, subjects []rbacv1.Subject) {
	if ref.APIGroup == "" {
		ref.APIGroup = rbacv1.GroupName
	}
	for i := range subjects {
		if s := &subjects[i]; s.APIGroup == "" && (s.Kind == rbacv1.UserKind || s.Kind == rbacv1.GroupKind) {
			s.APIGroup = rbacv1.GroupName
		}
	}
}

// validateBinding holds a binding to what Kubernetes asks of it, and to the roles that there are.
func validateBinding(ref rbacv1.RoleRef, subjects []rbacv1.Subject) field.ErrorList {
	var errs field.ErrorList
	at := field.NewPath("roleRef")
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	switch {
	case ref.Kind == "Role":
		errs = append(errs, field.Invalid(at.Child("kind"), ref.Kind,
			"not supported by ledge: there are no Roles; bind one of the built-in ClusterRoles: "+strings.Join(RoleNames, ", ")))
	case ref.Kind != ClusterRoles.Name:
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, []string{ClusterRoles.Name}))
	case ref.Name == "":
		errs = append(errs, field.Required(at.Child("name"), ""))
	case RulesOf(ref.Name) == nil:
		errs = append(errs, field.Invalid(at.Child("name"), ref.Name,
			"not supported by ledge: only the built-in ClusterRoles can be bound: "+strings.Join(RoleNames, ", ")))
	}
	for i, s := range subjects {
		errs = append(errs, validateSubject(s, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	group := rbacv1.GroupName
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		group = ""
		if s.Name != "" {
			errs = append(errs, isName(s.Name, at.Child("name"))...)
		}
		if s.Namespace == "" {
			errs = append(errs, field.Required(at.Child("namespace"), ""))
		}
	case rbacv1.UserKind, rbacv1.GroupKind:
	default:
		return append(errs, field.NotSupported(at.Child("kind"), s.Kind,
			[]string{rbacv1.ServiceAccountKind, rbacv1.UserKind, rbacv1.GroupKind}))
	}
	if s.APIGroup != group {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), s.APIGroup, []string{group}))
	}
	return errs
}

// validateBindingUpdate: who wants another role makes another binding, so that nobody's rights change under a name.
func validateBindingUpdate(obj, old Object) field.ErrorList {
	now, subjects := BindingOf(obj)
	was, _ := BindingOf(old)
	errs := validateBinding(now, subjects)
	if now != was {
		errs = append(errs, field.Invalid(field.NewPath("roleRef"), now, "cannot change roleRef"))
	}
	return errs
}
