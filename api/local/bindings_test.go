package local

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/rbac"
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
				wantCode(t, err, 403, "is attempting to grant RBAC permissions not currently held:\n{")
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
		_, err = c.Patch(ctx, kind, tc.namespace, "new", api.Patch{Type: types.ApplyYAMLPatchType, Data: data},
			api.WriteOptions{DryRun: true, Manager: "m"})
		check("applies", err)
	}

	// Of a binding that gives more than one holds, one may take subjects away but add none; all else may change.
	anna := api.WithUser(t.Context(), api.User{Name: "anna"})
	patch := func(data string) error {
		_, err := c.Patch(anna, rbac.RoleBindings, "default", "given", api.Patch{Type: types.MergePatchType, Data: []byte(data)},
			api.WriteOptions{})
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

func roleIn(namespace, name string, rules ...rbacv1.PolicyRule) api.Object {
	if namespace == "" {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}, Rules: rules}
	}
	return &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}, Rules: rules}
}

func may(group, resource string, verbs ...string) rbacv1.PolicyRule {
	return rbacv1.PolicyRule{Verbs: verbs, APIGroups: []string{group}, Resources: []string{resource}}
}

// TestRolesHoldWhatOneHolds: nobody writes a role that holds more than they do, by any way of writing, unless they may escalate it.
func TestRolesHoldWhatOneHolds(t *testing.T) {
	c := open(t, Config{})
	create(t, c, binding("default", "local", "admin", "anna"))
	create(t, c, roleIn("", "keeper", may(rbacv1.GroupName, "clusterroles", "create", "update", "patch"), may("", "pods", "get", "list")))
	create(t, c, binding("", "keeper", "keeper", "kim"))
	create(t, c, roleIn("", "climber", may(rbacv1.GroupName, "roles", "escalate", "create"), may(rbacv1.GroupName, "clusterroles", "bind")))
	create(t, c, binding("default", "climber", "climber", "cleo"))
	create(t, c, binding("", "chief", "cluster-admin", "chief"))
	create(t, c, roleIn("default", "given", may("", "nodes", "get")))
	create(t, c, roleIn("", "strong", may("", "nodes", "get")))
	aggregated := roleIn("", "sum").(*rbacv1.ClusterRole)
	aggregated.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{"a": "b"}}}}
	one := may("", "secrets", "get")
	one.ResourceNames = []string{"s"}
	path := func(p string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{p}}
	}
	const held = "not currently held"
	for _, tc := range []struct {
		who    string
		obj    api.Object
		refuse string
	}{
		{"anna", roleIn("default", "r", may("", "pods", "get", "list"), may("apps", "deployments", "create")), ""},
		{"anna", roleIn("default", "r", one), ""},
		{"anna", roleIn("default", "r", may("", "nodes", "get")), held},
		{"anna", roleIn("default", "r", may("", "pods", "*")), held},
		{"anna", roleIn("default", "r", may("*", "pods", "get")), held},
		{"anna", roleIn("default", "r", may("", "*", "get")), held},
		{"anna", roleIn("default", "r", may("", "pods/binding", "create")), held},
		{"anna", roleIn("default", "r", may(rbacv1.GroupName, "roles", "escalate")), held},
		{"anna", roleIn("default", "r", may("", "users", "impersonate")), held},
		{"anna", roleIn("kube-system", "r", may("", "pods", "get")), held},
		{"anna", roleIn("", "r", may("", "pods", "get")), held},
		{"kim", roleIn("", "r", may("", "pods", "get")), ""},
		{"kim", roleIn("", "r", path("/healthz")), ""}, // which everybody may
		{"kim", roleIn("", "r", path("/metrics")), held},
		{"kim", roleIn("default", "r", may("", "pods", "list")), ""},
		{"kim", aggregated, "must have cluster-admin privileges to use the aggregationRule"},
		{"chief", aggregated, ""},
		{"chief", roleIn("", "r", path("/ledge/v1/backup"), may("*", "*", "*")), ""},
		{"cleo", roleIn("default", "r", may("*", "*", "*")), ""},
		{"cleo", roleIn("kube-system", "r", may("", "pods", "get")), held},
		{"cleo", roleIn("", "r", may("", "pods", "get")), held},
		{"cleo", binding("default", "b", "cluster-admin", "cleo"), ""},
		{"cleo", binding("", "b", "view", "cleo"), held},
		{"anna", binding("default", "b", "nothing", "anna"), `clusterroles.rbac.authorization.k8s.io "nothing" not found`},
		{"anna", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "given"}}, held},
		{"anna", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "nothing"}},
			`roles.rbac.authorization.k8s.io "nothing" not found`},
		{"anna", &rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "b"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Rolle", Name: "x"}}, "roleRef.kind: Unsupported"},
		{"", binding("default", "b", "nothing", "anna"), ""}, // an administrator's may come before its role
	} {
		ctx := api.WithUser(t.Context(), api.User{Name: tc.who, Groups: []string{"system:authenticated"}})
		if tc.who == "" {
			ctx = api.WithUser(t.Context(), api.User{Name: "root", Groups: []string{api.AdminGroup}})
		}
		kind, err := kinds.All.Of(tc.obj)
		if err != nil {
			t.Fatal(err)
		}
		_, err = c.Create(ctx, kind, tc.obj, api.WriteOptions{DryRun: true})
		rules, _ := rbac.RulesOf(tc.obj)
		if tc.refuse == "" && err != nil || tc.refuse != "" && (err == nil || !strings.Contains(err.Error(), tc.refuse)) {
			t.Errorf("%s makes %s in %q of %v: %v, want %q", tc.who, kind, tc.obj.GetNamespace(), rules, err, tc.refuse)
		}
	}

	// A role that holds more than oneself: what may be changed of it.
	anna, kim := api.WithUser(t.Context(), api.User{Name: "anna"}), api.WithUser(t.Context(), api.User{Name: "kim"})
	patch := func(ctx context.Context, kind *api.Kind, namespace, name, data string) error {
		_, err := c.Patch(ctx, kind, namespace, name, api.Patch{Type: types.MergePatchType, Data: []byte(data)}, api.WriteOptions{DryRun: true})
		return err
	}
	for data, want := range map[string]string{
		`{"metadata":{"annotations":{"a":"b"},"finalizers":["x/y"]}}`: "",
		`{"rules":[]}`: "",
		`{"rules":[{"verbs":["get","list"],"apiGroups":[""],"resources":["nodes"]}]}`: held,
		`{"metadata":{"labels":{"a":"b"}}}`:                                           held, // an aggregated role may pick it now
	} {
		for err, what := range map[error]string{patch(anna, rbac.Roles, "default", "given", data): "Role",
			patch(kim, rbac.ClusterRoles, "", "strong", data): "ClusterRole"} {
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %s: %v, want %q", what, data, err, want)
			}
		}
	}
	create(t, c, aggregated)
	wantCode(t, patch(kim, rbac.ClusterRoles, "", "sum", `{"aggregationRule":null}`), 403, "must have cluster-admin privileges")
}

// TestRightsAreBounded: who may write roles in a namespace cannot fill the memory that all decisions are made in.
func TestRightsAreBounded(t *testing.T) {
	c := open(t, Config{})
	create(t, c, binding("default", "local", "admin", "anna"))
	anna := api.WithUser(t.Context(), api.User{Name: "anna"})
	held := func() (n int) {
		if err := c.Rights(func(p *rbac.Policy) { n = p.Held("default") }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	large := may("", "secrets", "get")
	for i := range 1500 {
		large.ResourceNames = append(large.ResourceNames, fmt.Sprintf("%0100d", i))
	}
	var err error
	made := 0
	for ; err == nil && made < 100; made++ {
		_, err = c.Create(anna, rbac.Roles, roleIn("default", fmt.Sprint("r", made), large), api.WriteOptions{})
	}
	wantCode(t, err, 403, `the Roles and RoleBindings of namespace "default" would take`)
	if n := held(); n > rightsOfNamespace || n < rightsOfNamespace-rbac.MaxWeight {
		t.Errorf("%d roles take %d bytes", made, n)
	}
	// What is there may shrink and go, other namespaces go on, and then there is room again.
	if _, err := c.Patch(anna, rbac.Roles, "default", "r0", api.Patch{Type: types.MergePatchType, Data: []byte(`{"rules":[]}`)},
		api.WriteOptions{}); err != nil {
		t.Error(err)
	}
	create(t, c, roleIn("kube-system", "r", large))
	if _, err := c.Create(anna, rbac.Roles, roleIn("default", "again", large), api.WriteOptions{}); err != nil {
		t.Error(err)
	}
}

// TestRightsFollow: each change counts with the next question, also when more has happened than the store remembers.
func TestRightsFollow(t *testing.T) {
	c := open(t, Config{})
	bob := api.User{Name: "bob"}
	asks := func() (ok bool) {
		t.Helper()
		err := c.Rights(func(p *rbac.Policy) {
			_, ok = p.Allows(bob, rbac.Ask{Verb: "get", Resource: "pods", Namespace: "default"})
		})
		if err != nil {
			t.Fatal(err)
		}
		return ok
	}
	want := func(step string, want bool) {
		t.Helper()
		if asks() != want {
			t.Errorf("%s: %v", step, !want)
		}
	}
	want("nothing", false)
	b := binding("default", "b", "r", "bob").(*rbacv1.RoleBinding)
	b.RoleRef.Kind = "Role"
	create(t, c, b)
	want("bound to a role that is not there", false)
	create(t, c, roleIn("default", "r", may("", "pods", "get")))
	want("the role came", true)
	for i := range 40 { // the store of these tests remembers fewer
		if _, err := c.Patch(t.Context(), rbac.Roles, "default", "r", api.Patch{Type: types.MergePatchType,
			Data: fmt.Appendf(nil, `{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["pods","x%d"]}]}`, i)},
			api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	want("many changes", true)
	if _, err := c.Delete(t.Context(), rbac.Roles, "default", "r", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	want("the role went", false)
}

// TestRightsAreOfOneMoment: a role as it was never meets a binding that was made after the role had been narrowed. Many ask at once.
func TestRightsAreOfOneMoment(t *testing.T) {
	c := open(t, Config{})
	bob := api.User{Name: "bob"}
	create(t, c, roleIn("", "r"))
	stop, bad := make(chan struct{}), make(chan string, 4)
	var askers sync.WaitGroup
	for range 3 {
		askers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				err := c.Rights(func(p *rbac.Policy) {
					if _, ok := p.Allows(bob, rbac.Ask{Verb: "get", Resource: "secrets"}); ok {
						select {
						case bad <- "bob may":
						default:
						}
					}
				})
				if err != nil {
					bad <- err.Error()
					return
				}
			}
		})
	}
	for range 50 { // strong and unbound, or bound and weak
		rules := func(data string) {
			if _, err := c.Patch(t.Context(), rbac.ClusterRoles, "", "r", api.Patch{Type: types.MergePatchType, Data: []byte(data)},
				api.WriteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		rules(`{"rules":[{"verbs":["get"],"apiGroups":[""],"resources":["secrets"]}]}`)
		rules(`{"rules":[]}`)
		create(t, c, binding("", "b", "r", "bob"))
		if _, err := c.Delete(t.Context(), rbac.ClusterRoleBindings, "", "b", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	askers.Wait()
	select {
	case what := <-bad:
		t.Error(what)
	default:
	}
}

// TestDefaultRolesAreKept: made at the first start, added to at each, left alone where they say so, and never in between.
func TestDefaultRolesAreKept(t *testing.T) {
	c := open(t, Config{})
	get := func(name string) *rbacv1.ClusterRole {
		t.Helper()
		r, err := api.Get[*rbacv1.ClusterRole](t.Context(), c, rbac.ClusterRoles, "", name)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for _, want := range rbac.DefaultClusterRoles() {
		if got := get(want.Name); len(got.Rules) != len(want.Rules) || got.UID == "" {
			t.Errorf("%s: %v", want.Name, got)
		}
	}
	change := func(name string, do func(*rbacv1.ClusterRole)) {
		r := get(name)
		do(r)
		if _, err := c.Update(t.Context(), rbac.ClusterRoles, r, api.WriteOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	change("system:auth-delegator", func(r *rbacv1.ClusterRole) { r.Rules = r.Rules[:1] })
	change("system:monitoring", func(r *rbacv1.ClusterRole) {
		r.Rules, r.Annotations[rbacv1.AutoUpdateAnnotationKey] = nil, "false"
	})
	if _, err := c.Delete(t.Context(), rbac.ClusterRoles, "", "system:discovery", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := c.EnsureSystem(); err != nil { // every minute
		t.Fatal(err)
	}
	if n := len(get("system:auth-delegator").Rules); n != 1 {
		t.Errorf("a narrowed role has %d rules again before the next start", n)
	}
	if err := c.roles.ensure(); err != nil {
		t.Fatal(err)
	}
	get("system:discovery")
	if n, m := len(get("system:auth-delegator").Rules), len(get("system:monitoring").Rules); n != 2 || m != 0 {
		t.Errorf("after a start: %d and %d rules", n, m)
	}
	before := c.store.Revision()
	if err := c.roles.ensure(); err != nil || c.store.Revision() != before {
		t.Errorf("a start at which nothing is missing writes: %v", err)
	}
}

// TestDefaultRolesWait: a store that takes no write does not keep a board from starting; the roles come when there is room.
func TestDefaultRolesWait(t *testing.T) {
	c := open(t, Config{})
	if _, err := c.Delete(t.Context(), rbac.ClusterRoles, "", "view", api.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	was := c.store
	closed := open(t, Config{}).store // stands for one that fails
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	c.roles.store, c.roles.made = closed, false
	if c.roles.once(); c.roles.made {
		t.Error("roles were written to a store that is closed")
	}
	c.roles.store = was
	c.roles.once()
	if _, err := c.Get(t.Context(), rbac.ClusterRoles, "", "view"); err != nil || !c.roles.made {
		t.Errorf("%v %v", c.roles.made, err)
	}
}

// TestDefaultRolesAfterAStart: a start at which they are there does not wait for them. They are compared soon after it, and once.
func TestDefaultRolesAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := open(t, Config{})
		remove := func() {
			t.Helper()
			if _, err := c.Delete(t.Context(), rbac.ClusterRoles, "", "view", api.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		there := func() bool {
			_, err := c.Get(t.Context(), rbac.ClusterRoles, "", "view")
			return err == nil
		}
		remove()
		again, err := New(Config{Store: c.store})
		if err != nil {
			t.Fatal(err)
		}
		if there() || again.roles.made {
			t.Error("the start waited for the default roles")
		}
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- again.Run(ctx) }()
		time.Sleep(rolesWait + time.Millisecond)
		if !there() {
			t.Error("no role view after the start")
		}
		remove()
		time.Sleep(2 * time.Minute)
		if there() {
			t.Error("a role that was deleted came back before the next start")
		}
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
