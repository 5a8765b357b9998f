package local

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/rbac"
	"ledge/storage"
)

// How many bytes the roles and bindings of one namespace may take, and those of no namespace: every request is compared with them in
// memory. It is enough for hundreds.
const (
	rightsOfNamespace = 512 << 10
	rightsOfAll       = 4 << 20
)

// admitRights refuses a binding or a role by which a user would give somebody rights that the user does not have in that namespace. As
// on Kubernetes, the verbs bind and escalate on that role allow it. Everybody may take rights away, and make a change that gives nobody
// anything. The control plane's own writes come without a user: only the bound on bytes holds for them.
func admitRights(in *inTx, ctx context.Context, _ *storage.Tx, a admission) error {
	u, ok := api.UserFrom(ctx)
	var verdict error
	err := in.rights.lend(func(p *rbac.Policy) {
		if verdict = boundRights(p, a); verdict == nil && ok && !slices.Contains(u.Groups, api.AdminGroup) {
			verdict = mayGive(p, u, a)
		}
	})
	if err != nil {
		return err
	}
	return verdict
}

// boundRights holds a namespace to its memory.
func boundRights(p *rbac.Policy, a admission) error {
	namespace, most, grows := a.obj.GetNamespace(), rightsOfNamespace, rbac.Weight(a.obj)
	if namespace == "" {
		most = rightsOfAll
	}
	if a.old != nil {
		grows -= rbac.Weight(a.old)
	}
	if held := p.Held(namespace); grows > 0 && held+grows > most {
		where := fmt.Sprintf("the Roles and RoleBindings of namespace %q", namespace)
		if namespace == "" {
			where = "all ClusterRoles and ClusterRoleBindings"
		}
		return forbidden(a.kind, a.obj.GetName(), "with it %s would take %d KiB of memory, and may take %d KiB: delete some first",
			where, (held+grows)>>10, most>>10)
	}
	return nil
}

func mayGive(p *rbac.Policy, u api.User, a admission) error {
	if rules, isRole := rbac.RulesOf(a.obj); isRole {
		return mayHold(p, u, a, rules)
	}
	ref, subjects := rbac.BindingOf(a.obj)
	if a.old != nil {
		was, whom := rbac.BindingOf(a.old)
		if added := slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool { return !slices.Contains(whom, s) }); ref == was && !added {
			return nil
		}
	}
	kind := rbac.ClusterRoles
	if ref.Kind == rbac.Roles.Name {
		kind = rbac.Roles
	}
	if _, ok := p.Allows(u, askAbout(kind, "bind", a.obj.GetNamespace(), ref.Name)); ok {
		return nil
	}
	if ref.Kind != kind.Name || ref.APIGroup != kind.Group || ref.Name == "" {
		return nil // validation says so
	}
	rules, ok := p.Given(ref, a.obj.GetNamespace())
	if !ok {
		return apierrors.NewNotFound(kind.GR(), ref.Name)
	}
	return holds(p, u, a, rules)
}

// mayHold says whether a user may write a role that holds these rules. The labels count too: aggregated roles pick roles by labels.
func mayHold(p *rbac.Policy, u api.User, a admission, rules []rbacv1.PolicyRule) error {
	aggregation := rbac.AggregationOf(a.obj)
	if a.old != nil {
		was, _ := rbac.RulesOf(a.old)
		same := apiequality.Semantic.DeepEqual(rules, was) && apiequality.Semantic.DeepEqual(aggregation, rbac.AggregationOf(a.old))
		if same && maps.Equal(a.obj.GetLabels(), a.old.GetLabels()) {
			return nil
		}
	}
	if _, ok := p.Allows(u, askAbout(a.kind, "escalate", a.obj.GetNamespace(), a.obj.GetName())); ok {
		return nil
	}
	if err := holds(p, u, a, rules); err != nil {
		return err
	}
	if aggregation == nil && (a.old == nil || rbac.AggregationOf(a.old) == nil) {
		return nil
	}
	if holds(p, u, a, rbac.Everything()) != nil { // it may come to hold anything
		return forbidden(a.kind, a.obj.GetName(), "must have cluster-admin privileges to use the aggregationRule")
	}
	return nil
}

func askAbout(kind *api.Kind, verb, namespace, name string) rbac.Ask {
	return rbac.Ask{Verb: verb, Group: kind.Group, Resource: kind.Resource, Namespace: namespace, Name: name}
}

// holds says whether a user holds rules where they are given. In a namespace, rules of paths give nothing.
func holds(p *rbac.Policy, u api.User, a admission, rules []rbacv1.PolicyRule) error {
	if a.obj.GetNamespace() != "" {
		rules = slices.DeleteFunc(slices.Clone(rules), func(r rbacv1.PolicyRule) bool { return len(r.NonResourceURLs) > 0 })
	}
	missing, err := rbac.Missing(slices.Concat(p.Rules(u, a.obj.GetNamespace()), rbac.Everybody()), rules)
	if err != nil {
		return forbidden(a.kind, a.obj.GetName(), "%v", err)
	}
	if len(missing) > 0 {
		return forbidden(a.kind, a.obj.GetName(), "user %q (groups=%q) is attempting to grant RBAC permissions not currently held:\n%s",
			u.Name, u.Groups, strings.Join(missing, "\n"))
	}
	return nil
}
