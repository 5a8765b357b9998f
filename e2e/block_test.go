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

	"golang.org/x/sys/unix"
)

const blockVolume = `apiVersion: v1
kind: PersistentVolume
metadata: {name: %[1]s}
spec:
  capacity: {storage: 8Mi}
  accessModes: [ReadWriteOnce]
  volumeMode: Block
  storageClassName: raw
  local: {path: %[2]s}
  nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: kubernetes.io/os, operator: In, values: [linux]}]}]}}
---
apiVersion: v1
kind: PersistentVolumeClaim
metadata: {name: %[1]s}
spec:
  accessModes: [ReadWriteOnce]
  volumeMode: %[3]s
  storageClassName: raw
  resources: {requests: {storage: 8Mi}}
`

const blockPod = `apiVersion: v1
kind: Pod
metadata: {name: %[1]s}
spec:
  terminationGracePeriodSeconds: 1
  securityContext: {runAsUser: 4711, runAsNonRoot: true}
  volumes:
  - {name: raw, persistentVolumeClaim: {claimName: %[2]s}}
  containers:
  - name: main
    image: ` + roughImage + `
    args: ["run"]
    %[3]s
`

const devices = "volumeDevices: [{name: raw, devicePath: /dev/data}]"

// TestBlockClaims: a pod has the device of its claim and no other; what is in
// use is given to nobody, and a device is no directory.
func TestBlockClaims(t *testing.T) { // N-13.18
	if testing.Short() {
		t.Skip("pods come and go")
	}
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	var loops []string
	for i := range 2 {
		img := filepath.Join(t.TempDir(), fmt.Sprint(i))
		must(t, errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 8<<20)))
		out, err := exec.Command("losetup", "-f", "--show", img).CombinedOutput()
		if err != nil {
			t.Skipf("no loop devices here: %v %s", err, out)
		}
		loops = append(loops, strings.TrimSpace(string(out)))
		t.Cleanup(func() {
			if out, err := exec.Command("losetup", "-d", loops[i]).CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, out)
			}
		})
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(b.try("get", "events"))
			t.Log(b.try("get", "pods"))
		}
		b.finish()
		b.over = true
	})
	b.serve()
	b.importRough()
	b.apply(fmt.Sprintf(blockVolume, "first", loops[0], "Block"))
	b.apply(fmt.Sprintf(blockPod, "first", "first", devices))
	b.running("first")
	opens := func(pod, path, want string) {
		t.Helper()
		if out, err := b.try("exec", pod, "--", "/testprog", "opennodes", path); !strings.Contains(out, want) {
			t.Errorf("%s opens %s: %v\n%s", pod, path, err, out)
		}
	}
	opens("first", "/dev/data", "/dev/data write ok")
	if err := contains(b.ledge("describe", "pod", "first"), "/dev/data from raw"); err != nil {
		t.Error(err)
	}
	var is, has unix.Stat_t
	must(t, errors.Join(unix.Stat(loops[0], &is), unix.Stat(fmt.Sprintf("/proc/%d/root/dev/data", b.running("first")), &has)))
	if is.Rdev != has.Rdev || has.Mode&unix.S_IFMT != unix.S_IFBLK {
		t.Errorf("the pod has %#x of mode %o, the claim is %#x", has.Rdev, has.Mode, is.Rdev)
	}
	_ = b.signal(syscall.SIGKILL)
	b.serve()
	must(t, syscall.Kill(b.running("first"), syscall.SIGKILL))
	b.eventually("the container begins anew", func() error {
		return contains(b.ledge("get", "pod", "first", "-o", "yaml"), "restartCount: 1")
	})
	b.running("first")
	opens("first", "/dev/data", "/dev/data write ok")

	b.blocksRefused(loops)
	b.cardHasNoDevices()
}

// blocksRefused: what is in use, and a device that is to be a directory.
func (b *testBoard) blocksRefused(loops []string) {
	t := b.t
	fd, err := unix.Open(loops[1], unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0) // as a mount has it
	must(t, err)
	b.apply(fmt.Sprintf(blockVolume, "second", loops[1], "Block"))
	b.apply(fmt.Sprintf(blockPod, "second", "second", devices))
	b.eventually("what is in use is not given", func() error {
		return errors.Join(contains(b.ledge("get", "events"), "FailedMapVolume"), contains(b.ledge("get", "events"), "the device is in use"))
	})
	must(t, unix.Close(fd))
	b.running("second")
	b.apply(fmt.Sprintf(blockPod, "third", "second", "volumeMounts: [{name: raw, mountPath: /data}]"))
	b.eventually("a device is no directory", func() error {
		return contains(b.ledge("get", "events"), "volume raw has volumeMode Block, but is specified in volumeMounts")
	})
	for _, name := range []string{"first", "second", "third"} {
		b.ledge("delete", "pod", name)
		b.eventually(name+" lets go of its device", func() error {
			if out, _ := b.try("get", "pod", name); !strings.Contains(out, "not found") {
				return errors.New(out)
			}
			return nil
		})
	}
	for _, device := range loops {
		fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0)
		if err != nil {
			t.Errorf("%s: %v", device, err)
			continue
		}
		_ = unix.Close(fd)
	}
}

// cardHasNoDevices: the card's own class says that it makes directories, and a claim of mode Filesystem does not get a device.
func (b *testBoard) cardHasNoDevices() {
	b.t.Helper()
	b.apply(strings.Replace(claim, "spec:\n", "spec:\n  volumeMode: Block\n", 1))
	b.apply(fmt.Sprintf(blockPod, "fourth", "data", devices))
	b.eventually("the card's class says so", func() error {
		return contains(b.ledge("get", "events"), "volume mode Block is not what the card's own class has")
	})
	b.apply(strings.ReplaceAll(fmt.Sprintf(blockVolume, "fifth", "/dev/none", "Filesystem"), "raw", "other"))
	b.apply(fmt.Sprintf(blockPod, "fifth", "fifth", devices))
	b.eventually("no volume matches", func() error {
		return contains(b.ledge("get", "events"), "storageclass.storage.k8s.io \"other\" not found")
	})
	if err := contains(b.ledge("get", "pv", "fifth"), "Available"); err != nil {
		b.t.Error(err)
	}
}
