package rbac_test

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/rbac"
)

// TestRolesNest: each role holds all of the one before, which is what makes "may bind what one holds" a comparison.
func TestRolesNest(t *testing.T) {
	for i, name := range rbac.RoleNames {
		for _, lesser := range rbac.RoleNames[:i+1] {
			if !rbac.RoleHolds(name, lesser) || lesser != name && rbac.RoleHolds(lesser, name) {
				t.Errorf("%s and %s are not in order", lesser, name)
			}
			for _, r := range rbac.RulesOf(lesser) {
				for _, verb := range r.Verbs {
					for _, resource := range r.Resources {
						if !slices.ContainsFunc(rbac.RulesOf(name), func(r2 rbacv1.PolicyRule) bool {
							return rbac.RuleAllows(r2, verb, r.APIGroups[0], resource, "")
						}) {
							t.Errorf("%s may %s %s, %s may not", lesser, verb, resource, name)
						}
					}
				}
			}
		}
	}
	if rbac.RoleHolds("", rbac.RoleView) || rbac.RoleHolds(rbac.RoleAdmin, "") || rbac.RoleHolds("root", rbac.RoleView) || rbac.RulesOf("root") != nil {
		t.Error("a role that is none holds something")
	}
}

// TestRolesNameWhatThereIs: a resource misspelt in a rule would be a right that nobody has.
func TestRolesNameWhatThereIs(t *testing.T) {
	known := func(group, resource string) bool {
		plain, _, _ := strings.Cut(resource, "/")
		for _, k := range kinds.All.All() {
			if k.Group == group && k.Resource == plain {
				return true
			}
		}
		return resource == "localsubjectaccessreviews"
	}
	for _, name := range rbac.RoleNames[:3] {
		for _, r := range rbac.RulesOf(name) {
			for _, resource := range r.Resources {
				if !known(r.APIGroups[0], resource) {
					t.Errorf("%s: there is no %s in group %q", name, resource, r.APIGroups[0])
				}
			}
		}
	}
}

func TestGrantsOf(t *testing.T) {
	bound := func(ref rbacv1.RoleRef, s ...rbacv1.Subject) api.Object {
		b := &rbacv1.RoleBinding{RoleRef: ref, Subjects: s}
		rbac.RoleBindings.Default(b)
		return b
	}
	view := rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}
	account := api.User{Name: "system:serviceaccount:n:a", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:n", api.AuthenticatedGroup}}
	for _, tc := range []struct {
		name    string
		binding api.Object
		user    api.User
		want    bool
	}{
		{"user", bound(view, rbacv1.Subject{Kind: "User", Name: "bob"}), api.User{Name: "bob"}, true},
		{"another user", bound(view, rbacv1.Subject{Kind: "User", Name: "bob"}), api.User{Name: "bo"}, false},
		{"a user called like the group", bound(view, rbacv1.Subject{Kind: "Group", Name: "bob"}), api.User{Name: "bob"}, false},
		{"group", bound(view, rbacv1.Subject{Kind: "Group", Name: "ops"}), api.User{Name: "bob", Groups: []string{"x", "ops"}}, true},
		{"everybody", bound(view, rbacv1.Subject{Kind: "Group", Name: api.AuthenticatedGroup}), account, true},
		{"account", bound(view, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "n", Name: "a"}), account, true},
		{"account of another namespace", bound(view, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "m", Name: "a"}), account, false},
		{"account without a namespace", bound(view, rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}), api.User{Name: "system:serviceaccount::a"}, false},
		{"account as a user", bound(view, rbacv1.Subject{Kind: "User", Name: account.Name}), account, true},
		{"all accounts of a namespace", bound(view, rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:n"}), account, true},
		{"the second subject", bound(view, rbacv1.Subject{Kind: "User", Name: "x"}, rbacv1.Subject{Kind: "User", Name: "bob"}), api.User{Name: "bob"}, true},
		{"nobody", bound(view), api.User{Name: "bob"}, false},
		{"a Role", bound(rbacv1.RoleRef{Kind: "Role", Name: "view"}, rbacv1.Subject{Kind: "User", Name: "bob"}), api.User{Name: "bob"}, false},
	} {
		got := rbac.GrantsOf(tc.user, []api.Object{tc.binding})
		if (len(got) == 1 && got[0].Role == "view") != tc.want {
			t.Errorf("%s: %v, want %v", tc.name, got, tc.want)
		}
	}
}

func TestValidateBinding(t *testing.T) {
	const group = rbacv1.GroupName
	user := rbacv1.Subject{Kind: "User", Name: "bob"}
	view := rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}
	for _, tc := range []struct {
		name     string
		ref      rbacv1.RoleRef
		subjects []rbacv1.Subject
		want     string // part of the refusal; "" for none
	}{
		{"good", view, []rbacv1.Subject{user, {Kind: "Group", Name: "system:x"}, {Kind: "ServiceAccount", Namespace: "n", Name: "a"}}, ""},
		{"system:of nobody", view, nil, ""},
		{"A.Role_of%one's own", view, nil, "metadata.name"},
		{"own role", rbacv1.RoleRef{Kind: "ClusterRole", Name: "pod-reader"}, nil, "only the built-in ClusterRoles can be bound: view, edit, admin, cluster-admin"},
		{"a Role", rbacv1.RoleRef{Kind: "Role", Name: "view"}, nil, "there are no Roles"},
		{"no kind", rbacv1.RoleRef{Name: "view"}, nil, "roleRef.kind"},
		{"no name", rbacv1.RoleRef{Kind: "ClusterRole"}, nil, "roleRef.name: Required"},
		{"another group", rbacv1.RoleRef{APIGroup: "x", Kind: "ClusterRole", Name: "view"}, nil, "roleRef.apiGroup"},
		{"nobody's name", view, []rbacv1.Subject{{Kind: "User"}}, "subjects[0].name: Required"},
		{"account from nowhere", view, []rbacv1.Subject{user, {Kind: "ServiceAccount", Name: "a"}}, "subjects[1].namespace: Required"},
		{"account of an odd name", view, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "n", Name: "A"}}, "subjects[0].name: Invalid"},
		{"account in a group", view, []rbacv1.Subject{{Kind: "ServiceAccount", APIGroup: group, Namespace: "n", Name: "a"}}, "subjects[0].apiGroup"},
		{"user of another group", view, []rbacv1.Subject{{Kind: "User", APIGroup: "x", Name: "bob"}}, "subjects[0].apiGroup"},
		{"a robot", view, []rbacv1.Subject{{Kind: "Robot", Name: "x"}}, "subjects[0].kind: Unsupported"},
	} {
		local, all := &rbacv1.RoleBinding{RoleRef: tc.ref, Subjects: tc.subjects}, &rbacv1.ClusterRoleBinding{RoleRef: tc.ref, Subjects: tc.subjects}
		local.Name, local.Namespace, all.Name = tc.name, "default", tc.name
		refused(t, tc.name, tc.want, rbac.RoleBindings, local, func(o api.Object) { o.(*rbacv1.RoleBinding).RoleRef.Name = "edit" })
		refused(t, tc.name, tc.want, rbac.ClusterRoleBindings, all, func(o api.Object) { o.(*rbacv1.ClusterRoleBinding).RoleRef.Name = "edit" })
	}
}

// refused validates a binding, which must be refused with these words or, without, be good and keep its role.
func refused(t *testing.T, name, want string, kind *api.Kind, b api.Object, edit func(api.Object)) {
	t.Helper()
	b = b.DeepCopyObject().(api.Object)
	kind.Default(b)
	err := kind.Validate(b)
	if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
		t.Errorf("%s: %T: %v, want %q", name, b, err, want)
	}
	if want != "" {
		return
	}
	other := b.DeepCopyObject().(api.Object)
	edit(other)
	b.SetResourceVersion("1")
	other.SetResourceVersion("1")
	if err := kind.ValidateUpdate(other, b, ""); err == nil || !strings.Contains(err.Error(), "cannot change roleRef") {
		t.Errorf("%s: another role: %v", name, err)
	}
}
