package storage

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestOddInodes: whatever stands under the name of a file of the store, an opening ends soon, and no value is wrong or lost that the
// snapshot or the log has.
func TestOddInodes(t *testing.T) {
	master := t.TempDir()
	s := mustOpen(t, master)
	put(t, s, "a", "1")
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "2")
	mustClose(t, s)
	odd := map[string]func(path string) error{
		"FIFO":           func(p string) error { return unix.Mkfifo(p, 0o600) },
		"socket":         func(p string) error { return unix.Mknod(p, unix.S_IFSOCK|0o600, 0) },
		"link to device": func(p string) error { return os.Symlink("/dev/zero", p) },
		"link to FIFO": func(p string) error {
			if err := unix.Mkfifo(p+"-fifo", 0o600); err != nil {
				return err
			}
			return os.Symlink(p+"-fifo", p)
		},
		"loop of links": func(p string) error { return os.Symlink(p, p) },
		"directory":     func(p string) error { return os.MkdirAll(filepath.Join(p, "full"), 0o700) },
	}
	names := []string{dbName, ceilingName, lineageName, lockName, cleanName, provisionedName, redoDir, snapshotDir, ballastDir, damagedDir,
		dbName + tempSuffix, redoDir + "/*", snapshotDir + "/*"}
	tries := 0
	for _, name := range names {
		for what, make := range odd {
			if what == "directory" && isPlace(name) {
				continue
			}
			dir := filepath.Join(t.TempDir(), "store")
			if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
				t.Fatal(err)
			}
			found, err := filepath.Glob(filepath.Join(dir, name))
			if err != nil {
				t.Fatal(err)
			}
			if len(found) == 0 {
				found = []string{filepath.Join(dir, name)}
			}
			if err := os.RemoveAll(found[0]); err != nil {
				t.Fatal(err)
			}
			if err := make(found[0]); err != nil {
				t.Fatal(err)
			}
			done := oddOpening(t, dir)
			select {
			case got := <-done:
				if got != "2" {
					t.Errorf("%s as %s: %q", name, what, got)
				}
			case <-time.After(20 * time.Second):
				t.Fatalf("%s as %s: it hangs", name, what)
			}
			tries++
		}
	}
	t.Logf("%d tries: %d kinds of inodes under %d names; none hung, none was refused, no value was wrong", tries, len(odd), len(names))
}

// oddOpening opens a store and gives what it has, or why it could not.
func oddOpening(t *testing.T, dir string) <-chan string {
	done := make(chan string, 1)
	go func() {
		s, err := Open(t.Context(), Config{Dir: dir})
		if err != nil {
			done <- err.Error()
			return
		}
		got := value(t, s, "a")
		if err := s.Close(); err != nil {
			got = err.Error()
		}
		done <- got
	}()
	return done
}

// TestOlderStoreWithoutLog: an old state.db without a log is not taken for the newest, whatever was compacted meanwhile; a backup that
// somebody has put there on purpose is.
func TestOlderStoreWithoutLog(t *testing.T) {
	dir := t.TempDir()
	s := mustOpen(t, dir)
	put(t, s, "a", "1")
	mustClose(t, s)
	path, old := filepath.Join(dir, dbName), filepath.Join(t.TempDir(), "old")
	copyOver(t, path, old)
	s = mustOpen(t, dir)
	put(t, s, "a", "2")
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "3")
	mustClose(t, s)
	newest := filepath.Join(t.TempDir(), "newest")
	copyOver(t, path, newest)
	forget := func() {
		t.Helper()
		if err := os.RemoveAll(filepath.Join(dir, redoDir)); err != nil {
			t.Fatal(err)
		}
	}

	forget()
	s = mustOpen(t, dir)
	if h := s.Health(); value(t, s, "a") != "3" || h.Restored != "" || !h.LogMissing {
		t.Errorf("the newest without its log: %q %+v", value(t, s, "a"), h)
	}
	line := s.Lineage()
	mustClose(t, s)

	copyOver(t, old, path)
	forget()
	s = mustOpen(t, dir)
	if h := s.Health(); value(t, s, "a") == "1" || h.Restored == "" || h.Damaged == "" || s.Lineage() == line {
		t.Errorf("an older one without a log: %q %+v", value(t, s, "a"), h)
	}
	mustClose(t, s)

	if err := (Restore{Dir: dir, Backup: old, Check: checker(t)}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, missing := range []bool{false, true} {
		s = mustOpen(t, dir)
		if h := s.Health(); value(t, s, "a") != "1" || h.Restored != "" || h.LogMissing != missing {
			t.Errorf("a backup: %q %+v", value(t, s, "a"), h)
		}
		mustClose(t, s)
		forget()
	}
}

func copyOver(t *testing.T, from, to string) {
	t.Helper()
	data, err := os.ReadFile(from)
	if err == nil {
		err = os.WriteFile(to, data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}
