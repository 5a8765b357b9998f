package quota

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

var kernel Kernel

func open(t *testing.T, dir string) *os.File {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return f
}

// small makes a file system of 320 MiB, the least that XFS takes, and mounts it. Kernels without quotas refuse it: those of the guests
// do not.
func small(t *testing.T, make []string, options string) string {
	t.Helper()
	if testing.Short() || os.Getuid() != 0 {
		t.Skip("needs root, and seconds")
	}
	dir := t.TempDir()
	image, at := filepath.Join(dir, "disk"), filepath.Join(dir, "at")
	err := errors.Join(os.WriteFile(image, nil, 0o600), os.Truncate(image, 320<<20), os.Mkdir(at, 0o700))
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command(make[0], append(make[1:], image)...).CombinedOutput(); err != nil {
		t.Skipf("%v: %s", err, out)
	}
	if out, err := exec.Command("mount", "-o", "loop,"+options, image, at).CombinedOutput(); err != nil {
		t.Skipf("this kernel has no such quotas: %v: %s", err, out)
	}
	t.Cleanup(func() {
		if err := exec.Command("umount", at).Run(); err != nil {
			t.Error(err)
		}
	})
	return at
}

// bounded calls do as containers are run: without the capability for which the kernel knows no bounds.
func bounded(t *testing.T, do func() error) error {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		head := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var caps [2]unix.CapUserData
		err := unix.Capget(&head, &caps[0])
		caps[0].Effective &^= 1 << unix.CAP_SYS_RESOURCE
		if err == nil {
			err = unix.Capset(&head, &caps[0])
		}
		if err != nil {
			done <- err
			return
		}
		done <- do()
	}()
	return <-done
}

// TestSizes: a directory is full when it has what it may have, its neighbour is not, and more room is a number.
func TestSizes(t *testing.T) { // N-13.11
	at := small(t, []string{"mke2fs", "-q", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota"}, "prjquota")
	root := open(t, at)
	if err := kernel.On(root); err != nil {
		t.Fatal(err)
	}
	dir, beside := filepath.Join(at, "claim"), filepath.Join(at, "beside")
	if err := errors.Join(os.Mkdir(dir, 0o777), os.Mkdir(beside, 0o777)); err != nil {
		t.Fatal(err)
	}
	f := open(t, dir)
	if kernel.Number(f) != 0 {
		t.Error("a number of nobody's giving")
	}
	if u, err := kernel.Count(f, 7); err != nil || !u.Free() {
		t.Errorf("%+v %v", u, err)
	}
	if err := errors.Join(kernel.Bound(f, 7, 4<<20, 100), kernel.Mark(f, 7)); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "below"), 0o777); err != nil {
		t.Fatal(err)
	}
	below := open(t, filepath.Join(dir, "below"))
	if kernel.Number(f) != 7 || kernel.Number(below) != 7 || kernel.Number(root) != 0 {
		t.Errorf("numbers %d %d %d", kernel.Number(f), kernel.Number(below), kernel.Number(root))
	}
	var st unix.Statfs_t
	if err := unix.Fstatfs(int(f.Fd()), &st); err != nil || int64(st.Blocks)*int64(st.Bsize) != 4<<20 || st.Files != 100 {
		t.Errorf("df shows %d bytes, %d inodes: %v", int64(st.Blocks)*int64(st.Bsize), st.Files, err)
	}
	write := func(path string, bytes int) error {
		return bounded(t, func() error { return os.WriteFile(filepath.Join(path, "f"), make([]byte, bytes), 0o600) })
	}
	full := func(err error) bool { return errors.Is(err, unix.EDQUOT) || errors.Is(err, unix.ENOSPC) }
	if err := write(filepath.Join(dir, "below"), 5<<20); !full(err) {
		t.Errorf("5 MiB in 4: %v", err)
	}
	if err := write(beside, 5<<20); err != nil {
		t.Errorf("the neighbour: %v", err)
	}
	u, err := kernel.Count(f, 7)
	if err != nil || u.MaxBytes != 4<<20 || u.MaxInodes != 100 || u.Bytes > 4<<20 || u.Bytes < 3<<20 || u.Inodes != 3 {
		t.Errorf("%+v %v", u, err)
	}
	if err := errors.Join(kernel.Bound(f, 7, 8<<20, 100), write(filepath.Join(dir, "below"), 5<<20)); err != nil {
		t.Errorf("5 MiB in 8: %v", err)
	}
	if err := os.Rename(filepath.Join(beside, "f"), filepath.Join(dir, "moved")); !errors.Is(err, unix.EXDEV) {
		t.Errorf("what was not counted moves in: %v", err)
	}
}

// TestOff: a file system that only counts, and one that does not even that.
func TestOff(t *testing.T) {
	for _, dir := range []string{"/proc", "/dev/shm"} {
		if err := kernel.On(open(t, dir)); !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v", dir, err)
		}
		if kernel.Number(open(t, dir)) != 0 {
			t.Error(dir)
		}
	}
	at := small(t, []string{"mke2fs", "-q", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota"}, "noatime")
	if err := kernel.On(open(t, at)); !errors.Is(err, ErrNone) {
		t.Errorf("mounted without prjquota: %v", err)
	}
}

// TestXFS: the same calls.
func TestXFS(t *testing.T) { // N-13.11
	at := small(t, []string{"mkfs.xfs", "-q"}, "prjquota")
	f := open(t, at)
	if err := errors.Join(kernel.On(f), kernel.Bound(f, 7, 1<<20, 10)); err != nil {
		t.Fatal(err)
	}
	if u, err := kernel.Count(f, 7); err != nil || u.MaxBytes != 1<<20 || u.MaxInodes != 10 {
		t.Errorf("%+v %v", u, err)
	}
	if u, err := kernel.Count(f, 8); err != nil || !u.Free() {
		t.Errorf("%+v %v", u, err)
	}
}

// TestTry: what a person is told to do depends on the file system.
func TestTry(t *testing.T) {
	for kind, want := range map[int64]string{unix.EXT4_SUPER_MAGIC: "tune2fs", unix.XFS_SUPER_MAGIC: "mount it", unix.BTRFS_SUPER_MAGIC: "ext4 or xfs"} {
		if got := remedy(kind); !strings.Contains(got, want) {
			t.Errorf("%#x: %s", kind, got)
		}
	}
	if got := Try("/dev/shm"); !errors.Is(got.Err, ErrNone) || got.Remedy == "" {
		t.Errorf("%+v", got)
	}
	if got := Try("/nowhere"); !errors.Is(got.Err, os.ErrNotExist) {
		t.Errorf("%+v", got)
	}
}

// TestWriteCost measures what a bound costs who writes: the same bytes into a directory with one and into one without, in turns, each with
// a sync. It tells the medians of all pairs; a bound that doubles the cost is a fault.
func TestWriteCost(t *testing.T) {
	if os.Getenv("LEDGE_LONG") == "" {
		t.Skip("LEDGE_LONG measures")
	}
	at := small(t, []string{"mke2fs", "-q", "-t", "ext4", "-O", "quota,project", "-E", "quotatype=prjquota"}, "prjquota")
	dirs := []string{filepath.Join(at, "claim"), filepath.Join(at, "bare")}
	if err := errors.Join(os.Mkdir(dirs[0], 0o777), os.Mkdir(dirs[1], 0o777)); err != nil {
		t.Fatal(err)
	}
	f := open(t, dirs[0])
	if err := errors.Join(kernel.On(f), kernel.Bound(f, 7, 128<<20, 100), kernel.Mark(f, 7)); err != nil {
		t.Fatal(err)
	}
	const pairs = 41
	var cpu, clock []float64
	for i := range pairs {
		var used, took [2]time.Duration
		for k := range dirs {
			n := (i + k) % 2
			if err := bounded(t, func() (err error) {
				used[n], took[n], err = writes(filepath.Join(dirs[n], "f"))
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
		if i > 0 { // in the first one the disk's file has no blocks yet
			cpu, clock = append(cpu, float64(used[0])/float64(used[1])), append(clock, float64(took[0])/float64(took[1]))
		}
	}
	slices.Sort(cpu)
	slices.Sort(clock)
	t.Logf("with a bound, times without, of %d pairs of 8 MiB: processor time %.3f (half of them %.3f to %.3f), time %.3f (%.3f to %.3f)", len(cpu),
		cpu[len(cpu)/2], cpu[len(cpu)/4], cpu[len(cpu)*3/4], clock[len(clock)/2], clock[len(clock)/4], clock[len(clock)*3/4])
	if cpu[len(cpu)/2] > 2 {
		t.Error("a bound doubles what a write costs")
	}
}

// writes writes 8 MiB in pieces of 64 KiB, syncs and removes them, and says what of the processor's time and of all time that took.
func writes(path string) (cpu, took time.Duration, err error) {
	thread := func() (d time.Duration) {
		var r unix.Rusage
		err = errors.Join(err, unix.Getrusage(unix.RUSAGE_THREAD, &r))
		return time.Duration(r.Utime.Nano() + r.Stime.Nano())
	}
	f, err := os.Create(path)
	if err != nil {
		return 0, 0, err
	}
	piece, begun, before := bytes.Repeat([]byte{1}, 64<<10), time.Now(), thread()
	for range 8 << 20 / len(piece) {
		if _, err := f.Write(piece); err != nil {
			return 0, 0, errors.Join(err, f.Close())
		}
	}
	err = errors.Join(err, f.Sync())
	cpu, took = thread()-before, time.Since(begun)
	return cpu, took, errors.Join(err, f.Close(), os.Remove(path))
}
