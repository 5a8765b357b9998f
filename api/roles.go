package api

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The kinds of rights. A board has the roles of Kubernetes that people bind, and no others: they are kept by the
// server, so that nobody has to maintain them; whom they are given to is everybody's to say who holds them.
var (
	ClusterRoles = &Kind{Group: rbacv1.GroupName, Version: "v1", Name: "ClusterRole", Resource: "clusterroles", Singular: "clusterrole",
		ServerOnly: true,
		New:        func() Object { return &rbacv1.ClusterRole{} }, NewList: func() ListObject { return &rbacv1.ClusterRoleList{} }}
	ClusterRoleBindings = &Kind{Group: rbacv1.GroupName, Version: "v1", Name: "ClusterRoleBinding", Resource: "clusterrolebindings",
		Singular: "clusterrolebinding",
		New:      func() Object { return &rbacv1.ClusterRoleBinding{} },
		NewList:  func() ListObject { return &rbacv1.ClusterRoleBindingList{} }}
	RoleBindings = &Kind{Group: rbacv1.GroupName, Version: "v1", Name: "RoleBinding", Resource: "rolebindings", Singular: "rolebinding",
		Namespaced: true,
		New:        func() Object { return &rbacv1.RoleBinding{} }, NewList: func() ListObject { return &rbacv1.RoleBindingList{} }}
)

// The built-in roles, each of which holds everything of the one before.
const (
	RoleView         = "view"
	RoleEdit         = "edit"
	RoleAdmin        = "admin"
	RoleClusterAdmin = "cluster-admin"
)

// RoleNames are the built-in roles, the least first.
var RoleNames = []string{RoleView, RoleEdit, RoleAdmin, RoleClusterAdmin}

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: verbs}
}

// ownRules are what each role adds to the one before, made when somebody first asks. It is what they may on Kubernetes with the resources that a board has or answers for. What is not
// here (nodes, namespaces beyond a look, pods/resize, pods/binding, the other bindings) takes a cluster-admin.
var ownRules = sync.OnceValue(func() map[string][]rbacv1.PolicyRule {
	readVerbs := []string{"get", "list", "watch"}
	writeVerbs := []string{"create", "delete", "deletecollection", "patch", "update"}
	allVerbs := slices.Concat(readVerbs, writeVerbs)
	return map[string][]rbacv1.PolicyRule{
		RoleView: {
			rule("", readVerbs, "configmaps", "endpoints", "events", "limitranges", "namespaces", "namespaces/status", "persistentvolumeclaims", "pods",
				"pods/log", "pods/status", "replicationcontrollers", "replicationcontrollers/scale", "replicationcontrollers/status",
				"resourcequotas", "serviceaccounts", "services"),
			rule("apps", readVerbs, "daemonsets", "deployments", "replicasets", "statefulsets"),
			rule("autoscaling", readVerbs, "horizontalpodautoscalers"),
			rule("batch", readVerbs, "cronjobs", "jobs"),
			rule("discovery.k8s.io", readVerbs, "endpointslices"),
			rule("events.k8s.io", readVerbs, "events"),
			rule("metrics.k8s.io", readVerbs, "nodes", "pods"),
			rule("networking.k8s.io", readVerbs, "ingresses", "networkpolicies"),
			rule("policy", readVerbs, "poddisruptionbudgets", "poddisruptionbudgets/status"),
		},
		RoleEdit: {
			rule("", readVerbs, "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets"),
			rule("", writeVerbs, "configmaps", "events", "persistentvolumeclaims", "pods", "pods/attach", "pods/exec", "pods/portforward",
				"pods/proxy", "replicationcontrollers", "replicationcontrollers/scale", "secrets", "serviceaccounts", "services"),
			rule("", []string{"create"}, "pods/eviction", "serviceaccounts/token"),
			rule("apps", writeVerbs, "daemonsets", "deployments", "replicasets", "statefulsets"),
			rule("autoscaling", writeVerbs, "horizontalpodautoscalers"),
			rule("batch", writeVerbs, "cronjobs", "jobs"),
			rule("coordination.k8s.io", allVerbs, "leases"),
			rule("events.k8s.io", writeVerbs, "events"),
			rule("networking.k8s.io", writeVerbs, "ingresses", "networkpolicies"),
			rule("policy", writeVerbs, "poddisruptionbudgets"),
		},
		RoleAdmin: {
			rule("authorization.k8s.io", []string{"create"}, "localsubjectaccessreviews"),
			rule(rbacv1.GroupName, allVerbs, "rolebindings", "roles"),
		},
		RoleClusterAdmin: {
			rule(rbacv1.APIGroupAll, []string{rbacv1.VerbAll}, rbacv1.ResourceAll),
			{NonResourceURLs: []string{rbacv1.NonResourceAll}, Verbs: []string{rbacv1.VerbAll}},
		},
	}
})

// RulesOf are all the rules of a built-in role; nil when there is no such role.
func RulesOf(role string) []rbacv1.PolicyRule {
	if role == RoleClusterAdmin {
		return ownRules()[role]
	}
	var out []rbacv1.PolicyRule
	for _, name := range RoleNames[:slices.Index(RoleNames, role)+1] {
		out = append(out, ownRules()[name]...)
	}
	return out
}

// BuiltinRoles makes the roles as objects, for people to look at. What is allowed is decided by RulesOf alone.
func BuiltinRoles() []*rbacv1.ClusterRole {
	var out []*rbacv1.ClusterRole
	for _, name := range RoleNames {
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"}}}
		for _, rule := range RulesOf(name) {
			r.Rules = append(r.Rules, *rule.DeepCopy())
		}
		out = append(out, r)
	}
	return out
}

// RoleHolds says whether who has one built-in role has all of another.
func RoleHolds(have, want string) bool {
	h, w := slices.Index(RoleNames, have), slices.Index(RoleNames, want)
	return h >= 0 && w >= 0 && h >= w
}

// RuleAllows says whether a rule lets its holder do something: with a resource ("pods", "pods/log") of a group, or,
// where resource is empty, with a path.
func RuleAllows(r rbacv1.PolicyRule, verb, group, resource, path string) bool {
	has := func(list []string, what, all string) bool {
		return slices.Contains(list, what) || slices.Contains(list, all)
	}
	if !has(r.Verbs, verb, rbacv1.VerbAll) {
		return false
	}
	if resource == "" {
		return has(r.NonResourceURLs, path, rbacv1.NonResourceAll)
	}
	return has(r.APIGroups, group, rbacv1.APIGroupAll) && has(r.Resources, resource, rbacv1.ResourceAll)
}

// Grant is a role that somebody holds by a binding.
type Grant struct {
	Role    string
	Binding Object         // a *rbacv1.RoleBinding or *rbacv1.ClusterRoleBinding
	To      rbacv1.Subject // the subject of it that fits
}

// GrantsOf picks from bindings those that give something to a user.
func GrantsOf(u User, bindings []Object) []Grant {
	var out []Grant
	for _, obj := range bindings {
		ref, subjects := BindingOf(obj)
		i := slices.IndexFunc(subjects, func(s rbacv1.Subject) bool { return isSubject(s, u) })
		if i >= 0 && ref.Kind == ClusterRoles.Name && ref.APIGroup == rbacv1.GroupName {
			out = append(out, Grant{Role: ref.Name, Binding: obj, To: subjects[i]})
		}
	}
	return out
}

// BindingOf is what a binding gives, and to whom; nothing when obj is none.
func BindingOf(obj Object) (rbacv1.RoleRef, []rbacv1.Subject) {
	switch b := obj.(type) {
	case *rbacv1.RoleBinding:
		return b.RoleRef, b.Subjects
	case *rbacv1.ClusterRoleBinding:
		return b.RoleRef, b.Subjects
	}
	return rbacv1.RoleRef{}, nil
}

// AuthenticatedGroup has every caller in it whose name is known, UnauthenticatedGroup the others.
const (
	AuthenticatedGroup   = "system:authenticated"
	UnauthenticatedGroup = "system:unauthenticated"
)

const accountUserPrefix = "system:serviceaccount:"

// AccountUser is who a service account is.
func AccountUser(namespace, name string) User {
	const group = "system:serviceaccounts"
	return User{Name: accountUserPrefix + namespace + ":" + name, Groups: []string{group, group + ":" + namespace, AuthenticatedGroup}}
}

// AccountOf is the service account that a user is, if it is one.
func AccountOf(user string) (namespace, name string, ok bool) {
	rest, ok := strings.CutPrefix(user, accountUserPrefix)
	if !ok {
		return "", "", false
	}
	namespace, name, ok = strings.Cut(rest, ":")
	return namespace, name, ok && namespace != "" && name != "" && !strings.Contains(name, ":")
}

func isSubject(s rbacv1.Subject, u User) bool {
	switch s.Kind {
	case rbacv1.UserKind:
		return s.Name == u.Name
	case rbacv1.GroupKind:
		return slices.Contains(u.Groups, s.Name)
	case rbacv1.ServiceAccountKind:
		return s.Namespace != "" && u.Name == accountUserPrefix+s.Namespace+":"+s.Name
	}
	return false
}
