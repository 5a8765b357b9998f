package layers

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/moby/sys/mountinfo"
	"golang.org/x/sys/unix"

	it "ledge/images/imagestest"
	"ledge/internal/testrun"
)

// stack unpacks archives one over the other.
func stack(t *testing.T, o *Overlay, base string, archives ...[]byte) []string {
	t.Helper()
	var dirs []string
	for i, a := range archives {
		dir, _, err := unpackInto(t, o, base, fmt.Sprint("layer-", i), a, dirs...)
		if err != nil {
			t.Fatal(err)
		}
		dirs = append(dirs, dir)
	}
	return dirs
}

// mounted gives a mounted root file system that is gone when the test is.
func mounted(t *testing.T, o *Overlay, base string, lower []string) string {
	t.Helper()
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
	})
	if err := o.Mount(target, dir, lower); err != nil {
		t.Fatal(err)
	}
	return target
}

func TestMergedView(t *testing.T) {
	needRoot(t)
	o, base := New(Config{}), t.TempDir()
	root := it.Dir("./")
	root.Mode, root.Uid = 0o751, 9
	dirs := stack(t, o, base,
		it.Layer(it.File("a", "low"), it.File("gone", "1"), it.File("dir/old", "1"), it.File("rm/x", "1"), it.File("back/old", "1"),
			it.Dir("keep")),
		it.Layer(root, it.File("a", "high"), it.File(".wh.gone", ""), it.File("dir/new", "2"), it.File("dir/.wh..wh..opq", ""),
			it.File(".wh.rm", ""), it.File(".wh.back", ""), it.File("back/new", "2")),
	)
	target := mounted(t, o, base, dirs)
	got := listTree(t, target)
	want := `. 40751 9:0
a 100644 0:0 n1 "high"
back 40755 0:0
back/new 100644 0:0 n1 "2"
dir 40755 0:0
dir/new 100644 0:0 n1 "2"
keep 40755 0:0
`
	if got != want {
		t.Errorf("got\n%swant\n%s", got, want)
	}
	if ok, err := o.Mounted(target); !ok || err != nil {
		t.Errorf("mounted: %v, %v", ok, err)
	}
	// What a container writes stays out of the layers.
	if err := os.WriteFile(target+"/a", []byte("mine"), 0o644); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(dirs[1] + "/fs/a"); string(b) != "high" {
		t.Errorf("the layer has %q", b)
	}
	info, err := mountinfo.GetMounts(mountinfo.SingleEntryFilter(target))
	if err != nil || len(info) != 1 || !strings.Contains(info[0].Options, "noatime") {
		t.Fatal(info, err)
	}
	if opts := info[0].VFSOptions; !strings.Contains(opts, "volatile") {
		t.Errorf("not volatile: %s", opts)
	}
	if err := o.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if err := o.Unmount(t.Context(), target); err != nil {
		t.Errorf("a second time: %v", err)
	}
	if ok, err := o.Mounted(target); ok || err != nil {
		t.Errorf("mounted: %v, %v", ok, err)
	}
}

// TestOpaqueRoot: the kernel does not look at the mark on a layer's root, so the layers below are left out.
func TestOpaqueRoot(t *testing.T) {
	needRoot(t)
	o, base := New(Config{}), t.TempDir()
	target := mounted(t, o, base, stack(t, o, base, it.Layer(it.File("old", "1")), it.Layer(it.File(".wh..wh..opq", ""), it.File("new", "2"))))
	if got := listTree(t, target); strings.Contains(got, "old") || !strings.Contains(got, "new") {
		t.Errorf("got\n%s", got)
	}
}

func TestNoLayers(t *testing.T) {
	needRoot(t)
	o, base := New(Config{}), t.TempDir()
	target := mounted(t, o, base, nil)
	if got := listTree(t, target); got != ". 40755 0:0\n" {
		t.Errorf("got %q", got)
	}
}

// TestManyLayers: more than fit into a page of mount options by their paths, in each way the kernel may offer.
func TestManyLayers(t *testing.T) {
	needRoot(t)
	o, base := New(Config{}), t.TempDir()
	deep := filepath.Join(base, strings.Repeat("long-name-", 20), "with,comma:colon")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	archives := make([][]byte, 128)
	for i := range archives {
		archives[i] = it.Layer(it.File(fmt.Sprint("f", i), ""), it.File("last", fmt.Sprint(i)))
	}
	dirs := stack(t, o, deep, archives...)
	for i, f := range flavours {
		t.Run(fmt.Sprintf("%+v", f), func(t *testing.T) {
			target, dir := filepath.Join(base, fmt.Sprint("root", i)), filepath.Join(base, fmt.Sprint("dir", i))
			if err := os.Mkdir(target, 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.Mkdir(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			m, err := prepare(target, dir, dirs)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				if err := o.Unmount(context.Background(), target); err != nil {
					t.Error(err)
				}
			}()
			err = m.mount(f)
			if err != nil && !f.classic && unknownToKernel(err) {
				t.Skipf("a kernel before 6.7: %v", err)
			}
			if err != nil {
				t.Fatal(err)
			}
			names, err := os.ReadDir(target)
			if err != nil || len(names) != 129 {
				t.Errorf("%d names, %v", len(names), err)
			}
			if b, _ := os.ReadFile(target + "/last"); string(b) != "127" {
				t.Errorf("the highest layer is %q", b)
			}
		})
	}
}

// TestMountFailureIsClear: an upper directory on a file system that cannot be one.
func TestMountFailureIsClear(t *testing.T) {
	needRoot(t)
	o, base := New(Config{}), t.TempDir()
	dirs := stack(t, o, base, it.Layer(it.File("f", "")))
	if err := os.Mkdir(base+"/container", 0o700); err != nil {
		t.Fatal(err)
	}
	err := o.Mount(base+"/nowhere", base+"/container", dirs)
	if err == nil || !strings.Contains(err.Error(), base+"/nowhere") {
		t.Errorf("error %v", err)
	}
	if err := New(Config{}).Probe(base); err != nil {
		t.Errorf("probe: %v", err)
	}
	if err := New(Config{}).Probe("/proc"); err == nil {
		t.Error("/proc can hold layers")
	}
}

// TestBusyIsDetached: a root file system that somebody still works in is waited for, then detached, and said so.
func TestBusyIsDetached(t *testing.T) {
	needRoot(t)
	var log bytes.Buffer
	o := New(Config{UnmountWait: 100 * time.Millisecond, Log: slog.New(slog.NewTextHandler(&log, nil))})
	base := t.TempDir()
	target := mounted(t, o, base, stack(t, o, base, it.Layer(it.File("f", "x"))))
	// Something mounted inside goes with it.
	if err := os.Mkdir(target+"/sub", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", target+"/sub", "tmpfs", 0, ""); err != nil {
		t.Fatal(err)
	}
	f, err := os.Open(target + "/f")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	start := time.Now()
	if err := o.Unmount(t.Context(), target); err != nil {
		t.Fatal(err)
	}
	if took := time.Since(start); took < 100*time.Millisecond {
		t.Errorf("gave up after %v", took)
	}
	if !strings.Contains(log.String(), "detached") || strings.Contains(log.String(), "sub") {
		t.Errorf("log: %s", log.String())
	}
	if list, _ := mountinfo.GetMounts(mountinfo.PrefixFilter(target)); len(list) != 0 {
		t.Errorf("still mounted: %v", list[0])
	}
	// One that is released in time is not detached.
	log.Reset()
	base2 := t.TempDir()
	o.cfg.UnmountWait = 10 * time.Second
	target = mounted(t, o, base2, stack(t, o, base2, it.Layer(it.File("f", "x"))))
	g, err := os.Open(target + "/f")
	if err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = g.Close() })
	if err := o.Unmount(t.Context(), target); err != nil || log.Len() > 0 {
		t.Errorf("%v, log: %s", err, log.String())
	}
}

// TestRemoveDeep: a container can make a tree deeper than there are descriptors.
func TestRemoveDeep(t *testing.T) {
	needRoot(t)
	testrun.OnHost(t)
	base := t.TempDir()
	fd, err := unix.Open(base, unix.O_RDONLY|unix.O_DIRECTORY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 20000 {
		if err := unix.Mkdirat(fd, "d", 0o700); err != nil {
			t.Fatal(err)
		}
		next, err := unix.Openat(fd, "d", unix.O_RDONLY|unix.O_DIRECTORY, 0)
		if err != nil {
			t.Fatal(err)
		}
		_ = unix.Close(fd)
		fd = next
	}
	_ = unix.Close(fd)
	keep := filepath.Join(t.TempDir(), "keep")
	if err := os.WriteFile(keep, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(keep), base+"/d/link"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(base+"/d/.deep-1", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range 2000 {
		if err := os.WriteFile(fmt.Sprint(base, "/d/", i), nil, 0o400); err != nil {
			t.Fatal(err)
		}
	}
	o := New(Config{})
	if err := o.Remove(base + "/d"); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Lstat(base + "/d"); !os.IsNotExist(err) {
		t.Error("still there")
	}
	if _, err := os.Stat(keep); err != nil {
		t.Errorf("followed a link: %v", err)
	}
	if err := o.Remove(base + "/d"); err != nil {
		t.Errorf("a second time: %v", err)
	}
}

// Whatever stands at a target or in it goes: one mount above another, one inside, and one in a directory that is none itself.
func TestUnmountTakesAll(t *testing.T) {
	needRoot(t)
	testrun.OnHost(t)
	for name, below := range map[string][]string{
		"one": {"."}, "none": nil, "stacked": {".", "."}, "inside": {".", "in"}, "only inside": {"in"}, "deep": {".", "in", "in/deeper"},
	} {
		t.Run(name, func(t *testing.T) {
			target := filepath.Join(t.TempDir(), "root")
			if err := os.MkdirAll(target, 0o700); err != nil {
				t.Fatal(err)
			}
			for _, at := range below {
				at = filepath.Join(target, at)
				if err := os.MkdirAll(at, 0o700); err != nil {
					t.Fatal(err)
				}
				if err := unix.Mount("test", at, "tmpfs", 0, "size=64k"); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = unix.Unmount(at, unix.MNT_DETACH) })
			}
			if err := New(Config{}).Unmount(t.Context(), target); err != nil {
				t.Fatal(err)
			}
			if left, err := mountinfo.GetMounts(mountinfo.PrefixFilter(target)); err != nil || len(left) > 0 {
				t.Errorf("%d mounts are left, %v", len(left), err)
			}
		})
	}
}
