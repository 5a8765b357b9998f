package volume

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
)

// underSystemd says whether the mounts are the test's own, and shared as systemd has them. Where not, it runs the test in a copy of this
// program where they are.
func underSystemd(t *testing.T) bool {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if os.Getenv("LEDGE_TEST_MOUNTS") != "" {
		if err := unix.Mount("", "/", "", unix.MS_SHARED|unix.MS_REC, ""); err != nil {
			t.Fatal(err)
		}
		return true
	}
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "LEDGE_TEST_MOUNTS=own")
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return false
}

// disk mounts memory at a place that it makes.
func disk(t *testing.T, at string, flags uintptr) string {
	t.Helper()
	if err := errors.Join(os.MkdirAll(at, 0o755), unix.Mount("tmpfs", at, "tmpfs", flags, "")); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
	return at
}

// stands is whether something is mounted at a place.
func stands(t *testing.T, at string) bool {
	t.Helper()
	got, err := isMounted(at)
	if err != nil {
		t.Fatal(err)
	}
	return got
}

func mountedIn(how corev1.MountPropagationMode, sub string) corev1.VolumeMount {
	return corev1.VolumeMount{Name: "d", MountPath: "/d", SubPath: sub, MountPropagation: &how}
}

// TestBoardKeepsItsMounts: what is mounted below a volume on the board is there after the pod, whatever its containers may mount, and
// whoever takes the pod's mounts down.
func TestBoardKeepsItsMounts(t *testing.T) {
	if !underSystemd(t) {
		return
	}
	for _, how := range []corev1.MountPropagationMode{corev1.MountPropagationNone, corev1.MountPropagationHostToContainer,
		corev1.MountPropagationBidirectional} {
		for name, end := range map[string]func(*Volumes, *corev1.Pod) error{
			"ended":   func(v *Volumes, p *corev1.Pod) error { return v.Unmount(p) },
			"removed": func(v *Volumes, p *corev1.Pod) error { return v.Remove(string(p.UID)) },
			"unknown": func(v *Volumes, _ *corev1.Pod) error { return v.Retain(nil) },
		} {
			v, _, run := volumes(t)
			board := disk(t, filepath.Join(t.TempDir(), "mnt"), 0)
			usb := disk(t, filepath.Join(board, "usb"), 0)
			inner := disk(t, filepath.Join(usb, "inner"), 0)
			src := aShelf()
			src.claimed = localVolume(board)
			p := pod("u1", claimed("d", false), hostPath("h", board))
			p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{mountedIn(how, ""), mountedIn(how, "part"),
				{Name: "h", MountPath: "/h", SubPath: "part", MountPropagation: &how}}}}
			if err := v.Prepare(t.Context(), p, src); err != nil {
				t.Fatal(err)
			}
			mounts, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
			if err != nil {
				t.Fatalf("%s: %v", how, err)
			}
			if !stands(t, filepath.Join(mounts[0].Source, "usb/inner")) {
				t.Errorf("%s: the volume is without what is mounted in it", how)
			}
			// A disk that comes later: into the whole volume, and into its part.
			late := disk(t, filepath.Join(board, "late"), 0)
			part := disk(t, filepath.Join(board, "part/late"), 0)
			for _, at := range []string{mounts[0].Source + "/late", mounts[1].Source + "/late", mounts[2].Source + "/late"} {
				if !stands(t, at) {
					t.Errorf("%s: %s did not come", how, at)
				}
			}
			// A container starts again: its part is mounted anew.
			if _, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil); err != nil {
				t.Fatal(err)
			}
			if err := end(v, p); err != nil {
				t.Fatal(err)
			}
			for _, at := range []string{board, usb, inner, late, part} {
				if !stands(t, at) {
					t.Errorf("%s, %s: %s was unmounted on the board", how, name, at)
				}
			}
			if left, err := mountsBelow(run); err != nil || len(left) > 0 {
				t.Errorf("%s, %s: left %q %v", how, name, left, err)
			}
		}
	}
}

// TestMountsOfContainers reach the board's own directory with Bidirectional, and only then.
func TestMountsOfContainers(t *testing.T) {
	if !underSystemd(t) {
		return
	}
	for _, how := range []corev1.MountPropagationMode{corev1.MountPropagationNone, corev1.MountPropagationHostToContainer,
		corev1.MountPropagationBidirectional} {
		v, _, _ := volumes(t)
		board := disk(t, filepath.Join(t.TempDir(), "mnt"), 0)
		src := aShelf()
		src.claimed = localVolume(board)
		p := pod("u1", claimed("d", false), hostPath("h", board))
		p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{mountedIn(how, ""), mountedIn(how, "part"),
			{Name: "h", MountPath: "/h", SubPath: "own", MountPropagation: &how}}}}
		if err := v.Prepare(t.Context(), p, src); err != nil {
			t.Fatal(err)
		}
		mounts, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range mounts {
			disk(t, filepath.Join(m.Source, "theirs"), 0)
		}
		for _, at := range []string{"theirs", "part/theirs", "own/theirs"} {
			if got, want := stands(t, filepath.Join(board, at)), how == corev1.MountPropagationBidirectional; got != want {
				t.Errorf("%s: on the board %s is %v", how, at, got)
			}
		}
		if err := v.Remove("u1"); err != nil {
			t.Error(err)
		}
		for _, at := range []string{"own/theirs", "part/theirs", "theirs"} {
			_ = unix.Unmount(filepath.Join(board, at), 0)
		}
	}
	// From a directory that shares nothing nothing can come, and nothing go there.
	v, _, run := volumes(t)
	board := disk(t, filepath.Join(t.TempDir(), "mnt"), 0)
	if err := unix.Mount("", board, "", unix.MS_PRIVATE, ""); err != nil {
		t.Fatal(err)
	}
	src := aShelf()
	src.claimed = localVolume(board)
	for how, want := range map[corev1.MountPropagationMode]string{corev1.MountPropagationHostToContainer: "it is not a shared or slave mount",
		corev1.MountPropagationBidirectional: "it is not a shared mount"} {
		p := pod("u1", claimed("d", false))
		p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{mountedIn(how, "")}}}
		err := v.Prepare(t.Context(), p, src)
		if err == nil {
			_, err = v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", how, err)
		}
		if err := v.Remove("u1"); err != nil {
			t.Error(err)
		}
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 {
		t.Errorf("left %q %v", left, err)
	}
}

// TestVolumeKeepsItsFlags: a volume's options come to those that its directory is mounted with, and hold below it.
func TestVolumeKeepsItsFlags(t *testing.T) {
	if !underSystemd(t) {
		return
	}
	board := disk(t, filepath.Join(t.TempDir(), "mnt"), unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC|unix.MS_NODIRATIME)
	disk(t, filepath.Join(board, "usb"), unix.MS_NOSUID)
	flags := func(at string) (has []string) {
		t.Helper()
		list, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(at))
		if err != nil || len(list) != 1 {
			t.Fatalf("%s: %v %v", at, list, err)
		}
		has = strings.Split(list[0].Options, ",")
		slices.Sort(has)
		return has
	}
	try := func(what string, options []string, do func(string, uintptr) error, top, below string) {
		t.Helper()
		at := filepath.Join(t.TempDir(), "copy")
		if err := errors.Join(os.Mkdir(at, 0o755), unix.Mount(board, at, "", unix.MS_BIND|unix.MS_REC, "")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := detach(at); err != nil {
				t.Error(err)
			}
		})
		wanted, err := bindOptions(options)
		if err != nil {
			t.Fatal(err)
		}
		if err := do(at, wanted); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got := strings.Join(flags(at), ","); got != top {
			t.Errorf("%s: %s, want %s", what, got, top)
		}
		if got := strings.Join(flags(filepath.Join(at, "usb")), ","); got != below {
			t.Errorf("%s, below: %s, want %s", what, got, below)
		}
	}
	const all = "nodev,nodiratime,noexec,nosuid,"
	try("older kernels", []string{"ro"}, restrictTop, all+"relatime,ro", "nosuid,relatime,rw")
	try("older kernels", []string{"noatime"}, restrictTop, "noatime,"+all+"rw", "nosuid,relatime,rw")
	if !CanSetAttributes() {
		t.Skip("the kernel has no mount_setattr")
	}
	try("read-only", []string{"ro"}, restrict, all+"relatime,ro", "nosuid,relatime,ro")
	try("two options", []string{"noatime,nodev"}, restrict, "noatime,"+all+"rw", "noatime,nodev,nosuid,rw")
	try("relatime", []string{"relatime"}, restrict, all+"relatime,rw", "nosuid,relatime,rw")
}
