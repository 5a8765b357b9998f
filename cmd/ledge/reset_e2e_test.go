package main

import (
	"errors"
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
	onHost(t)
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
	onHost(t)
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

// While anything is mounted in a directory, nothing of it is removed: not what lies there, not what is mounted.
func TestRemoveDirSparesMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, host := filepath.Join(t.TempDir(), "a b"), t.TempDir()
	for _, d := range []string{filepath.Join(dir, "m"), filepath.Join(dir, "0")} {
		must(t, os.MkdirAll(d, 0o700))
	}
	precious := filepath.Join(host, "inner", "precious")
	must(t, os.Mkdir(filepath.Dir(precious), 0o700))
	must(t, os.WriteFile(precious, nil, 0o600))
	must(t, syscall.Mount(host, filepath.Join(dir, "m"), "", syscall.MS_BIND, ""))
	must(t, syscall.Mount("none", filepath.Join(dir, "m", "inner"), "tmpfs", 0, ""))
	must(t, os.Symlink(dir, dir+".link"))
	if err := removeDir(dir + ".link"); err == nil || !strings.Contains(err.Error(), "is mounted in it") {
		t.Errorf("with something mounted: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "0")); err != nil {
		t.Error(err)
	}
	must(t, unmountBelow(dir+".link"))
	must(t, removeDir(dir))
	if _, err := os.Stat(precious); err != nil {
		t.Error("what was mounted is gone:", err)
	}
}

// A mount that somebody uses ends the reset: what lies below it would go with the rest.
func TestUnmountBelowSaysWhatIsInUse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "m")
	must(t, os.Mkdir(at, 0o700))
	must(t, syscall.Mount("none", at, "tmpfs", 0, ""))
	f, err := os.Create(filepath.Join(at, "f"))
	must(t, err)
	if err := unmountBelow(dir); err == nil || !strings.Contains(err.Error(), "unmount "+at+": device or resource busy") {
		t.Error(err)
	}
	must(t, f.Close())
	must(t, unmountBelow(dir))
}
