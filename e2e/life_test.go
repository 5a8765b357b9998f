package e2e

import (
	"fmt"
	"os"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

const alivePod = `apiVersion: v1
kind: Pod
metadata: {name: alive}
spec:
  terminationGracePeriodSeconds: 20
  initContainers:
  - name: side
    image: ledge.local/self
    restartPolicy: Always
    args: ["pause"]
    startupProbe: {exec: {command: ["/bin/echo", "up"]}, periodSeconds: 1, timeoutSeconds: 20}
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    ports: [{name: http, containerPort: 8080}]
    readinessProbe: {httpGet: {port: http}, periodSeconds: 1, timeoutSeconds: 10}
    livenessProbe: {tcpSocket: {port: 8080}, periodSeconds: 2, timeoutSeconds: 10}
    lifecycle:
      postStart: {exec: {command: ["/bin/echo", "hello"]}}
      preStop: {sleep: {seconds: 2}}
`

const sickPod = `apiVersion: v1
kind: Pod
metadata: {name: sick}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    livenessProbe: {httpGet: {port: 8081}, periodSeconds: 1, failureThreshold: 2, timeoutSeconds: 10}
    readinessProbe: {exec: {command: ["/no/such/program"]}, periodSeconds: 1}
`

// TestProbedLife: probes of three kinds, hooks and a sidecar, by the real binary in real containers.
func TestProbedLife(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.apply(alivePod)
	ready := func(name string, want corev1.ConditionStatus) func() error {
		return func() error {
			p := b.pod(name)
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == want {
					return nil
				}
			}
			return fmt.Errorf("%+v", p.Status)
		}
	}
	b.eventually("the pod is ready", ready("alive", corev1.ConditionTrue))
	b.apply(sickPod)
	b.eventually("the sick container is restarted", func() error {
		p := b.pod("sick")
		if len(p.Status.ContainerStatuses) == 1 && p.Status.ContainerStatuses[0].RestartCount > 0 {
			return nil
		}
		return fmt.Errorf("%+v", p.Status)
	})
	if err := ready("sick", corev1.ConditionFalse)(); err != nil {
		t.Error(err)
	}
	var events string
	b.eventually("the events say why", func() error {
		events = b.ledge("get", "events")
		for _, want := range []string{"connect: connection refused",
			"Container web failed liveness probe, will be restarted", "Readiness probe errored and resulted in unknown state: "} {
			if !strings.Contains(events, want) {
				return fmt.Errorf("no %q in:\n%s", want, events)
			}
		}
		return nil
	})
	if strings.Contains(events, "alive") && strings.Contains(events, "Startup probe failed") {
		t.Errorf("the healthy pod was found sick:\n%s", events)
	}
	if p := b.pod("alive"); p.Status.ContainerStatuses[0].RestartCount+p.Status.InitContainerStatuses[0].RestartCount > 0 {
		t.Errorf("the healthy pod was restarted: %+v", p.Status)
	}
	if os.Getenv("LEDGE_VM") == "" { // where kubectl can be built
		kubectl := b.kubectl()
		if out, err := kubectl("debug", "alive", "-q", "--image=ledge.local/self", "--target=web", "--container=look", "--", "sleep",
			"600"); err != nil {
			t.Fatalf("kubectl debug: %v: %s", err, out)
		}
		b.eventually("somebody looks at the pod", func() error {
			p := b.pod("alive")
			if s := p.Status.EphemeralContainerStatuses; len(s) == 1 && s[0].State.Running != nil {
				return ready("alive", corev1.ConditionTrue)()
			}
			return fmt.Errorf("%+v", p.Status)
		})
	}
	b.must("delete", "pod", "alive")
	b.must("delete", "pod", "sick")
	b.eventually("both are gone", func() error { return contains(b.ledge("get", "pods"), "No resources") })
}
