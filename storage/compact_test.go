package storage

import (
	"fmt"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// airy makes a store that is mostly air.
func airy(t *testing.T, dir string) (s *Store, kept string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	big := strings.Repeat("x", 16<<10)
	for i := range 600 {
		put(t, s, "k"+strconv.Itoa(i), big)
	}
	for i := range 590 {
		if err := s.Update(func(tx *Tx) error {
			_, err := tx.Delete(api.ConfigMaps, "ns", "k"+strconv.Itoa(i))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	return s, big
}

func TestCompactsWhatIsMostlyAir(t *testing.T) {
	dir := t.TempDir()
	s, big := airy(t, dir)
	before := usedSize(s.db)
	s.Close()
	s = open(t, dir)
	if after := usedSize(s.db); after > before/2 || value(t, s, "k599") != big {
		t.Fatalf("%d before, %d after", before, after)
	}
}

// TestCompactWhileOpen: who reads meanwhile goes on with what he saw, and what is written afterwards stays.
func TestCompactWhileOpen(t *testing.T) {
	dir := t.TempDir()
	s, big := airy(t, dir)
	rev, was, before := s.Revision(), s.db, usedSize(s.db)
	tx, err := s.begin()
	if err != nil {
		t.Fatal(err)
	}
	compacted := make(chan error)
	go func() {
		freed, err := s.Compact()
		if err == nil && freed < before/2 {
			err = fmt.Errorf("%d of %d freed", freed, before)
		}
		compacted <- err
	}()
	for s.dbNow() == was { // and not asked anything: it closes while tx holds it
		goruntime.Gosched()
	}
	put(t, s, "new", "1")
	if o, err := tx.Get(api.ConfigMaps, "ns", "k599"); err != nil || o.(*corev1.ConfigMap).Data["v"] != big {
		t.Errorf("what began before: %v", err)
	}
	if err := tx.b.Rollback(); err != nil {
		t.Fatal(err)
	}
	if err := <-compacted; err != nil {
		t.Fatal(err)
	}
	if value(t, s, "k599") != big || value(t, s, "new") != "1" || s.Revision() <= rev {
		t.Error("the store has lost something")
	}
	if freed, err := s.Compact(); freed != 0 || err != nil {
		t.Errorf("again: %d %v", freed, err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(filepath.Join(dir, dbName)); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if h := s.Health(); h.Unclean || h.Restored != "" || value(t, s, "new") != "1" {
		t.Errorf("%+v", h)
	}
}

// dbNow is the database that is in use now.
func (s *Store) dbNow() *bolt.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db
}
