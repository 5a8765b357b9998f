package local

import (
	"context"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/api/rbac"
	"ledge/storage"
)

// admitBinding keeps people from giving away, to themselves or others, what they do not hold in the same place. old is
// nil for a new binding. Taking rights away is free, as is a change that gives nobody anything.
func admitBinding(_ *Client, ctx context.Context, tx *storage.Tx, a admission) error {
	kind, obj, old := a.kind, a.obj, a.old
	u, ok := api.UserFrom(ctx)
	if !ok || slices.Contains(u.Groups, api.AdminGroup) {
		return nil
	}
	ref, subjects := rbac.BindingOf(obj)
	if old != nil {
		was, whom := rbac.BindingOf(old)
		added := slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return !slices.Contains(whom, s) })
		if apiequality.Semantic.DeepEqual(ref, was) && !added {
			return nil
		}
	}
	bindings, err := list(tx, rbac.ClusterRoleBindings, "")
	if err != nil {
		return err
	}
	if obj.GetNamespace() != "" {
		more, err := list(tx, rbac.RoleBindings, obj.GetNamespace())
		if err != nil {
			return err
		}
		bindings = append(bindings, more...)
	}
	if slices.ContainsFunc(rbac.GrantsOf(u, bindings), func(g rbac.Grant) bool { return rbac.RoleHolds(g.Role, ref.Name) }) {
		return nil
	}
	if rbac.RulesOf(ref.Name) == nil {
		return nil // validation says that there is no such role
	}
	return forbidden(kind, obj.GetName(), "user %q (groups=%q) is attempting to grant RBAC permissions not currently held: those of the ClusterRole %q",
		u.Name, u.Groups, ref.Name)
}
