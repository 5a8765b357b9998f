package httpd

import (
	"context"
	"fmt"
	"strings"

	"ledge/api"
	"ledge/api/rbac"
)

// policed is a Client that knows who holds which rights without looking at all roles and bindings.
type policed interface {
	Rights(use func(*rbac.Policy)) error
}

// withPolicy lends out who may do what, as of now: what was taken away counts with the next request.
func (auth *authorizer) withPolicy(ctx context.Context, use func(*rbac.Policy)) error {
	if p, ok := auth.client.(policed); ok {
		return p.Rights(use)
	}
	var p rbac.Policy
	for _, kind := range []*api.Kind{rbac.ClusterRoles, rbac.Roles, rbac.ClusterRoleBindings, rbac.RoleBindings} {
		list, err := auth.client.List(ctx, kind, api.ListOptions{})
		if err != nil {
			return fmt.Errorf("look for the rights of all: %w", err)
		}
		for _, obj := range list.Items {
			p.Set(obj)
		}
	}
	use(&p)
	return nil
}

// granted is the binding that lets a user do something; !ok: there is none.
//
// What stands under /ledge/ is a board's own: its parts hand out the store and the machine. So no rule can name a part of it, and
// one that allows a verb on all paths, which charts have for /metrics and the like, does not mean it: it takes all rights.
func (auth *authorizer) granted(ctx context.Context, u api.User, a attributes) (grant rbac.Grant, ok bool, err error) {
	ask := rbac.Ask{Verb: a.verb, Group: a.group, Resource: a.resource, Subresource: a.sub, Namespace: a.namespace, Name: a.one(),
		Path: a.path}
	if a.resource == "" && strings.HasPrefix(a.path, boardPrefix) {
		ask = rbac.Ask{Verb: "*", Path: "*"}
	}
	err = auth.withPolicy(ctx, func(p *rbac.Policy) { grant, ok = p.Allows(u, ask) })
	return grant, ok, err
}
