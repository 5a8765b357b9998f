package api

import (
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
)

// TestRolesNest: each role holds all of the one before, which is what makes "may bind what one holds" a comparison.
func TestRolesNest(t *testing.T) {
	for i, name := range RoleNames {
		for _, lesser := range RoleNames[:i+1] {
			if !RoleHolds(name, lesser) || lesser != name && RoleHolds(lesser, name) {
				t.Errorf("%s and %s are not in order", lesser, name)
			}
			for _, r := range RulesOf(lesser) {
				for _, verb := range r.Verbs {
					for _, resource := range r.Resources {
						if !slices.ContainsFunc(RulesOf(name), func(r2 rbacv1.PolicyRule) bool {
							return RuleAllows(r2, verb, r.APIGroups[0], resource, "")
						}) {
							t.Errorf("%s may %s %s, %s may not", lesser, verb, resource, name)
						}
					}
				}
			}
		}
	}
	if RoleHolds("", RoleView) || RoleHolds(RoleAdmin, "") || RoleHolds("root", RoleView) || RulesOf("root") != nil {
		t.Error("a role that is none holds something")
	}
}

// TestRolesNameWhatThereIs: a resource misspelt in a rule would be a right that nobody has.
func TestRolesNameWhatThereIs(t *testing.T) {
	known := func(group, resource string) bool {
		plain, _, _ := strings.Cut(resource, "/")
		for _, k := range slices.Concat(Kinds, Views, LaterKinds, AbsentKinds, Measured) {
			if k.Group == group && k.Resource == plain {
				return true
			}
		}
		return resource == "localsubjectaccessreviews"
	}
	for _, name := range RoleNames[:3] {
		for _, r := range ownRules()[name] {
			for _, resource := range r.Resources {
				if !known(r.APIGroups[0], resource) {
					t.Errorf("%s: there is no %s in group %q", name, resource, r.APIGroups[0])
				}
			}
		}
	}
}

func TestGrantsOf(t *testing.T) {
	bound := func(ref rbacv1.RoleRef, s ...rbacv1.Subject) Object {
		b := &rbacv1.RoleBinding{RoleRef: ref, Subjects: s}
		Default(b)
		return b
	}
	view := rbacv1.RoleRef{Kind: "ClusterRole", Name: "view"}
	account := User{Name: "system:serviceaccount:n:a", Groups: []string{"system:serviceaccounts", "system:serviceaccounts:n", AuthenticatedGroup}}
	for _, tc := range []struct {
		name    string
		binding Object
		user    User
		want    bool
	}{
		{"user", bound(view, rbacv1.Subject{Kind: "User", Name: "bob"}), User{Name: "bob"}, true},
		{"another user", bound(view, rbacv1.Subject{Kind: "User", Name: "bob"}), User{Name: "bo"}, false},
		{"a user called like the group", bound(view, rbacv1.Subject{Kind: "Group", Name: "bob"}), User{Name: "bob"}, false},
		{"group", bound(view, rbacv1.Subject{Kind: "Group", Name: "ops"}), User{Name: "bob", Groups: []string{"x", "ops"}}, true},
		{"everybody", bound(view, rbacv1.Subject{Kind: "Group", Name: AuthenticatedGroup}), account, true},
		{"account", bound(view, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "n", Name: "a"}), account, true},
		{"account of another namespace", bound(view, rbacv1.Subject{Kind: "ServiceAccount", Namespace: "m", Name: "a"}), account, false},
		{"account without a namespace", bound(view, rbacv1.Subject{Kind: "ServiceAccount", Name: "a"}), User{Name: "system:serviceaccount::a"}, false},
		{"account as a user", bound(view, rbacv1.Subject{Kind: "User", Name: account.Name}), account, true},
		{"all accounts of a namespace", bound(view, rbacv1.Subject{Kind: "Group", Name: "system:serviceaccounts:n"}), account, true},
		{"the second subject", bound(view, rbacv1.Subject{Kind: "User", Name: "x"}, rbacv1.Subject{Kind: "User", Name: "bob"}), User{Name: "bob"}, true},
		{"nobody", bound(view), User{Name: "bob"}, false},
		{"a Role", bound(rbacv1.RoleRef{Kind: "Role", Name: "view"}, rbacv1.Subject{Kind: "User", Name: "bob"}), User{Name: "bob"}, false},
	} {
		got := GrantsOf(tc.user, []Object{tc.binding})
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
		for _, b := range []Object{local, all} {
			b = b.DeepCopyObject().(Object)
			Default(b)
			err := Validate(b)
			if tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("%s: %T: %v, want %q", tc.name, b, err, tc.want)
			}
			if tc.want != "" {
				continue
			}
			other := b.DeepCopyObject().(Object)
			switch o := other.(type) {
			case *rbacv1.RoleBinding:
				o.RoleRef.Name = "edit"
			case *rbacv1.ClusterRoleBinding:
				o.RoleRef.Name = "edit"
			}
			b.SetResourceVersion("1")
			other.SetResourceVersion("1")
			if err := ValidateUpdate(other, b, ""); err == nil || !strings.Contains(err.Error(), "cannot change roleRef") {
				t.Errorf("%s: another role: %v", tc.name, err)
			}
		}
	}
}
