package e2e

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// changes has a node whose pod runs, and one whose pod is gone, start under another name: it is refused first, and then leaves what it
// had under the old one.
func (b *testBoard) changes(flag, was, now string) {
	b.t.Helper()
	b.serve()
	b.apply(webPod)
	pid := b.running("web")
	b.apply(logPod("done"))
	b.eventually("a pod has ended, and what it stood on is gone", func() error {
		held, err := filepath.Glob(b.runDir + "/pods/*")
		joined, nerr := filepath.Glob(b.runDir + "/network/pod-*.json")
		if len(held) != 1 || len(joined) != 1 {
			return fmt.Errorf("%v, %v", held, joined)
		}
		return errors.Join(err, nerr, contains(b.ledge("get", "pod", "done"), "Completed"))
	})
	must(b.t, b.signal(syscall.SIGTERM))
	if text, err := b.refusesToStart(flag, now); err == nil || !strings.Contains(text, "this node had "+flag+" "+was+", and pods (1) stand there") {
		b.t.Fatalf("%v %s", err, text)
	}
	b.serve()
	if b.running("web") != pid {
		b.t.Error("the pod does not run on")
	}
	b.must("delete", "pod", "web")
	must(b.t, b.signal(syscall.SIGTERM))
	b.serve(flag, now)
	b.apply(webPod)
	b.eventually("a pod runs", func() error { return contains(b.ledge("get", "pod", "web"), " Running ") })
}

// Another bridge for the same directories.
func TestAnotherBridge(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	other := b.name + "b"
	b.changes("--bridge", b.name, other)
	gone := func(name string) {
		t.Helper()
		if _, err := net.InterfaceByName(name); err == nil {
			t.Error("left: bridge", name)
		}
		table := "table ip ledge_" + strings.ReplaceAll(name, "-", ".")
		if out, err := exec.Command("nft", "list", "tables").Output(); err == nil && strings.Contains(string(out), table+"\n") {
			t.Error("left:", table)
		}
	}
	gone(b.name)
	b.must("delete", "pod", "web")
	must(t, b.signal(syscall.SIGTERM))
	b.serve("--bridge", "none") // that none is wanted is a change, too
	gone(other)
}

// Another cgroup root for the same directories.
func TestAnotherCgroupRoot(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	other := "/" + b.name + "o"
	b.changes("--cgroup-root", "/"+b.name, other)
	if left := b.cgroupsNamed("/" + b.name); len(left) > 0 {
		t.Error("left:", left)
	}
	must(t, b.signal(syscall.SIGTERM))
	b.resetsAll()
	if left := b.cgroupsNamed(other); len(left) > 0 {
		t.Error("left:", left)
	}
}

// Of the cgroups that the root stands in those go that were made for it, and no others.
func TestCgroupRootInAnother(t *testing.T) {
	b := newBoard(t)
	tops := []string{"/sys/fs/cgroup"}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.procs"); err != nil { // version 1
		procs, err := filepath.Glob("/sys/fs/cgroup/*/cgroup.procs")
		must(t, err)
		tops = nil
		for _, p := range procs {
			tops = append(tops, filepath.Dir(p))
		}
	}
	for _, top := range tops {
		must(t, os.Mkdir(filepath.Join(top, b.name), 0o755))
		t.Cleanup(func() { must(t, os.Remove(filepath.Join(top, b.name))) })
	}
	root := "/" + b.name + "/made/root"
	b.serve("--cgroup-root", root)
	b.apply(webPod)
	b.running("web")
	b.killKeeper() // the next one has not made them
	b.eventually("another keeper runs", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
	must(t, b.signal(syscall.SIGTERM))
	b.must("reset", "--data")
	if left := b.cgroupsNamed("/" + b.name + "/made"); len(left) > 0 {
		t.Error("left:", left)
	}
	if there := b.cgroupsNamed("/" + b.name); len(there) != len(tops) {
		t.Error("of what was there only these are left:", there)
	}
}

// cgroupsNamed are the directories of a cgroup, in each hierarchy.
func (b *testBoard) cgroupsNamed(name string) (all []string) {
	b.t.Helper()
	for _, pattern := range []string{"/sys/fs/cgroup" + name, "/sys/fs/cgroup/*" + name} {
		found, err := filepath.Glob(pattern)
		must(b.t, err)
		all = append(all, found...)
	}
	return all
}
