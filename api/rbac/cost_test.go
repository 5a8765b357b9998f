package rbac_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/rbac"
)

// policyOf is what a board holds that has n roles of its own, each bound to an account of its own, in ten namespaces.
func policyOf(n int) *rbac.Policy {
	p := new(rbac.Policy)
	for _, r := range rbac.DefaultClusterRoles() {
		p.Set(r)
	}
	for i := range n {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("app-", i), Namespace: fmt.Sprint("ns-", i%10)}
		var rules []rbacv1.PolicyRule
		for _, what := range []string{"configmaps", "leases", "deployments"} {
			rules = append(rules, rbacv1.PolicyRule{Verbs: strings.Fields("get list watch create update"), APIGroups: []string{""},
				Resources: []string{what}})
		}
		p.Set(&rbacv1.Role{ObjectMeta: meta, Rules: rules})
		p.Set(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: meta.Namespace, Name: meta.Name}}})
	}
	return p
}

func BenchmarkAllows(b *testing.B) {
	for _, n := range []int{0, 500} {
		p := policyOf(n)
		for _, role := range []string{"own", "edit", "none"} {
			u := api.AccountUser("ns-3", "app-3")
			if role == "edit" {
				u = api.AccountUser("ns-3", "editor")
				p.Set(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns-3"},
					RoleRef:  rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
					Subjects: []rbacv1.Subject{{Kind: "User", Name: u.Name}}})
			}
			ask := rbac.Ask{Verb: "update", Resource: "deployments", Namespace: "ns-3", Name: "x"}
			if role == "none" {
				ask.Resource = "secrets"
			}
			b.Run(fmt.Sprintf("%d/%s", n, role), func(b *testing.B) {
				b.ReportAllocs()
				for b.Loop() {
					p.Allows(u, ask)
				}
			})
		}
	}
}

// BenchmarkAllowsFull: a namespace that is full of rules for everybody, none of which fits.
func BenchmarkAllowsFull(b *testing.B) {
	p := new(rbac.Policy)
	for i := 0; p.Held("n") < 512<<10; i++ {
		meta := metav1.ObjectMeta{Name: fmt.Sprint("r", i), Namespace: "n"}
		p.Set(&rbacv1.Role{ObjectMeta: meta, Rules: []rbacv1.PolicyRule{{Verbs: []string{"get"}, APIGroups: []string{""},
			Resources: []string{"x"}}}})
		p.Set(&rbacv1.RoleBinding{ObjectMeta: meta, RoleRef: rbacv1.RoleRef{Kind: "Role", Name: meta.Name},
			Subjects: []rbacv1.Subject{{Kind: "Group", Name: api.AuthenticatedGroup}}})
	}
	for b.Loop() {
		p.Allows(api.AccountUser("n", "a"), rbac.Ask{Verb: "get", Resource: "pods", Namespace: "n"})
	}
}

// BenchmarkMissingFull: as much as is compared for one role.
func BenchmarkMissingFull(b *testing.B) {
	var names, verbs []string
	for i := range 1000 {
		names = append(names, fmt.Sprint("name", i))
	}
	for i := range 100 {
		verbs = append(verbs, fmt.Sprint("verb", i))
	}
	have := []rbacv1.PolicyRule{{Verbs: verbs, APIGroups: []string{""}, Resources: names}}
	want := []rbacv1.PolicyRule{{Verbs: append(verbs[:30:30], "other"), APIGroups: []string{""}, Resources: names[900:]}}
	for b.Loop() {
		if _, err := rbac.Missing(have, want); err != nil {
			b.Fatal(err)
		}
	}
}

// TestPolicyIsSmall: what 500 roles and bindings take in memory is about what they are said to weigh, which bounds go by.
func TestPolicyIsSmall(t *testing.T) {
	heap := func() int {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int(m.HeapAlloc)
	}
	before := heap()
	p := policyOf(500)
	took, said := heap()-before, p.Held("")
	for i := range 10 {
		said += p.Held(fmt.Sprint("ns-", i))
	}
	t.Logf("%d bytes, said to be %d", took, said)
	if took > 2*said || said > 2*took || took > 1<<20 {
		t.Errorf("%d bytes are said to be %d", took, said)
	}
	runtime.KeepAlive(p)
}

// TestManyBindingsOfOneRole: who may bind multiplies no rules. A role counts once, however many bindings give it.
func TestManyBindingsOfOneRole(t *testing.T) {
	p := new(rbac.Policy)
	var rules []rbacv1.PolicyRule
	for i := range 900 {
		rules = append(rules, rbacv1.PolicyRule{Verbs: []string{"get"}, APIGroups: []string{""}, Resources: []string{"pods"},
			ResourceNames: []string{fmt.Sprint(i)}})
	}
	p.Set(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "r"}, Rules: rules})
	p.Set(&rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: "s"}, Rules: rules})
	u := api.AccountUser("n", "a")
	bind := func(i int) {
		p.Set(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("b", i), Namespace: "n"},
			RoleRef: rbacv1.RoleRef{Kind: "Role", Name: []string{"r", "s"}[i%2]}, Subjects: []rbacv1.Subject{{Kind: "User", Name: u.Name}}})
	}
	fastest := func() time.Duration {
		best := time.Hour
		for range 10 {
			begin := time.Now()
			p.Allows(u, rbac.Ask{Verb: "get", Resource: "pods", Namespace: "n", Name: "x"})
			best = min(best, time.Since(begin))
		}
		return best
	}
	bind(0)
	bind(1)
	one := fastest()
	for i := range 400 {
		bind(i)
	}
	if n := len(p.Rules(u, "n")); n != 2*len(rules) {
		t.Errorf("400 bindings of two roles with %d rules each give %d", len(rules), n)
	}
	if many := fastest(); many > 20*one {
		t.Errorf("a question takes %v with 400 bindings of two roles, %v with two", many, one)
	}
}

// TestAggregateManyRules: rules that hardly differ are compared by what they say, not each with each.
func TestAggregateManyRules(t *testing.T) {
	labels := map[string]string{"a": "b"}
	sum := &rbacv1.ClusterRole{AggregationRule: &rbacv1.AggregationRule{ClusterRoleSelectors: []metav1.LabelSelector{{MatchLabels: labels}}}}
	all := []*rbacv1.ClusterRole{sum}
	for i := range 40 { // as much as all roles together may take
		r := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Labels: labels}}
		for j := range 600 {
			r.Rules = append(r.Rules, rbacv1.PolicyRule{Verbs: []string{"*"}, NonResourceURLs: []string{fmt.Sprint("/", i, "/", j)}})
		}
		all = append(all, r)
	}
	begin := time.Now()
	got := rbac.Aggregate(sum, all)
	if took := time.Since(begin); len(got) != 40*600 || took > 5*time.Second {
		t.Errorf("%d rules in %v", len(got), took)
	}
}
