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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/config"
	"ledge/firstboot"
	"ledge/firstboot/card"
	"ledge/internal/testrun"
)

// shed is a control plane and the boards that have joined it, each in a network namespace of its own on one cable.
type shed struct {
	t      *testing.T
	cable  string
	plane  *testBoard
	boards []*testBoard
	config string // of each board, beside what all test boards have
}

const shedPort = 6443

var sheds atomic.Int32

func newShed(t *testing.T, config string, flags ...string) *shed {
	t.Helper()
	onHost(t)
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	s := &shed{t: t, config: config, cable: fmt.Sprintf("%sc%d", testrun.Mark(), sheds.Add(1))}
	ip(t, "link", "add", s.cable, "type", "bridge")
	t.Cleanup(func() { ip(t, "link", "del", s.cable) })
	ip(t, "link", "set", s.cable, "up")
	s.plane = s.board()
	s.plane.launch("serve", append([]string{"--listen", fmt.Sprintf("0.0.0.0:%d", shedPort)}, flags...)...)
	s.ready(s.plane.name)
	return s
}

func ip(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		t.Fatalf("ip %v: %v\n%s", args, err, out)
	}
}

// brain is one with a cable of its own; nothing runs on it yet.
func (s *shed) board() *testBoard {
	s.t.Helper()
	n := len(s.boards) + 1
	ns := fmt.Sprintf("%s-%d", s.cable, n)
	ip(s.t, "netns", "add", ns)
	s.t.Cleanup(func() { ip(s.t, "netns", "del", ns) })
	b := newBoard(s.t) // after: it ends before its network does
	s.boards = append(s.boards, b)
	b.netns = ns
	b.configure(s.config)
	ip(s.t, "link", "add", b.link(), "type", "veth", "peer", "name", "eth0", "netns", ns)
	ip(s.t, "link", "set", b.link(), "master", s.cable, "up")
	for _, args := range []string{"link set lo up", "link set eth0 up", "addr add " + b.address(n) + "/24 dev eth0",
		"route add default via 10.99.0.254"} {
		ip(s.t, append([]string{"-n", ns}, strings.Fields(args)...)...)
	}
	return b
}

func (b *testBoard) link() string           { return b.name + "v" }
func (b *testBoard) address(n int) string   { return fmt.Sprintf("10.99.0.%d", n) }
func (b *testBoard) join(line ...string)    { b.t.Helper(); b.launch("agent", line...) }
func (s *shed) nodes() string               { return s.plane.ledge("get", "nodes") }
func (s *shed) pods() string                { return s.plane.ledge("get", "pods", "-o", "wide") }
func (s *shed) ready(name string)           { s.t.Helper(); s.nodeSays(name, " Ready ") }
func (s *shed) nodeSays(name, words string) { s.t.Helper(); s.says(name, words, s.nodes) }

// says waits until the line of one object in a table has these words.
func (s *shed) says(name, words string, table func() string) {
	s.t.Helper()
	s.plane.eventually(name+" is"+words, func() error {
		text := table()
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, name+" ") && strings.Contains(line, words) {
				return nil
			}
		}
		return fmt.Errorf("it is not:\n%s", text)
	})
}

// line is what 'ledge token create' prints behind "ledge agent".
func (s *shed) line(args ...string) []string {
	s.t.Helper()
	out := s.plane.must(append([]string{"token", "create"}, args...)...)
	words := strings.Fields(out)
	if len(words) != 6 || words[0] != "ledge" || words[1] != "agent" ||
		words[3] != fmt.Sprintf("https://%s:%d", s.plane.address(1), shedPort) {
		s.t.Fatalf("token create: %q", out)
	}
	return words[2:]
}

// refused starts an agent that must end with a line that has the words in it, and leave no identity.
func (s *shed) refused(b *testBoard, words string, args ...string) {
	s.t.Helper()
	b.join(args...)
	var err error
	select {
	case err = <-b.done:
		b.cmd = nil
	case <-time.After(testrun.Patience(30 * time.Second)):
		s.t.Fatalf("%v: it goes on", args)
	}
	data, rerr := os.ReadFile(b.log.Name())
	if err == nil || rerr != nil || !strings.Contains(string(data), words) {
		s.t.Errorf("%v: %v, want %q in\n%s", args, err, words, data)
	}
	if found, _ := os.Stat(filepath.Join(b.data, "board")); found != nil {
		s.t.Errorf("%v: an identity is left", args)
	}
	must(s.t, os.Truncate(b.log.Name(), 0))
}

func fleetPod(name, node string) string {
	return strings.Replace(strings.Replace(webPod, "name: web\nspec:", "name: "+name+"\nspec:\n  nodeName: "+node, 1), "- name: web",
		"- name: main", 1)
}

// TestFleet: boards join, work, are killed, come back and are replaced, in real networks with real pods. One shed serves
// the whole of it.
func TestFleet(t *testing.T) {
	onHost(t)
	t.Parallel()
	s := newShed(t, "")
	one, two := s.board(), s.board()
	line := s.line("--uses", "2", "--ttl", "10m")

	// Nobody answers at the first address: the second is taken.
	one.join(append([]string{"--server", "https://10.99.0.1:1", "--node-labels", "tier=edge", "--register-with-taints",
		"a=b:PreferNoSchedule"}, line...)...)
	s.ready(one.name)
	two.join(line...)
	s.ready(two.name)
	must(t, contains(s.plane.ledge("get", "node", one.name, "-o", "json"), `"tier": "edge"`))               // N-1.23
	must(t, contains(s.plane.ledge("get", "node", one.name, "-o", "json"), `"effect": "PreferNoSchedule"`)) // N-1.18
	s.strangers(line)
	s.kubeconfigured() // N-1.12, N-1.13

	s.plane.apply(fleetPod("p1", one.name) + "---\n" + fleetPod("p2", two.name))
	s.says("p1", " Running ", s.pods)
	s.says("p2", " Running ", s.pods)
	pid := one.running("p1")

	// The agent dies; the token is not needed again, and the pod has not noticed.
	_ = one.signal(syscall.SIGKILL)
	one.join("--server", line[1])
	s.plane.apply(fleetPod("p3", one.name))
	s.says("p3", " Running ", s.pods)
	if got := one.running("p1"); got != pid {
		t.Errorf("the pod was restarted: %d, was %d", got, pid)
	}
	// The control plane dies and comes back.
	_ = s.plane.signal(syscall.SIGKILL)
	s.plane.launch("serve", "--listen", fmt.Sprintf("0.0.0.0:%d", shedPort))
	s.ready(one.name)
	s.plane.apply(fleetPod("p4", one.name))
	s.says("p4", " Running ", s.pods)
	s.island(two, "p2")
	was := s.everywhere(s.plane, one, two)
	s.replaced(two)
	s.covered(two.name, was[two.name])
	for _, b := range []*testBoard{s.plane, one} {
		if now := s.covered(b.name, ""); now != was[b.name] {
			t.Errorf("another board left, and the daemon of %s is %s, was %s", b.name, now, was[b.name])
		}
	}
}

// island cuts a board off, ends its container, and then all that a reboot ends; the pod runs all the same, and the control
// plane hears of it when the cable is plugged in again.
func (s *shed) island(b *testBoard, pod string) {
	s.t.Helper()
	container := func() string {
		var p corev1.Pod
		if json.Unmarshal([]byte(s.plane.ledge("get", "pod", pod, "-o", "json")), &p) != nil || len(p.Status.ContainerStatuses) == 0 {
			return ""
		}
		return p.Status.ContainerStatuses[0].ContainerID
	}
	before, pid := container(), b.running(pod)
	other := func(than int) func() error {
		return func() error {
			if now := b.processes("/kubepods/"); len(now) != 1 || now[0] == than {
				return fmt.Errorf("processes %v, was %d", now, than)
			}
			return nil
		}
	}
	if os.Getenv("LEDGE_LONG") != "" { // a cable that is cut under a connection is noticed after 15 seconds
		ip(s.t, "link", "set", b.link(), "down")
		must(s.t, syscall.Kill(pid, syscall.SIGKILL))
		b.eventually("the container is started again when the cable was just cut", other(pid))
	}
	_ = b.signal(syscall.SIGKILL)
	ip(s.t, "link", "set", b.link(), "down")
	b.must("reset")
	b.join("--server", "https://"+s.plane.address(1))
	b.eventually("the pod is made anew without a control plane", other(pid))
	if now := b.processes("/kubepods/"); os.Getenv("LEDGE_LONG") != "" && len(now) == 1 {
		must(s.t, syscall.Kill(now[0], syscall.SIGKILL))
		b.eventually("and started again", other(now[0]))
	}
	ip(s.t, "link", "set", b.link(), "up")
	ip(s.t, "-n", b.netns, "route", "replace", "default", "via", "10.99.0.254")
	s.plane.eventually("the control plane hears of it", func() error {
		if now := container(); now == before || now == "" {
			return fmt.Errorf("it still says %q", now)
		}
		return contains(s.plane.ledge("get", "pod", pod), " Running ")
	})
}

// strangers are those who may not join, in words that both sides read.
func (s *shed) strangers(used []string) {
	s.t.Helper()
	b := s.board()
	elsewhere := newBoard(s.t) // a control plane that nobody here belongs to
	elsewhere.netns = b.netns
	elsewhere.launch("serve", "--listen", "127.0.0.1:7443")
	elsewhere.eventually("the other control plane is up", func() error { return contains(elsewhere.ledge("get", "nodes"), elsewhere.name) })
	s.refused(b, "used up (2 of 2)", used...)
	s.refused(b, "the token is damaged", "--server", used[1], "--token", used[3][:len(used[3])-1])
	s.refused(b, "its CA is another one", "--server", "https://127.0.0.1:7443", "--token", used[3])
	s.refused(b, "--token of 'ledge token create' is needed", "--server", used[1])
	s.refused(b, `for a board named "other"`, s.line("--node", "other")...)
	s.refused(b, "control plane's own board", append(s.line(), "--hostname-override", s.plane.name)...)
	s.refused(b, "another board has joined as", append(s.line(), "--hostname-override", s.boards[len(s.boards)-2].name)...)
	s.refused(b, "expired at", s.line("--ttl", "1ms")...)
	s.refusedOnCard(b)
	toucher := s.boards[1] // it has joined, and may look at its own pods only
	must(s.t, contains(toucher.ledge("get", "pods"), "forbidden"))
	s.plane.logs("used up", "for a board named", "another board has joined as", "expired at",
		"refused what is not its own\" node="+toucher.name+" ")
	elsewhere.logs("does not accept this server's certificate")
}

// logs wants words in what an operator reads of a board.
func (b *testBoard) logs(words ...string) {
	b.t.Helper()
	log, err := os.ReadFile(b.log.Name())
	must(b.t, err)
	for _, w := range words {
		must(b.t, contains(string(log), w))
	}
}

// refusedOnCard: a board that nobody can log in to says on its boot partition that it may not join, and then not any more.
func (s *shed) refusedOnCard(b *testBoard) {
	s.t.Helper()
	disk, state := s.t.TempDir(), s.t.TempDir()
	for path, text := range map[string]string{filepath.Join(state, config.BootWhereFile): disk,
		filepath.Join(state, config.BootPlacesFile): `{"Join":{"File":"ledge.txt","Line":3}}`,
		filepath.Join(disk, card.FileName):          string(firstboot.Report([]string{"ledge.txt, line 1: wrong"}))} {
		must(s.t, os.WriteFile(path, []byte(text), 0o600))
	}
	told := func() string {
		text, _ := os.ReadFile(filepath.Join(disk, card.FileName))
		return string(text)
	}
	s.refused(b, "expired at", append(s.line("--ttl", "1ms"), "--boot-state", state)...)
	if got := told(); !strings.Contains(got, "ledge.txt, line 1: wrong") ||
		!strings.Contains(got, "ledge.txt, line 3"+card.JoinWords+"https://"+s.plane.address(1)) || !strings.Contains(got, "expired at") {
		s.t.Errorf("the boot partition says %q", got)
	}
	b.join(append(s.line(), "--boot-state", state)...)
	b.eventually("the boot partition has no more to say than was wrong with its files", func() error {
		if got := told(); strings.Contains(got, card.JoinWords) || !strings.Contains(got, "line 1: wrong") {
			return fmt.Errorf("it says %q", got)
		}
		return nil
	})
	s.ready(b.name)
}

// figures are read at the port of a board that has joined by a kubeconfig, by whom the API server lets (N-13.16), and by nobody else.
func (s *shed) figures(b *testBoard) {
	s.t.Helper()
	curl := "nsenter --net=/run/netns/" + s.plane.netns + " curl -sSk -m 20 https://" + b.address(slices.Index(s.boards, b)+1) + ":10250"
	bearer := ` -H "Authorization: Bearer $(kubectl create token prom)"`
	s.kubectl().steps("", []step{
		{"kubectl create serviceaccount prom", "created", ""},
		{"kubectl create clusterrole figures --verb get --resource nodes/metrics", "created", ""},
		{"kubectl create clusterrolebinding figures --clusterrole figures --serviceaccount default:prom", "created", ""},
		{curl + "/metrics/resource" + bearer, "resource_scrape_error", ""},
		{curl + "/pods" + bearer, "may not get nodes/pods", ""},
		{curl + "/containerLogs/default/bare/main" + bearer, "may not get nodes/proxy", ""},
		{curl + "/metrics/resource", "Unauthorized", ""},
		{"kubectl get node " + b.name + " -o yaml", "PortTrouble|--client-ca-file", ""},
	})
}

// kubeconfigured joins by a kubeconfig, as a kubelet does (N-1.13), and takes a Node that somebody else made (N-1.12).
func (s *shed) kubeconfigured() {
	s.t.Helper()
	b := s.board()
	file := filepath.Join(s.t.TempDir(), "kubeconfig")
	text := strings.Replace(s.plane.must("kubeconfig"), "127.0.0.1", s.plane.address(1), 1)
	must(s.t, os.WriteFile(file, []byte(text), 0o600))
	s.plane.apply("apiVersion: v1\nkind: Node\nmetadata:\n  name: " + b.name + "\n  labels: {by: hand}\n")
	b.join("--kubeconfig", file, "--register-node=false")
	s.ready(b.name)
	must(s.t, contains(s.plane.ledge("get", "node", b.name, "-o", "json"), `"by": "hand"`))
	s.plane.apply(fleetPod("bare", b.name))
	s.says("bare", " Running ", s.pods)
	must(s.t, contains(s.plane.ledge("logs", "bare"), "join it by a token"))
	b.must("logs", "bare") // on the board itself
	s.figures(b)
	s.refused(s.board(), "another board has joined as", append(s.line(), "--hostname-override", b.name)...)
	s.plane.must("delete", "pod", "bare")
	must(s.t, b.signal(syscall.SIGTERM))
}

// replaced puts another board in the place of one: its Node is deleted, and who had the name is turned away.
func (s *shed) replaced(old *testBoard) {
	s.t.Helper()
	_ = old.signal(syscall.SIGKILL)
	s.plane.must("delete", "node", old.name)
	spare := s.board()
	spare.join(append(s.line("--node", old.name), "--hostname-override", old.name)...)
	s.ready(old.name)
	old.join("--server", "https://"+s.plane.address(1))
	s.plane.eventually("the old board is told", func() error {
		data, err := os.ReadFile(old.log.Name())
		return errors.Join(err, contains(string(data), "another board has joined as"))
	})
}
