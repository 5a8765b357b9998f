package e2e

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// resetsAll takes this board off the machine, by its run directory alone.
func (b *testBoard) resetsAll() {
	b.t.Helper()
	b.must("reset", "--data")
	if left := b.leftovers(); len(left) > 0 {
		b.t.Error("left:", left)
	}
	if _, err := os.Stat(b.data); !errors.Is(err, os.ErrNotExist) {
		b.t.Error("its data is still there:", err)
	}
}

// What verbs do to a node's data they do to that of the node that they find by its run directory, and no other.
func TestResetIsForOneNode(t *testing.T) {
	a, b := newBoard(t), newBoard(t)
	a.serve()
	b.serve("--cgroup-root", "/"+b.name+"/") // it means the same
	must(t, b.signal(syscall.SIGTERM))
	if out, err := b.try("reset", "--data", "--data-dir", a.data); err == nil || !strings.Contains(out, "stop it first") {
		t.Fatalf("a node that runs lost its data: %v %s", err, out)
	}
	b.resetsAll()
	for _, verb := range [][]string{{"reset", "--data"}, {"backup", "restore", a.config}, {"backup", "save", b.data}} {
		if out, err := b.try(verb...); err == nil || !strings.Contains(out, "--data-dir") {
			t.Errorf("%v: it is not said whose data is meant: %v %s", verb, err, out)
		}
	}
	b.must("reset") // that there is nothing is no mistake
	a.apply(webPod)
	a.running("web")
}

// Who fails at the last step of a start has made a bridge, a table and a keeper's run state by then: reset finds them.
func TestResetAfterAFailedStart(t *testing.T) {
	b := newBoard(t)
	if text, err := b.refusesToStart("--watchdog", "/dev/null"); err == nil || !strings.Contains(text, "arm the watchdog") { // no watchdog
		t.Fatalf("%v %s", err, text)
	}
	b.resetsAll()
}

const hostFilesPod = `apiVersion: v1
kind: Pod
metadata:
  name: web
spec:
  volumes: [{name: host, hostPath: {path: "$HOST"}}]
  containers:
  - name: web
    image: ledge.local/self
    args: ["httpd", "-p", "8080"]
    volumeMounts: [{name: host, mountPath: /host, subPath: sub}]
`

// What a pod has of the host's own files is mounted below the run directory: a reset takes the mount away, never the files, however the
// directory is written.
func TestResetLeavesTheHostsFiles(t *testing.T) {
	onHost(t)
	for name, place := range map[string]func(b *testBoard) (given string){
		"space": func(b *testBoard) string { b.runDir += " with a space"; return b.runDir },
		"relative": func(b *testBoard) string {
			b.cwd = filepath.Dir(b.runDir)
			return filepath.Base(b.runDir)
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			given := place(b)
			precious := filepath.Join(t.TempDir(), "sub", "precious")
			must(t, os.Mkdir(filepath.Dir(precious), 0o700))
			must(t, os.WriteFile(precious, []byte("the host's"), 0o600))
			b.serve("--run-dir", given)
			b.apply(strings.ReplaceAll(hostFilesPod, "$HOST", filepath.Dir(filepath.Dir(precious))))
			b.running("web")
			must(t, b.signal(syscall.SIGTERM))
			b.must("reset", "--run-dir", given, "--data")
			if _, err := os.Stat(precious); err != nil {
				t.Error("a file of the host's was removed:", err)
			}
			if left := b.leftovers(); len(left) > 0 {
				t.Error("left:", left)
			}
		})
	}
}

// Directories that are no node's are left as they are, by a reset and by a start that would make them its own.
func TestDirectoriesOfOthers(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	others := t.TempDir()
	must(t, os.WriteFile(filepath.Join(others, "precious"), nil, 0o600))
	open := t.TempDir()
	must(t, os.Chmod(open, 0o1777))
	for _, tc := range []struct {
		args []string
		want string
	}{
		{[]string{"reset", "--run-dir", others}, "no run state of a node"},
		{[]string{"reset", "--data", "--data-dir", others}, "no store of a node"},
		{[]string{"reset", "--data-dir", others}, "no store of a node"},
		{[]string{"serve", "--run-dir", others, "--data-dir", b.data, "--config", b.config}, "is not a node's"},
		{[]string{"serve", "--run-dir", open, "--data-dir", b.data, "--config", b.config}, "others may write there"},
		{[]string{"keeper", "--run-dir", open}, "others may write there"},
	} {
		if out, err := b.try(tc.args...); err == nil || !strings.Contains(out, tc.want) || strings.Count(out, "\n") != 1 {
			t.Errorf("%v: %v %s", tc.args, err, out)
		}
	}
	if _, err := os.Stat(filepath.Join(others, "precious")); err != nil {
		t.Error(err)
	}
	for _, dir := range []string{others, open} {
		if entries, err := os.ReadDir(dir); err != nil || len(entries) != map[bool]int{true: 1}[dir == others] {
			t.Error(dir, entries, err)
		}
	}
}

// Where the directories are mount points their contents go, and they stay.
func TestResetOfMountPoints(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	for _, dir := range []string{b.data, b.runDir} {
		must(t, os.Mkdir(dir, 0o700))
		must(t, syscall.Mount("none", dir, "tmpfs", 0, "mode=700"))
	}
	must(t, os.Mkdir(filepath.Join(b.data, "lost+found"), 0o700))
	unmount := func() {
		for _, dir := range []string{b.data, b.runDir} {
			_ = syscall.Unmount(dir, syscall.MNT_DETACH)
			_ = os.Remove(dir)
		}
	}
	t.Cleanup(unmount) // before what looks for leftovers
	b.serve()
	b.apply(webPod)
	b.running("web")
	must(t, b.signal(syscall.SIGTERM))
	b.must("reset", "--data")
	for dir, want := range map[string]string{b.data: "[d lost+found/]", b.runDir: "[]"} {
		if left, err := os.ReadDir(dir); err != nil || fmt.Sprint(left) != want {
			t.Error(dir, left, err)
		}
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(dir, "is no mount point any more:", err)
		}
	}
}
