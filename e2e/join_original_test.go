package e2e

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"ledge/internal/original"
)

// bootstrap is what 'kubeadm init' and 'kubeadm token create' make; approvals are left to the test.
const bootstrap = `apiVersion: v1
kind: Secret
metadata: {name: bootstrap-token-abcdef, namespace: kube-system}
type: bootstrap.kubernetes.io/token
stringData: {token-id: abcdef, token-secret: 0123456789abcdef, usage-bootstrap-authentication: "true", usage-bootstrap-signing: "true",
  auth-extra-groups: "system:bootstrappers:boards"}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: cluster-info, namespace: kube-public}
data:
  kubeconfig: |
    apiVersion: v1
    kind: Config
    clusters: [{name: "", cluster: {server: "https://elsewhere.invalid:6443", certificate-authority-data: %s}}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: cluster-info, namespace: kube-public}
rules: [{apiGroups: [""], resources: [configmaps], resourceNames: [cluster-info], verbs: [get]}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: cluster-info, namespace: kube-public}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: cluster-info}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: User, name: "system:anonymous"}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: bootstrap}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: "system:node-bootstrapper"}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: "system:bootstrappers:boards"}]
`

// TestJoinOfTheOriginal: a board joins Kubernetes' own control plane by a bootstrap token that an administrator's approval follows, runs a
// pod, and comes back without the token; then it joins by an administrator's file, and at last serves itself again.
func TestJoinOfTheOriginal(t *testing.T) {
	b := newBoard(t)
	plane := original.Start(t)
	adminFile := plane.Kubeconfig(t, original.Admin)
	admin, err := os.ReadFile(adminFile)
	must(t, err)
	k := newClient(t, "", string(admin), "NODE="+b.name)
	k.write("bootstrap.yaml", fmt.Sprintf(bootstrap, base64.StdEncoding.EncodeToString(plane.CA())))
	k.write("web.yaml", strings.Replace(deployment, "replicas: 2", "replicas: 1", 1))
	k.steps("new", []step{
		{line: "kubectl apply -f bootstrap.yaml", want: "cluster-info created"},
		{line: "kubectl apply -f web.yaml", want: "created"},
		{line: "kubectl wait -n kube-public cm/cluster-info --for jsonpath={.data.jws-kubeconfig-abcdef} --timeout 60s", want: "condition met"},
	})
	var pins []string
	for block, rest := pem.Decode(plane.CA()); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		must(t, err)
		sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
		pins = append(pins, "sha256:"+hex.EncodeToString(sum[:]))
	}
	args := []string{"--server", plane.Server, "--token", "abcdef.0123456789abcdef", "--ca-hash"}
	b.launch("agent", append(args, strings.Join(pins, ","))...)
	b.eventually("its request is there", func() error { return k.try("kubectl get csr", "Pending") })
	k.steps("new", []step{
		{line: "kubectl certificate approve $(kubectl get csr -o name)", want: "approved"},
		{line: "kubectl wait node/$NODE --for create --timeout 60s", want: "condition met"},
		{line: "kubectl wait node/$NODE --for condition=Ready --timeout 60s", want: "condition met"},
		{line: "kubectl rollout status deployment/web --timeout 90s", want: "successfully rolled out"},
	})
	must(t, b.signal(syscall.SIGTERM))
	b.launch("agent") // where it has joined it knows
	k.steps("new", []step{
		{line: "kubectl delete csr --all", want: "deleted"},
		{line: "kubectl delete pod -l app=web --timeout 60s", want: "deleted"},
		{line: "kubectl rollout status deployment/web --timeout 90s", want: "successfully rolled out"},
	})
	if out, err := b.try("join", "--kubeconfig", adminFile, "--data-dir", b.data, "--hostname-override", b.name); err == nil ||
		!strings.Contains(out, "stop it first") {
		t.Errorf("joined under a node that runs: %v\n%s", err, out)
	}
	must(t, b.signal(syscall.SIGTERM))
	must(t, os.RemoveAll(filepath.Join(b.data, "kubernetes")))
	out, err := b.try("join", "--kubeconfig", adminFile, "--data-dir", b.data, "--hostname-override", b.name)
	if err != nil || !strings.Contains(out, "This board is the node "+b.name) || strings.Contains(out, "Not found") {
		t.Fatalf("%v\n%s", err, out)
	}
	b.launch("agent")
	k.steps("new", []step{
		{line: "kubectl delete pod -l app=web --timeout 60s", want: "deleted"},
		{line: "kubectl rollout status deployment/web --timeout 90s", want: "successfully rolled out"},
	})
	must(t, b.signal(syscall.SIGTERM))
	b.start() // its own control plane knows nothing of that pod
	b.eventually("no process of a pod is left", func() error {
		if left := b.processes("/kubepods/"); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
}
