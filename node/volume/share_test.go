package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/host/nfs"
)

func shared(name, path string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: path}}}
}

// server runs Debian's in the guest. threads says how many serve: none, and it does not answer.
func server(t *testing.T) (export string, threads func(string)) {
	t.Helper()
	if os.Getenv("LEDGE_VM") == "" || testing.Short() {
		t.Skip("wants a machine of its own, with nfs-kernel-server")
	}
	export = t.TempDir()
	threads = func(n string) {
		t.Helper()
		if out, err := exec.Command("rpc.nfsd", "-G", "10", "-L", "10", n).CombinedOutput(); err != nil {
			t.Fatalf("rpc.nfsd %s: %v: %s", n, err, out)
		}
	}
	script := `modprobe nfsd && modprobe nfs && { mountpoint -q /proc/fs/nfsd || mount -t nfsd nfsd /proc/fs/nfsd; } &&
		mkdir -p /run/rpcbind && { pidof rpcbind || rpcbind -w; } && { pidof rpc.mountd || rpc.mountd; } &&
		exportfs -o rw,no_root_squash,insecure,no_subtree_check,fsid=77 "127.0.0.1:$1"`
	if out, err := exec.Command("sh", "-c", script, "sh", export).CombinedOutput(); err != nil {
		t.Skipf("no server: %v: %s", err, out)
	}
	threads("4")
	t.Cleanup(func() {
		threads("4") // whoever still hangs comes loose
		_ = exec.Command("exportfs", "-u", "127.0.0.1:"+export).Run()
		threads("0")
	})
	return export, threads
}

// prepare asks again and again, as a pod's worker does: the emulated processor is slow.
func prepare(t *testing.T, v *Volumes, p *corev1.Pod, src Source) {
	t.Helper()
	began := time.Now()
	for {
		err := v.Prepare(t.Context(), p, src)
		if err == nil {
			t.Logf("mounted in %v", time.Since(began))
			return
		}
		t.Logf("after %v: %v", time.Since(began), err)
		if time.Since(began) > 2*time.Minute {
			t.Fatal("never mounted")
		}
		time.Sleep(time.Second)
	}
}

// TestShares: a share is mounted without a helper; while its server does not answer nothing of the agent waits longer than it says.
func TestShares(t *testing.T) { // N-13.12
	export, threads := server(t)
	v, _, run := volumes(t)
	src := aShelf()
	p := pod("u1", shared("n", export))
	p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "n", MountPath: "/n", SubPath: "sub"}}}}
	prepare(t, v, p, src)
	mounts, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(mounts[0].Source, "f"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	if data, err := os.ReadFile(filepath.Join(export, "sub", "f")); err != nil || string(data) != "1" {
		t.Errorf("%q %v", data, err)
	}
	if err := v.Prepare(t.Context(), pod("u9", shared("n", export+"/none")), src); err == nil || !strings.Contains(err.Error(), "does not export") {
		t.Errorf("a path that is not there: %v", err)
	}

	threads("0")
	writes := exec.Command("dd", "if=/dev/zero", "of="+filepath.Join(mounts[0].Source, "g"), "bs=64k", "count=64", "conv=fsync")
	if err := writes.Start(); err != nil { // a pod's process that hangs
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	within := func(what string, most time.Duration, do func() error) error {
		began := time.Now()
		err := do()
		took := time.Since(began)
		t.Logf("%s, while the server does not answer: %v: %v", what, took, err)
		if took > most {
			t.Errorf("%s took %v", what, took)
		}
		return err
	}
	const patience = 25 * time.Second // the emulated processor is slow
	if err := within("a container starts", patience, func() error {
		_, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
		return err
	}); !errors.Is(err, nfs.ErrWaits) {
		t.Error(err)
	}
	other := pod("u2", shared("n", export))
	if err := within("another pod starts", patience, func() error { return v.Prepare(t.Context(), other, src) }); err == nil {
		t.Log("the kernel shares the mount, and asked nobody")
	}
	for _, gone := range []*corev1.Pod{other, p} {
		if err := within("unmount of "+string(gone.UID), patience, func() error { return v.Unmount(gone) }); err != nil {
			t.Error(err)
		}
		if err := within("remove of "+string(gone.UID), patience, func() error { return v.Remove(string(gone.UID)) }); err != nil {
			t.Error(err)
		}
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %q %v", left, err)
	}

	_ = writes.Process.Kill()
	threads("4")
	_ = writes.Wait()
	prepare(t, v, pod("u3", shared("n", export)), src)
	if err := errors.Join(v.Remove("u3"), v.Remove("u9")); err != nil {
		t.Error(err)
	}
}

// TestOlderShares: a server, or an owner, that wants version 3.
func TestOlderShares(t *testing.T) {
	export, _ := server(t)
	v, _, _ := volumes(t)
	src := aShelf()
	src.claimed = localVolume("", "vers=3,soft,timeo=50")
	src.claimed.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "127.0.0.1", Path: export}}
	prepare(t, v, pod("u1", claimed("d", true)), src)
	at := v.lastingPlace(pod("u1"), &corev1.Volume{Name: "d"})
	if err := os.WriteFile(filepath.Join(at, "f"), nil, 0o600); err == nil {
		t.Error("wrote to what is to be read")
	}
	if err := v.Remove("u1"); err != nil {
		t.Error(err)
	}
}
