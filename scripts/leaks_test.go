// Package scripts_test holds the scripts that judge the tests to what they promise.
package scripts_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
)

func leaks(t *testing.T, args ...string) (string, error) {
	t.Helper()
	cmd := exec.Command("./leaks.sh", args...)
	cmd.Env = append(os.Environ(), "LEDGE_RUN="+args[1]) // as under test.sh
	out, err := cmd.CombinedOutput()
	return string(out), err
}

func shown(t *testing.T, run, dir string) string {
	t.Helper()
	out, err := leaks(t, "show", run, dir)
	if err != nil {
		t.Fatalf("leaks.sh: %v\n%s", err, out)
	}
	return out
}

// Each kind of leftover is seen by the run that made it, and by no other.
func TestLeaks(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	run, dir, file := testrun.Mark()+"k", t.TempDir(), filepath.Join(t.TempDir(), "before")
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	tool := func(line string) {
		t.Helper()
		words := strings.Fields(line)
		if out, err := exec.Command(words[0], words[1:]...).CombinedOutput(); err != nil {
			t.Errorf("%s: %v %s", line, err, out)
		}
	}
	base := shown(t, run, dir)
	if strings.Contains(base, run) {
		t.Fatalf("before anything was made:\n%s", base)
	}
	if out, err := leaks(t, "save", run, dir, file); err != nil {
		t.Fatal(err, out)
	}

	cgroup := "/sys/fs/cgroup/" + run
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		cgroup = "/sys/fs/cgroup/memory/" + run
	}
	port := fmt.Sprintf("lv%012x", os.Getpid()) // as a pod's, which names the node in its alias only (network/bridge)
	sleep := exec.Command("sleep", "1000")
	sleep.Env = []string{"LEDGE_RUN=" + run}
	clean := sync.OnceFunc(func() {
		_ = sleep.Process.Kill()
		_ = sleep.Wait()
		tool("nft delete table ip ledge_" + run)
		tool("ip link del " + run)
		tool("ip link del " + port)
		if err := errors.Join(unix.Unmount(filepath.Join(dir, "m"), 0), os.Remove(filepath.Join(dir, "m")), os.Remove(cgroup),
			os.Remove("/run/"+run)); err != nil {
			t.Error(err)
		}
	})
	must(sleep.Start())
	t.Cleanup(clean)
	must(os.Mkdir(filepath.Join(dir, "m"), 0o700))
	must(unix.Mount(run, filepath.Join(dir, "m"), "tmpfs", 0, ""))
	must(os.Mkdir(cgroup, 0o755))
	must(os.Mkdir("/run/"+run, 0o700))
	tool("ip link add " + run + " type bridge")
	tool("ip link add " + port + " type veth peer name " + port + "p")
	must(exec.Command("ip", "link", "set", port, "alias", "ledge pod some-uid 10.42.0.2,,"+run).Run())
	tool("nft add table ip ledge_" + run)

	all := shown(t, run, dir)
	for _, want := range []string{"file " + dir + "/m", "cgroup " + cgroup, "file /run/" + run,
		"interface " + run, "interface " + port + "\n", "nftables table ip ledge_" + run, "sleep 1000"} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in:\n%s", want, all)
		}
	}
	if out, err := leaks(t, "check", run, dir, file); err == nil || !strings.Contains(out, cgroup) {
		t.Errorf("check passes: %v\n%s", err, out)
	}
	if others := shown(t, run+"x", t.TempDir()); strings.Contains(others, run) {
		t.Errorf("another run sees:\n%s", others)
	}
	clean()
	if out, err := leaks(t, "check", run, dir, file); err != nil {
		t.Errorf("when all is gone again: %v\n%s", err, out)
	}
}
