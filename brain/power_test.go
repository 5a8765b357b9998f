package brain

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"
)

// TestSyncFS: what somebody else has written is on disk afterwards, as far as the kernel tells.
func TestSyncFS(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Create(filepath.Join(dir, "file"))
	must(t, err)
	defer f.Close()
	unwritten := func() uint64 {
		t.Helper()
		var st unix.Cachestat_t
		if err := unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{}, &st, 0); errors.Is(err, unix.ENOSYS) {
			t.Skip("needs cachestat(2) of Linux 6.5")
		} else if err != nil {
			t.Fatal(err)
		}
		return st.Dirty + st.Writeback
	}
	_, err = f.Write(bytes.Repeat([]byte("x"), 1<<20))
	must(t, err)
	if unwritten() == 0 {
		t.Skip("this file system writes at once")
	}
	must(t, syncFS(dir))
	if n := unwritten(); n > 0 {
		t.Errorf("%d pages are not on disk", n)
	}
	if err := syncFS(filepath.Join(dir, "none")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("of a directory that is not there: %v", err)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
