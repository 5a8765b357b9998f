package brain

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/kinds"
	"ledge/api/local"
	"ledge/api/networking"
	"ledge/pki"
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

	// A board that takes requests in has the certificates of all Ingresses of ledge's classes.
	for name, by := range map[string]string{"ours": networking.Controller, "others": "x.io/y"} {
		make(&networkingv1.IngressClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.IngressClassSpec{Controller: by}})
	}
	for _, class := range []string{"ours", "others", "nobodys"} {
		i := &networkingv1.Ingress{ObjectMeta: meta(class), Spec: networkingv1.IngressSpec{IngressClassName: &class,
			TLS: []networkingv1.IngressTLS{{SecretName: "cert-of-" + class}, {}}}}
		i.Spec.DefaultBackend = &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: "s",
			Port: networkingv1.ServiceBackendPort{Number: 80}}}
		make(i)
	}
	account, door := metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: networking.Pods}, meta("door")
	make(&corev1.ServiceAccount{ObjectMeta: account})
	door.Namespace = metav1.NamespaceSystem
	make(&corev1.Pod{ObjectMeta: door, Spec: corev1.PodSpec{NodeName: "b", ServiceAccountName: networking.Pods,
		Containers: []corev1.Container{{Name: "c", Image: "i"}}}})
	for node, want := range map[string]string{"a": "[default/s1] [default/strong] <nil>",
		"b": "[default/cert-of-ours default/s3] [default/strong] <nil>"} {
		secrets, accounts, err := p.exposedOn(t.Context(), []string{node})
		if got := fmt.Sprint(secrets, accounts, err); got != want {
			t.Errorf("%s: %s, want %s", node, got, want)
		}
	}
}

// TestRevokeCutsTwins: a key that has two names in an old store is cut under both, whichever is revoked; another board is not.
func TestRevokeCutsTwins(t *testing.T) {
	store, err := storage.Open(t.Context(), storage.Config{Dir: filepath.Join(t.TempDir(), "store"), NoSync: true})
	must(t, err)
	defer func() { must(t, store.Close()) }()
	client, err := local.New(local.Config{Store: store})
	must(t, err)
	ca, err := pki.Open(pki.Config{Dir: t.TempDir()})
	must(t, err)
	boards := store.Table("boards")
	for name, key := range map[string]string{"pi1": "c3RvbGVu", "pi2": "c3RvbGVu", "pi3": "b3RoZXI="} {
		must(t, boards.Put(name, []byte(`{"key":"`+key+`"}`)))
	}
	p := &plane{b: &Brain{events: api.NewRecorder(client, "kubelet", "n")}, api: client}
	p.joins, err = ca.Joins(pki.JoinsConfig{Tokens: store.Table("tokens"), Boards: boards})
	must(t, err)
	for _, c := range []struct{ revoke, cut string }{{"pi2", "pi1 pi2"}, {"pi1", "pi1 pi2"}, {"pi3", "pi3"}} {
		ends := map[string]net.Conn{}
		for _, name := range []string{"pi1", "pi2", "pi3"} {
			here, there := net.Pipe()
			defer there.Close()
			conn := &boardConn{of: &p.boards, node: name}
			if ends[name] = there; !p.boards.enter(conn) || !conn.begin(here) {
				t.Fatalf("no stream to %s", name)
			}
		}
		w := httptest.NewRecorder()
		must(t, p.revokeBoard(w, httptest.NewRequestWithContext(t.Context(), http.MethodDelete, board.BoardsPath+"?name="+c.revoke, nil)))
		var cut []string
		for _, name := range []string{"pi1", "pi2", "pi3"} {
			if err := ends[name].SetDeadline(time.Now()); errors.Is(err, io.ErrClosedPipe) { // its other end is closed
				cut = append(cut, name)
			}
		}
		if got := strings.Join(cut, " "); got != c.cut {
			t.Errorf("%s is revoked: the streams to %q are cut, want %q", c.revoke, got, c.cut)
		}
	}
}
