package storage

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	bolt "go.etcd.io/bbolt"
	"golang.org/x/sys/unix"

	"ledge/api"
	"ledge/internal/testrun"
)

// The test binary is also the child that checks a file, and the victim that is killed while it writes.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) == 3 && os.Args[1] == "check-db":
		if err := Check(os.Args[2]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	case len(os.Args) == 3 && os.Args[1] == "take-memory-and-die":
		_ = bytes.Repeat([]byte{1}, 2*checkMemory)
		_ = unix.Kill(os.Getpid(), unix.SIGKILL)
	case len(os.Args) == 3 && os.Args[1] == "write-until-killed":
		writeUntilKilled(os.Args[2])
	}
	os.Exit(m.Run())
}

func child(t *testing.T) func(context.Context, string) error {
	t.Helper()
	exe := self(t)
	if exe == "" {
		t.Skip("this binary cannot start itself here")
	}
	return CheckChild(exe, "check-db")
}

// checker is child, or where there is none (qemu-user) the check in this process.
func checker(t *testing.T) func(context.Context, string) error {
	t.Helper()
	if self(t) == "" {
		return nil
	}
	return child(t)
}

// self is the test binary; "" if it cannot start itself.
func self(t *testing.T) string {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if err := exec.Command(exe, "check-db", exe+".none").Run(); errors.Is(err, unix.ENOEXEC) {
		return ""
	}
	return exe
}

// trials is how often a random fault is tried: so often in the long runs.
func trials(long int) int {
	if os.Getenv("LEDGE_LONG") != "" {
		return long
	}
	return testrun.Rounds(4) // each starts a process or two
}

// seed repeats a run: LEDGE_SEED.
func seed(t *testing.T) uint64 {
	n, err := strconv.ParseUint(os.Getenv("LEDGE_SEED"), 10, 64)
	if err != nil {
		n = 2
	}
	t.Logf("seed %d", n)
	return n
}

// filled makes a closed store of some size with a snapshot in it.
func filled(t *testing.T, dir string) map[string]string {
	t.Helper()
	s := open(t, dir)
	want := map[string]string{}
	err := s.Update(func(tx *Tx) error {
		for i := range 300 {
			name, v := "k"+strconv.Itoa(i), strings.Repeat(strconv.Itoa(i), 200)
			want[name] = v
			if err := tx.Put(api.ConfigMaps, cm(name, v)); err != nil {
				return err
			}
		}
		return nil
	})
	if err == nil {
		err = s.Snapshot(t.Context())
	}
	for i := 0; err == nil && i < 20; i++ { // what only state.db and the log have
		name := "k" + strconv.Itoa(i*20)
		want[name] = "later " + strconv.Itoa(i)
		put(t, s, name, want[name])
	}
	if err == nil {
		err = s.Close()
	}
	if err != nil {
		t.Fatal(err)
	}
	return want
}

// Whatever happens to one page or to the whole file, no wrong value is ever read, and the board comes up by itself
// (reliability A1, F4: 5,000 damaged pages and 1,000 damaged files in the long run without the race detector).
func TestDamage(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	child(t) // some damage kills the process that looks
	master := t.TempDir()
	want := filled(t, master)
	image, err := os.ReadFile(filepath.Join(master, dbName))
	if err != nil {
		t.Fatal(err)
	}
	used := 0 // the part that holds anything
	for i, b := range image {
		if b != 0 {
			used = i
		}
	}
	r := rand.New(rand.NewPCG(1, seed(t)))
	page := os.Getpagesize()
	pages := used/page + 1
	onePage, wholeFile := 1000, 500
	if testrun.Raced { // the processes start slowly: seconds for each, and the step "damaged stores" has the rest
		onePage, wholeFile = 40, 40
	}
	kinds := map[string]struct {
		long int
		hurt func(img []byte) []byte
	}{
		"zero page":    {onePage, func(img []byte) []byte { clear(pageOf(img, r.IntN(pages), page)); return img }},
		"garbage page": {onePage, func(img []byte) []byte { scribble(r, pageOf(img, r.IntN(pages), page)); return img }},
		"stale page": {onePage, func(img []byte) []byte {
			copy(pageOf(img, r.IntN(pages), page), pageOf(image, r.IntN(pages), page))
			return img
		}},
		"bit flip":   {onePage, func(img []byte) []byte { img[r.IntN(used)] ^= 1 << r.IntN(8); return img }},
		"torn page":  {onePage, func(img []byte) []byte { clear(pageOf(img, r.IntN(pages), page)[page/2:]); return img }},
		"cut short":  {wholeFile, func(img []byte) []byte { return img[:r.IntN(used)] }},
		"empty file": {wholeFile, func([]byte) []byte { return nil }},
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			restored := 0
			for trial := range trials(kind.long) {
				dir := t.TempDir()
				if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
					t.Fatal(err)
				}
				bad := kind.hurt(append([]byte(nil), image...))
				if err := os.WriteFile(filepath.Join(dir, dbName), bad, 0o600); err != nil {
					t.Fatal(err)
				}
				restored += survive(t, dir, want, trial)
			}
			t.Logf("%d of %d restored from a snapshot; the rest was repaired in place, or damage to free space", restored, trials(kind.long))
		})
	}
}

// TestDamagedLength: a page says how many pages behind it belong to it. What it claims must neither be believed to the
// last byte of the board's memory nor pass where it lies behind the end of the file, where the next write would go.
func TestDamagedLength(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 15 s")
	}
	child(t)
	master := t.TempDir()
	want := filled(t, master)
	image, err := os.ReadFile(filepath.Join(master, dbName))
	if err != nil {
		t.Fatal(err)
	}
	const length = 12 // in the head of a page, after its number, its kind and how many entries it has
	size, last := os.Getpagesize(), lastPages(t, filepath.Join(master, dbName))
	restored, most := 0, int64(200<<20)
	if testrun.Raced {
		most *= 4
	}
	for _, kind := range []string{"branch", "leaf"} {
		n := last[kind]
		if n == 0 {
			t.Fatalf("no %s in %v", kind, last)
		}
		for bit := range 32 {
			if (testrun.Raced || testrun.Rounds(6) == 1) && bit%6 != 0 { // each starts three processes
				continue
			}
			dir := t.TempDir()
			if err := os.CopyFS(dir, os.DirFS(master)); err != nil {
				t.Fatal(err)
			}
			bad := bytes.Clone(image)
			pageOf(bad, n, size)[length+bit/8] ^= 1 << (bit % 8)
			path := filepath.Join(dir, dbName)
			if err := os.WriteFile(path, bad, 0o600); err != nil {
				t.Fatal(err)
			}
			check := exec.Command(self(t), "check-db", path)
			said, err := check.CombinedOutput()
			if used, ok := check.ProcessState.SysUsage().(*syscall.Rusage); ok && int64(used.Maxrss) > most>>10 {
				t.Errorf("page %d, bit %d: the check took %d KB", n, bit, used.Maxrss)
			}
			if bit > 16 && (err == nil || !strings.Contains(string(said), ErrDamaged.Error())) {
				t.Errorf("page %d, bit %d: %v %s", n, bit, err, said)
			}
			restored += survive(t, dir, want, bit)
		}
	}
	if restored == 0 {
		t.Error("nothing was restored")
	}
}

// TestBranchInACircle: whoever follows it never comes to a leaf, and remembers the way.
func TestBranchInACircle(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 7 s")
	}
	child(t)
	if testrun.Raced {
		t.Skip("the race detector itself ends where there is no more memory, in words of its own")
	}
	dir := t.TempDir()
	want := filled(t, dir)
	path := filepath.Join(dir, dbName)
	image, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	n := lastPages(t, path)["branch"]
	page := pageOf(image, n, os.Getpagesize())
	const head, childOfFirst = 16, 8 // an entry: where its key is (4), how long (4), the page it leads to (8)
	binary.NativeEndian.PutUint64(page[head+childOfFirst:], uint64(n))
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	if survive(t, dir, want, 0) != 1 {
		t.Error("it was not restored")
	}
}

// lastPages has the last page of each kind that is in use.
func lastPages(t *testing.T, path string) map[string]int {
	t.Helper()
	db, err := bolt.Open(path, 0o600, &bolt.Options{ReadOnly: true, PreLoadFreelist: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	last := map[string]int{}
	if err := db.View(func(tx *bolt.Tx) error {
		for id := 2; ; id++ {
			p, err := tx.Page(id)
			if err != nil || p == nil {
				return err
			}
			last[p.Type] = id
			id += p.OverflowCount
		}
	}); err != nil {
		t.Fatal(err)
	}
	return last
}

// TestCheckTakesAllMemory: a child that was killed for what it took says something of the file.
func TestCheckTakesAllMemory(t *testing.T) {
	child(t)
	if testrun.Raced {
		t.Skip("the race detector itself ends where there is no more memory, in words of its own")
	}
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := CheckChild(self(t), "take-memory-and-die")(t.Context(), path); !errors.Is(err, ErrDamaged) {
		t.Error(err)
	}
}

func survive(t *testing.T, dir string, want map[string]string, trial int) int {
	t.Helper()
	s, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)})
	if err != nil {
		t.Fatalf("trial %d: the board did not come up: %v", trial, err)
	}
	defer s.Close()
	for name, v := range want {
		if got := value(t, s, name); got != v {
			t.Fatalf("trial %d: %s is %.20q, want %.20q", trial, name, got, v)
		}
	}
	if h := s.Health(); h.Restored != "" && !h.Complete {
		t.Fatalf("trial %d: %+v", trial, h)
	}
	put(t, s, "after", "damage")
	if s.Health().Restored != "" {
		return 1
	}
	return 0
}

func pageOf(img []byte, n, size int) []byte { return img[n*size : min((n+1)*size, len(img))] }

func scribble(r *rand.Rand, b []byte) {
	for i := range b {
		b[i] = byte(r.Uint32())
	}
}

func TestMissingFileIsNotANewNode(t *testing.T) { // reliability, fact 3
	dir := t.TempDir()
	want := filled(t, dir)
	if err := os.Remove(filepath.Join(dir, dbName)); err != nil {
		t.Fatal(err)
	}
	if survive(t, dir, want, 0) != 1 {
		t.Fatal("not restored")
	}
}

func TestNoSnapshotLeftSaysWhatToDo(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	if err := errors.Join(os.RemoveAll(filepath.Join(dir, snapshotDir)), os.Truncate(filepath.Join(dir, dbName), 0)); err != nil {
		t.Fatal(err)
	}
	_, err := Open(t.Context(), Config{Dir: dir})
	if err == nil || !strings.Contains(err.Error(), "ledge backup restore") {
		t.Fatal(err)
	}
}

func TestEvidenceIsKept(t *testing.T) {
	dir := t.TempDir()
	filled(t, dir)
	for range 3 {
		if err := os.WriteFile(filepath.Join(dir, dbName), []byte("not a store at all"), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Open(t.Context(), Config{Dir: dir, Check: checker(t)})
		if err != nil {
			t.Fatal(err)
		}
		if s.Health().Damaged == "" {
			t.Fatal("nothing kept")
		}
		s.Close()
	}
	if kept, err := os.ReadDir(filepath.Join(dir, damagedDir)); err != nil || len(kept) != 2 {
		t.Fatalf("%v %v", kept, err)
	}
}

// writeUntilKilled acknowledges every write on standard output after it returned. There are several writers, who commit together.
func writeUntilKilled(dir string) {
	s, err := Open(context.Background(), Config{Dir: dir})
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	const writers = 4
	var wg sync.WaitGroup
	for w := range writers {
		wg.Go(func() {
			for i := w; ; i += writers {
				if err := s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm("k"+strconv.Itoa(i%40), strconv.Itoa(i))) }); err != nil {
					fmt.Println("error", err)
					os.Exit(1)
				}
				fmt.Printf("%d %d\n", i, s.Revision())
			}
		})
	}
	wg.Wait()
}

// kill -9 at random moments: every acknowledged write is there, revisions go on.
func TestKillWhileWriting(t *testing.T) {
	dir := t.TempDir()
	child(t)
	exe := self(t)
	for round := range 6 {
		acked, rev := map[string]int{}, uint64(0)
		cmd := exec.Command(exe, "write-until-killed", dir)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		time.AfterFunc(time.Duration(100+round*37)*time.Millisecond, func() { cmd.Process.Kill() })
		for sc := bufio.NewScanner(out); sc.Scan(); {
			var i int
			var r uint64
			if _, err := fmt.Sscan(sc.Text(), &i, &r); err != nil {
				t.Fatalf("the writer says %q", sc.Text())
			}
			rev = max(rev, r)
			acked["k"+strconv.Itoa(i%40)] = i
		}
		_ = cmd.Wait()
		s, err := Open(t.Context(), Config{Dir: dir, Check: child(t)})
		if err != nil {
			t.Fatal(err)
		}
		if !s.Health().Unclean && len(acked) > 0 || s.Health().Restored != "" || s.Revision() < rev {
			t.Fatalf("%+v revision %d after %d", s.Health(), s.Revision(), rev)
		}
		for name, i := range acked {
			if got, err := strconv.Atoi(value(t, s, name)); err != nil || got < i {
				t.Fatalf("round %d: %s is %d, %d was acknowledged", round, name, got, i)
			}
		}
		s.Close()
	}
}

func TestBackupAndRestore(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir)
	put(t, s, "a", "1")
	if err := s.Update(func(tx *Tx) error { return tx.PutLazy(api.ConfigMaps, cm("lazy", "1")) }); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "backup")
	f, err := os.Create(file)
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(s.Backup(f), f.Close(), Check(file)); err != nil {
		t.Fatal(err)
	}
	put(t, s, "a", "2")
	rev := s.Revision()
	if err := (Restore{Dir: dir, Backup: file}).Run(t.Context()); !errors.Is(err, ErrInUse) {
		t.Fatalf("restored under a running ledge: %v", err)
	}
	s.Close()
	if err := (Restore{Dir: dir, Backup: file}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	s = open(t, dir)
	if value(t, s, "a") != "1" || value(t, s, "lazy") != "1" || s.Revision() < rev {
		t.Fatalf("%q %q revision %d after %d", value(t, s, "a"), value(t, s, "lazy"), s.Revision(), rev)
	}
	other := t.TempDir()
	if err := (Restore{Dir: filepath.Join(other, "new"), Backup: file}).Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := value(t, open(t, filepath.Join(other, "new")), "a"); got != "1" {
		t.Fatalf("got %q", got)
	}
}

// A full disk: the commit says so, reads go on, and once there is space writes do too.
func TestFullDisk(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := loopFS(t, 8<<20)
	s, err := Open(t.Context(), Config{Dir: filepath.Join(dir, "data")})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	put(t, s, "a", "1")
	filler, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		t.Fatal(err)
	}
	for err == nil {
		_, err = filler.Write(make([]byte, 4096))
	}
	if !errors.Is(err, unix.ENOSPC) {
		t.Fatal(err)
	}
	filler.Sync()
	big := strings.Repeat("x", 100<<10)
	err = nil
	for i := 0; err == nil && i < 1000; i++ {
		err = s.Update(func(tx *Tx) error { return tx.Put(api.ConfigMaps, cm("big"+strconv.Itoa(i), big)) })
	}
	if !errors.Is(err, unix.ENOSPC) || !strings.Contains(err.Error(), "free some space") {
		t.Fatalf("%v", err)
	}
	if got := value(t, s, "a"); got != "1" {
		t.Fatalf("reads stopped: %q", got)
	}
	if err := errors.Join(filler.Close(), os.Remove(filler.Name())); err != nil {
		t.Fatal(err)
	}
	put(t, s, "after", "1")
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if err := Check(filepath.Join(dir, "data", dbName)); err != nil {
		t.Fatal(err)
	}
}

// loopFS makes a small ext4 file system of its own.
func loopFS(t *testing.T, size int64, more ...string) string {
	t.Helper()
	img, dir := filepath.Join(t.TempDir(), "img"), t.TempDir()
	if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, size)); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{append([]string{"mkfs.ext4", "-q", "-m", "0", img}, more...), {"mount", "-o", "loop", img, dir}} {
		if out, err := exec.Command(args[0], args[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%v: %v %s", args, err, out)
		}
	}
	t.Cleanup(func() {
		if err := unix.Unmount(dir, 0); err != nil {
			t.Errorf("unmount: %v", err)
		}
	})
	return dir
}

// TestUnmade: an opening that cannot make a store leaves in its directory what was there.
func TestUnmade(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, ceilingName, "mine"), 0o700); err != nil { // where a file is wanted
		t.Fatal(err)
	}
	if s, err := Open(t.Context(), Config{Dir: dir}); err == nil {
		_ = s.Close()
		t.Fatal("it opened")
	}
	left, err := os.ReadDir(dir)
	if err != nil || len(left) != 1 || left[0].Name() != ceilingName {
		t.Errorf("%v, %v", left, err)
	}
}
