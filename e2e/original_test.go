package e2e

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"ledge/internal/original"
)

const deployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: web
        image: ledge.local/self
        imagePullPolicy: IfNotPresent
        args: ["httpd", "-p", "8080"]
        env: [{name: FROM, valueFrom: {configMapKeyRef: {name: settings, key: from}}}]
        readinessProbe: {httpGet: {port: 8080}, periodSeconds: 1}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: settings}
data: {from: "the original"}
`

// TestAgentOfTheOriginal: a board joins Kubernetes' own control plane by a kubeconfig, as a kubelet does (N-1.13), and is a
// node there: its scheduler and controllers have pods run on it, its controllers judge it.
func TestAgentOfTheOriginal(t *testing.T) {
	b := newBoard(t)
	plane := original.Start(t, b.name)
	admin, err := os.ReadFile(plane.Kubeconfig(t, original.Admin))
	must(t, err)
	k := newClient(t, "", string(admin), "NODE="+b.name)
	k.write("web.yaml", deployment)
	k.steps("new", []step{
		{line: "kubectl apply -f web.yaml", want: "deployment.apps/web created"},
	})
	b.launch("agent", "--kubeconfig", plane.Kubeconfig(t, b.name))
	k.steps("new", []step{
		{line: "kubectl wait node/$NODE --for create --timeout 60s", want: "condition met"},
		{line: "kubectl wait node/$NODE --for condition=Ready --timeout 60s", want: "condition met"},
		{line: "kubectl get lease -n kube-node-lease $NODE -o jsonpath={.spec.holderIdentity}", want: b.name},
		{line: "kubectl rollout status deployment/web --timeout 90s", want: "successfully rolled out"},
		{line: "kubectl get pods -l app=web -o wide", want: "1/1|" + b.name},
		// The token and the CA of its service account come from the original's own hands.
		{line: "kubectl get pods -l app=web -o jsonpath={..volumes[*].name}", want: "kube-api-access-"},
		{line: "kubectl scale deployment/web --replicas 1", want: "scaled"},
		{line: "kubectl wait deployment/web --for jsonpath={.status.replicas}=1 --timeout 60s", want: "condition met"},
		{line: "kubectl get events --field-selector reason=Started", want: "Container started"},
	})
	// The brain is killed and comes back: the pods go on, and are no others.
	uid := "kubectl get pods -l app=web -o jsonpath={.items[*].metadata.uid}{.items[*].status.containerStatuses[0].restartCount}"
	before, err := k.sh(t.Context(), uid).Output()
	must(t, err)
	_ = b.signal(syscall.SIGKILL)
	b.launch("agent", "--kubeconfig", plane.Kubeconfig(t, b.name))
	b.eventually("the pods are those of before", func() error {
		after, err := k.sh(t.Context(), uid).Output()
		if err != nil || string(after) != string(before) {
			return fmt.Errorf("%v: %s, before %s", err, after, before)
		}
		return nil
	})
	// Nobody renews its lease any more: the original's controllers say so.
	must(t, b.signal(syscall.SIGTERM))
	b.eventually("the node is lost", func() error { return k.try("kubectl get node $NODE", "NotReady") })
	b.launch("agent", "--kubeconfig", plane.Kubeconfig(t, b.name))
	k.steps("new", []step{
		{line: "kubectl wait node/$NODE --for condition=Ready --timeout 60s", want: "condition met"},
		{line: "kubectl drain $NODE --timeout 60s", want: "drained"},
		{line: "kubectl delete deployment web --wait --timeout 60s", want: "deleted"},
	})
	b.eventually("no process of a pod is left", func() error {
		if left := b.processes("/kubepods/"); len(left) > 0 {
			return fmt.Errorf("processes %v", left)
		}
		return nil
	})
}
