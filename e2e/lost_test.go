package e2e

import (
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

const keptPods = `apiVersion: v1
kind: ReplicationController
metadata: {name: kept}
spec:
  replicas: 1
  template:
    metadata: {labels: {app: kept}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: c, image: ledge.local/self, args: [sleep, infinity]}]
`

// answering is a pod that says its name, and a Service of it.
func answering(name, service string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {name: %s, labels: {app: %[1]s}}
spec:
  terminationGracePeriodSeconds: 1
  containers: [{name: c, image: ledge.local/self, args: [httpd, -p, "8080"]}]
---
`, name) + serviceOf(name, service)
}

func serviceOf(name, spec string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {selector: {app: %[1]s}, ports: [{port: 80, targetPort: 8080%s
`, name, spec)
}

// TestOlderStore: a backup that is older than what runs does not cost the pods that came after it. The addresses and ports of Services are
// those of the backup again, also for the kernel, and nobody else has them.
func TestOlderStore(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	nodePort := strconv.Itoa(freePort(t))
	ports := []string{"--service-node-port-range", nodePort + "-" + nodePort}
	b.serve(ports...)
	file := filepath.Join(t.TempDir(), "backup")
	b.apply(answering("early", "}], type: NodePort}"))
	addressOf := func(name string) string {
		_, row, _ := strings.Cut(b.must("get", "service", name), "\n")
		return strings.Fields(row)[2]
	}
	address := addressOf("early")
	answers := func(at, name string) {
		t.Helper()
		b.eventually(name+" answers at "+at, func() error {
			out, err := fromHost(t, "http://"+at+"/")
			return errors.Join(err, contains(out, name+" "))
		})
	}
	door := net.JoinHostPort(b.outward(), nodePort)
	answers(address, "early")
	answers(door, "early")
	b.must("backup", "save", file)
	b.must("delete", "service", "early")
	b.apply(answering("late", "}], type: NodePort, clusterIP: "+address+"}"))
	b.apply(serviceOf("early", "}]}")) // at an address that the backup does not know
	forgotten := addressOf("early")
	answers(address, "late")
	answers(door, "late")
	answers(forgotten, "early")
	b.apply(webPod)
	b.apply(keptPods)
	b.running("web")
	pid := b.processOf("web")
	kept := func() string { return b.must("get", "pods", "-l", "app=kept", "-o", "name") }
	b.eventually("the controller's pod runs", func() error { return contains(b.must("get", "rc", "kept"), " 1         1         1 ") })
	was := kept()
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.must("backup", "restore", file, "--data-dir", b.data)
	b.serve(ports...)
	answers(address, "early")
	answers(door, "early")
	table := "ledgesvc_" + strings.ReplaceAll(b.name, "-", ".")
	rules, err := exec.Command("nft", "list", "table", "ip", table).CombinedOutput()
	must(t, errors.Join(err, contains(string(rules), address+" ")))
	if strings.Contains(string(rules), forgotten+" ") {
		t.Errorf("the kernel leads %s somewhere, which the store has forgotten:\n%s", forgotten, rules)
	}
	for _, taken := range []string{"}], clusterIP: " + address + "}", ", nodePort: " + nodePort + "}], type: NodePort}"} {
		if out, err := b.try("apply", "-f", b.yaml(serviceOf("late", taken))); err == nil || !strings.Contains(out, "already allocated") {
			t.Errorf("what early has was given to late: %v %s", err, out)
		}
	}
	b.apply(serviceOf("late", "}], clusterIP: "+forgotten+"}"))
	answers(forgotten, "late")
	answers(address, "early")
	b.running("web")
	if now := b.processOf("web"); now != pid {
		t.Errorf("process %d became %d", pid, now)
	}
	b.eventually("an event says so", func() error { return contains(b.ledge("get", "events"), "PodRestored") })
	if out := b.must("get", "pod", "web"); !strings.Contains(out, "1/1     Running   0 ") {
		t.Error(out)
	}
	controllerReturns(t, b, kept, was)
	b.must("delete", "service", "early", "late")
	b.must("delete", "pod", "web", "early", "late")
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Errorf("processes after delete: %v", p)
	}
}

// controllerReturns: the controller that the backup did not know is lost, and its pod is not: the next of its name has it.
func controllerReturns(t *testing.T, b *testBoard, kept func() string, was string) {
	t.Helper()
	if now := kept(); now != was {
		t.Errorf("%q became %q", was, now)
	}
	b.apply(keptPods)
	b.eventually("the controller has its pod", func() error { return contains(b.must("get", "rc", "kept"), " 1         1         1 ") })
	if now := kept(); now != was {
		t.Errorf("%q became %q", was, now)
	}
	b.must("delete", "rc", "kept")
	b.eventually("its pod went with it", func() error {
		if now := kept(); now != "" {
			return errors.New(now)
		}
		return nil
	})
}
