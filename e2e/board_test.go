package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/internal/testrun"
)

// build gives the real, static binary: LEDGE_BIN, or one that is built when the first test asks.
var build = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("LEDGE_BIN"); path != "" {
		return path, nil
	}
	dir, err := os.MkdirTemp("", "ledge-bin")
	if err != nil {
		return "", err
	}
	built = dir
	path := filepath.Join(dir, "ledge")
	if out, err := exec.Command("../scripts/build.sh", path).CombinedOutput(); err != nil {
		return "", fmt.Errorf("build ledge: %w\n%s", err, out)
	}
	return path, nil
})

// built is the directory of a binary that was built here.
var built string

func TestMain(m *testing.M) {
	if name := os.Getenv("LEDGE_TEST_ASK"); name != "" {
		os.Exit(askAsGo(name))
	}
	if what := os.Getenv("LEDGE_TEST_CALL"); what != "" {
		os.Exit(callOften(what))
	}
	code := m.Run()
	if built != "" {
		if err := os.RemoveAll(built); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

func ledgeBin(t testing.TB) string {
	t.Helper()
	path, err := build()
	must(t, err)
	return path
}

// onHost leaves out of the emulated guest what another kernel does not change.
func onHost(t *testing.T) {
	t.Helper()
	testrun.OnHost(t)
}

// needGo leaves out of the guest what builds kubectl.
func needGo(t *testing.T) {
	t.Helper()
	if os.Getenv("LEDGE_VM") != "" {
		t.Skip("there is no Go in the guest")
	}
}

var boards atomic.Int32

// brain is a node of its own for one test: directories, port, bridge and cgroup that nothing else has.
type testBoard struct {
	t      *testing.T
	name   string // bridge, cgroup and run directory are named so: leftovers can be told
	runDir string
	data   string
	config string
	port   int
	cmd    *exec.Cmd
	log    *os.File
	done   chan error
	over   bool   // finished already
	netns  string // of the network that the board stands in; empty: the machine's
	cwd    string // where ledge is started; empty: here

	commandLine []string // that starts the brain; nil: as every test does
}

// anyMachine: how full the disk of the machine is that runs the tests must not matter to them, nor its swap.
const anyMachine = `failSwapOn: false
evictionHard: {nodefs.available: 16Mi, nodefs.inodesFree: 1%, imagefs.available: 16Mi, imagefs.inodesFree: 1%}
`

const boardConfig = "shutdownGracePeriod: 30s\nshutdownGracePeriodCriticalPods: 10s\n" + anyMachine

func newBoard(t *testing.T) *testBoard {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	// Two digits, for as many as there are: no name is the beginning of another's.
	name := testrun.Mark() + "-" + strconv.FormatInt(int64(36+boards.Add(1)), 36)
	dir := t.TempDir()
	b := &testBoard{t: t, name: name, runDir: "/run/" + name, data: filepath.Join(dir, "data"),
		config: filepath.Join(dir, "config.yaml"), port: freePort(t)}
	if err := os.WriteFile(b.config, []byte(boardConfig), 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	if b.log, err = os.Create(filepath.Join(dir, "log")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(b.finish)
	return b
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

// serve starts the brain and waits until the node is Ready.
func (b *testBoard) serve(args ...string) {
	b.t.Helper()
	b.start(args...)
	b.eventually("the node is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
}

// refusesToStart starts the brain, waits until it has ended, and says what it wrote and how it ended.
func (b *testBoard) refusesToStart(args ...string) (text string, err error) {
	b.t.Helper()
	b.start(args...)
	select {
	case err = <-b.done:
		b.cmd = nil
	case <-time.After(testrun.Patience(30 * time.Second)):
		b.t.Fatal("it started")
	}
	data, rerr := os.ReadFile(b.log.Name())
	must(b.t, rerr)
	return string(data), err
}

func (b *testBoard) start(args ...string) {
	b.t.Helper()
	b.launch("serve", append([]string{"--listen", fmt.Sprintf("127.0.0.1:%d", b.port)}, args...)...)
}

// launch starts a brain that serves, or an agent.
func (b *testBoard) launch(verb string, args ...string) {
	b.t.Helper()
	all := append([]string{"--run-dir", b.runDir, verb, "--data-dir", b.data, "--config", b.config, "--bridge", b.name,
		"--cgroup-root", "/" + b.name, "--hostname-override", b.name, "--power-backend=none",
		"--safe-mode-after=0"}, args...)
	if b.cmd = b.command(context.Background(), all...); b.commandLine != nil {
		b.cmd = exec.Command(b.commandLine[0], b.commandLine[1:]...)
	}
	b.cmd.Stdout, b.cmd.Stderr = b.log, b.log
	b.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := b.cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	done := make(chan error, 1)
	b.done = done
	cmd := b.cmd
	go func() { done <- cmd.Wait() }()
}

// signal ends the brain and gives its verdict.
func (b *testBoard) signal(sig syscall.Signal) error {
	b.t.Helper()
	if err := b.cmd.Process.Signal(sig); err != nil {
		b.t.Fatal(err)
	}
	select {
	case err := <-b.done:
		b.cmd = nil
		return err
	case <-time.After(testrun.Patience(60 * time.Second)):
		b.t.Fatalf("the brain did not end after %v", sig)
		return nil
	}
}

// ledge runs a verb and gives what it printed.
func (b *testBoard) ledge(args ...string) string {
	b.t.Helper()
	out, err := b.try(args...)
	if err != nil {
		return out + err.Error()
	}
	return out
}

func (b *testBoard) must(args ...string) string {
	b.t.Helper()
	out, err := b.try(args...)
	if err != nil {
		b.t.Fatalf("ledge %v: %v\n%s", args, err, out)
	}
	return out
}

func (b *testBoard) try(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testrun.Patience(90*time.Second))
	defer cancel()
	out, err := b.command(ctx, append([]string{"--run-dir", b.runDir}, args...)...).CombinedOutput()
	return string(out), err
}

// command is ledge in the network that the board stands in.
func (b *testBoard) command(ctx context.Context, args ...string) *exec.Cmd {
	if b.netns == "" {
		cmd := exec.CommandContext(ctx, ledgeBin(b.t), args...)
		cmd.Dir = b.cwd
		return cmd
	}
	return exec.CommandContext(ctx, "nsenter", append([]string{"--net=/run/netns/" + b.netns, ledgeBin(b.t)}, args...)...)
}

func (b *testBoard) apply(yaml string) {
	b.t.Helper()
	b.must("apply", "-f", b.yaml(yaml))
}

// yaml writes objects into a file.
func (b *testBoard) yaml(text string) (file string) {
	b.t.Helper()
	file = filepath.Join(b.t.TempDir(), "objects.yaml")
	must(b.t, os.WriteFile(file, []byte(text), 0o600))
	return file
}

func (b *testBoard) eventually(what string, f func() error) {
	b.t.Helper()
	testrun.Succeeds(b.t, 90*time.Second, what, f)
}

func contains(have, want string) error {
	if !strings.Contains(have, want) {
		return fmt.Errorf("no %q in:\n%s", want, have)
	}
	return nil
}

// running waits for a pod and gives the PID of its first process.
func (b *testBoard) running(pod string) int {
	b.t.Helper()
	b.eventually(pod+" runs", func() error { return contains(b.ledge("get", "pod", pod), " Running ") })
	pids := b.processes("/kubepods/")
	if len(pids) == 0 {
		b.t.Fatalf("no process of %s", pod)
	}
	// A container runs from the moment it is let go, a little before its program has taken the place of its beginning.
	b.eventually(pod+" runs its own program", func() error {
		environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pids[0]))
		if bytes.Contains(environ, []byte("_LIBCONTAINER_")) {
			return errors.New("still beginning")
		}
		return err
	})
	return pids[0]
}

// processes are those in cgroups of this board whose path has the word in it.
func (b *testBoard) processes(word string) (pids []int) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cgroup"))
		if err == nil && bytes.Contains(data, []byte("/"+b.name+"/")) && bytes.Contains(data, []byte(word)) {
			pids = append(pids, pid)
		}
	}
	slices.Sort(pids) // the oldest first; the directory has them by letters
	return pids
}

// keeperPID finds the keeper of this board by its command line; 0 when none runs.
func (b *testBoard) keeperPID() int {
	b.t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		b.t.Fatal(err)
	}
	want := b.runDir + "\x00keeper\x00"
	for _, e := range entries {
		data, err := os.ReadFile(filepath.Join("/proc", e.Name(), "cmdline"))
		if pid, perr := strconv.Atoi(e.Name()); err == nil && perr == nil && bytes.Contains(data, []byte(want)) {
			return pid
		}
	}
	return 0
}

func (b *testBoard) killKeeper() int {
	b.t.Helper()
	pid := b.keeperPID()
	if pid == 0 {
		b.t.Fatal("no keeper runs")
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		b.t.Fatal(err)
	}
	return pid
}

// finish removes the board and fails the test if anything of it is left on the machine.
func (b *testBoard) finish() {
	if b.over {
		return
	}
	if b.cmd != nil {
		_ = b.cmd.Process.Kill() // it may have ended by itself
		<-b.done
	}
	if out, err := b.try("reset", "--data", "--data-dir", b.data); err != nil {
		b.t.Errorf("reset: %v\n%s", err, out)
	}
	if left := b.leftovers(); len(left) > 0 {
		b.t.Errorf("left behind: %v", left)
	}
	if b.t.Failed() {
		if data, err := os.ReadFile(b.log.Name()); err == nil {
			b.t.Logf("log:\n%s", tail(string(data), 6000))
		}
	}
	b.log.Close()
}

func tail(s string, n int) string { return s[max(0, len(s)-n):] }

func (b *testBoard) leftovers() (left []string) {
	for end := time.Now().Add(testrun.Patience(10 * time.Second)); ; time.Sleep(100 * time.Millisecond) {
		if left = b.look(); len(left) == 0 || time.Now().After(end) {
			return left
		}
	}
}

// interfacesOf are a node's bridge and what names it in its alias: those of pods, which are named by a hash.
func interfacesOf(t *testing.T, bridge string) (out []string) {
	t.Helper()
	dirs, err := filepath.Glob("/sys/class/net/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, dir := range dirs {
		alias, _ := os.ReadFile(filepath.Join(dir, "ifalias")) // it may have gone meanwhile
		words := strings.FieldsFunc(string(alias), func(r rune) bool { return strings.ContainsRune(" ,\n", r) })
		if filepath.Base(dir) == bridge || slices.Contains(words, bridge) {
			out = append(out, "interface "+filepath.Base(dir)+" "+strings.TrimSpace(string(alias)))
		}
	}
	return out
}

func (b *testBoard) look() (left []string) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(mounts)) {
		if strings.Contains(line, b.name) {
			left = append(left, "mount "+line)
		}
	}
	for _, p := range b.processes("") {
		left = append(left, "process "+strconv.Itoa(p))
	}
	left = append(left, interfacesOf(b.t, b.name)...)
	if out, err := exec.Command("nft", "list", "tables").Output(); err == nil &&
		bytes.Contains(out, []byte(strings.ReplaceAll(b.name, "-", "."))) {
		left = append(left, "nftables "+string(out))
	}
	left = append(left, b.cgroupsNamed("/"+b.name)...)
	if _, err := os.Stat(b.runDir); !errors.Is(err, os.ErrNotExist) {
		left = append(left, b.runDir)
	}
	return left
}

const webPod = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  terminationGracePeriodSeconds: 2
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
`

func logPod(name string) string {
	return `apiVersion: v1
kind: Pod
metadata:
  name: ` + name + `
spec:
  restartPolicy: Never
  containers:
  - name: main
    image: ledge.local/self
    args: ["echo", "hello from ` + name + `"]
`
}

func TestPodLife(t *testing.T) {
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	b.running("web")
	var pod struct {
		Status struct{ PodIP string }
	}
	if err := json.Unmarshal([]byte(b.must("get", "pod", "web", "-o", "json")), &pod); err != nil || pod.Status.PodIP == "" {
		t.Fatalf("%v %+v", err, pod)
	}
	b.eventually("the pod answers", func() error {
		c := http.Client{Timeout: testrun.Patience(5 * time.Second)}
		answer, err := c.Get("http://" + pod.Status.PodIP + ":8080/")
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		body, err := io.ReadAll(answer.Body)
		return errors.Join(err, contains(string(body), "web "+pod.Status.PodIP))
	})
	if links := interfacesOf(t, b.name); !slices.ContainsFunc(links,
		func(l string) bool { return strings.Contains(l, "ledge pod "+string(b.pod("web").UID)) }) {
		t.Errorf("the pod's interface does not name the node, and would be no leftover: %v", links)
	}
	b.apply(logPod("speaker"))
	b.eventually("it has ended", func() error { return contains(b.ledge("get", "pod", "speaker"), "Completed") })
	if got := b.must("logs", "speaker"); got != "hello from speaker\n" {
		t.Fatalf("log %q", got)
	}
	b.must("delete", "pod", "web", "speaker")
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Fatalf("processes after delete: %v", p)
	}
	if got := b.must("get", "pods"); !strings.Contains(got, "No resources found") {
		t.Fatal(got)
	}
}

// What a kill -9 of each process, and of both, does to a running pod: nothing.
func TestKills(t *testing.T) {
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	pid := b.running("web")
	network := func() string { // which the node chose itself
		t.Helper()
		link, err := net.InterfaceByName(b.name)
		must(t, err)
		addrs, err := link.Addrs()
		must(t, err)
		return fmt.Sprint(addrs, " ", b.pod("web").Status.PodIPs)
	}
	chosen := network()
	steady := func(after string) {
		t.Helper()
		b.eventually("after "+after+" the pod is Running and the node Ready", func() error {
			return errors.Join(contains(b.ledge("get", "pod", "web"), "1/1     Running   0 "), contains(b.ledge("get", "nodes"), " Ready "))
		})
		if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pid {
			t.Fatalf("after %s: processes %v, was %d", after, got, pid)
		}
		if now := network(); now != chosen {
			t.Errorf("after %s: addresses of bridge and pod %s, were %s", after, now, chosen)
		}
	}
	_ = b.signal(syscall.SIGKILL) // its verdict is the kill
	b.serve()
	steady("a kill of the brain")

	if err := b.signal(syscall.SIGTERM); err != nil { // detach is the default
		t.Fatalf("SIGTERM: %v", err)
	}
	if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pid {
		t.Fatalf("after SIGTERM: processes %v, was %d", got, pid)
	}
	b.serve()
	steady("a restart of the brain")

	keeper := b.killKeeper()
	b.eventually("a new keeper runs", func() error {
		if now := b.keeperPID(); now == keeper || now == 0 {
			return fmt.Errorf("still %d", now)
		}
		return nil
	})
	steady("a kill of the keeper")

	b.killKeeper()
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	steady("a kill of both")
	b.must("delete", "pod", "web") // and the pod is still theirs to stop
}

func TestDeleteWhileTheBrainIsAway(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	b.running("web")
	b.must("delete", "pod", "web", "--force", "--wait=false")
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.eventually("the processes are gone", func() error {
		if p := b.processes("/kubepods/"); len(p) > 0 {
			return fmt.Errorf("%v", p)
		}
		return nil
	})
}

func TestDrainLeavesNothing(t *testing.T) {
	testrun.OnHost(t)
	b := newBoard(t)
	b.serve("--on-term=drain")
	b.apply(strings.Replace(webPod, "spec:\n", "spec:\n  restartPolicy: Never\n", 1)) // others come back at the next start
	b.running("web")
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Fatalf("drain: %v", err)
	}
	if left := b.processes(""); len(left) > 0 {
		t.Fatalf("processes: %v", left)
	}
	if left := interfacesOf(t, b.name); len(left) > 0 {
		t.Fatalf("interfaces: %v", left)
	}
	b.serve()
	if got := b.ledge("get", "pod", "web"); !strings.Contains(got, "Terminated") { // N-5.27, N-11.26
		t.Fatal(got)
	}
	if s := b.pod("web").Status; s.Reason != "Terminated" || s.Message != "Pod was terminated in response to imminent node shutdown." {
		t.Errorf("%s: %s", s.Reason, s.Message)
	} else if !slices.ContainsFunc(s.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" &&
			c.Message == s.Message
	}) {
		t.Errorf("%+v", s.Conditions)
	}
}

func TestTwoNodesSideBySide(t *testing.T) {
	onHost(t)
	a, b := newBoard(t), newBoard(t)
	a.serve()
	b.serve()
	for _, n := range []*testBoard{a, b} {
		n.apply(webPod)
		n.running("web")
	}
	ipOf := func(n *testBoard) string {
		return strings.Fields(strings.Split(n.must("get", "pod", "web", "-o", "wide"), "\n")[1])[5]
	}
	if ipOf(a) == ipOf(b) {
		t.Fatalf("both pods have %s", ipOf(a))
	}
	a.must("delete", "pod", "web")
	if len(b.processes("/kubepods/")) != 1 {
		t.Fatal("deleting on one node touched the other")
	}
}

func TestBackupVerb(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\ndata: {a: b}\n")
	file := filepath.Join(t.TempDir(), "backup")
	b.must("backup", "save", file)
	b.must("backup", "verify", file)
	b.must("delete", "cm", "kept")
	if out, err := b.try("backup", "restore", file, "--data-dir", b.data); err == nil || !strings.Contains(out, "stop it first") {
		t.Fatalf("restored under a running node: %v %s", err, out)
	}
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.must("backup", "restore", file) // the run directory knows where the data is
	b.must("backup", "save", file)
	b.serve()
	b.must("get", "cm", "kept")
	if err := os.WriteFile(file, []byte("garbage"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out, err := b.try("backup", "verify", file); err == nil {
		t.Fatalf("garbage verified: %s", out)
	}
}

func TestRefusals(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	for want, yaml := range map[string]string{
		"not supported by ledge yet": strings.Replace(webPod, "containers:", "os: {name: windows}\n  containers:", 1),
		"unknown field":              strings.Replace(webPod, "args:", "argz:", 1),
		"does not know objects":      "apiVersion: example.org/v1\nkind: Poodle\nmetadata: {name: x}\n",
	} {
		file := filepath.Join(t.TempDir(), "x.yaml")
		if err := os.WriteFile(file, []byte(yaml), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := b.try("apply", "-f", file); err == nil || !strings.Contains(out, want) {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// Bad input: one clear line, exit code not 0, nothing half-made.
func TestBadStarts(t *testing.T) {
	onHost(t)
	running := newBoard(t)
	running.serve()
	fresh := func(t *testing.T) *testBoard { b := newBoard(t); return b }
	for name, tc := range map[string]struct {
		prepare func(b *testBoard) []string
		want    string
	}{
		"broken configuration": {func(b *testBoard) []string {
			must(t, os.WriteFile(b.config, []byte("maxPods: [1"), 0o600))
			return nil
		}, "configuration"},
		"unknown key": {func(b *testBoard) []string {
			must(t, os.WriteFile(b.config, []byte("maxPodz: 5"), 0o600))
			return nil
		}, "maxPodz"},
		"missing configuration": {func(b *testBoard) []string { must(t, os.Remove(b.config)); return nil }, "no such file"},
		"unwritable data directory": {func(b *testBoard) []string {
			must(t, os.WriteFile(b.data, nil, 0o600))
			b.t.Cleanup(func() { must(t, os.Remove(b.data)) }) // a reset takes no file for a node's data
			return nil
		}, "cannot make"},
		"no data directory": {func(b *testBoard) []string { return []string{"--data-dir", "/dev/null"} }, "not a directory"},
		"warnings first": {func(b *testBoard) []string {
			return []string{"--node-ip", "x", "--pod-eviction-timeout", "1s", "--data-dir", "/dev/null"}
		}, "not a directory"},
		"no pods": {func(b *testBoard) []string {
			must(t, os.WriteFile(b.config, []byte("maxPods: -1"), 0o600))
			return nil
		}, "maxPods: -1"},
		"more memory than there is": {func(b *testBoard) []string {
			must(t, os.WriteFile(b.config, []byte("failSwapOn: false\nkubeReserved: {memory: 10000Gi}"), 0o600))
			return nil
		}, "kubeReserved: memory: 10000Gi is more than there is"},
		"read-only file system": {func(b *testBoard) []string {
			dir := t.TempDir()
			must(t, syscall.Mount("none", dir, "tmpfs", syscall.MS_RDONLY, ""))
			b.t.Cleanup(func() { must(t, syscall.Unmount(dir, 0)) })
			return []string{"--data-dir", filepath.Join(dir, "a", "data")}
		}, "read-only file system"},
		"no watchdog": {func(b *testBoard) []string { return []string{"--watchdog", "/dev/nonesuch"} }, "no such file"},
		"bad bridge":  {func(b *testBoard) []string { return []string{"--bridge", "9x"} }, "want a letter"},
		"bridge of others": {func(b *testBoard) []string { return []string{"--bridge", "lo"} },
			"--bridge lo: an interface of that name exists that ledge did not make"},
		"loopback CIDR":   {func(b *testBoard) []string { return []string{"--pod-cidr", "127.0.0.0/24"} }, "private network"},
		"relative cgroup": {func(b *testBoard) []string { return []string{"--cgroup-root", "x"} }, "begin with /"},
		"long run dir": {func(b *testBoard) []string { return []string{"--run-dir", b.data + strings.Repeat("/long", 20)} },
			"give a shorter one"},
		"new parents": {func(b *testBoard) []string {
			return []string{"--data-dir", filepath.Join(b.data, "a", "b"), "--listen", fmt.Sprintf("127.0.0.1:%d", running.port)}
		}, "taken"},
		"port in use":     {func(b *testBoard) []string { return []string{"--listen", fmt.Sprintf("127.0.0.1:%d", running.port)} }, "taken"},
		"data dir in use": {func(b *testBoard) []string { return []string{"--data-dir", running.data} }, "another ledge"},
		"run dir in use":  {func(b *testBoard) []string { return []string{"--run-dir", running.runDir} }, "another"},
		"bad label":       {func(b *testBoard) []string { return []string{"--node-labels", "kubernetes.io/x=y"} }, "reserved"},
		"bad taint":       {func(b *testBoard) []string { return []string{"--register-with-taints", "a=b"} }, "effect"},
		"cloud provider":  {func(b *testBoard) []string { return []string{"--cloud-provider", "aws"} }, "external"},
		"kubeconfig":      {func(b *testBoard) []string { return []string{"--kubeconfig", "/x"} }, "ledge agent"},
		"unknown flag":    {func(b *testBoard) []string { return []string{"--frobnicate"} }, "frobnicate"},
		"bad name":        {func(b *testBoard) []string { return []string{"--hostname-override", "a_b"} }, "hostname-override"},
	} {
		t.Run(name, func(t *testing.T) {
			b := fresh(t)
			data, err := b.refusesToStart(tc.prepare(b)...)
			if err == nil || !strings.HasPrefix(data, "ledge: ") || strings.Count(data, "\n") != 1 || !strings.Contains(data, tc.want) {
				t.Fatalf("%v\n%s", err, data)
			}
			for _, dir := range []string{b.data, b.runDir} {
				if info, err := os.Lstat(dir); err == nil && info.IsDir() {
					t.Errorf("it left %s", dir)
				}
			}
		})
	}
	for name, tc := range map[string]struct {
		without []string // a program that takes something away, and runs ledge
		want    string
	}{
		"missing privilege": {[]string{"setpriv", "--bounding-set=-sys_admin", "--inh-caps=-sys_admin"},
			"privileges: missing: CAP_SYS_ADMIN"},
		"missing kernel feature": {[]string{"unshare", "--mount", "sh", "-c", `umount -R /sys/fs/cgroup && exec "$@"`, "sh"},
			"cgroups: no hierarchy is mounted; mount"},
	} {
		t.Run(name, func(t *testing.T) {
			b := fresh(t)
			ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(30*time.Second))
			defer cancel()
			cmd := append(tc.without, ledgeBin(t), "--run-dir", b.runDir, "serve", "--data-dir", b.data, "--config", b.config, "--bridge", b.name,
				"--cgroup-root", "/"+b.name, "--listen", "")
			out, err := exec.CommandContext(ctx, cmd[0], cmd[1:]...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "cannot run pods: "+tc.want) || strings.Count(string(out), "\n") != 1 {
				t.Fatalf("%v\n%s", err, out)
			}
			for _, dir := range []string{b.data, b.runDir} {
				if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
					t.Errorf("it made %s", dir)
				}
			}
		})
	}
	running.apply(webPod) // and the node they ran into is unharmed
	running.running("web")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
