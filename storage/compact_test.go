package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	goruntime "runtime"
	"strconv"
	"strings"
	"testing"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

// TestJoinsPieces: a store that is full to the brim and has space only in pieces takes a write that leads to a deletion, and what was read
// when it was needed is as it was; one that there is no space for is refused, and does not have it compacted again and again.
func TestJoinsPieces(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Config{Dir: dir, NoSync: true, MaxSize: 24 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	update := func(fn func(*Tx) error) error {
		return s.Update(func(tx *Tx) error { tx.SpendReserve(); return fn(tx) })
	}
	small, large := strings.Repeat("x", 6000), strings.Repeat("y", 300_000)
	n := 0
	for err == nil {
		err = update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm(fmt.Sprintf("k%05d", n), small)) })
		n++
	}
	if !errors.Is(err, ErrFull) {
		t.Fatal(err)
	}
	whole := s.dbNow()
	for i := 0; i < n; i += 8 { // two neighbours go: a leaf has two
		if err := errors.Join(update(func(tx *Tx) error {
			_, err := tx.Delete(api.ConfigMaps, "ns", fmt.Sprintf("k%05d", i))
			return err
		}), update(func(tx *Tx) error {
			_, err := tx.Delete(api.ConfigMaps, "ns", fmt.Sprintf("k%05d", i+1))
			return err
		})); err != nil && !errors.Is(err, ErrNotFound) {
			t.Fatal(err)
		}
	}
	if s.dbNow() != whole {
		t.Error("compacted for a deletion that had space")
	}
	reader, err := s.begin()
	if err != nil {
		t.Fatal(err)
	}
	if err := update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm("large", large)) }); err != nil {
		t.Errorf("there is space, in pieces: %v", err)
	}
	joined := s.dbNow()
	if joined == whole || value(t, s, "large") != large || value(t, s, "k00002") != small || value(t, s, "k00008") != "" {
		t.Error("not what was written")
	}
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "first"}}
	if err := update(func(tx *Tx) error { return tx.Put(api.Secrets, secret) }); err != nil {
		t.Error(err)
	}
	if o, err := reader.Get(api.ConfigMaps, "ns", "k00002"); err != nil || o.(*corev1.ConfigMap).Data["v"] != small {
		t.Errorf("what began before: %v", err)
	}
	if o, err := reader.Get(api.Secrets, "ns", "first"); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a kind that came later: %v, %v", o, err)
	}
	if err := reader.b.Rollback(); err != nil {
		t.Error(err)
	}
	huge := cm("huge", strings.Repeat(large, 30))
	for range 3 {
		if err := update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, huge) }); !errors.Is(err, ErrFull) {
			t.Errorf("there is no space: %v", err)
		}
	}
	if s.dbNow() != joined {
		t.Error("compacted for nothing")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(filepath.Join(dir, dbName)); err != nil {
		t.Error(err)
	}
}

// TestEmptiesWhenFull: objects of half a mebibyte are marked and removed in a store that is full of them. In these orders that needs the
// pieces joined.
func TestEmptiesWhenFull(t *testing.T) {
	for _, seed := range []uint64{12, 20} {
		rng := rand.New(rand.NewPCG(seed, 0))
		s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, MaxSize: 24 << 20})
		if err != nil {
			t.Fatal(err)
		}
		name, size := func(i int) string { return fmt.Sprintf("k%05d", i) }, 1<<17+int(seed)*32000
		n := 0
		for misses := 0; misses < 2; n++ {
			obj := cm(name(n), strings.Repeat("x", size-rng.IntN(1+int(seed%3)*10000)))
			if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, obj) }); errors.Is(err, ErrFull) {
				misses++
			} else if err != nil {
				t.Fatal(err)
			}
		}
		for _, i := range rng.Perm(n) {
			err := s.Update(func(tx *Tx) error {
				tx.SpendReserve()
				o, err := tx.Get(api.ConfigMaps, "ns", name(i))
				if err != nil {
					return err
				}
				marked := o.(*corev1.ConfigMap).DeepCopy()
				marked.SetAnnotations(map[string]string{"deleted": "soon"})
				return tx.Put(api.ConfigMaps, marked)
			})
			if err == nil && rng.IntN(3) == 0 {
				err = s.Update(func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", name(i)); return err })
			}
			if err != nil && !errors.Is(err, ErrNotFound) {
				t.Errorf("seed %d, %s: %v", seed, name(i), err)
			}
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}
}

// dbNow is the database that is in use now.
func (s *Store) dbNow() *bolt.DB {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.db
}
