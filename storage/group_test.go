package storage

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// together has every function wait for its turn before the first one gets it.
func together(t *testing.T, s *Store, fns ...func() error) []error {
	t.Helper()
	errs := make([]error, len(fns))
	var wg sync.WaitGroup
	s.writing.Lock()
	for i, fn := range fns {
		wg.Go(func() { errs[i] = fn() })
	}
	for end := time.Now().Add(20 * time.Second); int(s.waiting.Load()) < len(fns) && time.Now().Before(end); {
		runtime.Gosched()
	}
	if n := int(s.waiting.Load()); n != len(fns) {
		t.Errorf("%d of %d wait", n, len(fns))
	}
	s.writing.Unlock()
	within(t, "the group", wg.Wait)
	if s.open != nil || s.waiting.Load() != 0 {
		t.Errorf("left behind: %+v, %d waiting", s.open, s.waiting.Load())
	}
	return errs
}

func putting(s *Store, name, value string) func() error {
	return func() error {
		return s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm(name, value)) })
	}
}

// Writers who wait together cost one commit, rows of tables among them, and a watcher sees them in order.
func TestWritersCommitTogether(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "counter", "0")
	w, err := s.Watch(api.ConfigMaps, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	const n = 40
	rev, before := s.Revision(), s.Health().Commits
	var fns []func() error
	for i := range n {
		switch i % 4 {
		case 3:
			fns = append(fns, func() error { return s.Table("rows").Put(strconv.Itoa(i), []byte("v")) })
		default:
			fns = append(fns, func() error { return increment(s) })
		}
	}
	for i, err := range together(t, s, fns...) {
		if err != nil {
			t.Errorf("writer %d: %v", i, err)
		}
	}
	if got := s.Health().Commits - before; got != 1 {
		t.Errorf("%d commits for %d writers who waited together", got, n)
	}
	rows, _, err := s.Table("rows").All()
	if err != nil || len(rows) != n/4 || value(t, s, "counter") != strconv.Itoa(n*3/4) || s.Revision() != rev+n*3/4 {
		t.Fatalf("%d rows, counter %s, revision %d after %d, %v", len(rows), value(t, s, "counter"), s.Revision(), rev, err)
	}
	for i := range uint64(n * 3 / 4) {
		c, err := w.Next(t.Context())
		if err != nil || c.Rev != rev+1+i || c.Object.(*corev1.ConfigMap).Data["v"] != strconv.Itoa(int(i)+1) {
			t.Fatalf("change %d: %+v %v", i, c, err)
		}
	}
}

// increment reads and writes: two that overlap would lose one.
func increment(s *Store) error {
	return s.Update(func(tx *Tx) error {
		o, err := tx.Get(api.ConfigMaps, "ns", "counter")
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(o.(*corev1.ConfigMap).Data["v"])
		if err != nil {
			return err
		}
		return tx.Put(api.ConfigMaps, cm("counter", strconv.Itoa(n+1)))
	})
}

// What goes wrong for one writer goes wrong for nobody else: an error, a panic or the end of the goroutine in its function,
// or a value that bbolt refuses and that fails the commit of all.
func TestOneWritersTroubleIsItsOwn(t *testing.T) {
	for _, long := range []bool{false, true} {
		t.Run(fmt.Sprint("commit fails: ", long), func(t *testing.T) {
			s := open(t, t.TempDir())
			put(t, s, "counter", "0")
			var panicked any
			var left bool
			fns := []func() error{
				func() error {
					return s.Update(func(tx *Tx) error {
						return errors.Join(tx.Put(api.ConfigMaps, cm("refused", "x")), errTakenBack)
					})
				},
				func() error {
					defer func() { panicked = recover() }()
					return s.Update(func(tx *Tx) error {
						_ = tx.Put(api.ConfigMaps, cm("panicked", "x"))
						panic("at the disco")
					})
				},
				func() (err error) {
					var wg sync.WaitGroup
					wg.Go(func() {
						defer func() { left = true }()
						err = s.Update(func(tx *Tx) error { _ = tx.Put(api.ConfigMaps, cm("left", "x")); runtime.Goexit(); return nil })
					})
					wg.Wait()
					return nil
				},
			}
			if long {
				fns = append(fns, func() error { return s.Table("rows").Put(strings.Repeat("k", 40<<10), nil) })
			}
			own := len(fns)
			for range 12 {
				fns = append(fns, func() error { return increment(s) })
			}
			errs := together(t, s, fns...)
			if !errors.Is(errs[0], errTakenBack) || panicked != "at the disco" || !left || long && !errors.Is(errs[3], berrors.ErrKeyTooLarge) {
				t.Errorf("%v, panic %v, left %v", errs[:own], panicked, left)
			}
			for _, err := range errs[own:] {
				if err != nil {
					t.Error(err)
				}
			}
			got, _ := list(t, s, api.ConfigMaps)
			if len(got) != 1 || value(t, s, "counter") != "12" {
				t.Errorf("counter %s, and %v", value(t, s, "counter"), got)
			}
		})
	}
}

// Beside one who does not fit, those who do are written; and beside those who want to add, those who remove.
func TestGroupAtTheSizeLimit(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, MaxSize: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	big, n := strings.Repeat("x", 50<<10), 0
	for ; err == nil; n++ {
		err = putting(s, "k"+strconv.Itoa(n), big)()
	}
	removing := func(i int) func() error {
		return func() error {
			return s.Update(func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", "k"+strconv.Itoa(i)); return err })
		}
	}
	errs := together(t, s, putting(s, "more", strings.Repeat("y", 4<<20)), removing(1), removing(2), removing(3))
	if !errors.Is(errs[0], berrors.ErrMaxSizeReached) || errors.Join(errs[1:]...) != nil {
		t.Fatal(errs)
	}
	got, _ := list(t, s, api.ConfigMaps)
	if len(got) != n-1-3 {
		t.Fatalf("%d objects, there were %d", len(got), n-1)
	}
}

// A disk that refuses acknowledges nobody.
func TestGroupOnBrokenDisk(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	r, err := os.Open(filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.Dup3(int(r.Fd()), int(s.file.Fd()), unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	for _, err := range together(t, s, putting(s, "a", "2"), putting(s, "b", "2"), putting(s, "c", "2")) {
		if !errors.Is(err, ErrBroken) {
			t.Error(err)
		}
	}
	if got, _ := list(t, s, api.ConfigMaps); len(got) != 1 || value(t, s, "a") != "1" {
		t.Errorf("%v", got)
	}
}

// Who writes, flushes, copies or closes in the middle of a line sees whole groups.
func TestOthersInTheLine(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "counter", "0")
	var fns []func() error
	for i := range 30 {
		fns = append(fns, func() error { return increment(s) })
		if i%10 == 0 {
			fns = append(fns, s.Flush, func() error { return s.Snapshot(t.Context()) }, func() error { _, err := s.Compact(); return err })
		}
	}
	if err := errors.Join(together(t, s, fns...)...); err != nil {
		t.Fatal(err)
	}
	closed := 0
	for _, err := range together(t, s, func() error { return increment(s) }, func() error { return increment(s) }, s.Close,
		func() error { return increment(s) }) {
		if errors.Is(err, errClosed) {
			closed++
		} else if err != nil {
			t.Error(err)
		}
	}
	s = open(t, dir)
	if got := value(t, s, "counter"); got != strconv.Itoa(33-closed) {
		t.Errorf("counter %s, %d were refused", got, closed)
	}
}

// Whatever many writers do to the same few objects, with failures and panics among them, it is as if they had come one
// after the other: each write that was acknowledged is there exactly once, after a reopening too, and fewer commits were
// made than writes.
func TestGroupsAreSerial(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Config{Dir: dir, Rehearse: true})
	if err != nil {
		t.Fatal(err)
	}
	n := seed(t)
	const writers, rounds = 16, 40
	var want [4]int // what was added to each object and acknowledged
	var mu sync.Mutex
	var wg sync.WaitGroup
	before := s.Health().Commits
	for w := range writers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(n, uint64(w)))
			for range rounds {
				k, by := r.IntN(len(want)), 1+r.IntN(9)
				if addSomehow(t, s, "k"+strconv.Itoa(k), by, r.IntN(8)) {
					mu.Lock()
					want[k] += by
					mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	if got := s.Health().Commits - before; got >= writers*rounds {
		t.Errorf("%d commits for %d writes", got, writers*rounds)
	}
	for range 2 {
		for k := range want {
			if got, _ := strconv.Atoi(value(t, s, "k"+strconv.Itoa(k))); got != want[k] {
				t.Errorf("seed %d: k%d is %d, %d were acknowledged", n, k, got, want[k])
			}
		}
		mustClose(t, s)
		s = open(t, dir)
	}
}

// addSomehow adds to a number, or fails in one of several ways and tells so.
func addSomehow(t *testing.T, s *Store, name string, by, way int) (added bool) {
	defer func() {
		if p := recover(); p != nil && p != "on purpose" {
			panic(p)
		}
	}()
	err := s.Update(func(tx *Tx) error {
		sum := by
		o, err := tx.Get(api.ConfigMaps, "ns", name)
		if err == nil {
			was, err := strconv.Atoi(o.(*corev1.ConfigMap).Data["v"])
			if err != nil {
				return err
			}
			sum += was
		} else if !errors.Is(err, ErrNotFound) {
			return err
		}
		put := tx.Put
		if way == 2 {
			put = tx.PutLazy
		}
		if err := put(api.ConfigMaps, cm(name, strconv.Itoa(sum))); err != nil {
			return err
		}
		switch way {
		case 0:
			return errTakenBack
		case 1:
			panic("on purpose")
		}
		return nil
	})
	if err != nil && !errors.Is(err, errTakenBack) {
		t.Error(err)
	}
	return err == nil
}

// BenchmarkPutTogether is BenchmarkPut for many writers at once.
func BenchmarkPutTogether(b *testing.B) {
	for _, writers := range []int{1, 4, 32} {
		b.Run(strconv.Itoa(writers), func(b *testing.B) {
			s, err := Open(b.Context(), Config{Dir: b.TempDir()})
			if err != nil {
				b.Fatal(err)
			}
			defer s.Close()
			var wg sync.WaitGroup
			next := make(chan int)
			for range writers {
				wg.Go(func() {
					for i := range next {
						if err := putting(s, "k"+strconv.Itoa(i%50), "v")(); err != nil {
							b.Error(err)
						}
					}
				})
			}
			for i := 0; b.Loop(); i++ {
				next <- i
			}
			close(next)
			wg.Wait()
		})
	}
}
