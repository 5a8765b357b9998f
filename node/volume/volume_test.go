package volume

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/runtime"
)

func volumes(t *testing.T) (v *Volumes, data, run string) {
	t.Helper()
	dir := t.TempDir()
	data, run = filepath.Join(dir, "data"), filepath.Join(dir, "run")
	v, err := New(data, run)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := v.Retain(nil); err != nil { // whatever a failed test left mounted
			t.Error(err)
		}
	})
	return v, data, run
}

func pod(uid string, vols ...corev1.Volume) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid)}, Spec: corev1.PodSpec{Volumes: vols}}
}

func scratch(name string) corev1.Volume {
	return corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}
}

func memory(name string) corev1.Volume {
	v := scratch(name)
	v.EmptyDir.Medium = corev1.StorageMediumMemory
	return v
}

func hostPath(name, path string, kind ...corev1.HostPathType) corev1.Volume {
	v := corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: path}}}
	if len(kind) > 0 {
		v.HostPath.Type = &kind[0]
	}
	return v
}

func isTmpfs(t *testing.T, path string) bool {
	t.Helper()
	var st, up unix.Stat_t
	var fs unix.Statfs_t
	if unix.Stat(path, &st) != nil || unix.Stat(filepath.Dir(path), &up) != nil || unix.Statfs(path, &fs) != nil {
		return false
	}
	return st.Dev != up.Dev && fs.Type == unix.TMPFS_MAGIC
}

// TestScratch on disk: made for everybody in the pod whatever the umask, kept over restarts, gone with the pod.
func TestScratch(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	v, data, _ := volumes(t)
	p := pod("u1", scratch("s"))
	for range 2 {
		if err := v.Prepare(t.Context(), p, aShelf()); err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(data, "volumes", "u1", "s")
		st, err := os.Stat(dir)
		if err != nil || st.Mode().Perm() != 0o777 {
			t.Fatalf("%v %v", st, err)
		}
		if err := os.WriteFile(filepath.Join(dir, "kept"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "volumes", "u1", "s", "kept")); err != nil {
		t.Error(err)
	}
	for range 2 {
		if err := v.Remove("u1"); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(data, "volumes", "u1")); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestMemory is really mounted, once, found again by another process, and really gone.
func TestMemory(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, data, run := volumes(t)
	p := pod("u1", memory("m"), memory("n"))
	dir := filepath.Join(run, "volumes", "u1", "m")
	if err := v.Prepare(t.Context(), p, aShelf()); err != nil {
		t.Fatal(err)
	}
	if !isTmpfs(t, dir) || !isTmpfs(t, filepath.Join(filepath.Dir(dir), "n")) {
		t.Fatal("not mounted")
	}
	st, err := os.Stat(dir)
	if err != nil || st.Mode().Perm() != 0o777 || st.Mode()&os.ModeSticky == 0 {
		t.Errorf("mode %v %v", st.Mode(), err)
	}
	if err := os.WriteFile(filepath.Join(dir, "kept"), []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	again, err := New(data, run) // the brain was restarted
	if err != nil {
		t.Fatal(err)
	}
	if err := again.Prepare(t.Context(), p, aShelf()); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "kept")); err != nil {
		t.Errorf("it was mounted over: %v", err)
	}

	held, err := os.Open(filepath.Join(dir, "kept"))
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	if err := again.Remove("u1"); err == nil {
		t.Error("a volume in use was removed")
	}
	if !isTmpfs(t, dir) {
		t.Error("a volume in use is not mounted any more")
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if err := again.Remove("u1"); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Dir(dir)); !os.IsNotExist(err) {
		t.Errorf("still there: %v", err)
	}
}

// TestMemoryHalfMade: the power went, or the process, between the directory and the mount, or the unmount and the
// removal.
func TestMemoryHalfMade(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	v, _, run := volumes(t)
	dir := filepath.Join(run, "volumes", "u1", "m")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := v.Remove("u1"); err != nil {
		t.Error(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := v.Prepare(t.Context(), pod("u1", memory("m")), aShelf()); err != nil || !isTmpfs(t, dir) {
		t.Errorf("mounted %v, %v", isTmpfs(t, dir), err)
	}
}

func TestRetain(t *testing.T) {
	v, data, run := volumes(t)
	vols := []corev1.Volume{scratch("s")}
	if os.Getuid() == 0 {
		vols = append(vols, memory("m"))
	}
	for _, uid := range []string{"a", "b", "c"} {
		if err := v.Prepare(t.Context(), pod(uid, vols...), aShelf()); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Retain([]string{"b", "unknown"}); err != nil {
		t.Error(err)
	}
	for _, root := range []string{data, run} {
		for _, uid := range []string{"a", "b", "c"} {
			_, err := os.Stat(filepath.Join(root, "volumes", uid))
			if kept := err == nil; kept != (uid == "b") && (root == data || os.Getuid() == 0) {
				t.Errorf("%s of pod %s kept: %v", root, uid, kept)
			}
		}
	}
}

// TestBadUID: a UID is a name, not a path. What it might lead to is the board's data directory, or all of the board.
func TestBadUID(t *testing.T) {
	v, data, run := volumes(t)
	for _, dir := range []string{data, run} {
		if err := os.WriteFile(filepath.Join(dir, "precious"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.Prepare(t.Context(), pod("good", scratch("s")), nil); err != nil {
		t.Fatal(err)
	}
	for _, uid := range []string{"", ".", "..", "/", "a/b", "../x", "good/..", "good/../..", "/etc"} {
		if err := v.Remove(uid); err == nil {
			t.Errorf("Remove took %q", uid)
		}
		if err := v.Prepare(t.Context(), pod(uid, scratch("s")), nil); err == nil {
			t.Errorf("Prepare took %q", uid)
		}
	}
	for _, path := range []string{filepath.Join(data, "precious"), filepath.Join(run, "precious"),
		filepath.Join(data, "volumes", "good", "s")} {
		if _, err := os.Stat(path); err != nil {
			t.Errorf("%v", err)
		}
	}
}

// TestHostPath types, as Kubernetes has them.
func TestHostPath(t *testing.T) {
	dir := t.TempDir()
	file, sub, sock, link := filepath.Join(dir, "file"), filepath.Join(dir, "sub"), filepath.Join(dir, "sock"), filepath.Join(dir, "link")
	if err := os.WriteFile(file, []byte("kept"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(sub, 0o700); err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("unix", sock)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if err := os.Symlink(sub, link); err != nil {
		t.Fatal(err)
	}
	block := filepath.Join(dir, "block")
	if err := unix.Mknod(block, unix.S_IFBLK|0o600, int(unix.Mkdev(7, 250))); err != nil && os.Getuid() == 0 {
		t.Fatal(err)
	}
	v, _, _ := volumes(t)
	for _, c := range []struct {
		kind corev1.HostPathType
		good []string
		bad  []string
	}{
		{corev1.HostPathUnset, []string{file, sub, sock, link, "/dev/null", "NEW dir"}, nil},
		{corev1.HostPathDirectory, []string{sub, link}, []string{file, sock, "/dev/null", "NEW"}},
		{corev1.HostPathDirectoryOrCreate, []string{sub, link, "NEW dir"}, []string{file, sock}},
		{corev1.HostPathFile, []string{file}, []string{sub, sock, "/dev/null", "NEW"}},
		{corev1.HostPathFileOrCreate, []string{file, "NEW file"}, []string{sub, sock}},
		{corev1.HostPathSocket, []string{sock}, []string{file, sub, "NEW"}},
		{corev1.HostPathCharDev, []string{"/dev/null"}, []string{file, block, "NEW"}},
		{corev1.HostPathBlockDev, []string{block}, []string{file, "/dev/null", "NEW"}},
		{"Something", nil, []string{file, sub, "NEW"}},
	} {
		for _, path := range append(append([]string(nil), c.good...), c.bad...) {
			if path == block && os.Getuid() != 0 {
				continue
			}
			good := len(c.good) > 0 && strings.Contains(strings.Join(c.good, "\n")+"\n", path+"\n")
			made, isNew := strings.CutPrefix(path, "NEW")
			if isNew {
				path = filepath.Join(dir, "new", string(c.kind))
				os.RemoveAll(path)
				os.MkdirAll(filepath.Dir(path), 0o755)
			}
			err := v.Prepare(t.Context(), pod("u1", hostPath("h", path, c.kind)), nil)
			if (err == nil) != good {
				t.Errorf("%q of %s: %v", c.kind, path, err)
			}
			if !isNew {
				continue
			}
			st, err := os.Stat(path)
			switch made {
			case " dir":
				if err != nil || !st.IsDir() || st.Mode().Perm() != 0o755 {
					t.Errorf("%q made %v %v", c.kind, st, err)
				}
			case " file":
				if err != nil || !st.Mode().IsRegular() || st.Size() != 0 || st.Mode().Perm() != 0o644 {
					t.Errorf("%q made %v %v", c.kind, st, err)
				}
			default:
				if err == nil {
					t.Errorf("%q made %v", c.kind, st)
				}
			}
		}
	}
	if err := v.Prepare(t.Context(), pod("u1", hostPath("h", filepath.Join(dir, "no", "such", "file"), corev1.HostPathFileOrCreate)),
		nil); err == nil {
		t.Error("FileOrCreate made directories")
	}
	if err := v.Remove("u1"); err != nil {
		t.Error(err)
	}
	if data, err := os.ReadFile(file); err != nil || string(data) != "kept" {
		t.Errorf("the board's own file: %q %v", data, err)
	}
}

func TestMounts(t *testing.T) {
	v, data, run := volumes(t)
	p := pod("u1", scratch("s"), memory("m"), hostPath("h", "/srv"))
	c := &corev1.Container{Name: "c", VolumeMounts: []corev1.VolumeMount{{Name: "h", MountPath: "/h", ReadOnly: true},
		{Name: "s", MountPath: "/s"}, {Name: "m", MountPath: "/m"}}}
	got, err := v.Mounts(t.Context(), p, c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	want := []runtime.Mount{{Source: "/srv", Target: "/h", ReadOnly: true, Recursive: true},
		{Source: filepath.Join(data, "volumes/u1/s"), Target: "/s", Recursive: true},
		{Source: filepath.Join(run, "volumes/u1/m"), Target: "/m", Recursive: true}}
	for i := range want {
		if g := got[i]; g.Source != want[i].Source || g.Target != want[i].Target || g.ReadOnly != want[i].ReadOnly ||
			g.Recursive != want[i].Recursive {
			t.Errorf("mount %d: %+v, want %+v", i, g, want[i])
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "none", MountPath: "/x"})
	if _, err := v.Mounts(t.Context(), p, c, nil, nil); err == nil {
		t.Error("a volume the pod does not have was mounted")
	}
	if err := v.Prepare(t.Context(), pod("u2", corev1.Volume{Name: "x", VolumeSource: corev1.VolumeSource{ISCSI: &corev1.ISCSIVolumeSource{}}}),
		nil); err == nil {
		t.Error("a volume of a kind that is not supported was taken")
	}
}

// TestReadFile: what a pod may have put where a file is expected.
func TestReadFile(t *testing.T) {
	v, data, _ := volumes(t)
	p := pod("u1", scratch("s"), corev1.Volume{Name: "h",
		VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc"}}})
	if err := v.Prepare(t.Context(), p, aShelf()); err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(data, "volumes", "u1", "s")
	for _, err := range []error{
		os.Mkdir(filepath.Join(dir, "d"), 0o700), os.WriteFile(filepath.Join(dir, "d/f"), []byte("12345"), 0o600),
		os.Symlink("d/f", filepath.Join(dir, "in")), os.Symlink("/etc/hostname", filepath.Join(dir, "out")),
		os.Symlink("../../../..", filepath.Join(dir, "up")), unix.Mkfifo(filepath.Join(dir, "fifo"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"d/f", "in", "./d/../d/f"} {
		if got, err := v.ReadFile(p, "s", path, 5); err != nil || string(got) != "12345" {
			t.Errorf("%s: %q %v", path, got, err)
		}
	}
	for _, path := range []string{"out", "up/x", "fifo", "d", "none", "d/f/x", "../s/d/f", "/etc/hostname", ""} {
		if got, err := v.ReadFile(p, "s", path, 5); err == nil {
			t.Errorf("%s: %q", path, got)
		}
	}
	if got, err := v.ReadFile(p, "s", "d/f", 4); err == nil {
		t.Errorf("too large: %q", got)
	}
	for _, name := range []string{"h", "none"} {
		if got, err := v.ReadFile(p, name, "hostname", 5000); err == nil {
			t.Errorf("volume %s: %q", name, got)
		}
	}
}
