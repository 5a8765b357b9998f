package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// TestOlderStore: a backup that is older than what runs does not cost the pods that came after it.
func TestOlderStore(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	file := filepath.Join(t.TempDir(), "backup")
	b.must("backup", "save", file)
	b.apply(webPod)
	pid := b.running("web")
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	b.must("backup", "restore", file, "--data-dir", b.data)
	b.serve()
	if now := b.running("web"); now != pid {
		t.Errorf("process %d became %d", pid, now)
	}
	b.eventually("an event says so", func() error { return contains(b.ledge("get", "events"), "PodRestored") })
	if out := b.must("get", "pods"); !strings.Contains(out, "1/1     Running   0 ") {
		t.Error(out)
	}
	b.must("delete", "pod", "web")
	if p := b.processes("/kubepods/"); len(p) > 0 {
		t.Errorf("processes after delete: %v", p)
	}
}
