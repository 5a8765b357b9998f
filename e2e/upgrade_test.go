package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/api"
	"ledge/cli"
	"ledge/internal/testrun"
	"ledge/upgrade"
	"ledge/upgrade/upgradetest"
)

// ownVersion is that of the binary under test.
func ownVersion(t *testing.T) string {
	t.Helper()
	out, err := exec.Command(ledgeBin(t), "version", "-o", "json").Output()
	must(t, err)
	var v cli.Versions
	must(t, json.Unmarshal(out, &v))
	return v.Version
}

// another is the binary under test with another stamp, signed.
func another(t *testing.T, s *upgradetest.Signer, digit string) (file, version string) {
	t.Helper()
	return s.Another(ledgeBin(t), ownVersion(t), digit)
}

// upgrade is the verb with this signer's key.
func (b *testBoard) upgrade(s *upgradetest.Signer, args ...string) (string, error) {
	return b.try(append([]string{"upgrade", "--data-dir", b.data, "--keys", s.Keys}, args...)...)
}

// nodeVersion is what the Node says.
func (b *testBoard) nodeVersion(want string) {
	b.t.Helper()
	b.eventually("the node is Ready as "+want, func() error { return contains(b.ledge("get", "nodes"), api.VersionOf(want)) })
	b.eventually("the node is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
}

// exe is the program that a process is.
func exe(t *testing.T, pid int) string {
	t.Helper()
	path, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", pid))
	must(t, err)
	return path
}

// TestUpgrade: a new version takes the brain's place under a running pod, from a file and from a server, and goes back again;
// the keeper takes it when it starts anew. What is not to be trusted changes nothing.
func TestUpgrade(t *testing.T) {
	onHost(t)
	t.Parallel()
	s := upgradetest.NewSigner(t)
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	pod, keeper, brain := b.running("web"), b.keeperPID(), b.cmd.Process.Pid
	steady := func(version string) {
		t.Helper()
		b.nodeVersion(version)
		if err := contains(b.must("get", "pod", "web"), "1/1     Running   0 "); err != nil {
			t.Error(err)
		}
		if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pod {
			t.Errorf("the pod's processes are %v, was %d", got, pod)
		}
		if b.cmd.Process.Signal(syscall.Signal(0)) != nil || !strings.Contains(b.must("version"), version) {
			t.Errorf("pid %d does not live on, or the verbs are of another version than %s", brain, version)
		}
	}
	own := ownVersion(t)
	if out, err := b.upgrade(s, "--rollback"); err == nil || !strings.Contains(out, "no version to go back to") {
		t.Errorf("%v %s", err, out)
	}
	file, nine := another(t, s, "9")
	b.refused(s, file)
	steady(own)
	if out, err := b.upgrade(s, file); err != nil || !strings.Contains(out, "is well and stays") {
		t.Fatalf("%v %s", err, out)
	}
	steady(nine)
	b.eventually("it is told", func() error { return contains(b.ledge("get", "events"), "Upgraded") })
	if got := b.keeperPID(); got != keeper {
		t.Errorf("the keeper is %d, was %d", got, keeper)
	}
	if out, err := b.upgrade(s, file); err == nil || !strings.Contains(out, "what runs already") {
		t.Errorf("%v %s", err, out)
	}
	older, eight := another(t, s, "8")
	if out, err := b.upgrade(s, older); err == nil || !strings.Contains(out, "--allow-downgrade") {
		t.Errorf("%v %s", err, out)
	}
	server := httptest.NewServer(http.FileServer(http.Dir(filepath.Dir(older))))
	defer server.Close()
	if out, err := b.upgrade(s, "--allow-downgrade", server.URL+"/ledge"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	steady(eight)
	if out, err := b.upgrade(s, server.URL+"/none"); err == nil || !strings.Contains(out, "404") {
		t.Errorf("%v %s", err, out)
	}
	if out, err := b.upgrade(s, "--rollback"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	steady(nine)
	if out := b.must("upgrade", "--status"); contains(out, "runs") != nil || contains(out, eight) != nil {
		t.Error(out)
	}
	if got := b.keeperPID(); got != keeper {
		t.Errorf("the keeper is %d, was %d", got, keeper)
	}
	b.killKeeper()
	b.eventually("there is another keeper", func() error {
		if pid := b.keeperPID(); pid != 0 && strings.Contains(exe(t, pid), nine) {
			return nil
		}
		return errors.New("not yet")
	})
	steady(nine)
	must(t, b.signal(syscall.SIGTERM))
	b.serve() // the program that the machine starts is still the first one
	brain = b.cmd.Process.Pid
	steady(nine)
	b.must("delete", "pod", "web")
}

// refused is everything that is not taken, with the words that say why. It leaves nothing behind.
func (b *testBoard) refused(s *upgradetest.Signer, good string) {
	b.t.Helper()
	data, err := os.ReadFile(good)
	must(b.t, err)
	dir := b.t.TempDir()
	file := func(name string, change func([]byte) []byte, comment string) string {
		path := filepath.Join(dir, name)
		must(b.t, os.WriteFile(path, change(bytes.Clone(data)), 0o700))
		if comment != "" {
			s.Sign(path, comment)
		}
		return path
	}
	same := func(d []byte) []byte { return d }
	head := func(d []byte) []byte { return d[:len(d)/100] } // as good as the whole for most of it
	changed := file("changed", head, "file:ledge")
	must(b.t, os.WriteFile(changed, data[:len(data)/90], 0o600))
	other := upgradetest.NewSigner(b.t)
	elsewhere := file("elsewhere", head, "")
	other.Sign(elsewhere, "file:ledge")
	foreign := func(d []byte) []byte { d[18], d[19] = 0xf3, 0; return head(d) } // riscv
	out, err := b.try("upgrade", "--data-dir", b.data, "--keys", filepath.Join(dir, "none"), good)
	if err == nil || !strings.Contains(out, "no key is trusted on this board: put the public key") {
		b.t.Errorf("without a key: %v %s", err, out)
	}
	for path, want := range map[string]string{
		file("unsigned", head, ""):             "has to be signed",
		changed:                                "does not fit the file",
		elsewhere:                              "does not fit the file", // the same number
		file("foreign", foreign, "file:ledge"): "it is for machine 243, and this board runs",
		file("words", func([]byte) []byte { return []byte("hello") }, "file:ledge"): "no program for Linux",
		file("another", head, "file:backup.tar"):                                    "is not a ledge",
		file("said", same, "file:ledge version:v1.0.0"):                             "was signed as v1.0.0 and is ",
		file("cut", head, "file:ledge-arm64"):                                       "does not run here",
		filepath.Join(dir, "none"):                                                  "no such file",
	} {
		if out, err := b.upgrade(s, path); err == nil || !strings.Contains(out, want) {
			b.t.Errorf("%s: %v %s, want %q", filepath.Base(path), err, out, want)
		}
	}
	entries, err := os.ReadDir(filepath.Join(b.data, "versions"))
	must(b.t, err)
	for _, e := range entries {
		if e.Name() != "lock" && e.Name() != "upgrading" {
			b.t.Errorf("left behind: %s", e.Name())
		}
	}
}

// kept starts the brain again whenever it ends, as systemd does, until do has.
func (b *testBoard) kept(start, do func()) (starts int) {
	b.t.Helper()
	over := make(chan struct{})
	go func() { defer close(over); do() }()
	for {
		select {
		case <-over:
			return starts
		case <-b.done:
			starts++
			start()
		}
	}
}

// TestUpgradeReturns: a version that ends at once, and one that is never well, are given up after three starts.
func TestUpgradeReturns(t *testing.T) {
	needGo(t) // it builds the first of them
	t.Parallel()
	s := upgradetest.NewSigner(t)
	broken := filepath.Join(t.TempDir(), "ledge")
	build := exec.Command("go", "build", "-o", broken, "./testdata/broken")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	s.Sign(broken, "file:ledge")
	own := ownVersion(t)
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	pod := b.running("web")
	fails := func(want string, args ...string) {
		t.Helper()
		var out string
		var err error
		starts := b.kept(func() { b.start() }, func() { out, err = b.upgrade(s, args...) })
		if err == nil || !strings.Contains(out, want) {
			t.Errorf("%v %s, want %q", err, out, want)
		}
		if starts != 3 {
			t.Errorf("%d starts were needed", starts)
		}
	}
	fails("it was not well after 3 starts; "+own, broken)
	back := func() {
		t.Helper()
		b.nodeVersion(own)
		b.eventually("it is told", func() error { return contains(b.ledge("get", "events"), "UpgradeFailed") })
		for _, verb := range [][]string{{"status"}, {"upgrade", "--status"}} {
			if err := contains(b.must(verb...), "does not stay: it was not well after 3 starts"); err != nil {
				t.Error(err)
			}
		}
		if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pod {
			t.Errorf("the pod's processes are %v, was %d", got, pod)
		}
	}
	back()
	if os.Getenv("LEDGE_LONG") == "" {
		return // TestUpgradeAgent has one that is never well, too
	}
	nine, _ := another(t, s, "9")
	keeper := b.keeperPID()
	must(t, syscall.Kill(keeper, syscall.SIGSTOP))
	defer func() { _ = syscall.Kill(keeper, syscall.SIGCONT) }() // it may be gone
	fails("was not well within 10s: the keeper: no answer", "--within", "10s", nine)
	must(t, syscall.Kill(keeper, syscall.SIGCONT))
	back()
}

// TestUpgradeCuts: whoever is killed while an upgrade goes on, and whenever, the board comes up as the old version or as the
// new one, and its pod has not noticed.
func TestUpgradeCuts(t *testing.T) {
	onHost(t)
	t.Parallel()
	rounds := 3
	if os.Getenv("LEDGE_LONG") != "" {
		rounds = 100
	}
	seed, err := strconv.ParseUint(os.Getenv("LEDGE_SEED"), 10, 64)
	if err != nil {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("LEDGE_SEED=%d", seed)
	rnd := rand.New(rand.NewPCG(seed, 57))
	s := upgradetest.NewSigner(t)
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	pod := b.running("web")
	nine, nineVersion := another(t, s, "9")
	eight, eightVersion := another(t, s, "8")
	files, seen := []string{nine, eight}, map[string]int{}
	for round := range rounds {
		ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(90*time.Second))
		cmd := b.command(ctx, "--run-dir", b.runDir, "upgrade", "--data-dir", b.data, "--keys", s.Keys, "--allow-downgrade", files[round%2])
		must(t, cmd.Start())
		// What follows an upgrade takes about this long: copying, the restart, the look at the new version.
		time.Sleep(time.Duration(rnd.Int64N(int64(8 * time.Second))))
		_ = cmd.Process.Kill() // it may be through
		_ = cmd.Wait()         // likewise
		cancel()
		for range 1 + rnd.IntN(2) {
			_ = b.cmd.Process.Kill() // it may have ended by itself
			<-b.done
			b.start()
			time.Sleep(time.Duration(rnd.Int64N(int64(2 * time.Second))))
		}
		b.eventually("the node is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
		out := b.must("get", "nodes")
		for _, v := range []string{ownVersion(t), nineVersion, eightVersion} {
			if strings.Contains(out, api.VersionOf(v)) {
				seen[v]++
			}
		}
		if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pod {
			t.Fatalf("round %d: the pod's processes are %v, was %d", round, got, pod)
		}
		kept, err := filepath.Glob(filepath.Join(b.data, "versions", "ledge-*"))
		must(t, err)
		if len(kept) > 3 { // two that differ, and one that a cut left for the next change to remove
			t.Errorf("round %d: kept are %q", round, kept)
		}
	}
	t.Logf("came up as: %v", seen)
	if total := seen[ownVersion(t)] + seen[nineVersion] + seen[eightVersion]; total != rounds {
		t.Errorf("of %d rounds %v", rounds, seen)
	}
	b.must("delete", "pod", "web")
}

// TestUpgradeAgent: the same on a board that has joined another. A version is well there once the control plane says so: one
// that cannot be heard goes back to the version that could.
func TestUpgradeAgent(t *testing.T) {
	t.Parallel()
	s := upgradetest.NewSigner(t)
	shed := newShed(t, "")
	b := shed.board()
	line := shed.line()
	b.join(line...)
	shed.ready(b.name)
	shed.plane.apply(fleetPod("p", b.name))
	pod := b.running("p")
	nine, version := another(t, s, "9")
	if out, err := b.upgrade(s, nine); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	must(t, contains(shed.plane.must("get", "nodes"), api.VersionOf(version)))
	ip(t, "link", "set", b.link(), "down")
	var out string
	var err error
	starts := b.kept(func() { b.join("--server", line[1]) }, func() { out, err = b.upgrade(s, "--rollback", "--within", "10s") })
	if err == nil || starts != upgrade.MostTries || !strings.Contains(out, "the Node: is not ready; "+"ledge-"+version) {
		t.Errorf("not heard, and %d starts: %v %s", starts, err, out)
	}
	ip(t, "link", "set", b.link(), "up")
	shed.ready(b.name)
	must(t, contains(shed.plane.must("get", "nodes"), api.VersionOf(version)))
	if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pod {
		t.Errorf("the pod's processes are %v, was %d", got, pod)
	}
}

// TestUpgradeNotifies: systemd takes the new version for the process that it knows, which does not stop and is ready again. One
// that is told to end before it has shown anything has not failed.
func TestUpgradeNotifies(t *testing.T) {
	onHost(t)
	m := newServiceManager(t)
	t.Setenv("WATCHDOG_USEC", "30000000")
	s := upgradetest.NewSigner(t)
	b := newBoard(t)
	b.serve()
	m.hears("READY=1")
	nine, version := another(t, s, "9")
	if out, err := b.upgrade(s, "--no-wait", nine); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	var said []string
	for len(said) == 0 || said[len(said)-1] != "READY=1" {
		word := m.next(testrun.Patience(30 * time.Second))
		if said = append(said, word); word == "" || strings.HasPrefix(word, "STOPPING") {
			t.Fatalf("the brain says %q", said)
		}
	}
	if got := exe(t, b.cmd.Process.Pid); !strings.Contains(got, version) {
		t.Errorf("it has become %s", got)
	}
	must(t, b.signal(syscall.SIGTERM))
	if out, err := b.upgrade(s, "--status"); err != nil || !strings.Contains(out, "is on trial, start 0 of 3") {
		t.Errorf("%v %s", err, out)
	}
}
