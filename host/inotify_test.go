package host

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"
)

func TestWatchDirs(t *testing.T) {
	dir := t.TempDir()
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- WatchDirs(ctx, []string{dir, filepath.Join(dir, "none")}, func() { changed <- struct{}{} })
	}()
	// Until the watch stands nothing is told.
	told := func(what string, do func(n int)) {
		t.Helper()
		for n, end := 0, time.Now().Add(30*time.Second); time.Now().Before(end); n++ {
			do(n)
			select {
			case <-changed:
				for len(changed) > 0 {
					<-changed
				}
				return
			case <-time.After(200 * time.Millisecond):
			}
		}
		t.Errorf("%s is not told", what)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "a")
	told("a write", func(int) { must(os.WriteFile(file, []byte("x"), 0o600)) })
	told("a replacement", func(int) {
		must(os.WriteFile(filepath.Join(t.TempDir(), "b"), nil, 0o600))
		tmp := filepath.Join(dir, ".tmp")
		must(os.WriteFile(tmp, nil, 0o600))
		must(os.Rename(tmp, file))
	})
	told("a removal", func(n int) {
		if n == 0 {
			must(os.Remove(file))
		}
	})
	cancel()
	select {
	case err := <-done:
		must(err)
	case <-time.After(30 * time.Second):
		t.Error("the end of its context does not end it")
	}
}
