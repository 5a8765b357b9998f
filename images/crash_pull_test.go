package images_test

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/internal/durable"
)

// crashRegistry has the crash images, and sends them as if over a line.
func crashRegistry(pause time.Duration) *it.Registry {
	r := &it.Registry{}
	for i := range 6 {
		r.Push(crashImage(i))
	}
	r.Stream = func(_ string, _ int64, rd io.Reader) io.Reader { return &slowly{rd, pause} }
	return r
}

type slowly struct {
	r     io.Reader
	pause time.Duration
}

func (s *slowly) Read(p []byte) (int, error) {
	time.Sleep(s.pause)
	return s.r.Read(p[:min(len(p), 2000)])
}

func crashPullConfig(t testing.TB, dir string, r *it.Registry) images.StoreConfig {
	c := crashConfig(t, dir)
	c.Registry, c.MaxPulls, c.MarkEvery = r, 2, time.Nanosecond
	c.GC.MinAge = time.Nanosecond
	c.Statfs = func(st *unix.Statfs_t) { st.Blocks, st.Bavail = 1<<30, 1<<20 } // everything unused is to go
	return c
}

// TestCrashPull kills a process with SIGKILL at random moments while it pulls, unpacks, mounts and collects: 200 times
// in the long run. The next one finds every image whole or absent, and pulls what is missing.
func TestCrashPull(t *testing.T) {
	needRoot(t)
	if dir := os.Getenv(crashEnv); dir != "" {
		crashPullChild(t, dir)
		return
	}
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rnd := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	state := map[string]string{}
	rounds := 15
	switch {
	case os.Getenv("LEDGE_LONG") != "":
		rounds = 200
	case raceEnabled:
		rounds = 5
	}
	for range rounds {
		for name, s := range runAndKill(t, dir, time.Duration(10+rnd.IntN(250))*time.Millisecond) {
			state[name] = s
		}
		checkAfterCrash(t, dir, state)
		if t.Failed() {
			return
		}
	}
	d, err := images.Open(t.Context(), crashPullConfig(t, dir, crashRegistry(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for i := range 6 {
		if _, err := d.Pull(t.Context(), images.PullRequest{Ref: crashImage(i).Names[0]}); err != nil {
			t.Error(err)
		}
	}
	if rep, err := d.Verify(t.Context()); err != nil || len(rep.Damaged) > 0 {
		t.Errorf("%+v, %v", rep, err)
	}
}

func crashPullChild(t *testing.T, dir string) {
	d, err := images.Open(t.Context(), crashPullConfig(t, dir, crashRegistry(200*time.Microsecond)))
	if err != nil {
		fmt.Println("error:", err)
		t.Fatal(err)
	}
	fmt.Println("open")
	for i := 0; ; i++ {
		a, b := crashImage(i%6), crashImage((i+1)%6)
		var wg sync.WaitGroup
		for _, im := range []it.Image{a, b} {
			fmt.Println(im.Names[0], "moving")
			wg.Go(func() {
				if _, err := d.Pull(t.Context(), images.PullRequest{Ref: im.Names[0], IfMissing: true}); err != nil {
					panic(err)
				}
			})
		}
		wg.Wait()
		fmt.Println(a.Names[0], "in")
		fmt.Println(b.Names[0], "in")
		if _, err := d.Mount(t.Context(), a.ID(), "pod"); err != nil {
			t.Fatal(err)
		}
		for k := range 6 {
			if k != i%6 {
				fmt.Println(crashImage(k).Names[0], "moving")
			}
		}
		if _, err := d.Collect(t.Context(), i%2 == 0); err != nil {
			t.Fatal(err)
		}
		for k := range 6 {
			if k != i%6 {
				fmt.Println(crashImage(k).Names[0], "out")
			}
		}
		if err := d.Retain(t.Context(), nil); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPowerCutPull is TestPowerCut for pulled images, with their parts marked all along and kept as blobs in the end.
func TestPowerCutPull(t *testing.T) {
	kinds := []images.KeepBlobs{images.KeepAll}
	if os.Getenv("LEDGE_LONG") != "" {
		kinds = append(kinds, images.KeepPinned)
	}
	for _, keep := range kinds {
		powerCut(t, func(c *images.StoreConfig) {
			c.Registry, c.MarkEvery, c.KeepBlobs = crashRegistry(0), time.Nanosecond, keep
		}, func(d *images.Disk) {
			for i := 2; i < 4; i++ {
				if _, err := d.Pull(t.Context(), images.PullRequest{Ref: crashImage(i).Names[0]}); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// pullSteps are what a pull makes durable, in order: A2's six steps. Content before names, names before rows, and the
// image's row last of all.
var pullSteps = []string{
	// config, manifest
	"fsync ingest/DIR/HEX", "rename blobs/sha256/HEX", "fsync ingest/DIR/HEX", "rename blobs/sha256/HEX", "fsync blobs/sha256",
	"syncfs layers", // every file of both layers
	"fsync layers/TMP/manifest", "rename layers/HEX", "fsync layers/TMP/manifest", "rename layers/HEX", "fsync layers",
	"row layer", "row layer",
	"fsync images/TMP", "rename images/HEX", "fsync images",
	"row image",
}

// stepPath is a path below the store's without the names that differ from time to time.
func stepPath(root, path string) string {
	parts := strings.Split(strings.TrimPrefix(strings.TrimPrefix(path, root), "/"), "/")
	for i, p := range parts {
		switch {
		case strings.HasPrefix(p, ".tmp-"), durable.Temporary(p):
			parts[i] = "TMP"
		case len(p) >= 64:
			parts[i] = "HEX"
		}
	}
	if len(parts) > 1 && parts[0] == "ingest" {
		parts[1] = "DIR"
	}
	return strings.Join(parts, "/")
}

func checkSteps(t *testing.T, steps []string) {
	t.Helper()
	if !slices.Equal(steps, pullSteps) {
		t.Errorf("got\n  %s\nwant\n  %s", strings.Join(steps, "\n  "), strings.Join(pullSteps, "\n  "))
	}
}

// TestPullOrder hears from the store what it makes durable, and lets each step fail.
func TestPullOrder(t *testing.T) {
	im := it.Sample("app")
	rows := &tellingIndex{}
	b := newBoard(t)
	r := &it.Registry{}
	r.Push(im)
	b.index = rows
	b.setup = func(c *images.StoreConfig) { c.Registry = r }
	b.restart()
	var steps []string
	note := func(step, what string) { steps = append(steps, step+" "+what) }
	b.disk.Watch(func(step, path string) error {
		note(step, stepPath(b.root, path))
		return nil
	})
	rows.tell = func(key string) { note("row", strings.Split(key, "/")[0]) }
	if _, err := b.pull("app"); err != nil {
		t.Fatal(err)
	}
	checkSteps(t, steps)
	// One that a step fails for is absent, and the next one comes whole.
	for i := range steps {
		t.Run(fmt.Sprint(i, " ", filepath.Base(steps[i])), func(t *testing.T) {
			b := newBoard(t)
			b.setup = func(c *images.StoreConfig) { c.Registry = r }
			b.restart()
			n := 0
			b.disk.Watch(func(string, string) error {
				if n++; n == i+1 {
					return unix.EIO
				}
				return nil
			})
			if _, err := b.pull("app"); err == nil && n > i {
				t.Error("pulled although a step failed")
			} else if err != nil && !errors.Is(err, unix.EIO) {
				t.Error(err)
			}
			b.disk.Watch(nil)
			b.restart()
			if _, err := b.pull("app"); err != nil {
				t.Fatal(err)
			}
			b.whole("app")
			b.tidy()
		})
	}
}

// tellingIndex tells of its writes.
type tellingIndex struct {
	memIndex
	tell func(key string)
}

func (x *tellingIndex) Put(key string, value []byte) error {
	if x.tell != nil {
		x.tell(key)
	}
	return x.memIndex.Put(key, value)
}
