package cli

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/brain/place"
)

// While anything is mounted in a directory, nothing of it is removed: not what lies there, not what is mounted.
func TestRemoveDirSparesMounts(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir, host := filepath.Join(t.TempDir(), "a b"), t.TempDir()
	for _, d := range []string{filepath.Join(dir, "m"), filepath.Join(dir, "0")} {
		must(t, os.MkdirAll(d, 0o700))
	}
	precious := filepath.Join(host, "inner", "precious")
	must(t, os.Mkdir(filepath.Dir(precious), 0o700))
	must(t, os.WriteFile(precious, nil, 0o600))
	must(t, syscall.Mount(host, filepath.Join(dir, "m"), "", syscall.MS_BIND, ""))
	// What is mounted in it next would be mounted in host too, where the board shares its mounts, as under systemd, and outlive the test.
	must(t, syscall.Mount("", filepath.Join(dir, "m"), "", syscall.MS_PRIVATE, ""))
	must(t, syscall.Mount("none", filepath.Join(dir, "m", "inner"), "tmpfs", 0, ""))
	must(t, os.Symlink(dir, dir+".link"))
	if err := removeDir(dir+".link", nil); err == nil || !strings.Contains(err.Error(), "is mounted in it") {
		t.Errorf("with something mounted: %v", err)
	}
	if _, err := os.Stat(filepath.Join(dir, "0")); err != nil {
		t.Error(err)
	}
	must(t, unmountBelow(dir+".link"))
	must(t, removeDir(dir, nil))
	if _, err := os.Stat(precious); err != nil {
		t.Error("what was mounted is gone:", err)
	}
}

// A directory of the board that a pod was given keeps what the board has mounted in it.
func TestUnmountBelowSparesTheBoard(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	board, at := filepath.Join(t.TempDir(), "mnt"), filepath.Join(t.TempDir(), "run")
	usb := filepath.Join(board, "usb")
	must(t, errors.Join(os.Mkdir(board, 0o700), os.MkdirAll(filepath.Join(at, "volume"), 0o700)))
	must(t, unix.Mount("none", board, "tmpfs", 0, ""))
	t.Cleanup(func() { must(t, unix.Unmount(board, unix.MNT_DETACH)) })
	must(t, unix.Mount("", board, "", unix.MS_SHARED, ""))
	must(t, os.Mkdir(usb, 0o700))
	must(t, unix.Mount("none", usb, "tmpfs", 0, ""))
	must(t, unix.Mount(board, filepath.Join(at, "volume"), "", unix.MS_BIND|unix.MS_REC, ""))
	must(t, unmountBelow(at))
	if points, err := mountsBelow(board); err != nil || len(points) != 1 || points[0] != usb {
		t.Errorf("mounted on the board: %q %v", points, err)
	}
	if points, err := mountsBelow(at); err != nil || len(points) != 0 {
		t.Errorf("left: %q %v", points, err)
	}
}

// A reset that is cut short leaves what the next one knows the directory by.
func TestRemoveDirMarksLast(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, f := range append([]string{"a", "zz"}, place.RunMarks...) {
		must(t, os.WriteFile(filepath.Join(dir, f), nil, 0o600))
	}
	fd, err := os.Open(filepath.Join(dir, "zz"))
	must(t, err)
	defer fd.Close()
	must(t, unix.IoctlSetPointerInt(int(fd.Fd()), unix.FS_IOC_SETFLAGS, 0x10)) // FS_IMMUTABLE_FL
	err = removeDir(dir, place.RunMarks)
	must(t, unix.IoctlSetPointerInt(int(fd.Fd()), unix.FS_IOC_SETFLAGS, 0))
	if other, ferr := place.Foreign(dir, place.RunMarks); err == nil || ferr != nil || other {
		t.Error(err, other, ferr)
	}
	must(t, removeDir(dir, place.RunMarks))
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

// A mount that somebody uses ends the reset: what lies below it would go with the rest.
func TestUnmountBelowSaysWhatIsInUse(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	at := filepath.Join(dir, "m")
	must(t, os.Mkdir(at, 0o700))
	must(t, syscall.Mount("none", at, "tmpfs", 0, ""))
	f, err := os.Create(filepath.Join(at, "f"))
	must(t, err)
	if err := unmountBelow(dir); err == nil || !strings.Contains(err.Error(), "unmount "+at+": device or resource busy") {
		t.Error(err)
	}
	must(t, f.Close())
	must(t, unmountBelow(dir))
}

// What 'ledge join' alone has made is a node's, and a reset removes it; a directory that only has the same name in it is not.
func TestResetOfWhatJoinMade(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	for file, ours := range map[string]bool{"node.pem": true, "next.pem": true, "admin.conf": false} {
		data := filepath.Join(t.TempDir(), "data")
		must(t, os.MkdirAll(filepath.Join(data, "kubernetes"), 0o700))
		must(t, os.WriteFile(filepath.Join(data, "kubernetes", file), nil, 0o600))
		c, o := &Command{RunDir: filepath.Join(t.TempDir(), "run")}, &resetOpts{dataDir: data, data: true}
		err := c.resetDirs(o)
		if (err == nil) != ours {
			t.Errorf("%s: %v", file, err)
		}
		if err != nil {
			continue
		}
		must(t, removeDir(o.dataDir, place.KeptMarks()))
		if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: %v", file, err)
		}
	}
}
