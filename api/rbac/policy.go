package rbac

import (
	"cmp"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// Policy is all roles and bindings, kept so that a question costs no look at those of others: bindings stand under whom they name.
// It is told of each change. The zero value allows nothing. It holds no objects, but shares the rules of those that it is told of,
// which nobody may change. Not for concurrent changes.
type Policy struct {
	roles    map[types.NamespacedName]*role // ClusterRoles have no namespace
	bindings map[types.NamespacedName]*binding
	held     map[holder][]*binding // sorted: those of one role side by side, and the same question has the same answer
	weights  map[string]int        // by namespace: about how many bytes of memory
}

type role struct {
	rules  []rbacv1.PolicyRule
	weight int
}

type binding struct {
	key      types.NamespacedName
	ref      rbacv1.RoleRef
	subjects []rbacv1.Subject
	weight   int
}

// role is where the role of a binding stands.
func (b *binding) role() types.NamespacedName {
	if b.ref.Kind == Roles.Name {
		return types.NamespacedName{Namespace: b.key.Namespace, Name: b.ref.Name}
	}
	return types.NamespacedName{Name: b.ref.Name}
}

// holder is who holds something by bindings of one namespace, or by those for all.
type holder struct {
	namespace string
	group     bool
	name      string
}

// Set tells of a role or a binding as it is now.
func (p *Policy) Set(obj api.Object) {
	if p.weights == nil {
		p.roles, p.bindings = map[types.NamespacedName]*role{}, map[types.NamespacedName]*binding{}
		p.held, p.weights = map[holder][]*binding{}, map[string]int{}
	}
	p.Remove(obj)
	key, weight := api.Key(obj), Weight(obj)
	p.weights[key.Namespace] += weight
	if rules, ok := RulesOf(obj); ok {
		p.roles[key] = &role{rules, weight}
	} else {
		ref, subjects := BindingOf(obj)
		b := &binding{key, ref, subjects, weight}
		p.bindings[key] = b
		for h := range b.holders() {
			list := p.held[h]
			at, _ := slices.BinarySearchFunc(list, b, byRole)
			p.held[h] = slices.Insert(list, at, b)
		}
	}
}

// byRole is the order in which many bindings of one role cost one look at it.
func byRole(a, b *binding) int {
	return cmp.Or(cmp.Compare(a.ref.Kind, b.ref.Kind), cmp.Compare(a.ref.Name, b.ref.Name), cmp.Compare(a.key.Name, b.key.Name))
}

// Remove tells that a role or a binding is gone.
func (p *Policy) Remove(obj api.Object) {
	key, weight := api.Key(obj), 0
	if _, ok := RulesOf(obj); ok && p.roles[key] != nil {
		weight = p.roles[key].weight
		delete(p.roles, key)
	} else if b := p.bindings[key]; !ok && b != nil {
		weight = b.weight
		delete(p.bindings, key)
		for h := range b.holders() {
			at, _ := slices.BinarySearchFunc(p.held[h], b, byRole)
			if p.held[h] = slices.Delete(p.held[h], at, at+1); len(p.held[h]) == 0 {
				delete(p.held, h)
			}
		}
	}
	if weight > 0 {
		if p.weights[key.Namespace] -= weight; p.weights[key.Namespace] == 0 {
			delete(p.weights, key.Namespace)
		}
	}
}

// holders are whom a binding names, each once.
func (b *binding) holders() map[holder]bool {
	out := map[holder]bool{}
	for _, s := range b.subjects {
		if h := holderOf(s, b.key.Namespace); h.name != "" {
			out[h] = true
		}
	}
	return out
}

// holderOf is who a subject is; nobody has no name. A service account without a namespace is one of the binding's.
func holderOf(s rbacv1.Subject, namespace string) holder {
	switch s.Kind {
	case rbacv1.UserKind, rbacv1.GroupKind:
		return holder{namespace, s.Kind == rbacv1.GroupKind, s.Name}
	case rbacv1.ServiceAccountKind:
		if home := cmp.Or(s.Namespace, namespace); home != "" {
			return holder{namespace, false, api.AccountUser(home, s.Name).Name}
		}
	}
	return holder{}
}

// Allows says whether a user may do something by a binding, and by which.
//
// Rules count by role: who may bind could else multiply the rules of one with hundreds of bindings, and each question would cost that.
func (p *Policy) Allows(u api.User, a Ask) (Grant, bool) {
	if holdsNothing(u) {
		return Grant{}, false
	}
	for n, namespace := range [...]string{"", a.Namespace} {
		if n > 0 && (namespace == "" || a.Resource == "") {
			break // paths are nobody's namespace
		}
		for i := -1; i < len(u.Groups); i++ {
			who, last := holderAt(u, i, namespace), types.NamespacedName{}
			for _, b := range p.held[who] {
				at := b.role()
				if at == last {
					continue
				}
				last = at
				role := p.roles[at]
				if role == nil {
					continue
				}
				for i := range role.rules {
					if ruleAllows(&role.rules[i], &a) {
						return Grant{b, who}, true
					}
				}
			}
		}
	}
	return Grant{}, false
}

// holdsNothing says that bindings give a caller nothing, whatever stands in them. One stolen board must stay one lost board, and who
// shows nothing is nobody.
func holdsNothing(u api.User) bool {
	return slices.Contains(u.Groups, api.NodesGroup) || slices.Contains(u.Groups, api.UnauthenticatedGroup)
}

// holderAt is a user by its name, -1, or by one of its groups.
func holderAt(u api.User, i int, namespace string) holder {
	if i < 0 {
		return holder{namespace, false, u.Name}
	}
	return holder{namespace, true, u.Groups[i]}
}

// Rules are all that a user holds by bindings in a namespace, those for everywhere among them; with no namespace those alone.
func (p *Policy) Rules(u api.User, namespace string) []rbacv1.PolicyRule {
	var out []rbacv1.PolicyRule
	if holdsNothing(u) {
		return nil
	}
	seen := map[*role]bool{}
	for n, namespace := range [...]string{"", namespace} {
		if n > 0 && namespace == "" {
			break
		}
		for i := -1; i < len(u.Groups); i++ {
			for _, b := range p.held[holderAt(u, i, namespace)] {
				if role := p.roles[b.role()]; role != nil && !seen[role] {
					out, seen[role] = appendRules(out, role.rules, namespace), true
				}
			}
		}
	}
	return out
}

// appendRules leaves out, of a role that is given in a namespace, the rules of paths: they give nothing there.
func appendRules(to, rules []rbacv1.PolicyRule, namespace string) []rbacv1.PolicyRule {
	for _, r := range rules {
		if namespace == "" || len(r.NonResourceURLs) == 0 {
			to = append(to, r)
		}
	}
	return to
}

// Given are the rules of the role that a binding of a namespace names; !ok: there is no such role.
func (p *Policy) Given(ref rbacv1.RoleRef, namespace string) (rules []rbacv1.PolicyRule, ok bool) {
	b := binding{key: types.NamespacedName{Namespace: namespace}, ref: ref}
	role := p.roles[b.role()]
	if role == nil {
		return nil, false
	}
	return role.rules, true
}

// Held is about how much memory the roles and bindings of a namespace take.
func (p *Policy) Held(namespace string) int { return p.weights[namespace] }

// Grant is a binding that allowed something, and whom it names.
type Grant struct {
	by *binding
	to holder
}

// String says it in Kubernetes' words.
func (g Grant) String() string {
	kind, name := ClusterRoleBindings.Name, g.by.key.Name
	if g.by.key.Namespace != "" {
		kind, name = RoleBindings.Name, name+"/"+g.by.key.Namespace
	}
	i := slices.IndexFunc(g.by.subjects, func(s rbacv1.Subject) bool { return holderOf(s, g.by.key.Namespace) == g.to })
	s := g.by.subjects[i]
	who := s.Name
	if s.Kind == rbacv1.ServiceAccountKind {
		who += "/" + cmp.Or(s.Namespace, g.by.key.Namespace)
	}
	return fmt.Sprintf("RBAC: allowed by %s %q of %s %q to %s %q", kind, name, g.by.ref.Kind, g.by.ref.Name, s.Kind, who)
}

// Weight is about how much memory a role or binding takes in a Policy.
func Weight(obj api.Object) int {
	const word = 8
	texts := func(list []string) (n int) {
		for _, s := range list {
			n += 2*word + len(s)
		}
		return n
	}
	n := 32 * word
	rules, _ := RulesOf(obj)
	for _, r := range rules {
		n += 15*word + texts(r.Verbs) + texts(r.APIGroups) + texts(r.Resources) + texts(r.ResourceNames) + texts(r.NonResourceURLs)
	}
	_, subjects := BindingOf(obj)
	for _, s := range subjects {
		n += 20*word + texts([]string{s.Kind, s.APIGroup, s.Name, s.Namespace})
	}
	return n
}

// Names says whether any binding, wherever it stands, names a user or one of its groups.
func (p *Policy) Names(u api.User) bool {
	for h := range p.held {
		if !h.group && h.name == u.Name || h.group && slices.Contains(u.Groups, h.name) {
			return true
		}
	}
	return false
}
