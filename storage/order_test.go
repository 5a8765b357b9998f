package storage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	berrors "go.etcd.io/bbolt/errors"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// within fails a test that waits for a lock it will never get.
func within(t *testing.T, what string, fn func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); fn() }()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s hangs", what)
	}
}

func putBig(t *testing.T, s *Store, n int, name string) {
	big := strings.Repeat("z", 200<<10)
	for i := range n {
		if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm(name+strconv.Itoa(i), big)) }); err != nil {
			t.Error(err)
			return
		}
	}
}

// Someone who fetches a backup and stops reading holds up nobody.
func TestStalledBackup(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, MaxSize: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	putBig(t, s, 70, "a")
	r, w := io.Pipe()
	ended := make(chan error)
	go func() { ended <- s.Backup(w) }()
	if _, err := r.Read(make([]byte, 16)); err != nil {
		t.Fatal(err)
	}
	within(t, "writing beside a stalled backup", func() { putBig(t, s, 60, "b") })
	within(t, "closing beside a stalled backup", func() { s.Close() })
	r.Close()
	if err := <-ended; !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

// A reader may ask the store things while a writer makes the file grow.
func TestReaderAsksWhileTheFileGrows(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, MaxSize: 256 << 20}) // what a reader sees is not reused
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	putBig(t, s, 70, "a")
	var writer sync.WaitGroup
	within(t, "a reader that asks", func() {
		_ = s.View(func(tx *Tx) error {
			writer.Go(func() { putBig(t, s, 60, "b") })
			time.Sleep(200 * time.Millisecond)
			s.Revision()
			s.Health()
			if _, err := s.Watch(api.ConfigMaps, tx.Revision()); err != nil && !errors.Is(err, ErrGone) {
				t.Error(err)
			}
			return nil
		})
	})
	within(t, "the writer", writer.Wait)
}

// Readers do not wait for a writer that is still making up its mind.
func TestReadersDoNotWaitForWriters(t *testing.T) {
	s := open(t, t.TempDir())
	put(t, s, "a", "1")
	err := s.Update(func(tx *Tx) error {
		within(t, "reading beside a writer", func() {
			if got := value(t, s, "a"); got != "1" {
				t.Errorf("got %q", got)
			}
		})
		return tx.Put(api.ConfigMaps, cm("a", "2"))
	})
	if err != nil || value(t, s, "a") != "2" {
		t.Fatal(err)
	}
}

// A store at its size limit refuses to grow, and can be emptied.
func TestFullStoreCanBeEmptied(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, MaxSize: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	big := strings.Repeat("x", 50<<10)
	for _, v := range []string{big, "small"} {
		err = nil
		for i := 0; err == nil && i < 100_000; i++ {
			err = s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm(fmt.Sprint(len(v), "-", i), v)) })
		}
		if !errors.Is(err, berrors.ErrMaxSizeReached) || !strings.Contains(err.Error(), "delete objects") {
			t.Fatal(err)
		}
	}
	for i := range 20 {
		name := fmt.Sprint(len(big), "-", i)
		if err := s.Update(func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", name); return err }); err != nil {
			t.Fatalf("delete %d: %v", i, err)
		}
	}
	put(t, s, "after", big)
}

func TestRingIsBoundedByWeight(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, RingBytes: 100 << 10})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	start := s.Revision()
	for i := range 50 {
		put(t, s, "k"+strconv.Itoa(i), strings.Repeat("x", 10<<10))
	}
	if s.ring.size > 100<<10 || s.ring.next-s.ring.first > 10 {
		t.Fatalf("%d bytes in %d changes", s.ring.size, s.ring.next-s.ring.first)
	}
	if _, err := s.Watch(api.ConfigMaps, start); !errors.Is(err, ErrGone) {
		t.Fatal(err)
	}
	put(t, s, "huge", strings.Repeat("x", 300<<10)) // the newest is always held
	w, err := s.Watch(api.ConfigMaps, s.Revision()-1)
	if err != nil {
		t.Fatal(err)
	}
	if c, err := w.Next(t.Context()); err != nil || c.Object.GetName() != "huge" {
		t.Fatalf("%v %v", c, err)
	}
}

// Followers that list and then watch end up with exactly what is in the store, whatever several writers of several
// kinds do, durably and lazily, and never see a revision twice or out of order.
func TestFollowersConverge(t *testing.T) {
	dir := t.TempDir()
	s, err := Open(t.Context(), Config{Dir: dir, NoSync: true, RingSize: 64})
	if err != nil {
		t.Fatal(err)
	}
	n := seed(t)
	kinds := []*api.Kind{api.ConfigMaps, api.Secrets}
	var writers, followers sync.WaitGroup
	final := make(chan uint64)
	for w := range 4 {
		writers.Go(func() { scribbleObjects(t, s, kinds, rand.New(rand.NewPCG(n, uint64(w)))) })
	}
	for _, kind := range kinds {
		followers.Go(func() { follow(t, s, kind, final) })
	}
	writers.Wait()
	end := s.Revision()
	for range kinds {
		final <- end
	}
	followers.Wait()
	before := [2]string{contents(t, s, kinds[0]), contents(t, s, kinds[1])}
	mustClose(t, s)
	s = open(t, dir)
	if after := [2]string{contents(t, s, kinds[0]), contents(t, s, kinds[1])}; after != before {
		t.Fatalf("after reopening:\n%s\nbefore:\n%s", after, before)
	}
}

func scribbleObjects(t *testing.T, s *Store, kinds []*api.Kind, r *rand.Rand) {
	for range 250 {
		err := s.Update(func(tx *Tx) error {
			for range 1 + r.IntN(3) {
				kind, name := kinds[r.IntN(2)], "k"+strconv.Itoa(r.IntN(10))
				obj := kind.New()
				obj.SetNamespace("ns" + strconv.Itoa(r.IntN(2)))
				obj.SetName(name)
				obj.SetLabels(map[string]string{"v": strconv.Itoa(r.Int())})
				var err error
				switch r.IntN(5) {
				case 0:
					_, err = tx.Delete(kind, obj.GetNamespace(), name)
				case 1, 2:
					err = tx.PutLazy(kind, obj)
				default:
					err = tx.Put(kind, obj)
				}
				if err != nil && !errors.Is(err, ErrNotFound) {
					return err
				}
			}
			if r.IntN(20) == 0 {
				return errTakenBack
			}
			return nil
		})
		if err != nil && !errors.Is(err, errTakenBack) {
			t.Error(err)
		}
	}
}

// ended is a context that is over: Next gives what is there and does not wait.
var ended = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

var errTakenBack = errors.New("taken back")

// follow keeps a replica until it has seen the final revision, and compares.
func follow(t *testing.T, s *Store, kind *api.Kind, final <-chan uint64) {
	replica, rev := list(t, s, kind)
	w, err := s.Watch(kind, rev)
	end := ^uint64(0)
	for {
		for err == nil {
			var c Change
			if c, err = w.Next(ended); err != nil {
				break
			}
			if c.Rev <= rev || c.Object.GetResourceVersion() != strconv.FormatUint(c.Rev, 10) {
				t.Errorf("revision %d after %d, object says %s", c.Rev, rev, c.Object.GetResourceVersion())
			}
			rev = c.Rev
			key := c.Object.GetNamespace() + "/" + c.Object.GetName()
			if had := replica[key] != ""; had != (c.Type != api.Added) {
				t.Errorf("%s %s, which we had: %v", c.Type, key, had)
			}
			if replica[key] = line(c.Object); c.Type == api.Deleted {
				delete(replica, key)
			}
		}
		if errors.Is(err, ErrGone) { // lapped: begin again
			replica, rev = list(t, s, kind)
			w, err = s.Watch(kind, rev)
			continue
		}
		if end != ^uint64(0) {
			break
		}
		select {
		case end = <-final:
		case <-time.After(time.Millisecond):
		}
		err = nil
	}
	if want, _ := list(t, s, kind); fmt.Sprint(replica) != fmt.Sprint(want) {
		t.Errorf("%s: a follower has\n%v\nthe store has\n%v", kind, replica, want)
	}
}

func line(o api.Object) string { return o.GetResourceVersion() + "=" + o.GetLabels()["v"] }

func list(t *testing.T, s *Store, kind *api.Kind) (all map[string]string, rev uint64) {
	all = map[string]string{}
	err := s.View(func(tx *Tx) error {
		rev = tx.Revision()
		l, err := tx.List(kind, "")
		for _, o := range l {
			all[o.GetNamespace()+"/"+o.GetName()] = line(o)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	return all, rev
}

func contents(t *testing.T, s *Store, kind *api.Kind) string {
	all, _ := list(t, s, kind)
	return fmt.Sprint(all)
}

// What one commit costs the card (reliability F14: at most 21 KB), measured at the block device.
func TestBytesPerCommit(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := loopFS(t, 64<<20)
	s, err := Open(t.Context(), Config{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	pod := func(i int) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "p" + strconv.Itoa(i%50),
			Annotations: map[string]string{"pad": strings.Repeat("x", 700)}},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "ledge.local/self"}}}}
	}
	write := func(from, n int, fn func(tx *Tx, i int) error) int64 {
		begin := sectors(t, dir)
		for i := range n {
			if err := s.Update(func(tx *Tx) error { return fn(tx, from+i) }); err != nil {
				t.Fatal(err)
			}
		}
		return (sectors(t, dir) - begin) * 512 / int64(n)
	}
	write(0, 100, func(tx *Tx, i int) error { return tx.Put(api.Pods, pod(i)) }) // settled: no growth is counted
	put := write(100, 200, func(tx *Tx, i int) error { return tx.Put(api.Pods, pod(i)) })
	lazy := write(0, 2000, func(tx *Tx, i int) error { return tx.PutLazy(api.ConfigMaps, cm("lease", strconv.Itoa(i))) })
	t.Logf("%d bytes for a commit of one pod of 1 KB, %d for a lazy write", put, lazy)
	if put > 21<<10 || lazy > 16 {
		t.Fatalf("%d bytes a commit, %d a lazy write", put, lazy)
	}
}

// sectors is how many were ever written to the device of a file system, all of its dirty pages included.
func sectors(t *testing.T, dir string) int64 {
	t.Helper()
	var st unix.Stat_t
	if err := unix.Stat(dir, &st); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(fmt.Sprintf("/sys/dev/block/%d:%d/stat", unix.Major(uint64(st.Dev)), unix.Minor(uint64(st.Dev))))
	if err != nil {
		t.Skip(err)
	}
	n, err := strconv.ParseInt(strings.Fields(string(text))[6], 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestRingHoldsEachStateOnce: what a change made is what the next one of the same object came from, and no second copy.
func TestRingHoldsEachStateOnce(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	w, err := s.Watch(api.ConfigMaps, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 3 {
		put(t, s, "a", strconv.Itoa(i))
		put(t, s, "b", "other")
	}
	if err := s.Update(func(tx *Tx) error { _, err := tx.Delete(api.ConfigMaps, "ns", "a"); return err }); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "again")
	var made api.Object
	for i := 0; i < 5; {
		c, err := w.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if c.Object.GetName() != "a" {
			continue
		}
		if c.Old != made {
			t.Errorf("change %d of a (%s) came from %v at %p, the one before made %p", i, c.Type, c.Old, c.Old, made)
		}
		if made = c.Object; c.Type == api.Deleted {
			made = nil // what is made next under this name is new
		}
		i++
	}
	// One who reads before he writes decodes once, and what he does to his copy is not seen by others.
	err = s.Update(func(tx *Tx) error {
		got, err := tx.Get(api.ConfigMaps, "ns", "a")
		if err != nil {
			return err
		}
		got.(*corev1.ConfigMap).Data["v"] = "changed"
		again, err := tx.Get(api.ConfigMaps, "ns", "a")
		if err == nil && again.(*corev1.ConfigMap).Data["v"] != "again" {
			t.Error("a reader's change is seen by the next one")
		}
		if err := tx.Put(api.ConfigMaps, got); err != nil {
			return err
		}
		again, err = tx.Get(api.ConfigMaps, "ns", "a")
		if err == nil && again.(*corev1.ConfigMap).Data["v"] != "changed" {
			t.Error("what was written is not read back")
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestReadWhileWriting: who has the turn to write may read what is committed in a transaction of its own, while others write and the
// file grows, which waits for all transactions.
func TestReadWhileWriting(t *testing.T) {
	s, err := Open(t.Context(), Config{Dir: t.TempDir(), NoSync: true, MaxSize: 256 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	within(t, "reading inside of a write", func() {
		var all sync.WaitGroup
		for w := range 4 {
			all.Go(func() { putBig(t, s, 8, "w"+strconv.Itoa(w)) })
			all.Go(func() {
				for i := range 6 {
					err := s.Update(func(tx *Tx) error {
						held := 0
						if err := s.View(func(tx *Tx) error {
							all, err := tx.List(api.ConfigMaps, "")
							held = len(all)
							return err
						}); err != nil {
							return err
						}
						return tx.Put(api.ConfigMaps, cm(fmt.Sprint("r", w, "-", i), strconv.Itoa(held)))
					})
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
	})
}
