package images_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/images/layers"
)

const crashEnv = "LEDGE_TEST_CRASH_DIR"

// crashConfig is a store below dir with everything of it on disk.
func crashConfig(t testing.TB, dir string) images.StoreConfig {
	t.Helper()
	rows := filepath.Join(dir, "rows")
	if err := os.MkdirAll(rows, 0o700); err != nil {
		t.Fatal(err)
	}
	return images.StoreConfig{Root: filepath.Join(dir, "images"), RunDir: filepath.Join(dir, "run"), Index: dirIndex{rows},
		Layers: layers.New(layers.Config{})}
}

// crashImage is the nth image: two layers of its own and one that all share.
func crashImage(n int) it.Image {
	var many []it.Entry
	for i := range 50 {
		many = append(many, it.File(fmt.Sprintf("d%d/f%d", i%7, i), strings.Repeat(fmt.Sprintf("%d-%d ", n, i), 200)))
	}
	return it.Image{Names: []string{fmt.Sprint("app:", n)}, Compress: it.Gzip,
		Layers: [][]byte{it.Layer(it.File("base", strings.Repeat("base ", 5000))), it.Layer(many...), it.Layer(it.File("top", fmt.Sprint(n)))}}
}

// TestCrash kills a process with SIGKILL at random moments while it imports, mounts and removes. The next one
// must find every image whole or absent: what it was told is in is in, what it was told is out is out.
func TestCrash(t *testing.T) {
	needRoot(t)
	if dir := os.Getenv(crashEnv); dir != "" {
		crashChild(t, dir)
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	state := map[string]string{} // what is known of each image: "in", "out", or not known
	rounds := 30
	if raceEnabled {
		rounds = 5
	}
	for range rounds {
		for name, s := range runAndKill(t, dir, time.Duration(20+rnd.IntN(250))*time.Millisecond) {
			state[name] = s
		}
		checkAfterCrash(t, dir, state)
		if t.Failed() {
			return
		}
	}
}

// runAndKill gives what the child said it did before it died.
func runAndKill(t *testing.T, dir string, after time.Duration) map[string]string {
	t.Helper()
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), crashEnv+"="+dir)
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := map[string]string{}
	s := bufio.NewScanner(out)
	if s.Scan() && s.Text() == "open" {
		time.AfterFunc(after, func() { _ = cmd.Process.Kill() })
	} else {
		t.Errorf("child said %q", s.Text())
		_ = cmd.Process.Kill()
	}
	for s.Scan() {
		f := strings.Fields(s.Text())
		if len(f) == 2 {
			said[f[0]] = f[1]
		}
	}
	_ = cmd.Wait()
	return said
}

func crashChild(t *testing.T, dir string) {
	d, err := images.Open(t.Context(), crashConfig(t, dir))
	if err != nil {
		fmt.Println("error:", err)
		t.Fatal(err)
	}
	fmt.Println("open")
	for i := 0; ; i++ {
		im := crashImage(i % 6)
		fmt.Println(im.Names[0], "moving")
		list, err := d.Import(t.Context(), bytes.NewReader(it.OCI(im)))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Println(im.Names[0], "in")
		if _, err := d.Mount(t.Context(), list[0].ID, "pod"); err != nil {
			t.Fatal(err)
		}
		if err := d.Retain(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
		old := crashImage((i + 3) % 6)
		fmt.Println(old.Names[0], "moving")
		if err := d.Remove(t.Context(), old.ID()); err != nil && !errors.Is(err, images.ErrNotFound) {
			t.Fatal(err)
		}
		fmt.Println(old.Names[0], "out")
	}
}

func checkAfterCrash(t *testing.T, dir string, state map[string]string) {
	t.Helper()
	d, err := images.Open(t.Context(), crashConfig(t, dir))
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}()
	if err := d.Retain(t.Context(), nil); err != nil {
		t.Error(err)
	}
	if rep, err := d.Verify(t.Context()); err != nil || len(rep.Repaired)+len(rep.Lost) > 0 {
		t.Errorf("verify: %+v, %v", rep, err)
	}
	for name, s := range state {
		_, err := d.Get(t.Context(), name)
		if s == "in" && err != nil || s == "out" && !errors.Is(err, images.ErrNotFound) {
			t.Errorf("%s was %s: %v", name, s, err)
		}
	}
	checkTidy(t, d, filepath.Join(dir, "images"))
}

// checkTidy: on disk is exactly what the images need.
func checkTidy(t testing.TB, d *images.Disk, root string) {
	t.Helper()
	list, err := d.List(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]bool{}
	for _, img := range list {
		for _, l := range img.Layers {
			want[strings.TrimPrefix(l, "sha256:")] = true
		}
	}
	for pattern, n := range map[string]int{"layers/*": len(want), "images/*": len(list), "ingest/*": 0, "containers/*": 0} {
		got, err := filepath.Glob(filepath.Join(root, pattern))
		got = slices.DeleteFunc(got, func(p string) bool { // of downloads that go on
			return strings.HasSuffix(p, ".part") || strings.HasSuffix(p, ".mark")
		})
		if err != nil || len(got) != n {
			t.Errorf("%s: %q, want %d; %v", pattern, got, n, err)
		}
	}
}

// TestPowerCut imports on an ext4 file system of its own and keeps a copy of the device at every step, which
// holds only what was really written out. From each of them the store must open with every image whole or
// absent, and nothing lost that was there before.
func TestPowerCut(t *testing.T) {
	powerCut(t, nil, func(d *images.Disk) { mustLoad(t, d, crashImage(2), crashImage(3)) })
}

// powerCut has images 0 and 1 on a device, brings 2 and 3, removes 1, and looks at what a cut at each step leaves.
func powerCut(t *testing.T, setup func(*images.StoreConfig), bring func(*images.Disk)) {
	needRoot(t)
	if _, err := exec.LookPath("mkfs.ext4"); err != nil {
		t.Skip("needs mkfs.ext4")
	}
	base := t.TempDir()
	device, cut, mnt := filepath.Join(base, "device"), filepath.Join(base, "cut"), filepath.Join(base, "mnt")
	if err := os.Mkdir(mnt, 0o700); err != nil {
		t.Fatal(err)
	}
	makeExt4(t, device)
	mountLoop(t, device, mnt)
	umount := func() {
		if err := unix.Unmount(mnt, unix.MNT_DETACH); err != nil && !errors.Is(err, unix.EINVAL) {
			t.Error(err)
		}
	}
	defer umount()
	cfg := crashConfig(t, mnt)
	cfg.RunDir = filepath.Join(base, "run")
	index := &afterIndex{Index: cfg.Index}
	cfg.Index = index
	if setup != nil {
		setup(&cfg)
	}
	d, err := images.Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	mustLoad(t, d, crashImage(0), crashImage(1))
	var copies []cutState
	var mu sync.Mutex
	must, mustNot := []int{0, 1}, []int{}
	keep := func(what string) {
		mu.Lock()
		defer mu.Unlock()
		name := fmt.Sprintf("%s-%02d %s", cut, len(copies), strings.ReplaceAll(what, "/", "_"))
		copySparse(t, device, name)
		copies = append(copies, cutState{name, must, mustNot})
	}
	d.Watch(func(step, path string) error { keep(step + " " + filepath.Base(filepath.Dir(path))); return nil })
	index.after = keep
	bring(d)
	must = []int{0, 1, 2, 3}
	keep("brought")
	must = []int{0, 2, 3}
	if err := d.Remove(t.Context(), crashImage(1).ID()); err != nil {
		t.Fatal(err)
	}
	mustNot = []int{1}
	keep("removed")
	index.after = nil
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	umount()
	t.Logf("%d cuts", len(copies))
	for _, c := range copies {
		checkCut(t, c, mnt, base)
		if err := os.Remove(c.device); err != nil {
			t.Error(err)
		}
	}
}

// cutState is a copy of the device, and which images must and must not be on it.
type cutState struct {
	device        string
	must, mustNot []int
}

// afterIndex tells of its writes when they are done.
type afterIndex struct {
	images.Index
	after func(string)
}

func (x *afterIndex) Put(key string, value []byte) error {
	err := x.Index.Put(key, value)
	if x.after != nil {
		x.after("put " + strings.Split(key, ":")[0])
	}
	return err
}

func mustLoad(t *testing.T, d *images.Disk, list ...it.Image) {
	t.Helper()
	if _, err := d.Import(t.Context(), bytes.NewReader(it.OCI(list...))); err != nil {
		t.Fatal(err)
	}
}

func makeExt4(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(32 << 20); err != nil {
		t.Fatal(err)
	}
	if out, err := exec.Command("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", path).CombinedOutput(); err != nil {
		t.Fatalf("mkfs: %v\n%s", err, out)
	}
}

// mountLoop mounts so that nothing is written out by the mere passing of time.
func mountLoop(t *testing.T, device, dir string) {
	t.Helper()
	if out, err := exec.Command("mount", "-o", "loop,commit=1000", device, dir).CombinedOutput(); err != nil {
		t.Skipf("no loop devices: %v\n%s", err, out)
	}
}

func copySparse(t *testing.T, from, to string) {
	t.Helper()
	if out, err := exec.Command("cp", "--sparse=always", from, to).CombinedOutput(); err != nil {
		t.Fatalf("cp: %v\n%s", err, out)
	}
}

func checkCut(t *testing.T, c cutState, mnt, base string) {
	t.Helper()
	what := filepath.Base(c.device)
	mountLoop(t, c.device, mnt)
	defer func() {
		if err := unix.Unmount(mnt, 0); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}()
	if err := os.RemoveAll(filepath.Join(base, "run")); err != nil {
		t.Fatal(err)
	}
	cfg := crashConfig(t, mnt)
	cfg.RunDir = filepath.Join(base, "run")
	d, err := images.Open(t.Context(), cfg)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	rep, err := d.Verify(t.Context())
	if err != nil || len(rep.Repaired)+len(rep.Lost) > 0 {
		t.Errorf("%s: %+v, %v", what, rep, err)
	}
	list, err := d.List(t.Context())
	if err != nil {
		t.Error(err)
	}
	var names []string
	for _, img := range list {
		names = append(names, img.Names...)
		dir, err := d.Mount(t.Context(), img.ID, "pod")
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		if data, err := os.ReadFile(dir + "/top"); err != nil || !strings.HasSuffix(img.Names[0], ":"+string(data)) {
			t.Errorf("%s: %s has %q, %v", what, img.Names, data, err)
		}
		if err := d.Unmount(t.Context(), "pod"); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
	for n := range 4 {
		there := slices.Contains(names, fmt.Sprint("docker.io/library/app:", n))
		if !there && slices.Contains(c.must, n) || there && slices.Contains(c.mustNot, n) {
			t.Errorf("%s: app:%d there: %v", what, n, there)
		}
	}
	checkTidy(t, d, filepath.Join(mnt, "images"))
	if err := d.Close(); err != nil && !errors.Is(err, fs.ErrClosed) {
		t.Errorf("%s: %v", what, err)
	}
}
