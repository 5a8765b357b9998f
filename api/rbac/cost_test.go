package rbac_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

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
			rules = append(rules, rbacv1.PolicyRule{Verbs: strings.Fields("get list watch create update"), APIGroups: []string{""}, Resources: []string{what}})
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
				p.Set(&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Name: "e", Namespace: "ns-3"}, RoleRef: rbacv1.RoleRef{Kind: "ClusterRole", Name: "edit"},
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
