package durable

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"golang.org/x/sys/unix"
)

// names are those in a directory.
func names(t *testing.T, dir string) (out []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		out = append(out, e.Name())
	}
	return out
}

func content(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// TestSteps: content is synced before the name says so, and the name before Replace returns. A step that fails leaves
// the old file or, at the last step, the new one; in no case a temporary file.
func TestSteps(t *testing.T) {
	want := []string{"fsync .f.tmp", "rename f", "fsync DIR"}
	for fails := range len(want) + 1 {
		dir := t.TempDir()
		path := filepath.Join(dir, "f")
		if err := Replace(path, []byte("old"), 0o600); err != nil {
			t.Fatal(err)
		}
		var steps []string
		err := Disk{Before: func(step, at string) error {
			name := filepath.Base(at)
			if at == dir {
				name = "DIR"
			}
			steps = append(steps, step+" "+name)
			if len(steps) == fails+1 {
				return unix.EIO
			}
			return nil
		}}.Replace(path, []byte("new"), 0o600)
		if (err == nil) != (fails == len(want)) || err != nil && !errors.Is(err, unix.EIO) {
			t.Errorf("step %d: %v", fails, err)
		}
		if failed := fails == 0 || fails == 2; errors.Is(err, ErrSync) != failed {
			t.Errorf("step %d: %v: a failed sync %v", fails, err, failed)
		}
		if !slices.Equal(steps, want[:min(fails+1, len(want))]) {
			t.Errorf("step %d: %q", fails, steps)
		}
		has := "old"
		if fails >= 2 {
			has = "new"
		}
		if got := content(t, path); got != has {
			t.Errorf("step %d: %q, want %q", fails, got, has)
		}
		if got := names(t, dir); len(got) != 1 {
			t.Errorf("step %d: left %q", fails, got)
		}
	}
}

// TestHalfWritten: what cannot be read to its end replaces nothing and leaves nothing.
func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	if err := Replace(path, []byte("old"), 0o600); err != nil {
		t.Fatal(err)
	}
	half := io.MultiReader(strings.NewReader("ne"), iotest.ErrReader(unix.ENOSPC))
	if err := (Disk{}).ReplaceFrom(path, half, 0o600); !errors.Is(err, unix.ENOSPC) {
		t.Error(err)
	}
	if got := content(t, path); got != "old" {
		t.Errorf("has %q", got)
	}
	if got := names(t, dir); len(got) != 1 {
		t.Errorf("left %q", got)
	}
	// A directory in the place of the file refuses the rename.
	if err := os.MkdirAll(filepath.Join(dir, "d", "in"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Replace(filepath.Join(dir, "d"), []byte("new"), 0o600); err == nil {
		t.Error("replaced a directory")
	}
	if got := names(t, dir); len(got) != 2 {
		t.Errorf("left %q", got)
	}
}

// TestLeftovers: what is in the place of the temporary file decides neither mode nor content, and nothing is written
// through it.
func TestLeftovers(t *testing.T) {
	for name, leave := range map[string]func(tmp, other string) error{
		"open to all": func(tmp, _ string) error {
			return errors.Join(os.WriteFile(tmp, []byte("a longer half"), 0o666), os.Chmod(tmp, 0o666))
		},
		"link":  func(tmp, other string) error { return os.Symlink(other, tmp) },
		"FIFO":  func(tmp, _ string) error { return unix.Mkfifo(tmp, 0o600) },
		"empty": func(tmp, _ string) error { return os.Mkdir(tmp, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			path, other := filepath.Join(dir, "key"), filepath.Join(t.TempDir(), "other")
			if err := errors.Join(os.WriteFile(other, []byte("untouched"), 0o600), leave(temporary(path), other)); err != nil {
				t.Fatal(err)
			}
			if !Temporary(filepath.Base(temporary(path))) || Temporary("key") || Temporary(".key") {
				t.Error("names of temporary files are not known")
			}
			if err := Replace(path, []byte("new"), 0o600); err != nil {
				t.Fatal(err)
			}
			st, err := os.Lstat(path)
			if err != nil || st.Mode() != 0o600 || content(t, path) != "new" || content(t, other) != "untouched" {
				t.Errorf("%v, %v, %q, %q", st.Mode(), err, content(t, path), content(t, other))
			}
			if got := names(t, dir); len(got) != 1 {
				t.Errorf("left %q", got)
			}
		})
	}
}

// TestMode: the mode is the one that was asked for, under any umask and whatever the old file had.
func TestMode(t *testing.T) {
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	path := filepath.Join(t.TempDir(), "f")
	for _, perm := range []os.FileMode{0o644, 0o444, 0o600, 0o755} {
		if err := Replace(path, nil, perm); err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode() != perm {
			t.Errorf("%v %v, want %v", st.Mode(), err, perm)
		}
	}
}

// TestNames: a move and a removal are durable, and a failure of the directory's sync is told.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	from, to := filepath.Join(dir, "from"), filepath.Join(dir, "to")
	var steps []string
	d := Disk{Before: func(step, at string) error {
		steps = append(steps, step+" "+strings.TrimPrefix(at, dir))
		return nil
	}}
	if err := errors.Join(os.WriteFile(from, nil, 0o600), d.Move(from, to), d.Remove(to), d.Remove(to)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"rename /to", "fsync ", "fsync "}; !slices.Equal(steps, want) || len(names(t, dir)) != 0 {
		t.Errorf("%q, want %q", steps, want)
	}
	d.Before = func(string, string) error { return unix.EIO }
	if err := errors.Join(os.WriteFile(from, nil, 0o600), d.Remove(from)); !errors.Is(err, ErrSync) {
		t.Error(err)
	}
}

// TestVolatile: nothing is synced, and a reader still finds one file or the other.
func TestVolatile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "f")
	var steps []string
	d := Volatile
	d.Before = func(step, _ string) error { steps = append(steps, step); return nil }
	if err := d.Replace(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(steps, []string{"rename"}) || content(t, path) != "x" {
		t.Errorf("%q", steps)
	}
}
