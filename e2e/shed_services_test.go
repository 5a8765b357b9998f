package e2e

import (
	"context"
	"errors"
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

const shedService = `apiVersion: v1
kind: Service
metadata: {name: web}
spec: {type: LoadBalancer, selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
---
apiVersion: v1
kind: Service
metadata: {name: each}
spec: {clusterIP: None, selector: {app: web}}
`

// served: Services on a board that has joined: names, pods of all boards, the API, and the board's own address for those who are far; and
// what goes on when its brain and the control plane's have died.
func (s *shed) served(b *testBoard, flags []string) {
	s.t.Helper()
	s.plane.apply(shedService)
	pid := b.processes("/kubepods/")[0]
	p := &inPod{pid: pid, dir: fmt.Sprintf("/proc/%d/root", pid)}
	s.allAnswer("http://web/", p.get)
	if all := asPod(s.t, pid, "each"); strings.Count(all, "STREAM") != 3 {
		s.t.Errorf("the name of the headless service leads to %q", all)
	}
	const account = "/var/run/secrets/kubernetes.io/serviceaccount/"
	out, err := p.get(s.t, "--cacert", p.dir+account+"ca.crt", "--header", "'Authorization: Bearer "+inside(pid, account+"token")+"'",
		"https://kubernetes.default.svc/api/v1/pods")
	if err != nil || !strings.Contains(out, "system:serviceaccount:default:default") { // it is known, and has no rights
		s.t.Errorf("the API: %v %s", err, out)
	}
	door := "http://" + b.address(2) + "/"
	s.allAnswer(door, s.fromPlane)
	b.eventually("what it heard is on its card", func() error {
		if _, err := os.Lstat(filepath.Join(b.runDir, "services.lag")); !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("it lags: %v", err)
		}
		return nil
	})

	cluster := "http://" + s.clusterIP("web") + "/"
	_ = s.plane.signal(syscall.SIGKILL)
	s.allAnswer("http://web/", p.get)
	_ = b.signal(syscall.SIGKILL)
	b.join("--server", "https://"+s.plane.address(1))
	b.eventually("the board is back alone", func() error {
		log, err := os.ReadFile(b.log.Name())
		return errors.Join(err, contains(string(log), `msg="container engine is up" pods=1`))
	})
	s.allAnswer(cluster, p.get)
	s.allAnswer(door, s.fromPlane)
	p = s.rebootedAlone(b)
	s.plane.launch("serve", append([]string{"--listen", fmt.Sprintf("0.0.0.0:%d", shedPort)}, flags...)...)
	s.networked(b.name)
	s.plane.eventually("the control plane hears that the pod was made anew", func() error {
		if n := s.pod("p1").Status.ContainerStatuses[0].RestartCount; n != 1 {
			return fmt.Errorf("%d restarts", n)
		}
		return nil
	})
	s.allAnswer("http://web/", p.get)
	s.policed(p)
	s.plane.must("delete", "service", "web", "each")
}

// rebootedAlone: a board whose power was cut while its control plane is away forwards and names what it was told last, and finds its own
// pods where they are now.
func (s *shed) rebootedAlone(b *testBoard) *inPod {
	s.t.Helper()
	_ = b.signal(syscall.SIGKILL)
	b.must("reset")
	began := time.Now()
	b.join("--server", "https://"+s.plane.address(1))
	var pids []int
	b.eventually("its pod is made anew", func() error {
		if pids = b.processes("/kubepods/"); len(pids) != 1 {
			return fmt.Errorf("processes %v", pids)
		}
		// Before the pod's own program there are others, which set it up and go.
		line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pids[0]))
		return errors.Join(err, contains(string(line), "applet"))
	})
	p := &inPod{pid: pids[0], dir: fmt.Sprintf("/proc/%d/root", pids[0])}
	s.allAnswer("http://web/", p.get)
	b.eventually("the name of the headless service leads to all pods", func() error {
		if all := asPod(s.t, pids[0], "each"); strings.Count(all, "STREAM") != 3 {
			return errors.New(all)
		}
		return nil
	})
	s.t.Logf("pod, rules and names were back %v after the start", time.Since(began).Round(time.Millisecond))
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pids[0]))
	if must(s.t, err); !strings.Contains(string(raw), "WEB_SERVICE_HOST=") {
		s.t.Errorf("its pod was not told of the Service: %q", raw)
	}
	return p
}

const shedPolicies = `apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata: {name: web}
spec:
  podSelector: {}
  ingress:
  - from: [{podSelector: {matchLabels: {app: %s}}}]
`

// policed: a policy holds on every board, also for pods of other boards.
func (s *shed) policed(p *inPod) {
	s.t.Helper()
	s.plane.apply(fmt.Sprintf(shedPolicies, "nobody"))
	testrun.Succeeds(s.t, 20*time.Second, "all but the board's own pod, which is itself, are denied", func() error {
		seen := map[string]bool{}
		for range 12 {
			if out, err := p.get(s.t, "--connect-timeout 1 http://web/"); err == nil {
				name, _, _ := strings.Cut(out, " ")
				seen[name] = true
			}
		}
		if len(seen) > 1 || seen["p0"] || seen["p2"] {
			return fmt.Errorf("these answered: %v", seen)
		}
		return nil
	})
	s.plane.apply(fmt.Sprintf(shedPolicies, "web"))
	s.allAnswer("http://web/", p.get)
	s.plane.must("delete", "networkpolicy", "web")
}

const crowdService = `apiVersion: v1
kind: Service
metadata: {name: crowd}
spec: {selector: {app: web}, ports: [{port: 80, targetPort: 8080}]}
`

// crowd has programs connect to a Service with pods on all boards, from the control plane's board and from its pod.
func (s *shed) crowd() *flood {
	s.t.Helper()
	s.plane.apply(crowdService)
	address := s.clusterIP("crowd")
	s.allAnswer("http://"+address+"/", s.fromPlane)
	return callAll(s.t, 100, "p", []string{"/run/netns/" + s.plane.netns,
		fmt.Sprintf("/proc/%d/ns/net", s.plane.processes("/kubepods/")[0])}, address+":80")
}

// lostBoardOnly: of those who connected while a board was lost, those led there before this was noticed heard nothing. Nobody was refused,
// and once it is noticed everybody has an answer.
func (s *shed) lostBoardOnly(before *flood) {
	s.t.Helper()
	sum := before.stop()
	s.t.Logf("a board was lost: %d of %d connections were, %s", sum.lost, sum.asked, sum.last)
	if sum.loud > 0 || sum.lost == 0 || sum.lost > sum.asked/2 {
		s.t.Errorf("%d of %d connections were lost, %d by another answer than silence: %s", sum.lost, sum.asked, sum.loud, sum.last)
	}
	s.plane.eventually("lost boards have no endpoints that are used", func() error {
		out := s.plane.ledge("get", "endpoints", "crowd")
		if err := contains(out, s.pod("p0").Status.PodIP+":8080 "); err != nil || strings.Contains(out, ",") {
			return errors.New(out)
		}
		return nil
	})
	time.Sleep(time.Second) // until the kernels have heard, too
	after := callAll(s.t, 100, "p0 ", []string{"/run/netns/" + s.plane.netns}, s.clusterIP("crowd")+":80")
	time.Sleep(time.Second)
	after.lostNone("a lost board was noticed", 0)
}

func (s *shed) clusterIP(service string) string {
	s.t.Helper()
	fields := strings.Fields(s.plane.must("get", "service", service))
	for i, f := range fields {
		if f == service && i+2 < len(fields) {
			return fields[i+2]
		}
	}
	s.t.Fatalf("service %s: %q", service, fields)
	return ""
}

// fromPlane asks as the control plane's machine, which is a stranger to the other boards.
func (s *shed) fromPlane(t *testing.T, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(30*time.Second))
	defer cancel()
	line := "exec nsenter --net=/run/netns/" + s.plane.netns + " " + fetch + strings.Join(args, " ")
	out, err := exec.CommandContext(ctx, "sh", "-c", line).CombinedOutput()
	return string(out), err
}

// allAnswer asks until the pods of all boards have answered: the kernel draws.
func (s *shed) allAnswer(url string, get func(*testing.T, ...string) (string, error)) {
	s.t.Helper()
	seen := map[string]bool{}
	testrun.Succeeds(s.t, 20*time.Second, url, func() error {
		out, err := get(s.t, url)
		if err != nil {
			return fmt.Errorf("%w: %s", err, out)
		}
		if name, _, ok := strings.Cut(out, " "); ok {
			seen[name] = true
		}
		if !seen["p0"] || !seen["p1"] || !seen["p2"] {
			return fmt.Errorf("these answered: %v, the last %q", seen, out)
		}
		return nil
	})
}
