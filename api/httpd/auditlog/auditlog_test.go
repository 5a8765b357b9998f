package auditlog

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func auditFiles(t *testing.T, l *Log) (text string, bytes int64) {
	t.Helper()
	for _, path := range []string{l.Path + ".1", l.Path} {
		data, err := os.ReadFile(path)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		text += string(data)
		bytes += int64(len(data))
	}
	return text, bytes
}

// TestAuditLogIsBounded: the newest lines stay, whole and in order, and the files never outgrow their size.
func TestAuditLogIsBounded(t *testing.T) {
	for _, medium := range []string{"memory", "disk"} {
		dir := t.TempDir()
		l := &Log{Path: filepath.Join(dir, "audit", "audit.log"), Max: 128 << 10}
		if medium == "disk" {
			l.Wait = CardPause
		}
		pad := strings.Repeat("x", 500)
		const lines = 2000
		for i := range lines {
			if i%500 == 499 { // a restart between
				if err := l.Close(); err != nil {
					t.Fatal(err)
				}
			}
			fmt.Fprintf(l, "%06d %s\n", i, pad)
			var n int64
			for _, path := range []string{l.Path + ".1", l.Path} {
				if info, err := os.Stat(path); err == nil {
					n += info.Size()
				}
			}
			if n > 128<<10 {
				t.Fatalf("%s: %d bytes after line %d", medium, n, i)
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
		text, n := auditFiles(t, l)
		got := strings.Split(strings.TrimSuffix(text, "\n"), "\n")
		if n < 60<<10 {
			t.Errorf("%s: only %d bytes are left", medium, n)
		}
		for i, line := range got {
			if want := fmt.Sprintf("%06d %s", lines-len(got)+i, pad); line != want {
				t.Fatalf("%s: line %d is %.20q, want %.20q", medium, i, line, want)
			}
		}
		if info, err := os.Stat(l.Path); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", medium, info, err)
		}
	}
}

// TestAuditLogIsKindToTheCard: on disk lines are gathered; a clean end writes them; after a torn line a new one begins.
func TestAuditLogIsKindToTheCard(t *testing.T) {
	dir := t.TempDir()
	l := &Log{Path: filepath.Join(dir, "audit", "audit.log"), Max: 8 << 20, Wait: CardPause}
	for range 10 {
		fmt.Fprintln(l, "a line")
	}
	if text, _ := auditFiles(t, l); text != "" {
		t.Errorf("written at once: %q", text)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if text, _ := auditFiles(t, l); text != strings.Repeat("a line\n", 10) {
		t.Errorf("after the end: %q", text)
	}
	if err := os.WriteFile(l.Path, []byte("whole\nto"), 0o600); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(l, "next")
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if text, _ := auditFiles(t, l); text != "whole\nto\nnext\n" {
		t.Errorf("after a power cut: %q", text)
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		fmt.Fprintln(l, "later")
		time.Sleep(2 * CardPause) // of the bubble's clock
		synctest.Wait()
		if text, _ := auditFiles(t, l); !strings.HasSuffix(text, "later\n") {
			t.Errorf("after a while: %q", text)
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAuditLogOfABrokenDisk: what cannot be written is counted, holds no memory, and stops nobody; later lines are written again.
func TestAuditLogOfABrokenDisk(t *testing.T) {
	dir := t.TempDir()
	blocked := filepath.Join(dir, "audit")
	if err := os.WriteFile(blocked, nil, 0o600); err != nil { // a file where the directory belongs
		t.Fatal(err)
	}
	l := &Log{Path: filepath.Join(blocked, "audit.log"), Max: 1 << 20}
	for range 100 {
		if n, err := fmt.Fprintln(l, "lost"); n != 5 || err != nil {
			t.Fatal(n, err)
		}
	}
	if l.lost != 100 || l.why == nil || l.waiting.Len() != 0 {
		t.Errorf("lost %d, %v, holds %d bytes", l.lost, l.why, l.waiting.Len())
	}
	if err := os.Remove(blocked); err != nil {
		t.Fatal(err)
	}
	fmt.Fprintln(l, "kept")
	if text, _ := auditFiles(t, l); text != "kept\n" {
		t.Errorf("after it was mended: %q", text)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
}
