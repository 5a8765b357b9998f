package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// quickLease has a lost board noticed in seconds.
const quickLease = "nodeLeaseDurationSeconds: 4\n"

// TestShed: boards of one shed whose pods talk to each other, and what becomes of them when a link is cut, a board is
// killed, drained, replaced and given up, with real pods in real networks: N-1.54, N-3.8, N-3.12, N-3.14, N-3.16, N-4.3.
func TestShed(t *testing.T) {
	t.Parallel()
	flags := []string{"--allocate-node-cidrs", "--cluster-cidr", "10.142.0.0/20", "--node-monitor-period=1s",
		"--node-monitor-grace-period=6s", "--node-eviction-rate=100"}
	s := newShed(t, quickLease, flags...)
	one, two := s.board(), s.board()
	line := s.line("--uses", "2")
	for _, b := range []*testBoard{one, two} {
		b.join(line...)
	}
	all := []*testBoard{s.plane, one, two}
	for _, b := range all {
		s.networked(b.name)
	}
	for i, b := range all {
		pod := strings.Replace(fleetPod(fmt.Sprintf("p%d", i), b.name), "metadata:\n", "metadata:\n  labels: {app: web}\n", 1)
		if b == two { // the others have time to hear that it goes before it takes no connections any more
			pod = strings.Replace(pod, "- name: main", "- name: main\n    lifecycle: {preStop: {sleep: {seconds: 2}}}", 1)
		}
		s.plane.apply(pod)
	}
	for i := range all {
		s.says(fmt.Sprintf("p%d", i), " Running ", s.pods)
	}
	s.meet(all)
	s.served(one, flags)
	s.lost(one, two)
	s.meet(all)
	s.drained(two)
	s.givenUp(one, two)
}

// node is one as the control plane has it.
func (s *shed) node(name string) (n corev1.Node) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.plane.must("get", "node", name, "-o", "json")), &n); err != nil {
		s.t.Fatal(err)
	}
	return n
}

func conditionOf(n *corev1.Node, kind corev1.NodeConditionType) corev1.NodeCondition {
	i := slices.IndexFunc(n.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == kind })
	if i < 0 {
		return corev1.NodeCondition{}
	}
	return n.Status.Conditions[i]
}

// networked waits until a board has the pod network that it was given (N-1.54).
func (s *shed) networked(name string) {
	s.t.Helper()
	s.ready(name)
	s.plane.eventually(name+" has its network", func() error {
		n := s.node(name)
		if c := conditionOf(&n, corev1.NodeNetworkUnavailable); c.Status != corev1.ConditionFalse || len(n.Spec.PodCIDRs) == 0 ||
			len(n.Spec.Taints) > 0 {
			return fmt.Errorf("%v, %v, %+v", n.Spec.PodCIDRs, n.Spec.Taints, c)
		}
		return nil
	})
}

// meet has each pod ask each other.
func (s *shed) meet(boards []*testBoard) {
	s.t.Helper()
	for i, from := range boards {
		pids := from.processes("/kubepods/")
		if len(pids) != 1 {
			s.t.Fatalf("%s: processes %v", from.name, pids)
		}
		for j := range boards {
			name := fmt.Sprintf("p%d", j)
			s.plane.eventually(fmt.Sprintf("p%d reaches %s", i, name), func() error {
				// guests have no curl
				ask := fmt.Sprintf(`exec 3<>/dev/tcp/%s/8080 && printf 'GET / HTTP/1.0\r\n\r\n' >&3 && cat <&3`, s.pod(name).Status.PodIP)
				out, err := exec.Command("nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pids[0]), "timeout", "2", "bash", "-c", ask).CombinedOutput()
				return errors.Join(err, contains(string(out), name+" "))
			})
		}
	}
}

func (s *shed) pod(name string) (p corev1.Pod) {
	s.t.Helper()
	if err := json.Unmarshal([]byte(s.plane.must("get", "pod", name, "-o", "json")), &p); err != nil {
		s.t.Fatal(err)
	}
	return p
}

// unknown waits for all that is said of a board that is silent (N-3.8, N-3.14, N-3.16).
func (s *shed) unknown(name string) {
	s.t.Helper()
	s.plane.eventually(name+" is lost", func() error {
		n := s.node(name)
		for _, kind := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
			corev1.NodePIDPressure} {
			if c := conditionOf(&n, kind); c.Status != corev1.ConditionUnknown || c.Reason != "NodeStatusUnknown" ||
				c.Message != "Kubelet stopped posting node status." {
				return fmt.Errorf("%+v", c)
			}
		}
		if c := conditionOf(&n, corev1.NodeNetworkUnavailable); c.Status != corev1.ConditionFalse {
			return fmt.Errorf("%+v", c) // nobody but the board says it
		}
		var taints []string
		for _, t := range n.Spec.Taints {
			taints = append(taints, t.Key+":"+string(t.Effect))
		}
		slices.Sort(taints)
		if got := strings.Join(taints, " "); got != "node.kubernetes.io/unreachable:NoExecute node.kubernetes.io/unreachable:NoSchedule" {
			return fmt.Errorf("taints %s", got)
		}
		return nil
	})
}

// lost kills one board's agent and cuts the other's cable; both are given up for silent, and come back as if nothing had
// been.
func (s *shed) lost(killed, cut *testBoard) {
	s.t.Helper()
	pids := slices.Concat(killed.processes("/kubepods/"), cut.processes("/kubepods/"))
	restarts := map[string]int32{}
	for _, name := range []string{"p1", "p2"} {
		restarts[name] = s.pod(name).Status.ContainerStatuses[0].RestartCount
	}
	people := s.crowd()
	_ = killed.signal(syscall.SIGKILL)
	table := strings.ReplaceAll(s.cable, "-", "_")
	nft := func(words string) {
		s.t.Helper()
		if out, err := exec.Command("nft", words).CombinedOutput(); err != nil {
			s.t.Fatalf("nft: %v\n%s", err, out)
		}
	}
	nft(fmt.Sprintf(`table bridge %s { chain cut { type filter hook forward priority 0; iifname "%s" drop; oifname "%[2]s" drop; }; }`, table,
		cut.link()))
	mended := false
	mend := func() {
		if !mended {
			mended = true
			nft("delete table bridge " + table)
		}
	}
	s.t.Cleanup(mend)
	s.unknown(killed.name)
	s.unknown(cut.name)
	s.plane.eventually("pods on lost boards are not ready (N-3.12)", func() error {
		for _, name := range []string{"p1", "p2"} {
			if p := s.pod(name); p.Status.Phase != corev1.PodRunning || api.PodReady(&p) {
				return fmt.Errorf("%s: %s %+v", name, p.Status.Phase, p.Status.Conditions)
			}
		}
		return nil
	})
	s.lostBoardOnly(people)
	killed.join("--server", "https://"+s.plane.address(1))
	mend()
	for _, b := range []*testBoard{killed, cut} {
		s.networked(b.name)
	}
	s.plane.eventually("the pods are ready again", func() error {
		for _, name := range []string{"p1", "p2"} {
			if p := s.pod(name); !api.PodReady(&p) || p.Status.ContainerStatuses[0].RestartCount != restarts[name] {
				return fmt.Errorf("%s: %+v", name, p.Status)
			}
		}
		return nil
	})
	if now := slices.Concat(killed.processes("/kubepods/"), cut.processes("/kubepods/")); !slices.Equal(now, pids) {
		s.t.Errorf("processes %v, were %v", now, pids)
	}
}

const shedBudget = `apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web}
spec:
  minAvailable: 3
  selector: {matchLabels: {app: web}}
`

// kubectlCommand runs kubectl's words one by one.
func (s *shed) kubectlCommand() func(args ...string) *exec.Cmd {
	s.t.Helper()
	k := s.kubectl()
	return func(args ...string) *exec.Cmd {
		cmd := exec.Command(filepath.Join(k.home, "kubectl"), args...)
		cmd.Env = k.env
		return cmd
	}
}

// drained empties a board from elsewhere, with kubectl and with ledge; a budget holds its pod until there is another.
func (s *shed) drained(b *testBoard) {
	s.t.Helper()
	kubectl := s.kubectlCommand()
	s.plane.apply(shedBudget)
	s.plane.eventually("the budget has been counted",
		func() error { return contains(s.plane.ledge("get", "pdb", "web", "-o", "json"), `"currentHealthy": 3`) })
	if err := contains(s.plane.ledge("get", "pdb"), "3               N/A               0 "); err != nil {
		s.t.Error(err)
	}
	must(s.t, contains(s.plane.must("cordon", b.name), "node/"+b.name+" cordoned"))
	s.nodeSays(b.name, "Ready,SchedulingDisabled")
	if text, err := kubectl("drain", b.name, "--force", "--ignore-daemonsets", "--timeout=3s").CombinedOutput(); err == nil ||
		!strings.Contains(string(text), "Cannot evict pod as it would violate the pod's disruption budget") {
		s.t.Errorf("%v\n%s", err, text)
	}
	said, err := os.Create(filepath.Join(s.t.TempDir(), "drain")) // a file may be read while it is written
	must(s.t, err)
	defer said.Close()
	out := func() string {
		text, err := os.ReadFile(said.Name())
		must(s.t, err)
		return string(text)
	}
	people := s.crowd()
	drain := s.plane.command(s.t.Context(), "--run-dir", s.plane.runDir, "drain", b.name, "--force", "--timeout=80s")
	drain.Stdout, drain.Stderr = said, said
	must(s.t, drain.Start())
	done := make(chan error, 1)
	go func() { done <- drain.Wait() }()
	s.plane.eventually("the budget holds the pod", func() error {
		return contains(out(), "pod default/p2 stays for now, asking again in 5s: The disruption budget web needs")
	})
	must(s.t, contains(s.pods(), "p2"))
	s.plane.apply(strings.Replace(fleetPod("p3", s.plane.name), "metadata:\n", "metadata:\n  labels: {app: web}\n", 1))
	// it gives up by itself
	must(s.t, errors.Join(<-done, contains(out(), "node/"+b.name+" already cordoned"), contains(out(), "node/"+b.name+" drained")))
	people.lostNone("a board was drained", 0)
	s.plane.must("delete", "service", "crowd")
	if p := b.processes("/kubepods/"); len(p) > 0 {
		s.t.Errorf("processes on a drained board: %v", p)
	}
	s.nodeSays(b.name, "Ready,SchedulingDisabled")
	if text, err := kubectl("get", "pdb", "web").CombinedOutput(); err != nil || !strings.Contains(string(text), "ALLOWED DISRUPTIONS") {
		s.t.Errorf("%v\n%s", err, text)
	}
}

// givenUp declares one board out of service, and puts another in the place of a second: the pods of the first go without
// its word (N-4.3), and the shed leads to the pods of who is there now.
func (s *shed) givenUp(dead, replaced *testBoard) {
	s.t.Helper()
	_ = dead.signal(syscall.SIGKILL)
	s.replaced(replaced)
	s.unknown(dead.name)
	if out, err := s.kubectlCommand()("taint", "node", dead.name,
		corev1.TaintNodeOutOfService+"=nodeshutdown:NoExecute").CombinedOutput(); err != nil {
		s.t.Fatalf("%v\n%s", err, out)
	}
	s.plane.eventually("its pod is given up", func() error {
		if text := s.pods(); strings.Contains(text, "p1 ") {
			return errors.New(text)
		}
		return nil
	})
	s.networked(replaced.name)
	n := s.node(replaced.name)
	s.routes(s.plane, n, s.node(dead.name))
	s.plane.must("delete", "node", dead.name)
	s.routes(s.plane, n)
}

// routes waits until a board leads to the pods of these nodes and of no others.
func (s *shed) routes(b *testBoard, to ...corev1.Node) {
	s.t.Helper()
	var want []string
	for _, n := range to {
		for _, a := range n.Status.Addresses {
			if a.Type == corev1.NodeInternalIP {
				want = append(want, n.Spec.PodCIDR+" via "+a.Address+" dev eth0 proto 108")
			}
		}
	}
	slices.Sort(want)
	b.eventually("routes", func() error {
		all, err := exec.Command("ip", "-n", b.netns, "route", "show").CombinedOutput()
		var have []string
		for l := range strings.Lines(string(all)) {
			if strings.Contains(l, "proto 108") {
				have = append(have, strings.TrimSpace(l))
			}
		}
		slices.Sort(have)
		if !slices.Equal(have, want) {
			return fmt.Errorf("%q, want %q", have, want)
		}
		return err
	})
}
