package rbac_test

import (
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/rbac"
)

// TestDefaultRoles compares the default roles with the text of testdata, for people to read.
func TestDefaultRoles(t *testing.T) {
	var text strings.Builder
	for _, r := range rbac.DefaultClusterRoles() {
		fmt.Fprintf(&text, "%s %v\n", r.Name, r.Labels)
		if r.AggregationRule != nil {
			fmt.Fprintf(&text, "  picks %v\n", r.AggregationRule.ClusterRoleSelectors[0].MatchLabels)
			continue // the rules of those
		}
		writeRules(&text, r.Rules)
	}
	for _, r := range rbac.DefaultRoles() {
		fmt.Fprintf(&text, "%s/%s %v\n", r.Namespace, r.Name, r.Labels)
		writeRules(&text, r.Rules)
	}
	const path = "testdata/roles.golden"
	if *update {
		if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if text.String() != string(want) {
		t.Errorf("%s differs (run with -update to accept):\n%s", path, &text)
	}
}

var update = flag.Bool("update", false, "write testdata again")

func writeRules(w io.Writer, rules []rbacv1.PolicyRule) {
	for _, r := range rules {
		fmt.Fprintf(w, "  %s:", strings.Join(r.Verbs, " "))
		for i, g := range r.APIGroups {
			fmt.Fprintf(w, "%s%q", strings.Repeat(" and", min(i, 1)), g)
		}
		for _, what := range slices.Concat(r.Resources, r.ResourceNames, r.NonResourceURLs) {
			fmt.Fprintf(w, " %s", what)
		}
		fmt.Fprintln(w)
	}
}

// TestDefaultRolesNest: each of these holds all of the one before, as people expect of their names, and no more in the other direction.
func TestDefaultRolesNest(t *testing.T) {
	rules := map[string][]rbacv1.PolicyRule{}
	for _, r := range rbac.DefaultClusterRoles() {
		rules[r.Name] = r.Rules
		if err := rbac.ClusterRoles.Validate(r); err != nil {
			t.Error(err)
		}
	}
	names := []string{"view", "edit", "admin", "cluster-admin"}
	for i, lesser := range names {
		for j, greater := range names {
			missing, err := rbac.Missing(rules[greater], rules[lesser])
			if err != nil || (len(missing) == 0) != (j >= i) {
				t.Errorf("what %s has of %s lacks %v, %v", greater, lesser, missing, err)
			}
		}
	}
}

// TestDefaultRolesNameWhatThereIs: a resource misspelt in a rule would be a right that nobody has.
func TestDefaultRolesNameWhatThereIs(t *testing.T) {
	elsewhere := map[string]bool{ // Kubernetes has these, a board does not
		"bindings": true, "services/proxy": true, "services/status": true, "persistentvolumeclaims/status": true,
		"controllerrevisions": true, "deployments/rollback": true, "nodes/metrics": true,
		"cronjobs/status": true, "jobs/status": true, "ingresses/status": true,
	}
	known := func(group, resource string) bool {
		plain, sub, _ := strings.Cut(resource, "/")
		for _, k := range kinds.All.All() {
			if k.Group == group && k.Resource == plain {
				return sub == "" || k.Later || k.Has(sub) ||
					slices.Contains([]string{"log", "exec", "attach", "portforward", "proxy", "eviction", "token"}, sub)
			}
		}
		return strings.HasSuffix(resource, "reviews")
	}
	for _, r := range rbac.DefaultClusterRoles() {
		for _, rule := range r.Rules {
			for _, resource := range rule.Resources {
				if g := rule.APIGroups[0]; g != "*" && g != "extensions" && !known(g, resource) && !elsewhere[resource] {
					t.Errorf("%s: there is no %s in group %q", r.Name, resource, g)
				}
			}
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
		{"own role", rbacv1.RoleRef{Kind: "ClusterRole", Name: "pod-reader"}, nil, ""},
		{"role of no name", rbacv1.RoleRef{Kind: "ClusterRole", Name: "a/b"}, nil, "roleRef.name: Invalid"},
		{"a group of roles", rbacv1.RoleRef{Kind: "Roles", Name: "view"}, nil, "roleRef.kind: Unsupported"},
		{"all of us", view, slices.Repeat([]rbacv1.Subject{user}, 2000), "may take 262144: make several of it"},
		{"no kind", rbacv1.RoleRef{Name: "view"}, nil, "roleRef.kind"},
		{"no name", rbacv1.RoleRef{Kind: "ClusterRole"}, nil, "roleRef.name: Required"},
		{"another group", rbacv1.RoleRef{APIGroup: "x", Kind: "ClusterRole", Name: "view"}, nil, "roleRef.apiGroup"},
		{"nobody's name", view, []rbacv1.Subject{{Kind: "User"}}, "subjects[0].name: Required"},
		{"account of an odd name", view, []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: "n", Name: "A"}}, "subjects[0].name: Invalid"},
		{"account in a group", view, []rbacv1.Subject{{Kind: "ServiceAccount", APIGroup: group, Namespace: "n", Name: "a"}},
			"subjects[0].apiGroup"},
		{"user of another group", view, []rbacv1.Subject{{Kind: "User", APIGroup: "x", Name: "bob"}}, "subjects[0].apiGroup"},
		{"a robot", view, []rbacv1.Subject{{Kind: "Robot", Name: "x"}}, "subjects[0].kind: Unsupported"},
	} {
		local, all := &rbacv1.RoleBinding{RoleRef: tc.ref, Subjects: tc.subjects},
			&rbacv1.ClusterRoleBinding{RoleRef: tc.ref, Subjects: tc.subjects}
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

// TestBindingsDiffer: a Role is given in its namespace alone, and only there an account may leave its namespace out.
func TestBindingsDiffer(t *testing.T) {
	role := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "r"}
	view := rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "view"}
	account := []rbacv1.Subject{{Kind: "ServiceAccount", Name: "a"}}
	meta := metav1.ObjectMeta{Name: "b"}
	here := metav1.ObjectMeta{Name: "b", Namespace: "n"}
	for want, b := range map[string]api.Object{
		"":                                &rbacv1.RoleBinding{ObjectMeta: here, RoleRef: role, Subjects: account},
		"roleRef.kind: Unsupported":       &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: role},
		"subjects[0].namespace: Required": &rbacv1.ClusterRoleBinding{ObjectMeta: meta, RoleRef: view, Subjects: account},
	} {
		kind, err := kinds.All.Of(b)
		if err != nil {
			t.Fatal(err)
		}
		if err := kind.Validate(b); want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%T: %v, want %q", b, err, want)
		}
	}
}

func TestValidateRoles(t *testing.T) {
	pods := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"}}
	with := func(change func(*rbacv1.PolicyRule)) rbacv1.PolicyRule {
		r := *pods.DeepCopy()
		change(&r)
		return r
	}
	picks := func(s ...metav1.LabelSelector) *rbacv1.AggregationRule {
		return &rbacv1.AggregationRule{ClusterRoleSelectors: s}
	}
	for _, tc := range []struct {
		name        string
		rule        rbacv1.PolicyRule
		aggregation *rbacv1.AggregationRule
		both, local string // refusals of both kinds, and of Roles alone
	}{
		{name: "good", rule: pods},
		{name: "system:x", rule: with(func(r *rbacv1.PolicyRule) { r.ResourceNames = []string{"a"} })},
		{name: "a%b", rule: pods, both: "metadata.name"},
		{name: "verbs", rule: with(func(r *rbacv1.PolicyRule) { r.Verbs = nil }), both: "rules[0].verbs: Required"},
		{name: "groups", rule: with(func(r *rbacv1.PolicyRule) { r.APIGroups = nil }), both: "rules[0].apiGroups: Required"},
		{name: "resources", rule: with(func(r *rbacv1.PolicyRule) { r.Resources = nil }), both: "rules[0].resources: Required"},
		{name: "path", rule: rbacv1.PolicyRule{Verbs: []string{"get"}, NonResourceURLs: []string{"/metrics"}},
			local: "namespaced rules cannot apply to non-resource URLs"},
		{name: "mixed", rule: with(func(r *rbacv1.PolicyRule) { r.NonResourceURLs = []string{"/x"} }),
			both: "both regular resources and non-resource URLs"},
		{name: "large", rule: with(func(r *rbacv1.PolicyRule) { r.ResourceNames = slices.Repeat([]string{"name"}, 20000) }),
			both: "make several of it"},
		{name: "picks", rule: pods, aggregation: picks(metav1.LabelSelector{MatchLabels: map[string]string{"a": "b"}})},
		{name: "picks-nothing", rule: pods, aggregation: picks(), both: "clusterRoleSelectors: Required"},
		{name: "picks-badly", rule: pods, aggregation: picks(metav1.LabelSelector{MatchLabels: map[string]string{"a b": "c"}}),
			both: "clusterRoleSelectors[0]"},
	} {
		local := &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: tc.name, Namespace: "n"}, Rules: []rbacv1.PolicyRule{tc.rule}}
		all := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: tc.name}, Rules: local.Rules, AggregationRule: tc.aggregation}
		check := func(kind *api.Kind, obj api.Object, want string) {
			err := kind.Validate(obj)
			for _, part := range strings.Split(want, "|") {
				if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), part)) {
					t.Errorf("%s: %s: %v, want %q", kind, tc.name, err, part)
				}
			}
		}
		check(rbac.ClusterRoles, all, tc.both)
		if tc.aggregation == nil {
			check(rbac.Roles, local, tc.both+tc.local)
		}
	}
}

func TestReconcile(t *testing.T) {
	want := rbac.DefaultClusterRoles()
	find := func(name string) *rbacv1.ClusterRole {
		i := slices.IndexFunc(want, func(r *rbacv1.ClusterRole) bool { return r.Name == name })
		return want[i].DeepCopy()
	}
	own := rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{"x"}, Resources: []string{"y"}}
	for _, name := range []string{"view", "system:auth-delegator", "system:aggregate-to-edit"} {
		whole := find(name)
		same := whole.DeepCopy()
		rbac.Reconcile(same, whole)
		if !apiequality.Semantic.DeepEqual(same, whole) {
			t.Errorf("%s: changed although nothing was missing: %v", name, same)
		}
		less := whole.DeepCopy() // as an older ledge made it, or somebody cut it, with a rule of their own
		less.Rules, less.AggregationRule, less.Labels = append([]rbacv1.PolicyRule{own}, whole.Rules[1:]...), nil,
			map[string]string{"mine": "yes"}
		rbac.Reconcile(less, whole)
		missing, err := rbac.Missing(less.Rules, append(whole.Rules, own))
		if whole.AggregationRule != nil {
			missing = nil // its rules follow from what it picks
		}
		if err != nil || len(missing) > 0 || less.Labels["mine"] != "yes" || less.Labels["kubernetes.io/bootstrapping"] == "" ||
			!apiequality.Semantic.DeepEqual(less.AggregationRule, whole.AggregationRule) {
			t.Errorf("%s: %v %v: %v", name, missing, err, less)
		}
		left := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{rbacv1.AutoUpdateAnnotationKey: "false"}}}
		rbac.Reconcile(left, whole)
		if len(left.Rules) > 0 || left.AggregationRule != nil || left.Labels != nil {
			t.Errorf("%s: %v was to be left alone", name, left)
		}
	}
}

func TestAggregate(t *testing.T) {
	rule := func(resource string) rbacv1.PolicyRule {
		return rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{resource}}
	}
	role := func(name, label string, rules ...rbacv1.PolicyRule) *rbacv1.ClusterRole {
		return &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{label: "yes"}}, Rules: rules}
	}
	sum := role("sum", "one", rule("own"))
	sum.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{
		{MatchLabels: map[string]string{"two": "yes"}}, {MatchLabels: map[string]string{"one": "yes"}}}}
	all := []*rbacv1.ClusterRole{role("b", "one", rule("pods"), rule("nodes")), role("a", "one", rule("pods"), rule("secrets")), sum,
		role("c", "two", rule("events")), role("d", "three", rule("leases"))}
	var got []string
	for _, r := range rbac.Aggregate(sum, all) {
		got = append(got, r.Resources...)
	}
	if want := []string{"events", "pods", "secrets", "nodes"}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	// Three that pick one another, of which one picks something else too: all hold that, whatever stands in them now.
	var ring []*rbacv1.ClusterRole
	for i, picks := range []string{"two", "three", "one"} {
		r := role(fmt.Sprint("ring", i), []string{"one", "two", "three"}[i], rule(fmt.Sprint("stale", i)))
		r.AggregationRule = &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: map[string]string{picks: "yes"}}}}
		ring = append(ring, r)
	}
	for _, r := range ring {
		if got := rbac.Aggregate(r, append(ring, role("leaf", "two", rule("pods")))); len(got) != 1 || got[0].Resources[0] != "pods" {
			t.Errorf("%s holds %v", r.Name, got)
		}
	}
	sum.AggregationRule.ClusterRoleSelectors = sum.AggregationRule.ClusterRoleSelectors[:0]
	if got := rbac.Aggregate(sum, all); got == nil || len(got) > 0 {
		t.Errorf("picks nothing: %v", got)
	}
}
