package httpd

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/local"
	"ledge/api/rbac"
	"ledge/storage"
)

// BenchmarkAuthorize is what a decision costs a service account that holds edit, with so many other bindings in ten namespaces.
func BenchmarkAuthorize(b *testing.B) {
	for _, n := range []int{0, 500} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			db, err := storage.Open(b.Context(), storage.Config{Dir: b.TempDir(), NoSync: true})
			if err != nil {
				b.Fatal(err)
			}
			defer db.Close()
			client, err := local.New(local.Config{Store: db})
			if err != nil {
				b.Fatal(err)
			}
			h, err := newHandler(Config{Client: client})
			if err != nil {
				b.Fatal(err)
			}
			for i := range n + 1 {
				ns, name := fmt.Sprint("ns-", i%10), fmt.Sprint("app-", i)
				if i < 10 {
					if _, err := api.Create(b.Context(), client, api.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}}); err != nil {
						b.Fatal(err)
					}
				}
				if _, err := api.Create(b.Context(), client, rbac.RoleBindings,
					&rbacv1.RoleBinding{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name},
						RoleRef:  rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
						Subjects: []rbacv1.Subject{{Kind: "ServiceAccount", Namespace: ns, Name: name}}}); err != nil {
					b.Fatal(err)
				}
			}
			u, a := api.AccountUser("ns-0", "app-0"), attributes{verb: "update", resource: "configmaps", namespace: "ns-0", name: "x"}
			b.ReportAllocs()
			for b.Loop() {
				if err := h.rights.authorize(b.Context(), u, a); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
