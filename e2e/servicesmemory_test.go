package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"ledge/host/heap"
	"ledge/internal/testrun"
)

// TestServicesMemory: twenty Services with two endpoints each cost a board less than 1 MB, and a thousand network policies beside them
// what the manual says. The board has given back what it took for the changes before it is looked at.
func TestServicesMemory(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("takes minutes: set LEDGE_LONG")
	}
	testrun.Measured(t)
	b := newBoard(t)
	b.serve()
	anonymous := func(what string, wait time.Duration) (kib int) {
		time.Sleep(wait)
		for _, pid := range []int{b.cmd.Process.Pid, b.keeperPID()} {
			_, a := pss(t, pid)
			kib += a
		}
		t.Logf("%s: anonymous %d KiB", what, kib)
		return kib
	}
	const rest = 75 * time.Second // memory is given back once a minute
	var first, services, policies strings.Builder
	for i := range 21 {
		to := &services
		if i == 20 { // the first of all brings code and tables that are there once
			to = &first
		}
		fmt.Fprintf(to, `---
apiVersion: v1
kind: Service
metadata: {name: s%[1]d, namespace: default, labels: {app: s%[1]d}}
spec: {ports: [{name: http, port: 80, targetPort: 8080}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: s%[1]d-a, namespace: default, labels: {kubernetes.io/service-name: s%[1]d}}
addressType: IPv4
ports: [{name: http, port: 8080, protocol: TCP}]
endpoints: [{addresses: [10.42.9.%[2]d]}, {addresses: [10.42.9.%[3]d]}]
`, i, 1+2*i, 2+2*i)
	}
	for i := range 1000 {
		fmt.Fprintf(&policies, `---
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: p%[1]d, namespace: default}
spec:
  podSelector: {matchLabels: {app: p%[1]d}}
  ingress: [{from: [{podSelector: {matchLabels: {app: q%[1]d}}}, {ipBlock: {cidr: 192.0.2.0/24}}], ports: [{port: 80}]}]
`, i)
	}
	none := anonymous("without Services", heap.First+rest)
	b.apply(first.String())
	one := anonymous("one Service", rest)
	b.apply(services.String())
	twenty := anonymous("20 more Services", rest)
	b.apply(policies.String())
	all := anonymous("1,000 NetworkPolicies", rest)
	t.Logf("the first Service %d KiB, 20 more %d KiB, 1,000 policies %d KiB", one-none, twenty-one, all-twenty)
	if twenty-one > 1<<10 {
		t.Errorf("20 Services cost %d KiB, budget 1 MB", twenty-one)
	}
	if all-twenty > 16<<10 {
		t.Errorf("1,000 policies cost %d KiB, budget 16 MiB", all-twenty)
	}
}
