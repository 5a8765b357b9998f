package storage

import (
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	bolt "go.etcd.io/bbolt"

	"ledge/api"
)

// bucketsOf are those of a file, without what ledge keeps for itself.
func bucketsOf(t *testing.T, path string) (names []string) {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if err := db.View(func(tx *bolt.Tx) error {
		return tx.ForEach(func(name []byte, _ *bolt.Bucket) error {
			if string(name) != string(metaBucket) {
				names = append(names, string(name))
			}
			return nil
		})
	}); err != nil {
		t.Fatal(err)
	}
	return names
}

// TestBuckets: a kind has a bucket from its first object until the first start without one, and is read like any other before and after.
// A store of a version that made all buckets loses those that are empty.
func TestBuckets(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, dbName)
	s := open(t, dir)
	remove := func() error {
		return s.Update(func(tx *Tx) error {
			_, err := tx.Delete(api.ConfigMaps, "ns", "a")
			return err
		})
	}
	empty := func() {
		t.Helper()
		if got := contents(t, s, api.ConfigMaps); got != "map[]" {
			t.Error(got)
		}
		if err := s.View(func(tx *Tx) error {
			any, err := tx.Any(api.ConfigMaps, "ns")
			if _, got := tx.Get(api.ConfigMaps, "ns", "a"); any || !errors.Is(got, ErrNotFound) {
				t.Errorf("%v %v", any, got)
			}
			return err
		}); err != nil {
			t.Error(err)
		}
		if err := remove(); !errors.Is(err, ErrNotFound) {
			t.Errorf("delete what is not there: %v", err)
		}
	}
	again := func(want string) {
		t.Helper()
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := fmt.Sprint(bucketsOf(t, file)); got != want {
			t.Errorf("%s, want %s", got, want)
		}
		s = open(t, dir)
	}
	empty()
	again("[]")
	put(t, s, "a", "1")
	again("[configmaps]")
	if got := value(t, s, "a"); got != "1" {
		t.Error(got)
	}
	if err := remove(); err != nil {
		t.Fatal(err)
	}
	empty()
	again("[configmaps]") // it goes with the next start
	empty()
	again("[]")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	kept := s.cfg.Kinds.Kept
	db, err := bolt.Open(file, 0o600, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(db.Update(func(tx *bolt.Tx) error {
		for _, k := range kept {
			if _, err := tx.CreateBucket(bucketName(k)); err != nil {
				return err
			}
		}
		return nil
	}), db.Close()); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	put(t, s, "a", "2")
	again("[configmaps]")
}

// TestLostBucket: objects that were there are not simply none when their bucket is gone, for whoever reads after they came.
func TestLostBucket(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "a", "1")
	if err := s.View(func(tx *Tx) error {
		s.buckets.made(bucketName(api.Secrets), tx.b.ID()+1)
		return tx.Each(api.Secrets, "", "", func(*Stored) error { return nil })
	}); err != nil {
		t.Errorf("before it came: %v", err)
	}
	put(t, s, "b", "1")
	for name, read := range map[string]func(*Tx) error{
		"each": func(tx *Tx) error { return tx.Each(api.Secrets, "", "", func(*Stored) error { return nil }) },
		"get":  func(tx *Tx) error { _, err := tx.Get(api.Secrets, "ns", "a"); return err },
		"any":  func(tx *Tx) error { _, err := tx.Any(api.Secrets, ""); return err },
	} {
		if err := s.View(read); !errors.Is(err, ErrDamaged) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
