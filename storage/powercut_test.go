package storage

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/api"
	"ledge/internal/testrun"
)

// flash is a disk with a volatile write cache: a FUSE file system of one file, which a loop device turns into a disk.
// A write is in memory until the disk is told to flush; a cut drops any part of what is there.
type flash struct {
	dev int // of /dev/fuse

	mu      sync.Mutex
	image   []byte         // what would be there after a cut
	pending []pendingWrite // in order
	dead    bool
	lies    bool // says that it has flushed and has not
}

type pendingWrite struct {
	at   int64
	data []byte
}

// What of FUSE's protocol (linux/fuse.h) is needed.
const (
	fuseLookup, fuseForget, fuseGetattr, fuseSetattr = 1, 2, 3, 4
	fuseOpen, fuseRead, fuseWrite, fuseRelease       = 14, 15, 16, 18
	fuseFsync, fuseFlush, fuseInit                   = 20, 25, 26

	fuseDirectIO = 1
	diskNode     = 2
)

func newFlash(t *testing.T, size int64) (disk *flash, mountedAt string) {
	t.Helper()
	fd, err := unix.Open("/dev/fuse", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Skip("needs /dev/fuse: ", err)
	}
	dir := t.TempDir()
	if err := unix.Mount("flash", dir, "fuse", 0, fmt.Sprintf("fd=%d,rootmode=40000,user_id=0,group_id=0", fd)); err != nil {
		t.Fatal(err)
	}
	disk = &flash{dev: fd, image: make([]byte, size)}
	var served sync.WaitGroup
	served.Go(disk.serve)
	t.Cleanup(func() {
		if err := unix.Unmount(dir, unix.MNT_DETACH); err != nil {
			t.Error(err)
		}
		served.Wait() // ends with the last user of the file system, which is the loop device
		_ = unix.Close(fd)
	})
	return disk, filepath.Join(dir, "disk")
}

func (d *flash) serve() {
	buf := make([]byte, 1<<20+4096)
	for {
		n, err := unix.Read(d.dev, buf)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil || n < 40 { // unmounted
			return
		}
		op, unique, node := binary.LittleEndian.Uint32(buf[4:]), binary.LittleEndian.Uint64(buf[8:]), binary.LittleEndian.Uint64(buf[16:])
		if op == fuseForget {
			continue
		}
		body, errno := d.answer(op, node, buf[40:n])
		out := make([]byte, 16, 16+len(body))
		binary.LittleEndian.PutUint32(out, uint32(16+len(body)))
		binary.LittleEndian.PutUint32(out[4:], uint32(-int32(errno)))
		binary.LittleEndian.PutUint64(out[8:], unique)
		if _, err := unix.Write(d.dev, append(out, body...)); err != nil && !errors.Is(err, unix.ENOENT) {
			return
		}
	}
}

// attr is struct fuse_attr.
func (d *flash) attr(node uint64) []byte {
	out := make([]byte, 88)
	mode, size := uint32(unix.S_IFDIR|0o755), uint64(0)
	if node == diskNode {
		mode, size = unix.S_IFREG|0o600, uint64(len(d.image))
	}
	binary.LittleEndian.PutUint64(out, node)
	binary.LittleEndian.PutUint64(out[8:], size)
	binary.LittleEndian.PutUint64(out[16:], size/512)
	binary.LittleEndian.PutUint32(out[60:], mode)
	binary.LittleEndian.PutUint32(out[64:], 1)
	binary.LittleEndian.PutUint32(out[80:], 4096)
	return out
}

func (d *flash) answer(op uint32, node uint64, in []byte) (body []byte, errno unix.Errno) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch op {
	case fuseInit:
		body = make([]byte, 64)
		binary.LittleEndian.PutUint32(body, 7)
		binary.LittleEndian.PutUint32(body[4:], 31)
		binary.LittleEndian.PutUint32(body[8:], 1<<17)
		binary.LittleEndian.PutUint32(body[20:], 1<<17) // the longest write
		return body, 0
	case fuseLookup:
		body = make([]byte, 40)
		binary.LittleEndian.PutUint64(body, diskNode)
		return append(body, d.attr(diskNode)...), 0
	case fuseGetattr, fuseSetattr:
		return append(make([]byte, 16), d.attr(node)...), 0
	case fuseOpen:
		body = make([]byte, 16)
		binary.LittleEndian.PutUint32(body[8:], fuseDirectIO)
		return body, 0
	case fuseRead:
		at, n := int64(binary.LittleEndian.Uint64(in[8:])), int64(binary.LittleEndian.Uint32(in[16:]))
		return d.read(at, n), 0
	case fuseWrite:
		at, n := int64(binary.LittleEndian.Uint64(in[8:])), binary.LittleEndian.Uint32(in[16:])
		if !d.dead {
			d.pending = append(d.pending, pendingWrite{at, append([]byte(nil), in[40:40+n]...)})
		}
		body = make([]byte, 8)
		binary.LittleEndian.PutUint32(body, n)
		return body, 0
	case fuseFsync, fuseFlush:
		if op == fuseFsync && !d.dead && !d.lies {
			for _, w := range d.pending {
				copy(d.image[w.at:], w.data)
			}
			d.pending = nil
		}
		return nil, 0
	case fuseRelease:
		return nil, 0
	}
	return nil, unix.ENOSYS
}

func (d *flash) read(at, n int64) []byte {
	out := append([]byte(nil), d.image[min(at, int64(len(d.image))):min(at+n, int64(len(d.image)))]...)
	for _, w := range d.pending {
		if from, to := max(at, w.at), min(at+int64(len(out)), w.at+int64(len(w.data))); from < to {
			copy(out[from-at:to-at], w.data[from-w.at:to-w.at])
		}
	}
	return out
}

// cut is the moment the power goes.
func (d *flash) cut(r *rand.Rand) []byte {
	d.mu.Lock()
	d.dead = true
	d.mu.Unlock()
	return d.remains(r)
}

// remains is what would be left if the power went now. Of what was not flushed each sector may have got there or not.
func (d *flash) remains(r *rand.Rand) []byte {
	d.mu.Lock()
	defer d.mu.Unlock()
	image := append([]byte(nil), d.image...)
	share := r.IntN(3) // none, some, all
	if d.lies {
		share = 0
	}
	for _, w := range d.pending {
		for i := 0; i < len(w.data); i += 512 {
			if share == 2 || share == 1 && r.IntN(2) == 0 {
				copy(image[w.at+int64(i):], w.data[i:min(i+512, len(w.data))])
			}
		}
	}
	return image
}

func mountLoop(t *testing.T, file string) (dir string, unmount func()) {
	t.Helper()
	dir = t.TempDir()
	if out, err := exec.Command("mount", "-o", "loop", file, dir).CombinedOutput(); err != nil {
		t.Fatalf("mount: %v %s", err, out)
	}
	return dir, sync.OnceFunc(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v %s", err, out)
		}
	})
}

// newCard mounts an empty file system on a disk that forgets.
func newCard(t *testing.T, size int64) (disk *flash, dir string, unmount func()) {
	t.Helper()
	disk, path := newFlash(t, size)
	if out, err := exec.Command("mkfs.ext4", "-q", "-m", "0", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v %s", err, out)
	}
	dir, unmount = mountLoop(t, path)
	return disk, dir, unmount
}

// TestPowerCut: the plug is pulled at random moments while the store is busy, on a disk that forgets what it was not told
// to flush. Every acknowledged write is there, and nothing needs a human (reliability F1, F2).
func TestPowerCut(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	child(t) // not under qemu-user, which does not carry FUSE
	cuts := 3
	if os.Getenv("LEDGE_LONG") != "" {
		cuts = 200
	}
	n := seed(t)
	var sum outcome
	restored := 0
	for trial := range cuts {
		t.Run(strconv.Itoa(trial), func(t *testing.T) { // each gives its disks' memory back
			out := pullThePlug(t, rand.New(rand.NewPCG(n, uint64(trial))), false)
			if out.err != nil || out.lost > 0 {
				t.Errorf("%d of %d acknowledged writes are lost, %v; %+v", out.lost, out.acked, out.err, out.health)
			}
			sum.acked += out.acked
			if out.health.Restored != "" {
				restored++
			}
		})
	}
	if sum.acked == 0 {
		t.Error("nothing was acknowledged: this proves nothing")
	}
	t.Logf("%d cuts, %d writes acknowledged, %d stores restored", cuts, sum.acked, restored)
	// A disk that lies about its flushes must be caught, or the test could not fail.
	if out := pullThePlug(t, rand.New(rand.NewPCG(n, 0)), true); out.err == nil && out.lost == 0 {
		t.Errorf("a lying disk lost nothing of %d writes", out.acked)
	}
}

// A board's very first start is cut again and again while its store is made: what it leaves is a store or none, never half
// a one that the next start would take for damage.
func TestPowerCutWhileCreating(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	testrun.OnHost(t)
	child(t)
	n := seed(t)
	cuts, none := 0, 0
	proven := func() bool { return none > 0 && none < cuts } // on a busy machine the first cut may come too late, again and again
	wanted := uint64(trials(30) / 2)
	for trial := uint64(0); trial < wanted || !proven() && trial < 20*wanted; trial++ {
		t.Run(strconv.FormatUint(trial, 10), func(t *testing.T) {
			all, before := cutWhileCreating(t, rand.New(rand.NewPCG(n, trial)))
			cuts, none = cuts+all, none+before
		})
	}
	t.Logf("%d cuts, %d before there was a store", cuts, none)
	if !proven() {
		t.Error("no cut fell into the making: this proves nothing")
	}
}

// cutWhileCreating counts the cuts, and those that found no store.
func cutWhileCreating(t *testing.T, r *rand.Rand) (cuts, none int) {
	t.Helper()
	disk, dir, unmount := newCard(t, 24<<20)
	defer unmount()
	made := make(chan error, 1)
	var s *Store
	go func() {
		var err error
		s, err = Open(t.Context(), Config{Dir: filepath.Join(dir, "store")})
		made <- err
	}()
	var images [][]byte // the last of them of a store that is made
	pause := time.Millisecond
	for creating := true; creating; {
		select {
		case err := <-made:
			if err != nil {
				t.Fatal(err)
			}
			creating = false
		case <-time.After(pause + time.Duration(r.Int64N(int64(pause)))):
		}
		images = append(images, disk.remains(r))
		if len(images) == 8 { // of 24 MB each: half of them, and then half as often
			for i := range 4 {
				images[i] = images[2*i+1]
			}
			images, pause = images[:4], 2*pause
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	unmount()
	for i, image := range images {
		there, err := startsOn(t, image)
		if err != nil {
			t.Errorf("cut %d of %d: %v", i, len(images), err)
		}
		cuts++
		if !there {
			none++
		}
	}
	return cuts, none
}

// startsOn starts a node's store on a disk as a power cut left it, and says whether there was one.
func startsOn(t *testing.T, image []byte) (there bool, err error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(path, image, 0o600); err != nil {
		t.Fatal(err)
	}
	defer os.Remove(path)
	dir, unmount := mountLoop(t, path)
	defer unmount()
	if there, err = exists(filepath.Join(dir, "store", dbName)); err != nil {
		return there, err
	}
	s, err := Open(t.Context(), Config{Dir: filepath.Join(dir, "store"), Check: checker(t)})
	if err != nil {
		return there, err
	}
	defer s.Close()
	if h := s.Health(); h.Damaged != "" || h.Restored != "" {
		return there, fmt.Errorf("%+v", h)
	}
	put(t, s, "after", "the cut")
	return there, nil
}

// outcome of a cut.
type outcome struct {
	acked, lost int
	health      Health
	err         error // why the board does not come up
}

func pullThePlug(t *testing.T, r *rand.Rand, lies bool) (out outcome) {
	t.Helper()
	disk, dir, unmount := newCard(t, 24<<20)
	defer unmount()
	s, err := Open(t.Context(), Config{Dir: filepath.Join(dir, "store")})
	if err != nil {
		t.Fatal(err)
	}
	disk.mu.Lock()
	disk.lies = lies
	disk.mu.Unlock()
	var acked [20]atomic.Int64
	var over atomic.Bool
	var writing sync.WaitGroup
	begun := make(chan struct{})
	begin := sync.OnceFunc(func() { close(begun) })
	const writers = 4 // who commit together, each with its own keys
	for w := range int64(writers) {
		writing.Go(func() {
			defer begin()
			for i := int64(1); !over.Load(); i++ {
				k := (i*writers + w) % int64(len(acked))
				err := s.Update(func(tx *Tx) error {
					return tx.Put(api.ConfigMaps, cm("k"+strconv.Itoa(int(k)), strconv.FormatInt(i, 10)))
				})
				if err == nil && w == 0 && i%30 == 0 {
					err = s.Snapshot(t.Context())
				}
				if err != nil {
					return // what is not acknowledged may be missing
				}
				acked[k].Store(i)
				begin()
			}
		})
	}
	<-begun
	time.Sleep(time.Duration(50+r.IntN(300)) * time.Millisecond) // any moment will do
	var want [20]int64
	for k := range acked {
		want[k] = acked[k].Load()
	}
	image := disk.cut(r)
	over.Store(true)
	writing.Wait()
	_ = s.Close()
	unmount()

	after := filepath.Join(t.TempDir(), "disk")
	if err := os.WriteFile(after, image, 0o600); err != nil {
		t.Fatal(err)
	}
	dir, unmountAfter := mountLoop(t, after)
	defer unmountAfter()
	s, out.err = Open(t.Context(), Config{Dir: filepath.Join(dir, "store"), Check: checker(t)})
	if out.err != nil {
		return out
	}
	defer s.Close()
	for k, i := range want {
		if i == 0 {
			continue
		}
		out.acked++
		if got, err := strconv.ParseInt(value(t, s, "k"+strconv.Itoa(k)), 10, 64); err != nil || got < i {
			out.lost++
		}
	}
	put(t, s, "after", "the cut")
	out.health = s.Health()
	return out
}
