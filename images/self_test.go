package images_test

import (
	"bytes"
	"context"
	"debug/elf"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/images"
	"ledge/images/applet"
	it "ledge/images/imagestest"
	"ledge/internal/testrun"
)

// TestMain is also the program in the self image, where the test binary is static.
func TestMain(m *testing.M) {
	if code, ok := applet.Dispatch(os.Args, nil); ok {
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// buildLedge makes the smallest program with the applets in it. In a guest without Go it is the test binary.
func buildLedge(t *testing.T, path string) {
	t.Helper()
	self, err := elf.Open("/proc/self/exe")
	if err != nil {
		t.Fatal(err)
	}
	defer self.Close()
	if !slices.ContainsFunc(self.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		if err := os.WriteFile(path, mustRead(t, "/proc/self/exe"), 0o755); err != nil {
			t.Fatal(err)
		}
		return
	}
	cmd := exec.Command("go", "build", "-o", path, "./applet/testdata/ledge")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// run runs a program inside a root file system.
func run(t *testing.T, rootfs string, uid uint32, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Path, cmd.Err = args[0], nil
	cmd.Dir = "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: rootfs, Credential: &syscall.Credential{Uid: uid, Gid: uid}}
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("%q: %v\n%s", args, err, out)
	}
	return string(out)
}

func TestSelf(t *testing.T) {
	b := newBoard(t)
	binary := filepath.Join(filepath.Dir(b.root), "ledge")
	buildLedge(t, binary)
	img, err := b.disk.Self(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(img.Names, []string{images.SelfName}) || !img.Pinned || len(img.Layers) != 1 ||
		!slices.Equal(img.Config.Entrypoint, []string{"/ledge", "applet"}) || !slices.Equal(img.Config.Cmd, []string{"pause"}) {
		t.Errorf("%+v", img)
	}
	if got, err := b.disk.Get(t.Context(), "ledge.local/self"); err != nil || got.ID != img.ID {
		t.Errorf("%+v, %v", got, err)
	}
	dir, err := b.disk.Mount(t.Context(), img.ID, "pod")
	if err != nil {
		t.Fatal(err)
	}
	// As image + args of a pod would have it, as a command, and not as root.
	if out := run(t, dir, 0, "/ledge", "applet", "echo", "hello"); out != "hello\n" {
		t.Errorf("args: %q", out)
	}
	for _, name := range images.Applets {
		if target, err := os.Readlink(dir + "/bin/" + name); err != nil || target != "/ledge" {
			t.Errorf("/bin/%s -> %q, %v", name, target, err)
		}
	}
	if out := run(t, dir, 65534, "/bin/echo", "hello"); out != "hello\n" {
		t.Errorf("command: %q", out)
	}
	run(t, dir, 65534, "/bin/sleep", "0.01")
	if fi, err := os.Stat(dir + "/tmp"); err != nil || fi.Mode() != os.ModeDir|os.ModeSticky|0o777 {
		t.Errorf("/tmp: %v, %v", fi, err)
	}
	if data, err := os.ReadFile(dir + "/etc/passwd"); err != nil || !strings.HasPrefix(string(data), "root:x:0:0:") {
		t.Errorf("/etc/passwd: %q, %v", data, err)
	}
	for _, ref := range []string{images.SelfName, img.ID} {
		if err := b.disk.Remove(t.Context(), ref); !errors.Is(err, images.ErrBuiltIn) {
			t.Errorf("remove %s: %v", ref, err)
		}
	}
	b.whole("ledge.local/self")
	b.tidy()
	// A container that writes to its binary writes to a copy.
	before := it.Digest(mustRead(t, binary))
	if err := os.WriteFile(dir+"/ledge", []byte("changed"), 0o755); err != nil {
		t.Fatal(err)
	}
	if it.Digest(mustRead(t, binary)) != before {
		t.Error("a container has changed the host's binary")
	}
}

func mustRead(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// fakeBinary writes something that looks like another build of ledge.
func fakeBinary(t *testing.T, path, content string) {
	t.Helper()
	tmp := path + ".new"
	if err := os.WriteFile(tmp, []byte(strings.Repeat(content, 100_000)), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(tmp, path); err != nil {
		t.Fatal(err)
	}
}

func mustSelf(t *testing.T, b *board, binary string) images.Image {
	t.Helper()
	img, err := b.disk.Self(t.Context(), binary)
	if err != nil {
		t.Fatal(err)
	}
	return img
}

// TestSelfUpgrade: a new binary gives a new image; the old one stays as long as something runs from it.
func TestSelfUpgrade(t *testing.T) {
	b := newBoard(t)
	binary := filepath.Join(filepath.Dir(b.root), "ledge")
	fakeBinary(t, binary, "one")
	one := mustSelf(t, b, binary)
	synced := false
	b.disk.Watch(func(step, _ string) error { synced = synced || step == "syncfs"; return nil })
	if again := mustSelf(t, b, binary); again.ID != one.ID || synced {
		t.Errorf("made again: %v, %+v", synced, again)
	}
	b.disk.Watch(nil)
	if _, err := b.disk.Mount(t.Context(), one.ID, "pod"); err != nil {
		t.Fatal(err)
	}
	b.restart()
	fakeBinary(t, binary, "two")
	two := mustSelf(t, b, binary)
	if got, err := b.disk.Get(t.Context(), images.SelfName); err != nil || got.ID != two.ID || two.ID == one.ID {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := b.disk.Get(t.Context(), one.ID); err != nil {
		t.Errorf("the image in use: %v", err)
	}
	if err := b.disk.Retain(t.Context(), nil); err != nil {
		t.Fatal(err)
	}
	mustSelf(t, b, binary)
	if _, err := b.disk.Get(t.Context(), one.ID); !errors.Is(err, images.ErrNotFound) {
		t.Errorf("the image not in use: %v", err)
	}
	b.whole("ledge.local/self")
	// Overwritten in place: with a hard link the layer changed with it, and must not be taken for the old one.
	f, err := os.OpenFile(binary, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("THREE"); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(f.Close(), os.Chtimes(binary, time.Now(), time.Unix(1, 0))); err != nil {
		t.Fatal(err)
	}
	if three := mustSelf(t, b, binary); three.ID == two.ID {
		t.Error("the change was not seen")
	}
	b.whole("ledge.local/self")
	b.tidy()
}

// TestSelfHeals: damaged or lost, it is made again, before a pod is told that it is not there.
func TestSelfHeals(t *testing.T) {
	b := newBoard(t)
	binary := filepath.Join(filepath.Dir(b.root), "ledge")
	fakeBinary(t, binary, "one")
	img := mustSelf(t, b, binary)
	passwd := filepath.Join(b.root, "layers", strings.TrimPrefix(img.Layers[0], "sha256:"), "fs/etc/passwd")
	if err := os.Truncate(passwd, 0); err != nil {
		t.Fatal(err)
	}
	b.powerCut()
	mustSelf(t, b, binary)
	b.whole("ledge.local/self")
	if err := os.WriteFile(passwd, bytes.Repeat([]byte("x"), len(mustRead(t, passwd))), 0o644); err != nil {
		t.Fatal(err)
	}
	if rep, err := b.disk.Verify(t.Context()); err != nil || len(rep.Lost) > 0 || len(rep.Repaired) != 1 {
		t.Errorf("%+v, %v", rep, err)
	}
	b.whole("ledge.local/self")
	if err := os.RemoveAll(filepath.Dir(filepath.Dir(filepath.Dir(passwd)))); err != nil {
		t.Fatal(err)
	}
	b.powerCut()
	if got := mustSelf(t, b, binary); got.ID != img.ID {
		t.Errorf("another image: %s", got.ID)
	}
	b.whole("ledge.local/self")
	b.tidy()
}

// TestSelfIsShared: on one file system the binary is not written a second time, unless its mode or owner differ
// from what a container needs.
func TestSelfIsShared(t *testing.T) {
	b := newBoard(t)
	binary := filepath.Join(filepath.Dir(b.root), "ledge")
	fakeBinary(t, binary, "one")
	layerFile := func() string {
		img := mustSelf(t, b, binary)
		return filepath.Join(b.root, "layers", strings.TrimPrefix(img.Layers[0], "sha256:"), "fs/ledge")
	}
	inode := func(path string) uint64 {
		var st unix.Stat_t
		if err := unix.Stat(path, &st); err != nil {
			t.Fatal(err)
		}
		return st.Ino
	}
	if file := layerFile(); inode(file) != inode(binary) && !clones(t, filepath.Dir(binary)) {
		t.Error("the binary was copied")
	}
	fakeBinary(t, binary, "two")
	if err := os.Chmod(binary, 0o700); err != nil {
		t.Fatal(err)
	}
	file := layerFile()
	if inode(file) == inode(binary) {
		t.Error("a binary that only root may run was shared")
	}
	if fi, err := os.Stat(file); err != nil || fi.Mode() != 0o755 {
		t.Errorf("%v, %v", fi, err)
	}
	// Another file system: a copy.
	shm, err := os.MkdirTemp("/dev/shm", "ledge-test-"+testrun.Mark()+"-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(shm)
	binary = filepath.Join(shm, "ledge")
	fakeBinary(t, binary, "three")
	if data := mustRead(t, layerFile()); !bytes.HasPrefix(data, []byte("three")) {
		t.Error("not copied")
	}
	b.whole("ledge.local/self")
}

// clones says whether the file system can share blocks between files.
func clones(t *testing.T, dir string) bool {
	t.Helper()
	var fds [2]int
	for i, name := range []string{"clone-a", "clone-b"} {
		f, err := os.Create(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		fds[i] = int(f.Fd())
	}
	return unix.IoctlFileClone(fds[0], fds[1]) == nil
}

// TestSelfOfTheRunningBinary: /proc/self/exe, which may have been deleted by an upgrade.
func TestSelfOfTheRunningBinary(t *testing.T) {
	b := newBoard(t)
	img := mustSelf(t, b, "/proc/self/exe")
	if img.Size < 1<<20 {
		t.Errorf("size %d", img.Size)
	}
	path := filepath.Join(filepath.Dir(b.root), "ledge")
	fakeBinary(t, path, "deleted")
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if img := mustSelf(t, b, fmt.Sprint("/proc/self/fd/", f.Fd())); img.Size < 700_000 {
		t.Errorf("size %d", img.Size)
	}
	b.whole("ledge.local/self")
	if _, err := b.disk.Self(t.Context(), "/nowhere"); err == nil {
		t.Error("made of nothing")
	}
	if _, err := b.disk.Self(t.Context(), "/dev/null"); err == nil {
		t.Error("made of a device")
	}
	b.tidy()
}
