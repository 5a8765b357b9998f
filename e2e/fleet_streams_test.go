package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// kubectl is a client that stands in the network of the control plane.
func (s *shed) kubectl() *client {
	s.t.Helper()
	k := s.plane.client("", "default")
	at := filepath.Join(k.home, "kubectl")
	program, err := os.Readlink(at)
	must(s.t, err)
	must(s.t, os.Remove(at))
	must(s.t, os.WriteFile(at, []byte("#!/bin/sh\nexec nsenter --net=/run/netns/"+s.plane.netns+" "+program+" \"$@\"\n"), 0o700))
	return k
}

// farPod serves a page, says a line, has a shell, and repeats what somebody says who attaches.
func farPod(node string) string {
	return `apiVersion: v1
kind: Pod
metadata: {name: far}
spec:
  nodeName: ` + node + `
  terminationGracePeriodSeconds: 1
  containers:
  - name: main
    image: ` + busyboxImage + `
    imagePullPolicy: Never
    command: [sh, -c, "echo I am far; httpd -p 8080 -h /www; exec sleep 100000"]
  - name: ear
    image: ` + busyboxImage + `
    imagePullPolicy: Never
    stdin: true
    stdinOnce: true
    command: [cat]
`
}

// TestFleetStreams: what kubectl does with a pod on another board, to the board's port and, when that cannot be reached, by way
// of the tunnel that the board has opened; and who else tries the port.
func TestFleetStreams(t *testing.T) {
	t.Parallel()
	needGo(t)
	s := newShed(t, "")
	b := s.board()
	b.join(s.line()...)
	s.ready(b.name)
	b.importBusybox()
	s.plane.apply(farPod(b.name))
	s.says("far", " Running ", s.pods)
	k := s.kubectl()
	k.farSteps(s, b, "by the port")
	must(t, contains(s.plane.ledge("logs", "far", "-c", "main"), "I am far"))
	must(t, contains(s.plane.ledge("exec", "far", "-c", "main", "--", "echo", "by", "ledge"), "by ledge"))

	// Nobody else gets in, be it an administrator.
	port := "https://" + b.address(2) + ":10250"
	must(t, k.try("kubectl --server "+port+" --tls-server-name node_"+b.name+" get --raw /containerLogs/default/far/main",
		"!Unable to connect"))
	must(t, k.try(fmt.Sprintf("nsenter --net=/run/netns/%s curl -sSk -m 20 %s/metrics", s.plane.netns, port), "!curl:"))

	// Something before the board lets nothing in, and says nothing of it.
	b.shut(10250)
	k.farSteps(s, b, "by the tunnel")

	// Who follows a log hears of it when the board's agent dies.
	follow, ended := k.sh(t.Context(), "kubectl logs -f far"), make(chan error, 1)
	follow.Stdout = &strings.Builder{}
	must(t, follow.Start())
	go func() { ended <- follow.Wait() }()
	_ = b.signal(syscall.SIGKILL)
	select {
	case <-ended:
	case <-time.After(testrun.Patience(60 * time.Second)):
		t.Error("a log is followed on a board whose agent has died")
	}
	must(t, k.try("kubectl exec far -- true", "!board "+b.name+" does not answer"))
}

// shut drops what others send to a port of a board.
func (b *testBoard) shut(port int) {
	b.t.Helper()
	rules := fmt.Sprintf("add table inet shut\nadd chain inet shut in { type filter hook input priority 0; }\nadd rule inet shut in iifname eth0 tcp dport %d drop\n", port)
	cmd := exec.CommandContext(b.t.Context(), "nsenter", "--net=/run/netns/"+b.netns, "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	if out, err := cmd.CombinedOutput(); err != nil {
		b.t.Fatalf("nft: %v\n%s", err, out)
	}
}

// farSteps are what everybody does every day.
func (k *client) farSteps(s *shed, b *testBoard, way string) {
	k.t.Helper()
	k.write("file", strings.Repeat("all work and no play\n", 20_000))
	k.steps("", []step{
		{"kubectl logs far", "I am far", ""},
		{"kubectl logs far --tail=0 && echo nothing", "nothing", ""},
		{"kubectl exec far -- sh -c 'echo out; echo err >&2; exit 7'", "!out|err|exit code 7", ""},
		{"echo typed | kubectl exec -i far -- cat", "typed", ""},
		{"script -qec \"kubectl exec -it far -- sh -c 'tty && stty size'\" /dev/null", "/dev/pts/", ""},
		{"kubectl cp file far:/tmp/there && kubectl cp far:/tmp/there back && cmp file back && echo same", "same", ""},
		{"kubectl get --raw /api/v1/namespaces/default/pods/far:8080/proxy/", "this is the index", ""},
		{"kubectl get node " + b.name + " -o jsonpath={.status.daemonEndpoints.kubeletEndpoint.Port}", "10250", ""},
	})
	s.plane.eventually("somebody who attaches is heard "+way, func() error { // the container has ended with the one before
		return k.try("echo spoken | timeout 30 kubectl attach -i far -c ear", "spoken")
	})
	s.plane.eventually("what it said is told when it has ended "+way, func() error {
		return k.try("kubectl logs far -c ear --previous", "spoken")
	})
	k.until("kubectl port-forward pod/far :8080", `Forwarding from 127\.0\.0\.1:(\d+)`, func(m []string) {
		if err := k.try("nsenter --net=/run/netns/"+s.plane.netns+" curl -sS -m 60 http://127.0.0.1:"+m[1]+"/index.html",
			"this is the index"); err != nil {
			k.t.Error(err)
		}
	})
	s.plane.eventually("both boards and the pod are measured "+way, func() error {
		if err := k.try("kubectl top node", b.name+"|"+s.plane.name); err != nil {
			return err
		}
		return k.try("kubectl top pod", "far")
	})
	k.steps("", []step{ // what has not been measured yet is not on the page
		{"kubectl get --raw /api/v1/nodes/" + b.name + "/proxy/metrics/resource", "node_cpu_usage_seconds_total", ""},
	})
}
