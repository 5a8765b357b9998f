package sim

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"syscall"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/rest"
	"ledge/brain"
	"ledge/config"
	"ledge/node/pressure"
	"ledge/storage"
)

// life is one life of the process that serves: the brain that boards run, on the rims of a played board (rims.go).
type life struct {
	b       *Board
	wire    *wire
	uplink  *uplink // between the agent and the API
	signals chan os.Signal
	caller  func(context.Context) (net.Conn, error) // connects to the API as the user

	store *storage.Store
	local api.Client // of the control plane
	user  *rest.Client
	node  *rest.Client

	kill  context.CancelFunc
	ended chan error // what Run returned
	watch chan error // the witness's end
}

func (b *Board) storeDir() string { return filepath.Join(b.disk, "store") }

// keptTerminated is fewer than on a board: each costs at every look at all pods.
const keptTerminated = 20

// resolve makes settings of flags and a file in dir, as the verb does. Safe mode is off: brains of simulations are killed more often in ten
// minutes than those of boards.
func resolve(verb, dir, name, disk string, args ...string) (config.Settings, error) {
	file, none := filepath.Join(dir, "config.yaml"), filepath.Join(dir, "none")
	text := fmt.Sprintf("power: {supplies: %q, sensors: %q}\n", none, none)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		return config.Settings{}, err
	}
	f, flags := flag.NewFlagSet(verb, flag.ContinueOnError), config.ServeFlags
	if verb == "agent" {
		flags = config.AgentFlags
	}
	o := flags(f)
	err := f.Parse(append([]string{"--data-dir", disk, "--config", file, "--config-dir", "", "--start-keeper=false", "--hostname-override",
		name,
		"--safe-mode-after", "0", "--power-backend", "direct"}, args...))
	if err != nil {
		return config.Settings{}, err
	}
	s, err := o.Resolve(f)
	s.Status.Eviction = patient()
	return s, err
}

// newBrain makes the brain of a board.
func newBrain(s config.Settings, runDir string, rims brain.Rims, fail func(format string, args ...any)) *brain.Brain {
	trial := brain.OpenTrial(s.DataDir, func(code int) { fail("the brain ends itself with code %d", code) })
	return brain.New(brain.Config{Settings: s, RunDir: runDir, Build: config.Build{Version: "v0.0.0-sim"}, Trial: trial}, rims)
}

// patient raises the conditions of a full disk and lets no pod go for it: what fills the disk here is none of theirs.
func patient() pressure.Policy {
	p := pressure.Default()
	for i := range p.Thresholds {
		if t := &p.Thresholds[i]; t.Signal.Disk() {
			t.Soft, t.Grace = true, 1000*time.Hour
		}
	}
	return p
}

// wake starts a brain. One that does not come up because the disk is full is started again every few seconds, as its
// unit does; in the end a human makes room.
func (b *Board) wake() {
	b.t.Helper()
	for try := 0; ; try++ {
		x, err := b.start()
		if err == nil {
			b.brain = x
			return
		}
		if !b.Machine.full() {
			b.must(err, "start the brain")
		}
		if try == 10 {
			b.Logf("the brain does not start on a full disk: %v", err)
			b.must(b.Machine.empty(), "free the disk")
		}
		b.Pass(5 * time.Second)
	}
}

// start starts a brain and waits until it serves, or does not.
func (b *Board) start() (*life, error) {
	x := &life{b: b, wire: &wire{}, uplink: newUplink(), signals: make(chan os.Signal, 4), ended: make(chan error, 1),
		watch: make(chan error, 1)}
	rims, err := x.rims()
	if err != nil {
		return nil, err
	}
	ctx, kill := context.WithCancel(context.WithoutCancel(b.ctx))
	x.kill = kill
	go func() { x.ended <- newBrain(b.settings, b.run, rims, b.Errorf).Run(ctx) }()
	synctest.Wait()
	select {
	case err := <-x.ended:
		kill()
		return nil, cmp.Or(err, errors.New("it ended at once"))
	default:
	}
	go func() { x.watch <- b.witness.Run(ctx, x.user) }()
	synctest.Wait()
	return x, nil
}

// over waits for the end of the process, for as long as the longest stopping of pods may take, and lets go of what knew it.
func (x *life) over() error {
	var err error
	select {
	case err = <-x.ended:
	case <-time.After(10 * time.Minute):
		x.b.Errorf("the brain does not end")
		x.kill()
		err = <-x.ended
	}
	x.kill()
	err = errors.Join(err, <-x.watch)
	x.user.Close()
	x.node.Close()
	return err
}

// sleep ends the brain as a signal does: pods run on.
func (b *Board) sleep() {
	b.t.Helper()
	x := b.brain
	b.brain = nil
	if x != nil {
		x.signals <- syscall.SIGTERM
		b.must(x.over(), "end the brain")
	}
}

// die ends the brain as kill -9 does: its memory is lost, its later calls have no effect, and the file keeps the
// content of that moment.
func (b *Board) die() {
	b.t.Helper()
	synctest.Wait() // no goroutine is in the middle of a write
	x := b.brain
	b.brain = nil
	err := frozen(b.storeDir(), func() {
		x.wire.cut.Store(true)
		x.kill()
		if err := x.over(); err != nil { // what it flushes now is thrown away
			b.Logf("the brain ended with %v", err)
		}
	})
	b.must(err, "keep the store as it was")
}

// frozen does something that leaves a store as it is.
func frozen(dir string, do func()) error {
	kept := filepath.Join(filepath.Dir(filepath.Dir(dir)), "kept") // beside the disk, which may be full
	if err := copyDir(dir, kept); err != nil {
		return err
	}
	do()
	return errors.Join(os.RemoveAll(dir), copyDir(kept, dir), os.RemoveAll(kept))
}

// copyDir copies a tree of plain files; holes stay holes, or a copy would need more room than there was.
func copyDir(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o700); err != nil {
		return err
	}
	for _, e := range entries {
		src, dst := filepath.Join(from, e.Name()), filepath.Join(to, e.Name())
		if e.IsDir() {
			err = copyDir(src, dst)
		} else {
			err = copySparse(src, dst)
		}
		if err != nil {
			return fmt.Errorf("copy %s: %w", src, err)
		}
	}
	return nil
}

func copySparse(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_TRUNC|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	defer out.Close()
	page, empty := make([]byte, 4096), make([]byte, 4096)
	for at := int64(0); ; {
		n, err := io.ReadFull(in, page)
		if n > 0 && !bytes.Equal(page[:n], empty[:n]) {
			if _, err := out.WriteAt(page[:n], at); err != nil {
				return err
			}
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return out.Truncate(at)
		}
		if err != nil {
			return err
		}
	}
}

func (b *Board) getNode() (*corev1.Node, error) {
	return api.Get[*corev1.Node](b.ctx, b.brain.user, api.Nodes, "", b.cfg.Name)
}
