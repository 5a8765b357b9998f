package e2e

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

const sharing = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: share, nfs: {server: 127.0.0.1, path: %s}}
  containers:
  - {name: c, image: ledge.local/self, args: [pause], volumeMounts: [{name: share, mountPath: /n}]}
`

// share exports a directory by Debian's server in the guest. With no threads it does not answer.
func share(t *testing.T) (export string, threads func(string)) {
	t.Helper()
	export = t.TempDir()
	run := func(script string, args ...string) {
		t.Helper()
		if out, err := exec.Command("sh", append([]string{"-c", script, "sh"}, args...)...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v: %s", script, err, out)
		}
	}
	run(`modprobe nfsd && modprobe nfs && { mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd; } && mkdir -p /run/rpcbind &&
		{ pidof rpcbind || rpcbind -w; } && { pidof rpc.mountd || rpc.mountd; } &&
		exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=78 "127.0.0.1:$1"`, export)
	threads = func(n string) { t.Helper(); run(`rpc.nfsd -G 10 -L 10 "$1"`, n) }
	threads("4")
	t.Cleanup(func() {
		threads("4") // whoever still hangs comes loose
		run(`exportfs -u "127.0.0.1:$1"; rpc.nfsd 0`, export)
	})
	return export, threads
}

// TestServerOfShareStops: its server stops in the middle of a write, and who uses the share is deleted, the brain is killed and comes back,
// and the board stops all pods within its plan. The figures are in docs/measured/volumes.md.
func TestServerOfShareStops(t *testing.T) { // N-13.12
	if os.Getenv("LEDGE_VM") == "" || os.Getenv("LEDGE_LONG") == "" {
		t.Skip("wants a machine of its own, with nfs-kernel-server, and minutes there: LEDGE_LONG, in the guest")
	}
	b := newBoard(t)
	b.serve("--on-term=drain")
	export, threads := share(t)
	for _, name := range []string{"one", "two"} {
		b.apply(fmt.Sprintf(sharing, name, export))
	}
	b.apply(strings.Replace(webPod, "name: web", "name: beside", 1))
	for _, name := range []string{"one", "two", "beside"} {
		b.eventually(name+" runs", func() error { return contains(b.ledge("get", "pod", name), " Running ") })
	}
	at, err := filepath.Glob(filepath.Join(b.runDir, "lasting", string(b.pod("one").UID), "share"))
	if err != nil || len(at) != 1 {
		t.Fatalf("the share is at %v: %v", at, err)
	}
	threads("0")
	writer := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(at[0], "f"), "bs=64k", "count=64", "conv=fsync")
	must(t, writer.Start())
	defer func() { _ = writer.Wait() }()
	time.Sleep(2 * time.Second) // until it hangs in the kernel
	within := func(what string, most time.Duration, do func()) {
		t.Helper()
		began := time.Now()
		do()
		took := time.Since(began).Round(10 * time.Millisecond)
		if t.Logf("while the server does not answer: %s %s", what, took); took > most {
			t.Errorf("%s took %s, at most %s is right", what, took, most)
		}
	}
	const emulated = 30 * time.Second // the processor is: what ledge does itself takes long there too
	within("status", emulated, func() { b.must("status") })
	within("delete of a pod that uses it", emulated, func() {
		b.must("delete", "pod", "one")
		b.eventually("it goes", func() error {
			if out, err := b.try("get", "pod", "one"); err == nil {
				return errors.New(out)
			}
			return nil
		})
	})
	_ = b.signal(syscall.SIGKILL) // its verdict is the kill
	within("restart of the brain, until it answers", emulated, func() { b.serve("--on-term=drain") })
	within("until the others are Running and the node is Ready", emulated, func() {
		b.eventually("all is as it was", func() error {
			return errors.Join(contains(b.ledge("get", "pod", "beside"), " Running "), contains(b.ledge("get", "nodes"), " Ready "))
		})
	})
	within("shutdown, with a plan of 30 s", 30*time.Second, func() { must(t, b.signal(syscall.SIGTERM)) })
	_ = writer.Process.Kill()
	threads("4")
}
