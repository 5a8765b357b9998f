package storage

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	bolt "go.etcd.io/bbolt"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/internal/testrun"
)

func open(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func cm(name, value string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name}, Data: map[string]string{"v": value}}
}

func put(t *testing.T, s *Store, name, value string) {
	t.Helper()
	if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm(name, value)) }); err != nil {
		t.Fatal(err)
	}
}

// value reads one config map; "" when it is not there.
func value(t *testing.T, s *Store, name string) (v string) {
	t.Helper()
	err := s.View(func(tx *Tx) error {
		o, err := tx.Get(api.ConfigMaps, "ns", name)
		if errors.Is(err, ErrNotFound) {
			return nil
		}
		if err == nil {
			v = o.(*corev1.ConfigMap).Data["v"]
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestOptions(t *testing.T) {
	var c Config
	c.Dir = "x"
	if err := c.setDefaults(); err != nil {
		t.Fatal(err)
	}
	o := c.options()
	if o.NoSync || o.NoGrowSync || o.MaxSize != 64<<20 || o.Mlock || !o.NoFreelistSync || o.FreelistType != bolt.FreelistArrayType {
		t.Fatalf("%+v", o)
	}
}

func TestReadBackAfterReopen(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	put(t, s, "a", "2")
	rev := s.Revision()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if got := value(t, s, "a"); got != "2" {
		t.Fatalf("got %q", got)
	}
	if s.Revision() < rev || s.Health().Unclean {
		t.Fatalf("revision %d after %d, unclean %v", s.Revision(), rev, s.Health().Unclean)
	}
}

func TestRevisionsNeverGoBack(t *testing.T) { // architecture: Leases are lazy
	dir := t.TempDir()
	var last uint64
	for round := range 6 {
		s := open(t, dir)
		if s.Revision() < last {
			t.Fatalf("round %d opened at %d, had handed out %d", round, s.Revision(), last)
		}
		for i := range 5 {
			err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("l"+strconv.Itoa(i), "x")) })
			if err != nil {
				t.Fatal(err)
			}
		}
		if s.Revision() <= last {
			t.Fatalf("round %d: %d after %d", round, s.Revision(), last)
		}
		last = s.Revision()
		if _, err := s.Watch(api.ConfigMaps, last-6); !errors.Is(err, ErrGone) {
			t.Fatalf("a watch from before this opening: %v", err)
		}
		switch round {
		case 2:
			os.Remove(filepath.Join(dir, ceilingName))
		case 3:
			os.WriteFile(filepath.Join(dir, ceilingName), []byte("garbage"), 0o600)
		}
		abandon(s) // as kill -9 would
	}
}

// abandon drops a store without closing it properly: what a crash leaves.
func abandon(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.db.Close()
	s.lock.Close()
}

func TestLazyWrites(t *testing.T) { // architecture: Leases are lazy
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	stats := s.db.Stats()
	before := stats.TxStats.GetWrite()
	for i := range 100 {
		if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("lazy", strconv.Itoa(i))) }); err != nil {
			t.Fatal(err)
		}
	}
	stats = s.db.Stats()
	if n := stats.TxStats.GetWrite() - before; n != 0 {
		t.Fatalf("%d writes to disk", n)
	}
	if got := value(t, s, "lazy"); got != "99" {
		t.Fatalf("got %q", got)
	}
	var names []string
	if err := s.View(func(tx *Tx) error {
		l, err := tx.List(api.ConfigMaps, "ns")
		for _, o := range l {
			names = append(names, o.GetName())
		}
		return err
	}); err != nil || fmt.Sprint(names) != "[a lazy]" {
		t.Fatalf("%v %v", names, err)
	}
	put(t, s, "b", "1") // just now: what is lazy waits for more of it
	abandon(s)
	s = open(t, dir)
	if got := value(t, s, "lazy"); got != "" {
		t.Fatalf("written at once: %q", got)
	}
	if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("lazy", "1")) }); err != nil {
		t.Fatal(err)
	}
	aged(s)
	if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("lazy", "2")) }); err != nil {
		t.Fatal(err)
	}
	put(t, s, "b", "2") // takes the lazy one along, since it waited before it was written again
	abandon(s)
	if got := value(t, open(t, dir), "lazy"); got != "2" {
		t.Fatalf("after a crash: %q", got)
	}
}

// aged makes the lazy writes older.
func aged(s *Store) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for slot, l := range s.lazy {
		l.since = l.since.Add(-lazyGather)
		s.lazy[slot] = l
	}
}

// TestEventsOfABusyMoment: what is lazy is written once, not with each commit, and events soon after, though nothing else is written
// (N-12.12).
func TestEventsOfABusyMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- s.Run(ctx) }()
		defer func() {
			cancel()
			if err := errors.Join(<-done, s.Close()); err != nil {
				t.Error(err)
			}
		}()
		time.Sleep(time.Minute + time.Second) // past what the first minute brings
		written := func() int64 {
			st := s.db.Stats()
			return st.TxStats.GetWrite()
		}
		before := written()
		put(t, s, "a", "0")
		alone := written() - before
		before = written()
		for i := range 50 {
			ev := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: strconv.Itoa(i)}}
			if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.Events, ev) }); err != nil {
				t.Fatal(err)
			}
			put(t, s, "a", strconv.Itoa(i))
			time.Sleep(time.Millisecond)
		}
		if got := written() - before; got > 50*alone {
			t.Errorf("%d writes of pages for fifty commits, %d for one", got, alone)
		}
		time.Sleep(2*lazyGather + time.Second)
		if n := len(s.lazyCopy()); n > 0 {
			t.Errorf("%d events wait for the next commit", n)
		}
	})
}

func TestLazyReachesDiskAtClose(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("lazy", "1")) }); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, open(t, dir), "lazy"); got != "1" {
		t.Fatalf("got %q", got)
	}
}

func TestFailedUpdateLeavesNoTrace(t *testing.T) {
	s := open(t, t.TempDir())
	rev := s.Revision()
	boom := errors.New("boom")
	err := s.Update(func(tx *Tx) error {
		if err := tx.Put(api.ConfigMaps, cm("a", "1")); err != nil {
			return err
		}
		return boom
	})
	if !errors.Is(err, boom) || value(t, s, "a") != "" || s.Revision() != rev {
		t.Fatalf("%v %q %d", err, value(t, s, "a"), s.Revision())
	}
}

func TestDelete(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "a", "1")
	w, err := s.Watch(api.ConfigMaps, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	err = s.Update(func(tx *Tx) error {
		gone, err := tx.Delete(api.ConfigMaps, "ns", "a")
		if err == nil && gone.GetResourceVersion() != strconv.FormatUint(tx.Revision(), 10) {
			t.Errorf("deleted object has revision %s, transaction %d", gone.GetResourceVersion(), tx.Revision())
		}
		return err
	})
	if err != nil || value(t, s, "a") != "" {
		t.Fatal(err)
	}
	c, err := w.Next(t.Context())
	if err != nil || c.Type != api.Deleted || c.Rev != s.Revision() {
		t.Fatalf("%+v %v", c, err)
	}
	err = s.Update(func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", "a"); return err })
	if !errors.Is(err, ErrNotFound) {
		t.Fatal(err)
	}
}

func TestDeleteOfLazy(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	for _, fn := range []func(tx *Tx) error{
		func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("a", "1")) },
		func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", "a"); return err },
	} {
		if err := s.Update(fn); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := value(t, open(t, dir), "a"); got != "" {
		t.Fatalf("it came back: %q", got)
	}
}

func TestWatchSeesEveryChangeOnce(t *testing.T) {
	s := open(t, t.TempDir())
	w, err := s.Watch(api.ConfigMaps, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for i := range 20 {
		put(t, s, "a"+strconv.Itoa(i%3), strconv.Itoa(i))
		want = append(want, strconv.Itoa(i))
	}
	var last uint64
	for i := range 20 {
		c, err := w.Next(t.Context())
		if err != nil || c.Rev <= last || c.Object.(*corev1.ConfigMap).Data["v"] != want[i] {
			t.Fatalf("%d: %+v %v", i, c, err)
		}
		if wantType := api.Modified; i < 3 {
			wantType = api.Added
			if c.Type != wantType {
				t.Fatalf("%d: %s", i, c.Type)
			}
		}
		last = c.Rev
	}
}

func TestLappedReaderIsTold(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), RingSize: 8, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := s.Revision()
	w, err := s.Watch(api.ConfigMaps, start)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		put(t, s, "a", strconv.Itoa(i))
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	if _, err := s.Watch(api.ConfigMaps, start); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	if _, err := s.Watch(api.ConfigMaps, s.Revision()+1); !errors.Is(err, ErrGone) {
		t.Fatal("a revision of the future was accepted")
	}
	if _, err := s.Watch(api.ConfigMaps, s.Revision()-8); err != nil {
		t.Fatal(err)
	}
}

// TestReaderOfAnotherKind is not woken by what does not concern it, and not lapped by it either.
func TestReaderOfAnotherKind(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), RingSize: 8, NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w, err := s.Watch(api.Secrets, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	_, wake, err := w.Poll()
	if err != nil {
		t.Fatal(err)
	}
	woken := func() bool {
		select {
		case <-wake:
			return true
		default:
			return false
		}
	}
	for i := range 20 {
		put(t, s, "a", strconv.Itoa(i))
	}
	if woken() {
		t.Error("woken for another kind")
	}
	secret := &corev1.Secret{}
	secret.Namespace, secret.Name = "default", "s"
	if err := s.Update(func(tx *Tx) error { return tx.Put(api.Secrets, secret) }); err != nil {
		t.Fatal(err)
	}
	if !woken() {
		t.Error("not woken for its own kind")
	}
	if c, err := w.Next(t.Context()); err != nil || c.Object.GetName() != "s" {
		t.Errorf("%+v %v", c, err)
	}
	for i := range 20 {
		put(t, s, "a", strconv.Itoa(i))
	}
	for range 9 {
		if err := s.Update(func(tx *Tx) error { return tx.Put(api.Secrets, secret.DeepCopy()) }); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Next(t.Context()); !errors.Is(err, ErrGone) {
		t.Errorf("lapped by its own kind: %v", err)
	}
}

func TestWatchInBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		w, err := s.Watch(api.ConfigMaps, s.Revision())
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		began := time.Now()
		go func() {
			time.Sleep(10 * time.Minute)
			put(t, s, "a", "1")
		}()
		if c, err := w.Next(ctx); err != nil || c.Type != api.Added || time.Since(began) != 10*time.Minute {
			t.Fatalf("%+v %v after %v", c, err, time.Since(began))
		}
		if _, err := w.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func TestRunFlushesAndSnapshots(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- s.Run(ctx) }()
		if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("a", "1")) }); err != nil {
			t.Fatal(err)
		}
		time.Sleep(7 * time.Hour)
		s.mu.Lock()
		lazy := len(s.lazy)
		s.mu.Unlock()
		if snaps, _ := s.copies.list(); lazy != 0 || len(snaps) != 1 {
			t.Fatalf("%d lazy, snapshots %v: nothing but lazy writes happened since the first", lazy, snaps)
		}
		for i := range 4 {
			put(t, s, "b", strconv.Itoa(i))
			time.Sleep(7 * time.Hour)
		}
		if snaps, _ := s.copies.list(); len(snaps) != 2 {
			t.Fatalf("%v", snaps)
		}
		cancel()
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	})
}

// A random history against a plain map, with crashes and reopenings in between.
func TestModel(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 12 s")
	}
	for seed := range uint64(testrun.Rounds(8)) {
		r := rand.New(rand.NewPCG(seed, 7))
		dir, model := t.TempDir(), map[string]string{}
		s := open(t, dir)
		for step := range 300 {
			name := "k" + strconv.Itoa(r.IntN(12))
			switch op := r.IntN(20); {
			case op < 14:
				v := strconv.Itoa(step)
				put(t, s, name, v)
				model[name] = v
			case op < 18:
				err := s.Update(func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", name); return err })
				if _, there := model[name]; there != (err == nil) {
					t.Fatalf("seed %d step %d: %v", seed, step, err)
				}
				delete(model, name)
			case op == 18:
				abandon(s)
				s = open(t, dir)
			default:
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				s = open(t, dir)
			}
			if got := value(t, s, name); got != model[name] {
				t.Fatalf("seed %d step %d: %s is %q, want %q", seed, step, name, got, model[name])
			}
		}
	}
}

func TestReadersAndWriters(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			for i := range 100 {
				name := fmt.Sprintf("w%d", w)
				err := s.Update(func(tx *Tx) error { // two objects that must always agree
					if err := tx.Put(api.ConfigMaps, cm(name, strconv.Itoa(i))); err != nil {
						return err
					}
					return tx.PutLazy(api.ConfigMaps, cm(name+"-twin", strconv.Itoa(i)))
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
		wg.Go(func() {
			for range 100 {
				err := s.View(func(tx *Tx) error {
					a, err := tx.Get(api.ConfigMaps, "ns", fmt.Sprintf("w%d", w))
					if errors.Is(err, ErrNotFound) {
						return nil
					}
					b, err2 := tx.Get(api.ConfigMaps, "ns", fmt.Sprintf("w%d-twin", w))
					if err := errors.Join(err, err2); err != nil {
						return err
					}
					if x, y := a.(*corev1.ConfigMap).Data["v"], b.(*corev1.ConfigMap).Data["v"]; x != y {
						return fmt.Errorf("torn: %s and %s", x, y)
					}
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
}

func TestSecondLedgeIsKeptOut(t *testing.T) {
	dir := t.TempDir()
	open(t, dir)
	if _, err := lockDir(dir, 0); !errors.Is(err, ErrInUse) {
		t.Fatal(err)
	}
}

func TestNewerSchemaIsRefused(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	err := s.db.Update(func(tx *bolt.Tx) error {
		return tx.Bucket(metaBucket).Put(schemaKey, seal(metaBucket, schemaKey, number(Schema+1)))
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Close()
	if _, err := Open(t.Context(), Config{Dir: dir}); !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "newer") {
		t.Fatal(err)
	}
}

func TestTable(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	tab := s.Table("images")
	for k, v := range map[string]string{"a": "1", "b": "2", "c": "3"} {
		if err := tab.Put(k, []byte(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := tab.Delete("c"); err != nil {
		t.Fatal(err)
	}
	err := s.write(true, func(w *writer) error { return w.put(tab.bucket, []byte("b"), []byte("rotten")) }, nil)
	if err != nil {
		t.Fatal(err)
	}
	rows, damaged, err := tab.All()
	if err != nil || string(rows["a"]) != "1" || len(rows) != 1 || fmt.Sprint(damaged) != "[b]" {
		t.Fatalf("%v %v %v", rows, damaged, err)
	}
}

func FuzzUnseal(f *testing.F) {
	f.Add([]byte("b"), []byte("k"), seal([]byte("b"), []byte("k"), []byte(`{"a":1}`)))
	f.Add([]byte("b"), []byte("k"), []byte{})
	f.Fuzz(func(t *testing.T, bucket, key, raw []byte) {
		payload, err := unseal(bucket, key, raw)
		if err != nil {
			return
		}
		if string(seal(bucket, key, payload)) != string(raw) {
			t.Fatal("a value that is accepted must be one that was sealed")
		}
	})
}

func BenchmarkPut(b *testing.B) {
	s, err := Open(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for i := 0; b.Loop(); i++ {
		if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm("k"+strconv.Itoa(i%50), "v")) }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkPutLazy(b *testing.B) {
	s, err := Open(b.Context(), Config{Dir: b.TempDir()})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	for b.Loop() {
		if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("k", "v")) }); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWatch(b *testing.B) {
	s, err := Open(b.Context(), Config{Dir: b.TempDir(), NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	w, err := s.Watch(api.ConfigMaps, s.Revision())
	if err != nil {
		b.Fatal(err)
	}
	for b.Loop() {
		if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("k", "v")) }); err != nil {
			b.Fatal(err)
		}
		if _, err := w.Next(b.Context()); err != nil {
			b.Fatal(err)
		}
	}
}

func FuzzDecodeObject(f *testing.F) {
	key := keyOf("ns", "a")
	whole, err := encodeObject(api.ConfigMaps, key, cm("a", "1"))
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add(seal(bucketName(api.ConfigMaps), key, []byte(`{"metadata":{"name":[]}}`)))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, raw []byte) {
		for _, in := range [][]byte{raw, seal(bucketName(api.ConfigMaps), key, raw)} {
			var obj api.Object
			payload, err := unseal(bucketName(api.ConfigMaps), key, in)
			if err == nil {
				obj, err = decodeObject(api.ConfigMaps, payload)
			}
			if (obj == nil) == (err == nil) || err != nil && !errors.Is(err, ErrDamaged) {
				t.Fatalf("%v %v", obj, err)
			}
		}
	})
}

// BenchmarkChange is what most writes are: read, changed, written.
func BenchmarkChange(b *testing.B) {
	s, err := Open(b.Context(), Config{Dir: b.TempDir(), NoSync: true})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "a"}}
	for i := range 10 {
		pod.Spec.Containers = append(pod.Spec.Containers, corev1.Container{Name: strconv.Itoa(i), Image: "example.org/image:1"})
	}
	if err := s.Update(func(tx *Tx) error { return tx.Put(api.Pods, pod) }); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		err := s.Update(func(tx *Tx) error {
			got, err := tx.Get(api.Pods, "ns", "a")
			if err != nil {
				return err
			}
			return tx.Put(api.Pods, got)
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func TestHold(t *testing.T) {
	dir := t.TempDir()
	if release, err := Hold(filepath.Join(dir, "none")); err != nil {
		t.Error(err)
	} else {
		release()
	}
	s, err := Open(t.Context(), Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(dir); !errors.Is(err, ErrInUse) {
		t.Error("held what is in use:", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	release, err := Hold(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Hold(dir); !errors.Is(err, ErrInUse) {
		t.Error("held twice:", err)
	}
	release()
}
