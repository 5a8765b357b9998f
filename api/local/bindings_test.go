package local

import (
	"encoding/json"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/rbac"
	"ledge/storage"
)

func binding(namespace, name, role string, users ...string) api.Object {
	ref := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role}
	var subjects []rbacv1.Subject
	for _, u := range users {
		subjects = append(subjects, rbacv1.Subject{APIGroup: rbacv1.GroupName, Kind: "User", Name: u})
	}
	if namespace == "" {
		return &rbacv1.ClusterRoleBinding{ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: ref, Subjects: subjects}
	}
	return &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, RoleRef: ref, Subjects: subjects}
}

// TestBindWhatOneHolds: nobody gives away what they do not hold in the same place, by any way of writing.
func TestBindWhatOneHolds(t *testing.T) {
	c := open(t, Config{})
	create(t, c, binding("default", "local", "admin", "anna"))
	create(t, c, binding("", "global", "edit", "gus"))
	create(t, c, binding("", "chief", "cluster-admin", "chief"))
	create(t, c, binding("default", "given", "cluster-admin", "x"))
	for _, tc := range []struct {
		who, namespace, role string
		ok                   bool
	}{
		{"anna", "default", "view", true}, {"anna", "default", "edit", true}, {"anna", "default", "admin", true},
		{"anna", "default", "cluster-admin", false},
		{"anna", "kube-system", "view", false}, {"anna", "", "view", false},
		{"gus", "default", "edit", true}, {"gus", "kube-system", "view", true}, {"gus", "", "edit", true},
		{"gus", "default", "admin", false}, {"gus", "", "admin", false},
		{"chief", "", "cluster-admin", true}, {"chief", "default", "cluster-admin", true},
		{"nobody", "default", "view", false}, {"nobody", "", "view", false},
	} {
		ctx := api.WithUser(t.Context(), api.User{Name: tc.who, Groups: []string{"system:authenticated"}})
		b := binding(tc.namespace, "new", tc.role, "friend", tc.who)
		kind, err := kinds.All.Of(b)
		if err != nil {
			t.Fatal(err)
		}
		check := func(what string, err error) {
			t.Helper()
			switch {
			case tc.ok && err != nil:
				t.Errorf("%s: %s %s in %q: %v", tc.who, what, tc.role, tc.namespace, err)
			case !tc.ok:
				wantCode(t, err, 403, `is attempting to grant RBAC permissions not currently held: those of the ClusterRole "`+tc.role+`"`)
			}
		}
		_, err = c.Create(ctx, kind, b, api.WriteOptions{DryRun: true})
		check("creates", err)
		data, err := json.Marshal(b)
		if err != nil {
			t.Fatal(err)
		}
		var config map[string]any
		if err := json.Unmarshal(data, &config); err != nil {
			t.Fatal(err)
		}
		config["apiVersion"], config["kind"] = kind.APIVersion(), kind.Name
		delete(config["metadata"].(map[string]any), "creationTimestamp")
		if data, err = json.Marshal(config); err != nil {
			t.Fatal(err)
		}
		_, err = c.Patch(ctx, kind, tc.namespace, "new", api.Patch{Type: types.ApplyYAMLPatchType, Data: data}, api.WriteOptions{DryRun: true, Manager: "m"})
		check("applies", err)
	}

	// Of a binding that gives more than one holds, one may take subjects away but add none; all else may change.
	anna := api.WithUser(t.Context(), api.User{Name: "anna"})
	patch := func(data string) error {
		_, err := c.Patch(anna, rbac.RoleBindings, "default", "given", api.Patch{Type: types.MergePatchType, Data: []byte(data)}, api.WriteOptions{})
		return err
	}
	wantCode(t, patch(`{"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"anna"}]}`), 403, "not currently held")
	if err := patch(`{"metadata":{"labels":{"a":"b"}}}`); err != nil {
		t.Error(err)
	}
	if err := patch(`{"subjects":[]}`); err != nil {
		t.Error(err)
	}
	if _, err := c.Delete(anna, rbac.RoleBindings, "default", "given", api.DeleteOptions{}); err != nil {
		t.Error(err)
	}
	_, err := c.Create(asNode(t, "a"), rbac.ClusterRoleBindings, binding("", "node", "view", "system:node:a"), api.WriteOptions{})
	wantCode(t, err, 403, "is not allowed to modify clusterrolebindings")
}

// TestBuiltinRoles: they are there to be looked at, nobody changes them, and another version's are replaced.
func TestBuiltinRoles(t *testing.T) {
	c := open(t, Config{})
	for _, want := range rbac.BuiltinRoles() {
		got, err := api.Get[*rbacv1.ClusterRole](t.Context(), c, rbac.ClusterRoles, "", want.Name)
		if err != nil || len(got.Rules) != len(want.Rules) {
			t.Errorf("%s: %v %v", want.Name, got, err)
		}
		_, err = c.Update(t.Context(), rbac.ClusterRoles, got, api.WriteOptions{})
		wantCode(t, err, 405, "bind one of the built-in ClusterRoles")
		_, err = c.Delete(t.Context(), rbac.ClusterRoles, "", want.Name, api.DeleteOptions{})
		wantCode(t, err, 405, "bind one of the built-in ClusterRoles")
	}
	err := c.store.Update(func(tx *storage.Tx) error {
		return put(tx, rbac.ClusterRoles, &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "view"}}, false)
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil {
		t.Fatal(err)
	}
	if got, err := api.Get[*rbacv1.ClusterRole](t.Context(), c, rbac.ClusterRoles, "", "view"); err != nil || len(got.Rules) == 0 {
		t.Errorf("after another version: %v %v", got, err)
	}
}
