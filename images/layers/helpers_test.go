package layers

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"ledge/images"
	"ledge/images/imagestest"
)

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	if _, _, err := statAt(unix.AT_FDCWD, "."); errors.Is(err, unix.ENOSYS) {
		t.Skip("needs openat2, which qemu-user lacks")
	}
}

// unpackInto makes a layer directory below base, over the given ones, and checks what must always hold.
func unpackInto(t testing.TB, o *Overlay, base, name string, archive []byte, lower ...string) (string, images.Unpacked, error) {
	t.Helper()
	dir := filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	u, err := o.Unpack(t.Context(), dir, images.LayerArchive{Tar: bytes.NewReader(archive), Lower: lower})
	if err == nil {
		if err := o.Verify(t.Context(), dir, u.Manifest, true); err != nil {
			t.Errorf("a fresh layer does not verify: %v", err)
		}
	}
	return dir, u, err
}

// tree describes what is below dir, one line a path, in order.
func listTree(t testing.TB, dir string) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, path)
		fmt.Fprintf(&b, "%s %o %d:%d", rel, st.Mode, st.Uid, st.Gid)
		switch st.Mode & unix.S_IFMT {
		case unix.S_IFREG:
			data, err := os.ReadFile(path)
			if err != nil {
				return err
			}
			if len(data) > 40 {
				data = []byte(imagestest.Digest(data))
			}
			fmt.Fprintf(&b, " n%d %q", st.Nlink, data)
		case unix.S_IFLNK:
			target, _ := os.Readlink(path)
			fmt.Fprintf(&b, " -> %s", target)
		case unix.S_IFCHR:
			fmt.Fprintf(&b, " dev %d", st.Rdev)
		}
		if v := getXattr(path, "trusted.overlay.opaque"); v != "" {
			b.WriteString(" opaque=" + v)
		}
		b.WriteByte('\n')
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

func getXattr(path, name string) string {
	buf := make([]byte, 1024)
	n, err := unix.Lgetxattr(path, name, buf)
	if errors.Is(err, unix.ENODATA) || errors.Is(err, unix.ENOTSUP) {
		return ""
	}
	if err != nil {
		return "error: " + err.Error()
	}
	return string(buf[:n])
}

func isDamaged(err error) bool { return errors.Is(err, images.ErrDamaged) }
