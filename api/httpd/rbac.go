package httpd

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"

	"ledge/api"
	"ledge/api/rbac"
)

// grants are the roles that a user holds in a namespace by bindings, those for everywhere among them; with no namespace
// those alone. They are read anew for each request, so that what was taken away counts at once; a board has few.
//
// A node holds nothing by bindings, whatever stands in them: one stolen board must stay one lost board.
func (h *handler) grants(ctx context.Context, u api.User, namespace string) ([]rbac.Grant, error) {
	if slices.Contains(u.Groups, api.NodesGroup) {
		return nil, nil
	}
	list, err := h.client.List(ctx, rbac.ClusterRoleBindings, api.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("look for the rights of user %q: %w", u.Name, err)
	}
	bindings := list.Items
	if namespace != "" {
		if list, err = h.client.List(ctx, rbac.RoleBindings, api.ListOptions{Selection: api.Selection{Namespace: namespace}}); err != nil {
			return nil, fmt.Errorf("look for the rights of user %q in %s: %w", u.Name, namespace, err)
		}
		bindings = append(bindings, list.Items...)
	}
	return rbac.GrantsOf(u, bindings), nil
}

// granted is the first grant that lets a user do something; nil when there is none.
func (h *handler) granted(ctx context.Context, u api.User, a attributes) (*rbac.Grant, error) {
	held, err := h.grants(ctx, u, a.namespace)
	if err != nil {
		return nil, err
	}
	resource := a.resource
	if a.sub != "" {
		resource += "/" + a.sub
	}
	for i, g := range held {
		if _, local := g.Binding.(*rbacv1.RoleBinding); local && resource == "" {
			continue // paths are nobody's namespace
		}
		if slices.ContainsFunc(rbac.RulesOf(g.Role), func(r rbacv1.PolicyRule) bool {
			return rbac.RuleAllows(r, a.verb, a.group, resource, a.path)
		}) {
			return &held[i], nil
		}
	}
	return nil, nil
}

// grantText says what allowed something, in Kubernetes' words.
func grantText(g rbac.Grant) string {
	kind, name := "ClusterRoleBinding", g.Binding.GetName()
	if b, ok := g.Binding.(*rbacv1.RoleBinding); ok {
		kind, name = "RoleBinding", b.Name+"/"+b.Namespace
	}
	who := fmt.Sprintf("%s %q", g.To.Kind, g.To.Name)
	if g.To.Kind == rbacv1.ServiceAccountKind {
		who = fmt.Sprintf("%s %q", g.To.Kind, g.To.Name+"/"+g.To.Namespace)
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of ClusterRole %q to %s", kind, name, g.Role, who)
}
