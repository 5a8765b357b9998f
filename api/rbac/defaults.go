package rbac

import (
	"maps"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// Everything are the rules of who may do all there is.
func Everything() []rbacv1.PolicyRule {
	all := []string{"*"}
	return []rbacv1.PolicyRule{{APIGroups: all, Resources: all, Verbs: all}, paths(all, "*")}
}

// Everybody are the rules of whoever is known, who needs no binding for them: the two roles that Kubernetes binds to
// system:authenticated.
func Everybody() []rbacv1.PolicyRule { return slices.Concat(basicUser(), discovery()) }

func basicUser() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("authorization.k8s.io", create, "selfsubjectaccessreviews", "selfsubjectrulesreviews"),
		rule("authentication.k8s.io", create, "selfsubjectreviews"),
	}
}

func discovery() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{paths(get, "/livez", "/readyz", "/healthz", "/version", "/version/", "/openapi", "/openapi/*", "/api", "/api/*",
		"/apis", "/apis/*")}
}

var (
	get      = []string{"get"}
	create   = []string{"create"}
	readAll  = []string{"get", "list", "watch"}
	writeAll = []string{"create", "update", "patch", "delete", "deletecollection"}
	allVerbs = []string{"get", "list", "watch", "create", "update", "patch", "delete", "deletecollection"}
)

func rule(group string, verbs []string, resources ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{APIGroups: []string{group}, Resources: resources, Verbs: slices.Clone(verbs)}
}

func paths(verbs []string, urls ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{NonResourceURLs: urls, Verbs: slices.Clone(verbs)}
}

func eventsIn(verbs []string) rbacv1.PolicyRule {
	r := rule("", verbs, "events")
	r.APIGroups = []string{"", "events.k8s.io"}
	return r
}

// viewRules look at what stands in a namespace, Secrets and rights aside. They and editRules have the resources that Kubernetes' have,
// also those that a board does not have: who installs a chart with these rights may have to give them on.
func viewRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", readAll, "bindings", "configmaps", "endpoints", "limitranges", "namespaces", "namespaces/status", "persistentvolumeclaims",
			"persistentvolumeclaims/status", "pods", "pods/log", "pods/status", "replicationcontrollers", "replicationcontrollers/scale",
			"replicationcontrollers/status", "resourcequotas", "resourcequotas/status", "serviceaccounts", "services", "services/status"),
		eventsIn(readAll),
		rule("apps", readAll, "controllerrevisions", "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status",
			"replicasets", "replicasets/scale", "replicasets/status", "statefulsets", "statefulsets/scale", "statefulsets/status"),
		rule("autoscaling", readAll, "horizontalpodautoscalers", "horizontalpodautoscalers/status"),
		rule("batch", readAll, "cronjobs", "cronjobs/status", "jobs", "jobs/status"),
		rule("discovery.k8s.io", readAll, "endpointslices"),
		rule("extensions", readAll, "daemonsets", "daemonsets/status", "deployments", "deployments/scale", "deployments/status", "ingresses",
			"ingresses/status", "networkpolicies", "replicasets", "replicasets/scale", "replicasets/status", "replicationcontrollers/scale"),
		rule("metrics.k8s.io", readAll, "nodes", "pods"),
		rule("networking.k8s.io", readAll, "ingresses", "ingresses/status", "networkpolicies"),
		rule("policy", readAll, "poddisruptionbudgets", "poddisruptionbudgets/status"),
	}
}

func editRules() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{
		rule("", readAll, "pods/attach", "pods/exec", "pods/portforward", "pods/proxy", "secrets", "services/proxy"),
		rule("", []string{"impersonate"}, "serviceaccounts"),
		rule("", writeAll, "configmaps", "persistentvolumeclaims", "pods", "pods/attach", "pods/exec", "pods/portforward", "pods/proxy",
			"replicationcontrollers", "replicationcontrollers/scale", "secrets", "serviceaccounts", "services", "services/proxy"),
		rule("", create, "pods/eviction", "serviceaccounts/token"),
		eventsIn(writeAll),
		rule("apps", writeAll, "daemonsets", "deployments", "deployments/rollback", "deployments/scale", "replicasets", "replicasets/scale",
			"statefulsets", "statefulsets/scale"),
		rule("autoscaling", writeAll, "horizontalpodautoscalers"),
		rule("batch", writeAll, "cronjobs", "jobs"),
		rule("coordination.k8s.io", allVerbs, "leases"),
		rule("extensions", writeAll, "daemonsets", "deployments", "deployments/rollback", "deployments/scale", "ingresses", "networkpolicies",
			"replicasets", "replicasets/scale", "replicationcontrollers/scale"),
		rule("networking.k8s.io", writeAll, "ingresses", "networkpolicies"),
		rule("policy", writeAll, "poddisruptionbudgets"),
	}
}

// DefaultClusterRoles are those of Kubernetes that people and charts bind, with what they hold there. Those of parts that a board does
// not have (a scheduler, kubelets, signers of their own) are not among them.
func DefaultClusterRoles() []*rbacv1.ClusterRole {
	const aggregate = "rbac.authorization.k8s.io/aggregate-to-"
	var out []*rbacv1.ClusterRole
	add := func(name string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		r := &rbacv1.ClusterRole{ObjectMeta: defaultMeta("", name), Rules: rules}
		out = append(out, r)
		return r
	}
	into := func(role string, r *rbacv1.ClusterRole) { r.Labels[aggregate+role] = "true" }
	into("view", add("system:aggregate-to-view", viewRules()...))
	into("edit", add("system:aggregate-to-edit", editRules()...))
	into("admin", add("system:aggregate-to-admin",
		rule("authorization.k8s.io", create, "localsubjectaccessreviews"), rule(rbacv1.GroupName, allVerbs, "rolebindings", "roles")))
	for _, x := range []struct{ name, into string }{{"view", "edit"}, {"edit", "admin"}, {"admin", ""}} {
		r := add(x.name)
		r.AggregationRule = &rbacv1.AggregationRule{
			ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{aggregate + x.name: "true"}}}}
		r.Rules = Aggregate(r, out)
		if x.into != "" {
			into(x.into, r)
		}
	}
	add("cluster-admin", Everything()...)
	add("system:basic-user", basicUser()...)
	add("system:discovery", discovery()...)
	add("system:public-info-viewer", paths(get, "/livez", "/readyz", "/healthz", "/version", "/version/"))
	add("system:monitoring", paths(get, "/metrics", "/metrics/slis", "/livez", "/readyz", "/healthz", "/livez/*", "/readyz/*", "/healthz/*"),
		rule("", get, "nodes/metrics"))
	add("system:auth-delegator", rule("authentication.k8s.io", create, "tokenreviews"),
		rule("authorization.k8s.io", create, "subjectaccessreviews"))
	makeEvents := eventsIn([]string{"create", "patch", "update"})
	add("system:node-problem-detector", rule("", get, "nodes"), rule("", []string{"patch"}, "nodes/status"), makeEvents)
	add("system:persistent-volume-provisioner", rule("", []string{"get", "list", "watch", "create", "delete"}, "persistentvolumes"),
		rule("", []string{"get", "list", "watch", "update"}, "persistentvolumeclaims"), rule("storage.k8s.io", readAll, "storageclasses"),
		rule("", []string{"watch"}, "events"), makeEvents)
	return out
}

// DefaultRoles are the same of one namespace.
func DefaultRoles() []*rbacv1.Role {
	r := &rbacv1.Role{ObjectMeta: defaultMeta(metav1.NamespaceSystem, "extension-apiserver-authentication-reader"),
		Rules: []rbacv1.PolicyRule{rule("", readAll, "configmaps")}}
	r.Rules[0].ResourceNames = []string{"extension-apiserver-authentication"}
	return []*rbacv1.Role{r}
}

func defaultMeta(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: map[string]string{"kubernetes.io/bootstrapping": "rbac-defaults"},
		Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "true"}}
}

// Reconcile makes of a default role that is there what this version of ledge needs of it, as Kubernetes does at a start: what is
// missing is added, what somebody added stays, and a role that says autoupdate=false is left alone.
func Reconcile(have, want api.Object) {
	if have.GetAnnotations()[rbacv1.AutoUpdateAnnotationKey] == "false" {
		return
	}
	have.SetLabels(merged(have.GetLabels(), want.GetLabels()))
	have.SetAnnotations(merged(have.GetAnnotations(), want.GetAnnotations()))
	if h, ok := have.(*rbacv1.Role); ok {
		h.Rules = withRules(h.Rules, want.(*rbacv1.Role).Rules)
		return
	}
	h, w := have.(*rbacv1.ClusterRole), want.(*rbacv1.ClusterRole)
	if w.AggregationRule == nil {
		h.AggregationRule, h.Rules = nil, withRules(h.Rules, w.Rules)
		return
	}
	if h.AggregationRule == nil {
		h.AggregationRule = &rbacv1.AggregationRule{}
	}
	for _, s := range w.AggregationRule.ClusterRoleSelectors { // its rules follow from these
		if !slices.ContainsFunc(h.AggregationRule.ClusterRoleSelectors,
			func(o metav1.LabelSelector) bool { return apiequality.Semantic.DeepEqual(o, s) }) {
			h.AggregationRule.ClusterRoleSelectors = append(h.AggregationRule.ClusterRoleSelectors, s)
		}
	}
}

func withRules(have, want []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	for _, w := range want {
		if missing, err := Missing(have, []rbacv1.PolicyRule{w}); err != nil || len(missing) > 0 {
			have = append(have, w)
		}
	}
	return have
}

func merged(have, want map[string]string) map[string]string {
	out := maps.Clone(want)
	maps.Copy(out, have)
	return out
}
