package apitest

import (
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/rbac"
)

var rightsCases = []Case{
	{"Rights/Validation", testRoleValidation},
	{"Rights/Default", testDefaultRoles},
}

// testRoleValidation: what a role and a binding may not say.
func testRoleValidation(t *testing.T, c api.Client) {
	e := begin(t, c)
	meta := metav1.ObjectMeta{Name: "x", Namespace: e.ns}
	rule := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	path := rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}}
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "x"}
	both := rule
	both.NonResourceURLs = path.NonResourceURLs
	for _, bad := range []struct {
		kind *api.Kind
		obj  api.Object
	}{
		{rbac.Roles, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{path}}},
		{rbac.Roles, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{APIGroups: rule.APIGroups, Resources: rule.Resources}}}},
		{rbac.Roles, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: rule.Verbs, Resources: rule.Resources}}}},
		{rbac.Roles, &rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: rule.Verbs, APIGroups: rule.APIGroups}}}},
		{rbac.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.ns}, Rules: []rbacv1.PolicyRule{both}}},
		{rbac.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: e.ns}, AggregationRule: &rbacv1.AggregationRule{}}},
		{rbac.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Group", Name: "x"}}},
		{rbac.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: []rbacv1.Subject{{Kind: "Robot", Name: "x"}}}},
		{rbac.ClusterRoleBindings, &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: e.ns}, RoleRef: role}},
	} {
		_, err := e.c.Create(e.ctx, bad.kind, bad.obj, api.WriteOptions{DryRun: true})
		e.fails(err, metav1.StatusReasonInvalid, 422)
	}
	// A binding may come before its role, and never gives another.
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "x"}}
	made, err := api.Create(e.ctx, e.c, rbac.RoleBindings, &rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: role, Subjects: account})
	e.must(err)
	made.RoleRef.Name = "y"
	_, err = e.c.Update(e.ctx, rbac.RoleBindings, made, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonInvalid, 422)
}

// testDefaultRoles: those that charts bind are there, and hold what their names say.
func testDefaultRoles(t *testing.T, c api.Client) {
	e := begin(t, c)
	for _, want := range rbac.DefaultClusterRoles() {
		var got *rbacv1.ClusterRole
		e.eventually(want.Name+" has rules", func() bool { // a loop fills those that are made of others
			var err error
			got, err = api.Get[*rbacv1.ClusterRole](e.ctx, e.c, rbac.ClusterRoles, "", want.Name)
			e.must(err)
			return len(got.Rules) > 0
		})
		if got.Labels["kubernetes.io/bootstrapping"] != "rbac-defaults" || got.Annotations[rbacv1.AutoUpdateAnnotationKey] != "true" ||
			(got.AggregationRule == nil) != (want.AggregationRule == nil) {
			e.Errorf("%s is %v", want.Name, got)
		}
	}
	for _, want := range rbac.DefaultRoles() {
		got, err := api.Get[*rbacv1.Role](e.ctx, e.c, rbac.Roles, want.Namespace, want.Name)
		e.must(err)
		if missing, err := rbac.Missing(got.Rules, want.Rules); err != nil || len(missing) > 0 {
			e.Errorf("%s lacks %v: %v", want.Name, missing, err)
		}
	}
}
