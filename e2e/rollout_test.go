package e2e

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"

	"ledge/api"
	"ledge/cli"
	"ledge/internal/testrun"
)

// The pods answer for a second after they were told to go: who asks hears of it a moment later.
const busyDeployment = `apiVersion: apps/v1
kind: Deployment
metadata: {name: busy}
spec:
  replicas: 2
  strategy: {rollingUpdate: {maxUnavailable: 0, maxSurge: 1}}
  selector: {matchLabels: {app: busy}}
  template:
    metadata: {labels: {app: busy}}
    spec:
      terminationGracePeriodSeconds: 2
      containers:
      - name: main
        image: ` + busyboxImage + `
        command: [httpd, -f, -p, "8080", -h, /www]
        readinessProbe: {httpGet: {path: /index.html, port: 8080}, periodSeconds: 1}
        lifecycle: {preStop: {sleep: {seconds: 1}}}
---
apiVersion: v1
kind: Service
metadata: {name: busy}
spec: {selector: {app: busy}, ports: [{port: 80, targetPort: 8080}]}
`

// rollsOutUnderLoad replaces all pods of a Deployment while clients ask its Service: every request is answered.
func (b *testBoard) rollsOutUnderLoad(t *testing.T) {
	b.apply(busyDeployment)
	c, err := (&cli.Command{RunDir: b.runDir}).Client()
	must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	var running sync.WaitGroup
	defer func() { cancel(); running.Wait() }()
	pods := api.NewView[*corev1.Pod](c, api.Pods,
		api.Selection{Namespace: "default", Labels: labels.SelectorFromSet(labels.Set{"app": "busy"})})
	running.Go(func() { _ = pods.Run(ctx) })
	<-pods.Synced()
	b.must("rollout", "status", "deployment/busy", "--timeout", "60s")
	former := pods.List()
	service, err := api.Get[*corev1.Service](ctx, c, api.Services, "default", "busy")
	must(t, err)
	b.eventually("the service answers", func() error { return ask(service.Spec.ClusterIP) })
	var asked atomic.Int64
	for range 4 {
		running.Go(func() {
			for ; ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
				if err := ask(service.Spec.ClusterIP); err != nil && ctx.Err() == nil {
					t.Errorf("request %d: %v", asked.Load(), err)
				}
				asked.Add(1)
			}
		})
	}
	b.must("rollout", "restart", "deployment", "busy")
	b.says("deployment/busy is rolled out", "rollout", "status", "deployment", "busy", "--timeout", "60s")
	b.eventually("the former pods are gone", func() error {
		for _, p := range former {
			if _, there := pods.Get(p.Namespace, p.Name); there {
				return fmt.Errorf("%s is there", p.Name)
			}
		}
		return nil
	})
	cancel()
	running.Wait()
	if n := asked.Load(); n < 100 {
		t.Errorf("only %d requests", n)
	}
	b.steersRollouts()
}

// steersRollouts: what ledge itself can do with a Deployment.
func (b *testBoard) steersRollouts() {
	b.says("REVISION   CHANGE-CAUSE\n1          <none>\n2          <none>\n", "rollout", "history", "deployment", "busy")
	b.says("kubectl.kubernetes.io/restartedAt", "rollout", "history", "deployment", "busy", "--revision", "2")
	b.says("deployment/busy paused", "rollout", "pause", "deployment", "busy")
	b.says("deployment/busy rolled back to revision 1", "rollout", "undo", "deployment", "busy")
	b.eventually("the rollout waits", func() error {
		return contains(b.ledge("rollout", "status", "deployment", "busy", "--wait=false"), "0 of 2 pods are new, and the rollout is paused")
	})
	b.says("deployment/busy resumed", "rollout", "resume", "deployment", "busy")
	b.says("deployment/busy scaled", "scale", "deployment", "busy", "--replicas", "1")
	b.says("deployment/busy is rolled out", "rollout", "status", "deployment", "busy", "--timeout", "60s")
	b.says("busy   1/1     1            1 ", "get", "deployments")
	b.says("1 wanted, 1 new, 1 in all, 1 ready, 1 available", "describe", "deployment", "busy")
	b.says("REVISION  NAME", "describe", "deployment", "busy")
	b.must("delete", "deployment", "busy")
	b.must("delete", "service", "busy")
}

// says runs ledge and wants something in what it prints.
func (b *testBoard) says(want string, args ...string) {
	b.t.Helper()
	if out := b.must(args...); !strings.Contains(out, want) {
		b.t.Errorf("ledge %s: no %q in:\n%s", strings.Join(args, " "), want, out)
	}
}

// ask has a service answer a request.
func ask(address string) error {
	client := http.Client{Timeout: testrun.Patience(10 * time.Second), Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Get("http://" + net.JoinHostPort(address, "80") + "/index.html")
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	return contains(string(body), "this is the index")
}
