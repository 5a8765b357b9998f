package e2e

import (
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

const policiesYAML = `apiVersion: apps/v1
kind: Deployment
metadata: {name: shop}
spec:
  selector: {matchLabels: {app: shop}}
  template:
    metadata: {labels: {app: shop}}
    spec:
      terminationGracePeriodSeconds: 1
      containers:
      - name: c
        image: ledge.local/self
        args: [httpd, -p, "8080"]
        ports: [{name: http, containerPort: 8080}]
        readinessProbe: {httpGet: {port: http}, periodSeconds: 1}
---
apiVersion: v1
kind: Service
metadata: {name: shop}
spec: {selector: {app: shop}, ports: [{port: 80, targetPort: http}]}
---
apiVersion: v1
kind: Pod
metadata: {name: friend, labels: {role: friend}}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: ledge.local/self, args: [httpd, -p, "9999"]}]}
---
apiVersion: v1
kind: Pod
metadata: {name: stranger}
spec: {terminationGracePeriodSeconds: 0, containers: [{name: c, image: ledge.local/self, args: [httpd, -p, "9999"]}]}
`

const denyYAML = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: deny}
spec: {podSelector: {}, policyTypes: [Ingress]}
`

const allowYAML = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: allow}
spec:
  podSelector: {matchLabels: {app: shop}}
  ingress:
  - from: [{podSelector: {matchLabels: {role: friend}}}]
    ports: [{port: http}]
`

const reversedYAML = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: bad}
spec:
  podSelector: {}
  ingress:
  - ports: [{port: 90, endPort: 80}]
    from: [{ipBlock: {cidr: 10.0.0.0/24, except: [10.1.0.0/25]}}]
`

// TestPolicies: what people do with network policies: everything is denied, then something allowed; a probe goes through, a dead brain and
// a table that somebody emptied change nothing (N-14.4).
func TestPolicies(t *testing.T) {
	onHost(t)
	needGo(t)
	b := newBoard(t)
	b.serve()
	k := b.client("", "default")
	k.write("shop.yaml", policiesYAML)
	k.write("deny.yaml", denyYAML)
	k.write("allow.yaml", allowYAML)
	k.write("bad.yaml", reversedYAML)
	k.steps("new", []step{
		{"kubectl apply -f shop.yaml", "service/shop created", ""},
		{"kubectl rollout status deployment/shop --timeout=60s", "rolled out", ""},
		{"kubectl wait --for=condition=Ready pods --all --timeout=60s", "condition met", ""},
	})
	table := "ledgenp_" + strings.ReplaceAll(b.name, "-", ".")
	if out, _ := exec.CommandContext(t.Context(), "nft", "list", "table", "ip", table).CombinedOutput(); !strings.Contains(string(out), "No such file") {
		t.Errorf("a board without policies has a table: %s", out)
	}
	friend, stranger := &inPod{pid: b.processOf("friend")}, &inPod{pid: b.processOf("stranger")}
	for _, p := range []*inPod{friend, stranger} {
		p.dir = fmt.Sprintf("/proc/%d/root", p.pid)
	}
	reaches := func(what string, p *inPod, want bool) {
		t.Helper()
		testrun.Succeeds(t, 20*time.Second, what, func() error {
			out, err := p.get(t, "--connect-timeout", "1", "http://shop/")
			if ok := err == nil && strings.HasPrefix(out, "shop-"); ok != want {
				return fmt.Errorf("reached %v, want %v: %v %s", ok, want, err, out)
			}
			return nil
		})
	}
	reaches("without policies", stranger, true)
	k.steps("new", []step{{"kubectl apply -f deny.yaml", "networkpolicy.networking.k8s.io/deny created", ""}})
	reaches("denied", stranger, false)
	reaches("denied to all", friend, false)
	k.steps("new", []step{{"kubectl apply -f allow.yaml", "allow created", ""}})
	reaches("allowed", friend, true)
	reaches("not to others", stranger, false)
	k.steps("new", []step{
		{"kubectl get netpol", "NAME    POD-SELECTOR   AGE|allow   app=shop|deny    <none>", ""},
		{"kubectl describe netpol allow", "PodSelector:     app=shop|To Port: http/TCP|PodSelector: role=friend", ""},
		{"kubectl apply -f bad.yaml", "!spec.ingress[0].ports[0].endPort|spec.ingress[0].from[0].ipBlock.except[0]", ""},
		{"kubectl rollout restart deployment/shop && kubectl rollout status deployment/shop --timeout=60s", "rolled out", ""}, // its probe passes
	})
	reaches("the next pod", friend, true)
	reaches("the next pod, not to others", stranger, false)
	_ = b.signal(syscall.SIGKILL)
	shop := strings.Fields(string(must2(exec.CommandContext(t.Context(), "nft", "list", "table", "ip", table).CombinedOutput())))
	if len(shop) == 0 {
		t.Error("the table went with the brain")
	}
	b.serve()
	reaches("after the brain was killed", friend, true)
	reaches("after the brain was killed, not to others", stranger, false)
	must(t, exec.CommandContext(t.Context(), "nft", "flush", "chain", "ip", table, "forward").Run())
	reaches("emptied by somebody", stranger, true)
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	reaches("mended", stranger, false)
	k.steps("new", []step{{"kubectl delete netpol deny allow", "deleted", ""}})
	reaches("without policies again", stranger, true)
	testrun.Succeeds(t, 20*time.Second, "without policies there is no table", func() error {
		if out, _ := exec.CommandContext(t.Context(), "nft", "list", "table", "ip", table).CombinedOutput(); !strings.Contains(string(out), "No such file") {
			return fmt.Errorf("%s", out)
		}
		return nil
	})
	k.steps("new", []step{{"kubectl delete deployment,pod --all --wait", "deleted", ""}})
}

func must2(out []byte, _ error) []byte { return out }
