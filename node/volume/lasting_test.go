package volume

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/host/nfs"
)

func claimed(name string, readOnly bool) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "c", ReadOnly: readOnly}}}
}

func localVolume(path string, options ...string) *corev1.PersistentVolume {
	return &corev1.PersistentVolume{
		ObjectMeta: metav1.ObjectMeta{Name: "pv", Annotations: map[string]string{api.ProvisionedBy: api.CardProvisioner}},
		Spec: corev1.PersistentVolumeSpec{MountOptions: options,
			PersistentVolumeSource: corev1.PersistentVolumeSource{Local: &corev1.LocalVolumeSource{Path: path}}}}
}

// TestDiskTakenAway: a volume whose disk is not there is not mounted, and the pod says why; one whose disk was taken away since is mounted
// anew from the disk that has come back.
func TestDiskTakenAway(t *testing.T) { // N-13.17
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, _ := volumes(t)
	src, at, back := aShelf(), t.TempDir(), t.TempDir()
	src.claimed = localVolume(at)
	p := pod("u1", claimed("d", false))
	p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d"}}}}
	absent := errors.New("it waits for the disk usb")
	v.Absent = func(path string) error {
		if path != at {
			t.Errorf("asked of %s", path)
		}
		return absent
	}
	if err := v.Prepare(t.Context(), p, src); !errors.Is(err, absent) {
		t.Errorf("%v", err)
	}
	v.Absent = nil
	gone := false
	v.Gone = func(major, minor int) (bool, error) { return gone, nil }
	row := func() string {
		t.Helper()
		if err := v.Prepare(t.Context(), p, src); err != nil {
			t.Fatal(err)
		}
		mounts, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
		if err != nil || len(mounts) != 1 {
			t.Fatal(mounts, err)
		}
		text, err := os.ReadFile(filepath.Join(mounts[0].Source, "row"))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for dir, text := range map[string]string{at: "first", back: "back"} {
		if err := os.WriteFile(filepath.Join(dir, "row"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if got := row(); got != "first" {
		t.Error(got)
	}
	src.claimed = localVolume(back)
	if got := row(); got != "first" {
		t.Errorf("a mount that stands was left: %s", got)
	}
	gone = true
	if got := row(); got != "back" {
		t.Errorf("the dead mount still stands: %s", got)
	}
	if err := v.Remove("u1"); err != nil {
		t.Error(err)
	}
}

// TestClaims: what a claim is bound to is mounted for its pod and found again, and is still there when the pod is not.
func TestClaims(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, run := volumes(t)
	src, at := aShelf(), t.TempDir()
	p := pod("u1", claimed("d", false))
	p.Spec.Containers = []corev1.Container{{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d", SubPath: "db"},
		{Name: "d", MountPath: "/e"}}}}
	if err := v.Prepare(t.Context(), p, src); err == nil ||
		err.Error() != `MountVolume.SetUp failed for volume "d" : PVC is not bound` {
		t.Errorf("%v", err)
	}
	src.claimed = localVolume(at, "noatime,nodev", "nosuid")
	if err := errors.Join(v.Prepare(t.Context(), p, src), v.Prepare(t.Context(), p, src)); err != nil {
		t.Fatal(err)
	}
	src.claimed = nil // no control plane answers from here on
	again, err := New(data, run)
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Prepare(t.Context(), p, src); err != nil {
		t.Fatal(err)
	}
	mounts, err := again.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
	if err != nil || len(mounts) != 2 {
		t.Fatalf("%+v %v", mounts, err)
	}
	if err := os.WriteFile(filepath.Join(mounts[0].Source, "row"), []byte("1"), 0o600); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(at, "db", "row")
	if _, err := os.Stat(kept); err != nil {
		t.Error(err)
	}
	var st unix.Statfs_t
	const flags = unix.ST_NOATIME | unix.ST_NODEV | unix.ST_NOSUID
	if err := unix.Statfs(mounts[1].Source, &st); err != nil || st.Flags&flags != flags {
		t.Errorf("flags %#x %v", st.Flags, err)
	}
	if places, err := again.Claimed(p); err != nil || places["c"] != mounts[1].Source {
		t.Errorf("%v %v", places, err)
	}
	if err := again.Unmount(p); err != nil {
		t.Fatal(err)
	}
	if _, err := again.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil); err == nil || !strings.Contains(err.Error(), "is not mounted") {
		t.Errorf("a container is given %v", err)
	}
	if err := errors.Join(again.Unmount(p), again.Remove("u1"), again.Retain(nil)); err != nil {
		t.Fatal(err)
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %q %v", left, err)
	}
	if _, err := os.Stat(kept); err != nil {
		t.Errorf("the data went with the pod: %v", err)
	}
	if entries, err := os.ReadDir(again.lasting); err != nil || len(entries) > 0 {
		t.Errorf("left: %v %v", entries, err)
	}
}

// TestSweptClaims: what a pod that nobody knows any more had mounted goes, and the data stays.
func TestSweptClaims(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, run := volumes(t)
	src, at := aShelf(), t.TempDir()
	src.claimed = localVolume(at)
	if err := errors.Join(os.WriteFile(filepath.Join(at, "row"), nil, 0o600),
		v.Prepare(t.Context(), pod("u1", claimed("d", false), scratch("e")), src)); err != nil {
		t.Fatal(err)
	}
	if err := v.Retain([]string{"u2"}); err != nil {
		t.Fatal(err)
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 {
		t.Errorf("still mounted: %q %v", left, err)
	}
	if _, err := os.Stat(filepath.Join(at, "row")); err != nil {
		t.Error(err)
	}
}

// TestBadVolumes: what is not what it should be is refused in words, and nothing is mounted.
func TestBadVolumes(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, run := volumes(t)
	dir := t.TempDir()
	link, file := filepath.Join(dir, "link"), filepath.Join(dir, "file")
	if err := errors.Join(os.Symlink("/etc", link), os.WriteFile(file, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	other := localVolume(dir)
	other.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{CSI: &corev1.CSIPersistentVolumeSource{}}
	missing := localVolume(filepath.Join(dir, "none"))
	share := localVolume(dir, "evil")
	share.Spec.PersistentVolumeSource = corev1.PersistentVolumeSource{NFS: &corev1.NFSVolumeSource{Server: "10.0.0.1", Path: "/a"}}
	for want, pv := range map[string]*corev1.PersistentVolume{
		"is no directory": localVolume(link), "file\" is no directory": localVolume(file), "does not exist": missing,
		`mount option "data=journal" is none of a directory`: localVolume(dir, "noatime,data=journal"),
		"this type of persistent volume is not supported":    other,
		`mount option "evil" is not known`:                   share,
	} {
		src := aShelf()
		src.claimed = pv
		if err := v.Prepare(t.Context(), pod("u1", claimed("d", false)), src); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", want, err)
		}
	}
	if left, err := mountsBelow(run); err != nil || len(left) > 0 {
		t.Errorf("mounted: %q %v", left, err)
	}
	if err := v.Remove("u1"); err != nil {
		t.Error(err)
	}
}

// TestReadOnlyClaims: a pod that wants to read cannot write, and a volume that is read-only is so for all.
func TestReadOnlyClaims(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, _ := volumes(t)
	src := aShelf()
	src.claimed = localVolume(t.TempDir(), "ro")
	p := pod("u1", claimed("d", true), claimed("e", false))
	p.Spec.Containers = []corev1.Container{{Name: "c",
		VolumeMounts: []corev1.VolumeMount{{Name: "d", MountPath: "/d"}, {Name: "e", MountPath: "/e"}}}}
	if err := v.Prepare(t.Context(), p, src); err != nil {
		t.Fatal(err)
	}
	mounts, err := v.Mounts(t.Context(), p, &p.Spec.Containers[0], asIs, nil)
	if err != nil || !mounts[0].ReadOnly || mounts[1].ReadOnly {
		t.Errorf("%+v %v", mounts, err)
	}
	if err := os.WriteFile(filepath.Join(mounts[1].Source, "f"), nil, 0o600); !errors.Is(err, unix.EROFS) {
		t.Error(err)
	}
	if err := v.Remove("u1"); err != nil {
		t.Error(err)
	}
}

// TestGroupOfClaims: a volume is the pod's group's, with what is in it, and links lead nowhere.
func TestGroupOfClaims(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	at, elsewhere := t.TempDir(), filepath.Join(t.TempDir(), "f")
	if err := errors.Join(os.WriteFile(elsewhere, nil, 0o600), os.MkdirAll(filepath.Join(at, "a"), 0o700),
		os.WriteFile(filepath.Join(at, "a/f"), nil, 0o600), os.Symlink(elsewhere, filepath.Join(at, "a/l"))); err != nil {
		t.Fatal(err)
	}
	look := func(path string) string {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err.Error()
		}
		return fmt.Sprintf("%o %d", st.Mode&0o7777, st.Gid)
	}
	if err := giveToGroup(at, 2000, corev1.FSGroupChangeAlways); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{filepath.Join(at, "a"): "2770 2000", filepath.Join(at, "a/f"): "660 2000", elsewhere: "600 0"} {
		if got := look(path); got != want {
			t.Errorf("%s: %s, want %s", path, got, want)
		}
	}
	if err := os.Chown(filepath.Join(at, "a/f"), 0, 7); err != nil {
		t.Fatal(err)
	}
	if err := giveToGroup(at, 2000, corev1.FSGroupChangeOnRootMismatch); err != nil || look(filepath.Join(at, "a/f")) != "660 7" {
		t.Errorf("%v %s", err, look(filepath.Join(at, "a/f")))
	}
	if err := giveToGroup(at, 2000, corev1.FSGroupChangeAlways); err != nil || look(filepath.Join(at, "a/f")) != "660 2000" {
		t.Errorf("%v %s", err, look(filepath.Join(at, "a/f")))
	}
}

// TestMain: a copy of this program mounts shares.
func TestMain(m *testing.M) {
	if code, ok := nfs.Child(os.Args); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}
