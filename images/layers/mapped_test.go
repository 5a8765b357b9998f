package layers

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	it "ledge/images/imagestest"
)

// TestMountFor: layers that belong to the board's root belong to the mapped root, what is written is, and the layers
// themselves stay as they are, for others to use.
func TestMountFor(t *testing.T) {
	needRoot(t)
	o, base := New(Config{}), t.TempDir()
	other := it.File("home/file", "text")
	other.Uid, other.Gid = 1000, 1001
	dirs := stack(t, o, base, it.Layer(it.Dir("./"), it.File("etc/low", "low"), other), it.Layer(it.File("etc/high", "high")))
	const host = 700_000
	target, dir := filepath.Join(base, "rootfs"), filepath.Join(base, "container")
	for _, d := range []string{target, dir} {
		if err := os.Mkdir(d, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if err := o.Unmount(context.Background(), target); err != nil {
			t.Error(err)
		}
		if ok, err := o.Mounted(target); ok || err != nil {
			t.Errorf("still mounted: %v %v", ok, err)
		}
	})
	if err := o.MountFor(target, dir, dirs, host, 65536); err != nil {
		t.Fatal(err)
	}
	owner := func(path string) (uid, gid uint32) {
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Uid, st.Gid
	}
	want := func(path string, uid, gid uint32) {
		t.Helper()
		if u, g := owner(path); u != uid || g != gid {
			t.Errorf("%s belongs to %d:%d, want %d:%d", path, u, g, uid, gid)
		}
	}
	want(target, host, host)
	want(filepath.Join(target, "etc/low"), host, host)
	want(filepath.Join(target, "etc/high"), host, host)
	want(filepath.Join(target, "home/file"), host+1000, host+1001)
	// As the mapped root would: a file that is changed is copied up with its owner.
	if err := os.WriteFile(filepath.Join(target, "home/file"), []byte("changed"), 0o644); err != nil {
		t.Fatal(err)
	}
	want(filepath.Join(target, "home/file"), host+1000, host+1001)
	want(filepath.Join(dirs[0], treeDir, "home/file"), 1000, 1001)
	if b, err := os.ReadFile(filepath.Join(dirs[0], treeDir, "home/file")); err != nil || string(b) != "text" {
		t.Errorf("a layer was changed: %q %v", b, err)
	}
	if left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(base)); err != nil || len(left) != 1 {
		t.Errorf("mounts: %v %v", left, err)
	}
}
