package storage

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"ledge/api"
)

// TestLine: the name stays over openings and over restores that lose nothing, and changes where writes may be missing;
// then the log says what was deleted.
func TestLine(t *testing.T) {
	dir := t.TempDir()
	open := func() *Store {
		t.Helper()
		s, err := Open(t.Context(), Config{Dir: dir})
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	closed := func(s *Store) string {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		return s.Lineage()
	}
	destroy := func() {
		t.Helper()
		if err := os.Truncate(filepath.Join(dir, dbName), 0); err != nil {
			t.Fatal(err)
		}
	}
	first := closed(open())
	if first == "" {
		t.Fatal("no name")
	}
	s := open()
	backup := backedUp(t, s)
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "1")
	put(t, s, "b", "1")
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b", "2")
	drop(t, s, "a")
	if closed(s) != first {
		t.Error("another name without a cause")
	}

	destroy() // and nothing is lost
	if s := open(); closed(s) != first || !s.Health().Complete {
		t.Errorf("another name after a complete restore: %+v", s.Health())
	}

	// Without the newest snapshot and the log that leads to it, the rest of the log still knows what was deleted.
	forget(t, filepath.Join(dir, snapshotDir), true)
	forget(t, filepath.Join(dir, redoDir), false)
	destroy()
	s = open()
	if s.Health().Complete || s.Lineage() == first || !s.LogDeleted(api.ConfigMaps, "ns", "a") || s.LogDeleted(api.ConfigMaps, "ns", "b") {
		t.Errorf("something is lost: %+v; deleted: %v", s.Health(), s.deleted)
	}
	first = closed(s)

	if err := (Restore{Dir: dir, Backup: backup}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = open()
	if s.Lineage() == first {
		t.Error("the same name after a backup was put back")
	}
	second := closed(s)
	if closed(open()) != second {
		t.Error("the new name does not stay")
	}
}

func backedUp(t *testing.T, s *Store) string {
	t.Helper()
	f, err := os.Create(filepath.Join(t.TempDir(), "backup"))
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Backup(f), f.Close()); err != nil {
		t.Fatal(err)
	}
	return f.Name()
}

// forget removes the newest or the oldest file of a directory.
func forget(t *testing.T, dir string, newest bool) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) < 2 {
		t.Fatalf("%d in %s, %v", len(entries), dir, err)
	}
	which := entries[0]
	if newest {
		which = entries[len(entries)-1]
	}
	if err := os.Remove(filepath.Join(dir, which.Name())); err != nil {
		t.Fatal(err)
	}
}

func drop(t *testing.T, s *Store, name string) {
	t.Helper()
	err := s.Update(func(tx *Tx) error {
		_, err := tx.Delete(api.ConfigMaps, "ns", name)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}
