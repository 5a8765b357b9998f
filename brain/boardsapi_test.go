package brain

import (
	"fmt"
	"path/filepath"
	"testing"

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/kinds"
	"ledge/api/local"
	"ledge/storage"
)

// TestExposedOn: what a stolen board may have read, and what its pods may have done beside it, under all its names; nothing of others'.
func TestExposedOn(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	client, err := local.New(local.Config{Store: store})
	must(t, err)
	make := func(obj api.Object) {
		t.Helper()
		kind, err := kinds.All.Of(obj)
		must(t, err)
		_, err = client.Create(t.Context(), kind, obj, api.WriteOptions{})
		must(t, err)
	}
	meta := func(name string) metav1.ObjectMeta { return metav1.ObjectMeta{Namespace: "default", Name: name} }
	for _, name := range []string{"strong", "weak"} {
		make(&corev1.ServiceAccount{ObjectMeta: meta(name)})
	}
	make(&rbacv1.RoleBinding{ObjectMeta: meta("b"), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: "default", Name: "strong"}}})
	for i, p := range []struct{ node, account, secret string }{{"a", "strong", "s1"}, {"a", "weak", "s1"}, {"twin", "weak", "s2"},
		{"b", "strong", "s3"}} {
		pod := &corev1.Pod{ObjectMeta: meta(fmt.Sprint("p", i)), Spec: corev1.PodSpec{NodeName: p.node, ServiceAccountName: p.account}}
		pod.Spec.Containers = []corev1.Container{{Name: "c", Image: "i", EnvFrom: []corev1.EnvFromSource{
			{SecretRef: &corev1.SecretEnvSource{LocalObjectReference: corev1.LocalObjectReference{Name: p.secret}}}}}}
		make(pod)
	}
	p := &plane{api: client}
	secrets, accounts, err := p.exposedOn(t.Context(), []string{"a", "twin"})
	if got := fmt.Sprint(secrets, accounts, err); got != "[default/s1 default/s2] [default/strong] <nil>" {
		t.Error(got)
	}
}
