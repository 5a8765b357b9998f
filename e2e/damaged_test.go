package e2e

import (
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A damaged store is found before it is used, in a child, since some damage ends the process that looks; the node comes
// up from a snapshot and says so.
func TestDamagedStore(t *testing.T) {
	onHost(t)
	for name, harm := range map[string]func(t *testing.T, file string){
		"empty":  func(t *testing.T, file string) { must(t, os.Truncate(file, 0)) },
		"deadly": wildFreelist,
	} {
		t.Run(name, func(t *testing.T) {
			b := newBoard(t)
			b.serve()
			b.apply("apiVersion: v1\nkind: ConfigMap\nmetadata: {name: kept}\n")
			file := filepath.Join(t.TempDir(), "backup")
			b.must("backup", "save", file)
			if err := b.signal(syscall.SIGTERM); err != nil {
				t.Fatal(err)
			}
			store := filepath.Join(b.data, "store")
			must(t, os.MkdirAll(filepath.Join(store, "snapshots"), 0o700))
			must(t, exec.Command("cp", file, filepath.Join(store, "snapshots", "00000000000000000001.db")).Run())
			harm(t, filepath.Join(store, "state.db"))
			b.serve()
			b.must("get", "cm", "kept")
			b.eventually("the node tells", func() error { return contains(b.ledge("get", "events"), "StoreRestored") })
		})
	}
}

// wildFreelist has both meta pages name a free list in what is mapped and behind the end of the file. Every value can still be
// read, but the check of bbolt looks there on a goroutine of its own, where nobody can catch the fault: the process ends.
func wildFreelist(t *testing.T, file string) {
	t.Helper()
	const size, mapped = 3 << 20, 4 << 20 // bbolt maps a power of two
	db, err := os.ReadFile(file)
	must(t, err)
	if len(db) > size {
		t.Fatalf("the store has %d bytes", len(db))
	}
	page := os.Getpagesize()
	for at := 0; at < 2*page; at += page {
		meta := db[at+16:] // behind the page's header; a free list's page follows 32 bytes later, a checksum after 56
		binary.NativeEndian.PutUint64(meta[32:], uint64(mapped/page-1))
		sum := fnv.New64a()
		sum.Write(meta[:56])
		binary.NativeEndian.PutUint64(meta[56:], sum.Sum64())
	}
	must(t, os.WriteFile(file, db, 0o600))
	must(t, os.Truncate(file, size))

	var exit *exec.ExitError
	if out, err := exec.Command(ledgeBin(t), "check-db", file).CombinedOutput(); !errors.As(err, &exit) ||
		!strings.Contains(string(out), "fault") {
		t.Errorf("the check survives it, which shows nothing: %v %s", err, out)
	}
}
