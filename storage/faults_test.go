package storage

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ledge/api"
)

// mustOpen opens with the check in a process of its own, and closes at the end of the test.
func mustOpen(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func mustClose(t *testing.T, s *Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// edit changes the file of a closed store.
func edit(t *testing.T, dir string, fn func(img []byte) []byte) {
	t.Helper()
	path := filepath.Join(dir, dbName)
	img, err := os.ReadFile(path)
	if err == nil {
		err = os.WriteFile(path, fn(img), 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// flip turns one bit of every copy of a text.
func flip(t *testing.T, dir, text string) {
	t.Helper()
	edit(t, dir, func(img []byte) []byte {
		out := []byte(strings.ReplaceAll(string(img), text, string(text[0]^1)+text[1:]))
		if slices.Equal(out, img) {
			t.Fatalf("%q is not in the file", text)
		}
		return out
	})
}

// A check that could not be made says nothing about the file: no snapshot may replace it.
func TestCheckThatCannotBeMadeChangesNothing(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	if err := s.Snapshot(t.Context()); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "2")
	mustClose(t, s)
	for name, check := range map[string]func(context.Context, string) error{
		"no process":     func(context.Context, string) error { return fmt.Errorf("fork: %w", unix.EAGAIN) },
		"no binary":      CheckChild(filepath.Join(dir, "none")),
		"wrong binary":   CheckChild("/bin/false"),
		"killed":         CheckChild("/bin/sh", "-c", "kill -9 $$"),
		"not permitted":  CheckChild("/bin/sh", "-c", "echo 'check x: permission denied' >&2; exit 1"),
		"already in use": func(context.Context, string) error { return ErrInUse },
	} {
		if s, err := Open(t.Context(), Config{Dir: dir, Check: check}); err == nil {
			s.Close()
			t.Errorf("%s: opened unchecked", name)
		}
	}
	s = open(t, dir)
	if got := value(t, s, "a"); got != "2" || s.Health().Restored != "" {
		t.Fatalf("an acknowledged write is lost: %q, %+v", got, s.Health())
	}
}

func TestChildTellsWhatItFound(t *testing.T) {
	for _, tc := range []struct {
		script string
		want   error
	}{
		{"echo 'ledge: check x: " + ErrDamaged.Error() + ": page 3' >&2; exit 1", ErrDamaged},
		{"echo 'check x: " + ErrValues.Error() + " (1): a' >&2; exit 1", ErrValues},
		{"echo 'check x: " + ErrSchema.Error() + " (schema 2)' >&2; exit 1", ErrSchema},
		{"echo 'panic: assertion failed: Page expected' >&2; exit 2", ErrDamaged},
		{"printf 'unexpected fault address 0x7\\nfatal error: fault\\n' >&2; exit 2", ErrDamaged},
	} {
		if err := CheckChild("/bin/sh", "-c", tc.script)(t.Context(), "x"); !errors.Is(err, tc.want) {
			t.Errorf("%s: %v", tc.script, err)
		}
	}
	if err := CheckChild("/bin/sh", "-c", "echo '"+ErrDamaged.Error()+": page' >&2; exit 1")(t.Context(), "x"); errors.Is(err, ErrValues) {
		t.Error("a damaged file taken for single values")
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := CheckChild("/bin/sleep", "9")(ctx, "9"); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// TestSlowCheckIsNoDamage: a starved board must not take its file for a bad one; a walk in circles is one.
func TestSlowCheckIsNoDamage(t *testing.T) {
	err := checkChild(time.Hour, 50*time.Millisecond, "/bin/sleep")(t.Context(), "60")
	if err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "tells nothing about the file") {
		t.Errorf("a check that did not get its time: %v", err)
	}
	err = checkChild(time.Second, time.Hour, "/bin/sh", "-c", "while :; do :; done")(t.Context(), "x")
	if !errors.Is(err, ErrDamaged) {
		t.Errorf("a check that goes in circles: %v", err)
	}
}

// Damage to one value is put right exactly when a snapshot or the log has that version, and costs that object only when
// not.
func TestDamageToOneValue(t *testing.T) {
	for _, tc := range []struct {
		name     string
		snapshot bool
		log      bool
	}{{"in a snapshot", true, false}, {"in the log", false, true}, {"nowhere else", false, false}} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			s := open(t, dir)
			put(t, s, "sick", "old version")
			if tc.snapshot {
				put(t, s, "sick", "MARKsick")
			}
			if err := s.Snapshot(t.Context()); err != nil {
				t.Fatal(err)
			}
			put(t, s, "sick2", "x")
			if !tc.snapshot {
				put(t, s, "sick", "MARKsick")
			}
			put(t, s, "after", "the snapshot")
			mustClose(t, s)
			flip(t, dir, "MARKsick")
			if !tc.log {
				if err := os.RemoveAll(filepath.Join(dir, redoDir)); err != nil {
					t.Fatal(err)
				}
			}
			s = mustOpen(t, dir)
			h := s.Health()
			if h.Restored != "" || value(t, s, "after") != "the snapshot" {
				t.Fatalf("writes after the snapshot are lost: %+v", h)
			}
			if tc.snapshot || tc.log {
				if len(h.Repaired) != 1 || len(h.Quarantined) != 0 || value(t, s, "sick") != "MARKsick" {
					t.Fatalf("%+v", h)
				}
				mustClose(t, s)
				if err := Check(filepath.Join(dir, dbName)); err != nil {
					t.Fatal(err)
				}
				return
			}
			if fmt.Sprint(h.Quarantined) != "[configmaps ns/sick]" {
				t.Fatalf("%+v", h)
			}
			isDamaged(t, s, "sick")
		})
	}
}

// isDamaged: Get says so, List leaves it out, deleting it is seen and frees the name.
func isDamaged(t *testing.T, s *Store, name string) {
	t.Helper()
	if err := s.View(func(tx *Tx) error {
		if _, err := tx.Get(api.ConfigMaps, "ns", name); !errors.Is(err, ErrDamaged) {
			t.Errorf("get: %v", err)
		}
		l, err := tx.List(api.ConfigMaps, "")
		if len(l) != 2 {
			t.Errorf("list: %d objects", len(l))
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
	w, err := s.Watch(api.ConfigMaps, s.Revision())
	if err != nil {
		t.Fatal(err)
	}
	var gone api.Object
	if err := s.Update(func(tx *Tx) (err error) { gone, err = tx.Delete(api.ConfigMaps, "ns", name); return err }); err != nil {
		t.Fatal(err)
	}
	c, err := w.Next(t.Context())
	if err != nil || c.Type != api.Deleted || gone.GetName() != name || gone.GetResourceVersion() != strconv.FormatUint(s.Revision(), 10) {
		t.Fatalf("%+v %v %v", c, gone, err)
	}
	put(t, s, name, "again")
	if got := value(t, s, name); got != "again" || len(s.Health().Quarantined) != 0 {
		t.Fatalf("%q %+v", got, s.Health())
	}
}

// A leaf page that has lost its last entry, or is an older version of itself, is sound in structure and in every
// checksum. Only the tally can tell.
func TestLostAndForgottenWrites(t *testing.T) {
	dir := t.TempDir()
	page := os.Getpagesize()
	s := open(t, dir)
	for i := range 60 {
		put(t, s, "k"+strconv.Itoa(i), "v0"+strings.Repeat("x", 300))
	}
	before, err := os.ReadFile(filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	for round := range 8 {
		for i := range 60 {
			put(t, s, "k"+strconv.Itoa(i), "v"+strconv.Itoa(round)+strings.Repeat("x", 300))
		}
	}
	mustClose(t, s)
	now, err := os.ReadFile(filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	leaf := func(img []byte, n int) bool {
		return len(img) >= (n+1)*page && binary.NativeEndian.Uint16(img[n*page+8:]) == 2 && binary.NativeEndian.Uint16(img[n*page+10:]) > 3
	}
	tried := map[string]int{}
	for n := 2; n < len(now)/page; n++ {
		if !leaf(now, n) {
			continue
		}
		short := slices.Clone(now)
		binary.NativeEndian.PutUint16(short[n*page+10:], binary.NativeEndian.Uint16(short[n*page+10:])-1)
		bad := map[string][]byte{"lost": short}
		if leaf(before, n) {
			stale := slices.Clone(now)
			copy(stale[n*page:(n+1)*page], before[n*page:(n+1)*page])
			bad["forgotten"] = stale
		}
		for kind, img := range bad {
			tried[kind] += neverWrong(t, filepath.Join(t.TempDir(), "x"), img, now)
		}
	}
	if tried["lost"] == 0 || tried["forgotten"] == 0 {
		t.Fatalf("this test damaged nothing that is in use: %v", tried)
	}
	t.Log("found: ", tried)
}

// neverWrong: an image either fails its check, or reads like the good one.
func neverWrong(t *testing.T, path string, img, good []byte) (found int) {
	t.Helper()
	if err := os.WriteFile(path, img, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Check(path); errors.Is(err, ErrDamaged) {
		return 1
	} else if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path+".good", good, 0o600); err != nil {
		t.Fatal(err)
	}
	if a, b := dump(t, path), dump(t, path+".good"); a != b {
		t.Fatal("read as sound, with other content")
	}
	return 0
}

func dump(t *testing.T, path string) string {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	var all strings.Builder
	if err := db.View(func(tx *bolt.Tx) error {
		return eachValue(tx, func(b, k, v []byte) error { fmt.Fprintf(&all, "%s %s %x\n", b, k, v); return nil })
	}); err != nil {
		t.Fatal(err)
	}
	return all.String()
}

// A board whose every day is shorter than a snapshot interval still has something to restore.
func TestShortLives(t *testing.T) {
	dir := t.TempDir()
	edit := func(v string) {
		s := mustOpen(t, dir)
		put(t, s, "a", v)
		abandon(s)
	}
	edit("1")
	if err := os.Truncate(filepath.Join(dir, dbName), 0); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, dir) // the snapshot of the first hour of its life
	if s.Health().Restored == "" {
		t.Fatal("not restored")
	}
	abandon(s)
	edit("2")
	s = mustOpen(t, dir)
	if !s.copies.changed.Load() {
		t.Fatal("what the last life wrote is not seen as changed")
	}
	if err := errors.Join(s.Snapshot(t.Context()), s.Close()); err != nil {
		t.Fatal(err)
	}
	if s = mustOpen(t, dir); s.copies.changed.Load() {
		t.Fatal("an unchanged store asks for a snapshot")
	}
}

func TestOnlyCopyStaysWhereItIs(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	if err := os.RemoveAll(filepath.Join(dir, snapshotDir)); err != nil {
		t.Fatal(err)
	}
	edit(t, dir, func(img []byte) []byte { clear(img[2*os.Getpagesize():]); return img })
	for range 2 {
		_, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)})
		if !errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "ledge backup restore") {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(dir, dbName)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestLostMarkIsNotANewNode(t *testing.T) {
	dir := t.TempDir()
	want := filled(t, dir)
	if err := errors.Join(os.Remove(filepath.Join(dir, provisionedName)), os.Remove(filepath.Join(dir, dbName))); err != nil {
		t.Fatal(err)
	}
	if survive(t, dir, want, 0) != 1 {
		t.Fatal("not restored")
	}
}

// A future version may frame its values anew: it is refused as newer, and nothing of it is touched.
func TestNewerFormatIsRefusedUntouched(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	err := s.db.Update(func(tx *bolt.Tx) error {
		b := tx.Bucket(bucketName(api.ConfigMaps))
		return errors.Join(tx.Bucket(metaBucket).Put(schemaKey, seal(metaBucket, schemaKey, number(Schema+1))),
			b.Put(keyOf("ns", "a"), []byte("\x02 of another world")))
	})
	if err != nil {
		t.Fatal(err)
	}
	mustClose(t, s)
	before, err := os.ReadFile(filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)}); !errors.Is(err, ErrSchema) ||
		!strings.Contains(err.Error(), "run the newer version") {
		t.Fatal(err)
	}
	if after, err := os.ReadFile(filepath.Join(dir, dbName)); err != nil || !slices.Equal(before, after) {
		t.Fatalf("the file was changed: %v", err)
	}
}

// A disk that refuses: the write is not acknowledged, no other is tried, reads go on, Run ends so that the process
// is started again, and then all is well.
func TestDiskErrorBreaksTheStore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	ended := make(chan error)
	go func() { ended <- s.Run(t.Context()) }()
	r, err := os.Open(filepath.Join(dir, dbName))
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if err := unix.Dup3(int(r.Fd()), int(s.file.Fd()), unix.O_CLOEXEC); err != nil { // every write fails from here on
		t.Fatal(err)
	}
	for range 2 {
		err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm("b", "1")) })
		if !errors.Is(err, ErrBroken) || !errors.Is(err, unix.EBADF) || !strings.Contains(err.Error(), "restart ledge") {
			t.Fatal(err)
		}
	}
	if err := s.Table("x").Put("k", nil); !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, ErrBroken) || s.Health().Broken == nil {
		t.Fatalf("%v %+v", err, s.Health())
	}
	if value(t, s, "a") != "1" || value(t, s, "b") != "" {
		t.Fatal("reads are wrong")
	}
	s.Close()
	s = open(t, dir)
	if !s.Health().Unclean || value(t, s, "a") != "1" {
		t.Fatalf("%+v", s.Health())
	}
}

// ENOSPC of a write leaves the store as it was. ENOSPC of a sync leaves nobody knowing (reliability A2.6).
func TestFailedSyncIsNeverTriedAgain(t *testing.T) {
	s := open(t, t.TempDir())
	err := s.explain(&os.PathError{Op: "write", Path: "x", Err: unix.ENOSPC})
	if !errors.Is(err, unix.ENOSPC) || errors.Is(err, ErrBroken) || s.condition.writable() != nil {
		t.Fatal(err)
	}
	err = s.explain(unix.ENOSPC) // as fdatasync gives it
	if !errors.Is(err, ErrBroken) || !errors.Is(s.condition.writable(), unix.ENOSPC) {
		t.Fatal(err)
	}
}

// Pages that go bad under an open store end in an error, not in a dead process.
func TestPagesGoBadWhileOpen(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	s := mustOpen(t, dir)
	f, err := os.OpenFile(filepath.Join(dir, dbName), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(make([]byte, 200*os.Getpagesize()), int64(2*os.Getpagesize())); err != nil {
		t.Fatal(err)
	}
	err = s.View(func(tx *Tx) error { _, err := tx.Get(api.ConfigMaps, "ns", "k1"); return err })
	if !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm("k1", "x")) }); !errors.Is(err, ErrBroken) {
		t.Fatal(err)
	}
	done := make(chan error)
	go func() { done <- s.Close() }()
	select {
	case <-done:
	case <-time.After(10 * time.Second):
		t.Fatal("Close hangs")
	}
	if s = mustOpen(t, dir); s.Health().Restored == "" {
		t.Fatalf("%+v", s.Health())
	}
}

// The same, found by the commit itself.
func TestPagesGoBadUnderAWrite(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	s := mustOpen(t, dir)
	edit(t, dir, func(img []byte) []byte { clear(img[2*os.Getpagesize():]); return img })
	if err := s.Table("t").Put("k", []byte("v")); !errors.Is(err, ErrBroken) || !errors.Is(err, ErrDamaged) {
		t.Fatal(err)
	}
	mustClose(t, s)
	if s = mustOpen(t, dir); s.Health().Restored == "" {
		t.Fatalf("%+v", s.Health())
	}
}
