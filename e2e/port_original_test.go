package e2e

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"ledge/internal/original"
)

// TestPortOfTheOriginal: Kubernetes' own API server reaches a board's pods by the kubelet's port (N-13.16): first not, since it checks
// whom it talks to, then, once the board's certificate is approved, with every word of kubectl. Who has a right to figures reads them, and
// nothing else.
func TestPortOfTheOriginal(t *testing.T) {
	b := newBoard(t)
	plane := original.Start(t, b.name)
	admin, err := os.ReadFile(plane.Kubeconfig(t, original.Admin))
	must(t, err)
	port := strconv.Itoa(freePort(t))
	k := newClient(t, "", string(admin), "NODE="+b.name, "PORT="+port)
	b.launch("agent", "--kubeconfig", plane.Kubeconfig(t, b.name), "--client-ca-file", plane.ClientCA(), "--port", port)
	k.write("web.yaml", deployment)
	k.steps("new", []step{
		{line: "kubectl apply -f web.yaml", want: "deployment.apps/web created"},
		{line: "kubectl rollout status deployment/web --timeout 120s", want: "successfully rolled out"},
		{line: "kubectl get node $NODE -o jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}", want: port},
		{line: "kubectl logs deployment/web", want: "!certificate"},
	})
	named := regexp.MustCompile(`kubectl certificate approve (csr-[0-9a-f]+)`)
	b.eventually("the Node says what to approve", func() error {
		out, err := k.sh(t.Context(), "kubectl get node $NODE -o jsonpath='{.status.conditions[?(@.type==\"PortTrouble\")].message}'").Output()
		m := named.FindSubmatch(out)
		if err != nil || m == nil {
			return fmt.Errorf("%v: %s", err, out)
		}
		return k.try("kubectl certificate approve "+string(m[1]), "approved")
	})
	b.eventually("the API server takes the board's certificate", func() error {
		return k.try("kubectl exec deployment/web -- /ledge applet echo hello", "hello")
	})
	b.eventually("the pods' figures are there, with the next look", func() error {
		return k.try("kubectl get --raw /api/v1/nodes/$NODE/proxy/metrics/cadvisor", "container_memory_working_set_bytes")
	})
	k.steps("new", []step{
		{line: "kubectl logs deployment/web --tail=1 && echo read", want: "read"},
		{line: "kubectl run absent --image none.invalid/absent", want: "created"},
		{line: "kubectl logs absent", want: "!Error from server (BadRequest): container \"absent\" in pod \"absent\" is waiting to start"},
		{line: "kubectl delete pod absent --now", want: "deleted"},
		{line: "kubectl get --raw /api/v1/nodes/$NODE/proxy/metrics/resource", want: "node_cpu_usage_seconds_total"},
		{line: "kubectl get --raw /api/v1/nodes/$NODE/proxy/stats/summary", want: `"nodeName"`},
		{line: "kubectl get --raw /api/v1/nodes/$NODE/proxy/pods", want: "PodList"},
		{line: "kubectl create serviceaccount prom", want: "created"},
		{line: "kubectl create clusterrole figures --verb get --resource nodes/metrics", want: "created"},
		{line: "kubectl create clusterrolebinding figures --clusterrole figures --serviceaccount default:prom", want: "created"},
		{line: "curl -sSk -H \"Authorization: Bearer $(kubectl create token prom)\" https://127.0.0.1:$PORT/metrics/resource",
			want: "node_cpu_usage_seconds_total"},
		{line: "curl -sSk -H \"Authorization: Bearer $(kubectl create token prom)\" https://127.0.0.1:$PORT/pods", want: "forbidden: user"},
		{line: "curl -sSk -H \"Authorization: Bearer $(kubectl create token prom --audience other)\" https://127.0.0.1:$PORT/metrics/resource",
			want: "Unauthorized"},
		{line: "curl -sSk https://127.0.0.1:$PORT/metrics/resource", want: "Unauthorized"},
	})
	k.until("kubectl port-forward deployment/web :8080", `Forwarding from 127\.0\.0\.1:(\d+)`, func(m []string) {
		if err := k.try("curl -sS -m 60 -o /dev/null -w 'code %{http_code}' http://127.0.0.1:"+m[1]+"/", "code "); err != nil {
			k.t.Error(err)
		}
	})
	k.steps("new", []step{
		{line: "kubectl delete deployment web --wait --timeout 60s", want: "deleted"},
		{line: "kubectl drain $NODE --timeout 60s", want: "drained"},
	})
}
