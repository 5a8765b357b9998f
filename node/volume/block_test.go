package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// loopDevice is a block device of this machine, and its numbers.
func loopDevice(t *testing.T) (path string, rdev uint64) {
	t.Helper()
	img := filepath.Join(t.TempDir(), "img")
	if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, 1<<20)); err != nil {
		t.Fatal(err)
	}
	out, err := exec.Command("losetup", "-f", "--show", img).CombinedOutput()
	if err != nil {
		t.Skipf("no loop devices here: %v %s", err, out)
	}
	path = strings.TrimSpace(string(out))
	t.Cleanup(func() {
		if out, err := exec.Command("losetup", "-d", path).CombinedOutput(); err != nil {
			t.Errorf("%v: %s", err, out)
		}
	})
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		t.Fatal(err)
	}
	return path, st.Rdev
}

func blockVolume(path string) *corev1.PersistentVolume {
	pv, mode := localVolume(path), corev1.PersistentVolumeBlock
	pv.Spec.VolumeMode, pv.Annotations = &mode, nil
	return pv
}

func blockPod(uid string, readOnly bool) *corev1.Pod {
	p := pod(uid, claimed("d", readOnly))
	p.Spec.Containers = []corev1.Container{{Name: "c", VolumeDevices: []corev1.VolumeDevice{{Name: "d", DevicePath: "/dev/data"}}}}
	return p
}

// TestBlock: a claim of mode Block is its device and no other, found again by the next brain, let go with its pod.
func TestBlock(t *testing.T) { // N-13.18
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	device, rdev := loopDevice(t)
	v, data, run := volumes(t)
	src, p := aShelf(), blockPod("u1", true)
	src.claimed = blockVolume(device)
	if err := errors.Join(v.Prepare(t.Context(), p, src), v.Prepare(t.Context(), p, src)); err != nil {
		t.Fatal(err)
	}
	src.claimed = nil // no control plane answers from here on
	again, err := New(data, run)
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range []*Volumes{v, again} {
		if err := v.Prepare(t.Context(), p, src); err != nil {
			t.Fatal(err)
		}
		got, err := v.Blocks(p, &p.Spec.Containers[0])
		want := Block{Volume: "d", At: "/dev/data", Place: filepath.Join(v.lasting, "u1", "d"),
			Major: unix.Major(rdev), Minor: unix.Minor(rdev), ReadOnly: true}
		if err != nil || len(got) != 1 || got[0] != want {
			t.Errorf("%+v %v, want %+v", got, err, want)
		}
		if places, err := v.Claimed(p); err != nil || len(places) > 0 {
			t.Errorf("the room of a device is told as if it were a directory's: %v %v", places, err)
		}
		if name := v.Taken(p, &p.Spec.Containers[0]); name != "" || len(v.opened.fds) != 1 {
			t.Errorf("taken %q, open are %v", name, v.opened.fds)
		}
	}
	v.opened.leave(filepath.Join(v.lasting, "u1", "d"))
	if err := errors.Join(again.Unmount(p), again.Remove("u1"), again.Retain(nil)); err != nil {
		t.Fatal(err)
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 || len(again.opened.fds) > 0 {
		t.Errorf("still mounted: %q %v, still open: %v", left, err, again.opened.fds)
	}
	if _, err := again.Blocks(p, &p.Spec.Containers[0]); err == nil || !strings.Contains(err.Error(), "is not mounted") {
		t.Errorf("a container is given %v", err)
	}
}

// TestBlockTakenAway: who had a device that was unplugged is told so, and does not get the next one with its numbers.
func TestBlockTakenAway(t *testing.T) { // N-13.18
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	_, rdev := loopDevice(t)
	v, _, _ := volumes(t)
	src, p, node := aShelf(), blockPod("u1", false), filepath.Join(t.TempDir(), "sdx")
	src.claimed = blockVolume(node)
	plug := func() {
		t.Helper()
		if err := unix.Mknod(node, unix.S_IFBLK|0o600, int(rdev)); err != nil {
			t.Fatal(err)
		}
	}
	plug()
	if err := v.Prepare(t.Context(), p, src); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := v.Remove("u1"); err != nil {
			t.Error(err)
		}
	}()
	if err := os.Remove(node); err != nil {
		t.Fatal(err)
	}
	plug() // another one with the same numbers
	if name := v.Taken(p, &p.Spec.Containers[0]); name != "d" {
		t.Errorf("taken away is %q", name)
	}
	if got, err := v.Blocks(p, &p.Spec.Containers[0]); !errors.Is(err, errTaken) {
		t.Errorf("a container is given %+v %v", got, err)
	}
	if err := v.Prepare(t.Context(), p, src); err != nil { // the pod begins anew, and asks for its volume
		t.Fatal(err)
	}
	if got, err := v.Blocks(p, &p.Spec.Containers[0]); err != nil || len(got) != 1 {
		t.Errorf("%+v %v", got, err)
	}
}

// TestBlockRefused: what is no device, what somebody has, and a volume that is used as what it is not.
func TestBlockRefused(t *testing.T) { // N-13.18
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	device, _ := loopDevice(t)
	v, _, _ := volumes(t)
	src := aShelf()
	file, flash := filepath.Join(t.TempDir(), "file"), filepath.Join(t.TempDir(), "mtdblock0")
	if err := errors.Join(os.WriteFile(file, nil, 0o600), unix.Mknod(flash, unix.S_IFBLK|0o600, majorFlash<<8)); err != nil {
		t.Fatal(err)
	}
	refused := func(what, want string, p *corev1.Pod) {
		t.Helper()
		if err := v.Prepare(t.Context(), p, src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", what, err)
		} else if names := entries(filepath.Join(v.lasting, "u1")); len(names) > 0 || len(v.opened.fds) > 0 {
			t.Errorf("%s leaves %v, %v", what, names, v.opened.fds)
		}
	}
	for path, want := range map[string]string{file: "is no block device", t.TempDir(): "is no block device", "/dev/null": "is no block device",
		"/dev/none": "does not exist", flash: "block device"} {
		src.claimed = blockVolume(path)
		refused(path, `MapVolume.SetUpDevice failed for volume "d" : `, blockPod("u1", false))
		refused(path, want, blockPod("u1", false))
	}
	src.claimed = blockVolume(device)
	fd, err := unix.Open(device, unix.O_RDONLY|unix.O_EXCL|unix.O_CLOEXEC, 0) // as a mount, swap and a RAID have it
	if err != nil {
		t.Fatal(err)
	}
	refused("in use", "the device is in use", blockPod("u1", false))
	if err := unix.Close(fd); err != nil {
		t.Fatal(err)
	}
	mounts := blockPod("u1", false)
	mounts.Spec.Containers[0].VolumeDevices = nil
	mounts.Spec.Containers[0].VolumeMounts = []corev1.VolumeMount{{Name: "d", MountPath: "/d"}}
	refused("a device as a directory", `MountVolume.SetUp failed for volume "d" : volume d has volumeMode Block, but is specified in volumeMounts`, mounts)
	src.claimed = localVolume(t.TempDir())
	refused("a directory as a device", "volume d has volumeMode Filesystem, but is specified in volumeDevices", blockPod("u1", false))
	src.claimed = blockVolume(device)
	src.claimed.Spec.MountOptions = []string{"noatime"}
	refused("mount options", "mount options are nothing to a device", blockPod("u1", false))
	src.claimed.Spec.Local, src.claimed.Spec.HostPath = nil, &corev1.HostPathVolumeSource{Path: device}
	refused("a hostPath", "of the type local", blockPod("u1", false))
	unused := blockPod("u1", false)
	unused.Spec.Containers[0].VolumeDevices = nil
	if err := v.Prepare(t.Context(), unused, src); err != nil {
		t.Errorf("a claim that no container uses: %v", err)
	}
}

// TestBoardsDevices: those that a board starts from, and that nobody has open for himself.
func TestBoardsDevices(t *testing.T) {
	for link, want := range map[string]bool{"mmcblk0": false, "mmcblk0p3": false, "mmcblk0boot0": true, "mmcblk1boot1": true, "ubiblock0_1": true,
		"sda": false, "nvme0n1p2": false, "bootdisk": false} {
		if got := startsFrom(unix.Mkdev(8, 0), "../../block/x/"+link); got != want {
			t.Errorf("%s: %t", link, got)
		}
	}
	if !startsFrom(unix.Mkdev(majorFlash, 2), "../../mtdblock2") {
		t.Error("flash memory is given to pods")
	}
}
