// Package sim is one whole board in one bubble of testing/synctest: the brain that boards run, joined by package brain, on a machine that
// is played. A day of it takes seconds.
//
//	user ── rest ─┐
//	agent ─ rest ─┴ pipe ─ httpd ─ scribe ─ local ─ storage (bbolt, NoSync)      the brain: dies and comes back
//	controllers ────────────────────┘
//	brain.Rims ─ wire ─ fake engine, fake images, fake network, Machine          the board: stays
//
// A test makes a Board inside a bubble, does things to it (Apply, KillBrain, CutPower, FillDisk ...), lets time pass,
// and asks it to Settle. What must be true at every moment is checked by whoever sees the moment: the scribe who
// writes (architecture: One writer per field), the witness what watchers see, the wire what is asked of the board.
//
// A seed replays the script of what is done to the board, not the order of goroutines.
//
// A fleet (fleet_test.go) is many boards that have joined one control plane: the brains of all are real, the control plane's too,
// each board on a link of its own that may be cut or slow, with a clock of its own and a card that may stall. docs/decisions/0052-fleets.md
package sim

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/config"
	"ledge/images"
	imagesfake "ledge/images/fake"
	networkfake "ledge/network/fake"
	"ledge/network/plan"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
	"ledge/storage"
)

// Config of a simulated board. The zero value is a board like any other.
type Config struct {
	Seed uint64
	// Name of the node; empty: sim.
	Name string
	// DiskBytes is the size of the board's disk; 0 means 24 MiB. The disk is a real file system, so that it really
	// gets full.
	DiskBytes int64
}

// Board is one simulated board with a brain that may die.
type Board struct {
	t   testing.TB
	cfg Config
	ctx context.Context // of the test

	Machine *Machine
	disk    string // survives the boot
	run     string // does not
	boots   int

	engine  *enginefake.Engine
	kernel  *kernel
	images  *imagesfake.Store
	network *networkfake.Machine
	starts  *starts
	witness *witness

	brain    *life
	settings config.Settings
	off      bool // the machine was switched off

	mu     sync.Mutex
	failed int
}

// Images that pods of a simulation use. Both behave as their container's command says (see Script).
const (
	ImageOne = "sim.local/app:v1"
	ImageTwo = "sim.local/app:v2"
)

// New makes a board and starts it. Call it inside a bubble; the board ends with the test.
func New(t *testing.T, cfg Config) *Board {
	t.Helper()
	if cfg.Name == "" {
		cfg.Name = "sim"
	}
	if cfg.DiskBytes == 0 {
		cfg.DiskBytes = 24 << 20
	}
	b := &Board{t: t, cfg: cfg, ctx: t.Context(), starts: newStarts(), witness: newWitness()}
	b.witness.fail, b.starts.fail = b.Errorf, b.Errorf
	dir := t.TempDir()
	b.disk, b.run = filepath.Join(dir, "disk"), filepath.Join(dir, "run")
	b.Machine = newMachine(b.disk, cfg.DiskBytes)
	unmount, err := b.Machine.mount()
	b.must(err, "mount the disk")
	t.Cleanup(unmount)
	b.kernel = newKernel(filepath.Join(dir, "cgroup"))
	b.engine = enginefake.New(enginefake.Config{Script: b.kernel.script})
	b.kernel.engine = b.engine
	cidr := plan.ChooseCIDR(nil)
	b.network, err = networkfake.NewMachine(cidr)
	b.must(err, "make the network")
	b.images = &imagesfake.Store{Dir: filepath.Join(dir, "roots")}
	b.addImage(ImageOne)
	b.addImage(ImageTwo)
	b.must(os.MkdirAll(b.run, 0o700), "make the run directory")
	b.must(b.Machine.show(filepath.Join(dir, "machine")), "show the machine")
	b.boots = 1
	b.settings, err = resolve("serve", dir, cfg.Name, b.disk, "--listen", "", "--terminated-pod-gc-threshold", strconv.Itoa(keptTerminated))
	b.must(err, "resolve the settings of the board")
	b.wake()
	t.Cleanup(func() { b.sleep(); b.fall() })
	return b
}

func (b *Board) addImage(name string) {
	_, err := b.images.Add(images.Image{Names: []string{name}, Size: 1 << 20})
	b.must(err, "add image")
}

// must ends the test when the simulation itself cannot go on.
func (b *Board) must(err error, what string) {
	b.t.Helper()
	if err != nil {
		b.t.Fatalf("%s: cannot %s: %v", now(), what, err)
	}
}

// mostErrors is how many broken promises are told in full; a broken board breaks them all.
const mostErrors = 20

// Errorf reports that a promise was broken, with the time on the board.
func (b *Board) Errorf(format string, args ...any) {
	b.t.Helper()
	b.mu.Lock()
	b.failed++
	n := b.failed
	b.mu.Unlock()
	if n <= mostErrors {
		b.t.Errorf("%s: "+format, append([]any{now()}, args...)...)
	}
}

// Broken says whether a promise has been broken: a script may as well stop.
func (b *Board) Broken() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.failed > 0
}

// Logf says what the script does, with the time on the board.
func (b *Board) Logf(format string, args ...any) {
	b.t.Helper()
	b.t.Logf("%s: "+format, append([]any{now()}, args...)...)
}

func now() string { return time.Now().UTC().Format("02 15:04:05.000") }

// Pass lets time go by and waits until everything that was due has been done.
func (b *Board) Pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// Health is what the store says of itself.
func (b *Board) Health() storage.Health { return b.brain.store.Health() }

// Revision is the newest of the store.
func (b *Board) Revision() uint64 { return b.brain.store.Revision() }

// Containers are those that run, by pod UID.
func (b *Board) Containers() map[string][]runtime.Status {
	st, err := b.engine.List(b.ctx)
	if errors.Is(err, runtime.ErrUnavailable) {
		return nil
	}
	b.must(err, "list containers")
	out := map[string][]runtime.Status{}
	for _, c := range st.Containers {
		if c.Phase == runtime.Running {
			out[c.PodUID] = append(out[c.PodUID], c)
		}
	}
	return out
}

// Node is the board's Node as the API has it.
func (b *Board) Node() *corev1.Node {
	b.t.Helper()
	n, err := b.getNode()
	b.must(err, "read the node")
	return n
}
