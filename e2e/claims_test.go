package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

const claim = `apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: data}
spec:
  accessModes: [ReadWriteOnce]
  resources: {requests: {storage: 64Mi}}
`

const claimant = `apiVersion: v1
kind: Pod
metadata: {name: %s}
spec:
  terminationGracePeriodSeconds: 1
  volumes:
  - {name: data, persistentVolumeClaim: {claimName: data}}
  containers:
  - name: web
    image: ledge.local/self
    args: ["pause"]
    volumeMounts:
    - {name: data, mountPath: /data}
    - {name: data, mountPath: /sub, subPath: a/b}
`

// TestClaims: what a pod has written to its claim is there for the next one, after the brain was killed too, and goes with the claim.
func TestClaims(t *testing.T) { // N-13.10
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.apply(claim)
	b.apply(fmt.Sprintf(claimant, "first"))
	first := b.running("first")
	if err := contains(b.ledge("get", "pvc", "data"), "Bound"); err != nil {
		t.Error(err)
	}
	dirs := func() []string {
		list, err := filepath.Glob(filepath.Join(b.data, "claims", "*"))
		must(t, err)
		return list
	}
	if got := dirs(); len(got) != 1 || !strings.HasPrefix(filepath.Base(got[0]), "pvc-") {
		t.Fatalf("directories %v", got)
	}
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/root/data/row", first), []byte("1"), 0o600))
	must(t, os.WriteFile(fmt.Sprintf("/proc/%d/root/sub/row", first), []byte("2"), 0o600))
	backup := filepath.Join(t.TempDir(), "backup")
	if out, err := b.try("backup", "save", backup, "--claims"); err == nil || !strings.Contains(out, "pod default/first") {
		t.Errorf("saved under a pod: %v %s", err, out)
	}
	b.ledge("delete", "pod", "first")
	b.eventually("the claims are saved when no pod has one", func() error {
		if out, err := b.try("backup", "save", backup, "--claims"); err != nil {
			return errors.New(out)
		}
		return nil
	})
	b.must("backup", "verify", backup, "--claims")
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	b.apply(fmt.Sprintf(claimant, "second"))
	second := b.running("second")
	if got := inside(second, "/data/row") + inside(second, "/data/a/b/row"); got != "12" {
		t.Errorf("the second pod reads %q", got)
	}
	b.ledge("delete", "pod", "second")
	b.ledge("delete", "pvc", "data")
	b.eventually("the directory and the volume go", func() error {
		if got := dirs(); len(got) > 0 {
			return fmt.Errorf("%v is left", got)
		}
		return contains(b.ledge("get", "pv"), "No resources found")
	})
	if out, err := b.try("backup", "restore", backup, "--claims"); err == nil || !strings.Contains(out, "stop it first") {
		t.Errorf("restored under a running node: %v %s", err, out)
	}
	must(t, b.signal(syscall.SIGTERM))
	b.must("backup", "restore", backup, "--claims") // N-13.15
	b.serve()
	b.apply(fmt.Sprintf(claimant, "third"))
	third := b.running("third")
	if got := inside(third, "/data/row") + inside(third, "/data/a/b/row"); got != "12" {
		t.Errorf("from a backup comes %q", got)
	}
	b.ledge("delete", "pod", "third")
	b.endNamespace(dirs)
	b.noVolumes()
}

// endNamespace: with a namespace go its claims, and their directories, and no claim comes into one that is going.
func (b *testBoard) endNamespace(dirs func() []string) {
	b.t.Helper()
	before := len(dirs())
	in := strings.NewReplacer("metadata: {name: data}", "metadata: {name: data, namespace: going}", "metadata: {name: user}",
		"metadata: {name: user, namespace: going, finalizers: [example.com/hold]}")
	b.apply("apiVersion: v1\nkind: Namespace\nmetadata: {name: going}\n")
	b.apply(in.Replace(claim))
	b.apply(in.Replace(fmt.Sprintf(claimant, "user")))
	b.eventually("the claim in the namespace has its directory", func() error {
		return contains(b.ledge("get", "pods", "-n", "going"), " Running ")
	})
	if got := dirs(); len(got) != before+1 {
		b.t.Fatalf("directories %v", got)
	}
	b.must("delete", "namespace", "going", "--wait=false")
	b.eventually("its pod is being deleted", func() error {
		return contains(b.ledge("get", "pod", "user", "-n", "going", "-o", "yaml"), "deletionTimestamp")
	})
	late := strings.Replace(in.Replace(claim), "name: data", "name: late", 1)
	if out, err := b.try("apply", "-f", b.yaml(late)); err == nil || !strings.Contains(out, "because it is being terminated") {
		b.t.Errorf("a claim in a namespace that is going: %v %s", err, out)
	}
	if got := dirs(); len(got) != before+1 {
		b.t.Errorf("of a claim that a pod has: directories %v", got)
	}
	b.apply(strings.Replace(in.Replace(fmt.Sprintf(claimant, "user")), "[example.com/hold]", "[]", 1))
	b.eventually("with the namespace goes the directory", func() error {
		if got := dirs(); len(got) != before {
			return fmt.Errorf("directories %v", got)
		}
		return nil
	})
}

// TestFullClaim: a claim that is filled to the brim hurts nobody else, and has room again when it is made larger. Its numbers are there
// after the disk was unmounted.
func TestFullClaim(t *testing.T) { // N-13.11, N-13.15, N-13.19
	if testing.Short() {
		t.Skip("a file system is made, and filled")
	}
	t.Parallel()
	b := newBoard(t)
	img, card := filepath.Join(t.TempDir(), "img"), t.TempDir()
	must(t, errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 512<<20)))
	if out, err := exec.Command("mke2fs", "-q", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota", img).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	mount := func() ([]byte, error) {
		return exec.Command("mount", "-o", "loop,prjquota", img, card).CombinedOutput()
	}
	if out, err := mount(); err != nil {
		t.Skipf("this kernel has no such quotas: %v: %s", err, out)
	}
	b.data = filepath.Join(card, "data")
	t.Cleanup(func() {
		b.finish()
		b.over = true
		if err := unix.Unmount(card, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	b.serve()
	b.importRough()
	full := strings.NewReplacer("ledge.local/self", roughImage, "pause", "run").Replace(fmt.Sprintf(claimant, "full"))
	b.apply(claim)
	b.apply(full)
	pid := b.running("full")
	at := fmt.Sprintf("/proc/%d/root/data/", pid)
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || int64(st.Blocks)*int64(st.Bsize) != 64<<20 {
		t.Errorf("df in the pod shows %d bytes: %v", int64(st.Blocks)*int64(st.Bsize), err)
	}
	written, err := fillAsPod(at+"f", 200<<20)
	if !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) || written < 60<<20 || written > 64<<20 {
		t.Errorf("%d bytes, then %v", written, err)
	}
	t.Logf("the writer got %d bytes and %q", written, err)
	b.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: beside}\ndata: {a: b}\n")
	if _, err := fillAsPod(filepath.Join(card, "beside"), 1<<20); err != nil {
		t.Errorf("beside the claim: %v", err)
	}
	b.eventually("its owner is told", func() error { return contains(b.ledge("get", "events"), "NearlyFull") })
	b.apply(strings.Replace(claim, "64Mi", "96Mi", 1))
	b.eventually("it has grown", func() error { return contains(b.ledge("get", "pvc", "data"), "96Mi") })
	if written, err := fillAsPod(at+"g", 20<<20); err != nil {
		t.Errorf("of the new room %d bytes, then %v", written, err)
	}
	if os.Getenv("LEDGE_LONG") != "" { // the processor of the guest is emulated: minutes
		b.writesAreTold(at)
		b.restoredToSize(full, at)
	}
	b.ledge("delete", "pod", "full")
	b.ledge("delete", "pvc", "data")
	b.eventually("the room is back", func() error { return contains(b.ledge("get", "pv"), "No resources found") })
}

// writesAreTold: what a pod writes to its claim is told as such, where the kernel counts it.
func (b *testBoard) writesAreTold(at string) {
	b.t.Helper()
	must(b.t, os.Remove(at+"f"))
	written := func() (mb float64) {
		for line := range strings.Lines(b.ledge("status")) {
			if f := strings.Fields(line); strings.HasPrefix(line, "default/data ") && len(f) > 3 && f[len(f)-2] == "MB" {
				_, _ = fmt.Sscan(f[len(f)-3], &mb)
			}
		}
		return mb
	}
	if _, err := os.Stat("/sys/fs/cgroup/cgroup.controllers"); err != nil {
		if !strings.Contains(b.ledge("status"), "not counted") {
			b.t.Errorf("it tells what it does not know:\n%s", b.ledge("status"))
		}
		return
	}
	before := written()
	b.apply(strings.NewReplacer("ledge.local/self", roughImage, `"pause"`, `"fill", "/data"`).Replace(fmt.Sprintf(claimant, "filler")))
	b.running("filler")
	b.eventually("it is told how much the pod has written", func() error {
		unix.Sync()
		if mb := written() - before; mb < 40 || mb > 200 {
			return fmt.Errorf("%g MB more than %g:\n%s", mb, before, b.ledge("status"))
		}
		return nil
	})
	b.ledge("delete", "pod", "filler", "--force", "--grace-period=0")
	b.eventually("it is gone", func() error {
		if out, _ := b.try("get", "pod", "filler"); !strings.Contains(out, "not found") {
			return errors.New(out)
		}
		return nil
	})
	list, err := filepath.Glob(at + "fill*")
	must(b.t, err)
	for _, path := range list {
		must(b.t, os.Remove(path))
	}
}

// restoredToSize: a claim in which is more than its size, as only root can make it, is so after a restore too, and takes no more.
func (b *testBoard) restoredToSize(full, at string) {
	b.t.Helper()
	must(b.t, os.WriteFile(at+"over", bytes.Repeat([]byte{1}, 100<<20), 0o644)) // in 96 MiB; of noughts a restore would make holes
	backup := filepath.Join(b.t.TempDir(), "backup")
	b.ledge("delete", "pod", "full")
	b.eventually("the claim is saved", func() error {
		if out, err := b.try("backup", "save", backup, "--claims"); err != nil {
			return errors.New(out)
		}
		return nil
	})
	must(b.t, b.signal(syscall.SIGTERM))
	b.must("backup", "restore", backup, "--claims")
	b.serve()
	b.apply(full)
	at = fmt.Sprintf("/proc/%d/root/data/", b.running("full"))
	var st unix.Statfs_t
	if err := unix.Statfs(at, &st); err != nil || int64(st.Blocks)*int64(st.Bsize) != 96<<20 || st.Bavail != 0 {
		b.t.Errorf("df in the pod shows %d bytes, %d blocks free: %v", int64(st.Blocks)*int64(st.Bsize), st.Bavail, err)
	}
	if fi, err := os.Stat(at + "over"); err != nil || fi.Size() != 100<<20 {
		b.t.Errorf("what was in it: %v %v", fi, err)
	}
	if written, err := fillAsPod(at+"more", 1<<20); !errors.Is(err, unix.EDQUOT) && !errors.Is(err, unix.ENOSPC) {
		b.t.Errorf("it takes %d bytes more: %v", written, err)
	}
	if out := b.ledge("status"); !strings.Contains(out, "100Mi (104%)") {
		b.t.Errorf("status does not tell of it:\n%s", out)
	}
}

// fillAsPod writes as containers are run: without the capability for which the kernel knows no bounds.
func fillAsPod(path string, most int) (written int, err error) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		if err = unix.Capget(&head, &caps[0]); err != nil {
			return
		}
		caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
		if err = unix.Capset(&head, &caps[0]); err != nil {
			return
		}
		f, ferr := os.Create(path)
		if err = ferr; err != nil {
			return
		}
		block := make([]byte, 1<<20)
		for written < most && err == nil {
			var n int
			n, err = f.Write(block)
			written += n
		}
		err = errors.Join(err, f.Sync(), f.Close())
	}()
	<-done
	return written, err
}
