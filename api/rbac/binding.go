package rbac

import (
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/table"
	"ledge/api/valid"
)

// The kinds that give roles to somebody: in one namespace, and everywhere.
var (
	RoleBindings = api.Define(api.Kind{Group: rbacv1.GroupName, Version: "v1", Name: "RoleBinding", Resource: "rolebindings",
		Singular:   "rolebinding",
		Namespaced: true}, bindingRules(
		func() *rbacv1.RoleBinding { return &rbacv1.RoleBinding{} }, func() api.ListObject { return &rbacv1.RoleBindingList{} },
		func(b *rbacv1.RoleBinding) (*rbacv1.RoleRef, []rbacv1.Subject) { return &b.RoleRef, b.Subjects }))
	ClusterRoleBindings = api.Define(api.Kind{Group: rbacv1.GroupName, Version: "v1", Name: "ClusterRoleBinding",
		Resource: "clusterrolebindings",
		Singular: "clusterrolebinding"}, bindingRules(
		func() *rbacv1.ClusterRoleBinding { return &rbacv1.ClusterRoleBinding{} },
		func() api.ListObject { return &rbacv1.ClusterRoleBindingList{} },
		func(b *rbacv1.ClusterRoleBinding) (*rbacv1.RoleRef, []rbacv1.Subject) { return &b.RoleRef, b.Subjects }))
)

// bindingRules are the same for both; of is what a binding gives, and to whom.
func bindingRules[T api.Object](made func() T, list func() api.ListObject, of func(T) (*rbacv1.RoleRef, []rbacv1.Subject)) api.Rules[T] {
	return api.Rules[T]{
		New: made, NewList: list,
		NameRule: nameRule,
		Default:  func(b T) { defaultBinding(of(b)) },
		Validate: func(b T) field.ErrorList {
			ref, subjects := of(b)
			return validateBinding(b, *ref, subjects)
		},
		ValidateUpdate: func(b, old T, _ string) field.ErrorList {
			ref, subjects := of(b)
			was, _ := of(old)
			errs := validateBinding(b, *ref, subjects)
			if *ref != *was { // who wants another role makes another binding, so that nobody's rights change under a name
				errs = append(errs, field.Invalid(field.NewPath("roleRef"), *ref, "cannot change roleRef"))
			}
			return errs
		},
		Columns: bindingColumns,
		Cells: func(b T, l table.Look) []any {
			ref, subjects := of(b)
			return bindingCells(b, *ref, subjects, l)
		},
	}
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

// validateBinding holds a binding to what Kubernetes asks of it. A role of one namespace cannot be given everywhere; that there is such
// a role is not asked: it may come later.
func validateBinding(obj api.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject) field.ErrorList {
	errs := validateWeight(obj, field.NewPath("subjects"))
	at, roles := field.NewPath("roleRef"), []string{ClusterRoles.Name}
	if _, local := obj.(*rbacv1.RoleBinding); local {
		roles = []string{Roles.Name, ClusterRoles.Name}
	}
	if ref.APIGroup != rbacv1.GroupName {
		errs = append(errs, field.NotSupported(at.Child("apiGroup"), ref.APIGroup, []string{rbacv1.GroupName}))
	}
	if !slices.Contains(roles, ref.Kind) {
		errs = append(errs, field.NotSupported(at.Child("kind"), ref.Kind, roles))
	}
	if ref.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	} else {
		errs = append(errs, valid.Each(nameRule(ref.Name, false),
			func(msg string) *field.Error { return field.Invalid(at.Child("name"), ref.Name, msg) })...)
	}
	for i, s := range subjects {
		errs = append(errs, validateSubject(s, len(roles) > 1, field.NewPath("subjects").Index(i))...)
	}
	return errs
}

func validateSubject(s rbacv1.Subject, namespaced bool, at *field.Path) field.ErrorList {
	var errs field.ErrorList
	if s.Name == "" {
		errs = append(errs, field.Required(at.Child("name"), ""))
	}
	group := rbacv1.GroupName
	switch s.Kind {
	case rbacv1.ServiceAccountKind:
		group = ""
		if s.Name != "" {
			errs = append(errs, valid.Name(s.Name, at.Child("name"))...)
		}
		if s.Namespace == "" && !namespaced { // else it is the binding's
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

// BindingOf is what a binding gives, and to whom; nothing when obj is none.
func BindingOf(obj api.Object) (rbacv1.RoleRef, []rbacv1.Subject) {
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		return b.RoleRef, b.Subjects
	case *rbacv1.ClusterRoleBinding:
		return b.RoleRef, b.Subjects
	}
	return rbacv1.RoleRef{}, nil
}

var bindingColumns = table.Columns{
	table.Name,
	table.Column("Role", "string", "The role that it gives."),
	table.Age,
	table.Wide("Users", "string", "The users that it gives it to."),
	table.Wide("Groups", "string", "The groups that it gives it to."),
	table.Wide("ServiceAccounts", "string", "The service accounts that it gives it to."),
}

func bindingCells(obj api.Object, ref rbacv1.RoleRef, subjects []rbacv1.Subject, l table.Look) []any {
	var users, groups, accounts []string
	for _, s := range subjects {
		switch s.Kind {
		case rbacv1.UserKind:
			users = append(users, s.Name)
		case rbacv1.GroupKind:
			groups = append(groups, s.Name)
		case rbacv1.ServiceAccountKind:
			accounts = append(accounts, s.Namespace+"/"+s.Name)
		}
	}
	return []any{obj.GetName(), ref.Kind + "/" + ref.Name, l.AgeOf(obj),
		strings.Join(users, ", "), strings.Join(groups, ", "), strings.Join(accounts, ", ")}
}
