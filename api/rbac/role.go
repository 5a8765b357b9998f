package rbac

import (
	"slices"
	"strings"
	"sync"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// ClusterRoles are the roles of Kubernetes that people bind, and no others: the server keeps them, so that nobody has to.
var ClusterRoles = api.Define(api.Kind{Group: rbacv1.GroupName, Version: "v1", Name: "ClusterRole", Resource: "clusterroles", Singular: "clusterrole",
	ServerOnly: true, Refusal: refusal("clusterroles")},
	api.Rules[*rbacv1.ClusterRole]{
		New: func() *rbacv1.ClusterRole { return &rbacv1.ClusterRole{} }, NewList: func() api.ListObject { return &rbacv1.ClusterRoleList{} },
		NameRule: nameRule,
	})

// Roles are not there yet.
var Roles = roles()

func roles() *api.Kind {
	k := api.DefineLater(rbacv1.GroupName, "v1", "Role", "roles", true)
	k.Refusal = refusal("roles")
	return k
}

func refusal(resource string) string {
	return resource + "." + rbacv1.GroupName + " of one's own are not supported by ledge: bind one of the built-in ClusterRoles, which the server keeps: " +
		strings.Join(RoleNames, ", ")
}

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
			rule("apps", readVerbs, "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
				"replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status"),
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
			rule("apps", writeVerbs, "daemonsets", "deployments", "deployments/scale", "replicasets", "replicasets/scale", "statefulsets",
				"statefulsets/scale"),
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
