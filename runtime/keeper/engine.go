package keeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	goruntime "runtime"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// Engine is the keeper's inside: a runtime.Engine over a Runner, in this process. Package users want Run (the
// process) and Client (the Engine that talks to it); tests use it directly.
type Engine struct {
	cfg     Config
	log     *slog.Logger
	reaper  *reaper
	lot     *lot
	pods    keyed     // one operation at a time per pod
	budgets budgets   // of logs
	early   earlyRoom // of what is kept for first attachers
	starts  *places

	works    *works
	held     *holdings
	commands *commands

	info    runtime.Info   // Run's finding, before anything may begin
	adopted chan struct{}  // closed when Run has taken over what an earlier keeper left
	quit    chan struct{}  // closed when Run ends
	wg      sync.WaitGroup // goroutines that follow containers
}

var _ runtime.Engine = (*Engine)(nil)

// NewEngine prepares an engine. It answers ErrUnavailable until Run has looked at what is there.
func NewEngine(cfg Config) (*Engine, error) {
	if cfg.RunDir == "" || !filepath.IsAbs(cfg.RunDir) {
		return nil, fmt.Errorf("keeper: run directory %q is not an absolute path", cfg.RunDir)
	}
	if cfg.Runner == nil {
		return nil, errors.New("keeper: no runner")
	}
	e := &Engine{cfg: cfg, log: cfg.log(), reaper: newReaper(), lot: newLot(cfg), budgets: budgets{log: cfg.log()},
		starts: newPlaces(max(2, goruntime.NumCPU())), works: newWorks(cfg.log()), held: newHoldings(),
		adopted: make(chan struct{}), quit: make(chan struct{})}
	e.commands = &commands{runner: cfg.Runner, reaper: e.reaper, works: e.works, held: e.held, quit: e.quit,
		places: newPlaces(max(2, goruntime.NumCPU()))}
	return e, nil
}

// Run adopts what an earlier keeper left and follows all containers until ctx ends. It ends none of them.
func (e *Engine) Run(ctx context.Context) error {
	if err := renew(e.cfg.RunDir, e.cfg.BootID); err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	info, err := e.cfg.Runner.Enter()
	if err != nil {
		return fmt.Errorf("keeper: %w", err)
	}
	if err := e.adopt(); err != nil {
		return fmt.Errorf("keeper: take over what runs: %w", err)
	}
	e.info = info
	e.works.admit(true)
	close(e.adopted)
	if e.cfg.Ready != nil {
		e.cfg.Ready()
	}
	<-ctx.Done()

	e.works.admit(false)
	close(e.quit)
	e.settleDown()
	return nil
}

// settleDown waits for what is under way: a container that is being started is started to the end, unless that takes too long.
func (e *Engine) settleDown() {
	if !within(startsEndWithin, &e.works.ops) {
		e.log.Warn("what is still being started is ended, for the keeper is")
		e.works.endAll(runtime.ErrUnavailable, func(runtime.Late) bool { return true })
	}
	rested := within(diesWithin+time.Second, &e.works.ops)
	for _, c := range e.held.containers() {
		c.abandon()
	}
	if !within(diesWithin, &e.wg) || !rested {
		e.log.Error("the keeper ends, and something hangs")
	}
}

// Info implements runtime.Engine.
func (e *Engine) Info(context.Context) (runtime.Info, error) {
	end, err := e.works.begin()
	if err != nil {
		return runtime.Info{}, err
	}
	defer end()
	info := e.info
	info.Late = e.works.late()
	return info, nil
}

// EnsurePod implements runtime.Engine.
func (e *Engine) EnsurePod(ctx context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	if err := runtime.CheckID("pod", p.UID); err != nil {
		return runtime.PodStatus{}, err
	}
	return bounded(ctx, e.works, runtime.Late{What: runtime.Starting, PodUID: p.UID}, func(ctx context.Context) (runtime.PodStatus, error) {
		return e.ensurePod(ctx, p)
	})
}

func (e *Engine) ensurePod(ctx context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	unlock, err := e.pods.lock(ctx, p.UID)
	if err != nil {
		return runtime.PodStatus{}, err
	}
	defer unlock()
	rec, ok := e.held.pod(p.UID)
	if ok && rec.Made {
		return rec.Status, nil
	}
	dir := e.podDir(p.UID)
	rec = podRecord{Status: runtime.PodStatus{Pod: p, CreatedAt: time.Now()}}
	fail := func(err error) (runtime.PodStatus, error) {
		err = errors.Join(err, e.cfg.Runner.UnmakePod(dir, p), os.RemoveAll(dir))
		return runtime.PodStatus{}, fmt.Errorf("make pod %s: %w", p.UID, err)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return fail(err)
	}
	if err := writeJSON(filepath.Join(dir, "pod.json"), rec); err != nil {
		return fail(err)
	}
	// Making it may take processes, and one of them may stay: nobody waits for that one.
	e.reaper.begin()
	rec.Status.NetNS, err = e.cfg.Runner.MakePod(ctx, dir, p)
	e.reaper.end(0)
	if err != nil {
		return fail(err)
	}
	rec.Made = true
	if err := writeJSON(filepath.Join(dir, "pod.json"), rec); err != nil {
		return fail(err)
	}
	e.held.setPod(p.UID, rec)
	return rec.Status, nil
}

// RemovePod implements runtime.Engine.
func (e *Engine) RemovePod(ctx context.Context, uid string) error {
	_, err := bounded(ctx, e.works, runtime.Late{What: runtime.Removing, PodUID: uid}, func(ctx context.Context) (struct{}, error) {
		defer e.works.leave(uid)()
		return struct{}{}, e.removePod(ctx, uid)
	})
	return err
}

func (e *Engine) removePod(ctx context.Context, uid string) error {
	unlock, err := e.pods.lock(ctx, uid)
	if err != nil {
		return err
	}
	defer unlock()
	rec, ok := e.held.pod(uid)
	mine := e.held.of(uid)
	if !ok && len(mine) == 0 {
		return nil
	}
	if !ok { // its record was lost; its containers know it
		rec.Status.Pod = mine[0].rec.Pod
	}
	// All at once first: they die in parallel.
	for _, c := range mine {
		if c.alive() {
			_ = e.cfg.Runner.Kill(c.rec.Pod, c.rec.Container.ID)
		}
	}
	for _, c := range mine {
		if err := e.remove(ctx, c); err != nil {
			return fmt.Errorf("remove pod %s: %w", uid, err)
		}
	}
	dir := e.podDir(uid)
	if err := e.cfg.Runner.UnmakePod(dir, rec.Status.Pod); err != nil {
		return fmt.Errorf("remove pod %s: %w", uid, err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fmt.Errorf("remove pod %s: %w", uid, err)
	}
	e.held.dropPod(uid)
	return nil
}

// Signal implements runtime.Engine.
func (e *Engine) Signal(_ context.Context, id string, sig syscall.Signal) error {
	end, err := e.works.begin()
	if err != nil {
		return err
	}
	defer end()
	if sig <= 0 || sig > 64 {
		return fmt.Errorf("signal %d: no such signal", sig)
	}
	c, ok := e.held.container(id)
	if !ok {
		return fmt.Errorf("container %s: %w", id, runtime.ErrNotFound)
	}
	if !c.alive() {
		return nil
	}
	if sig == unix.SIGKILL {
		err = e.cfg.Runner.Kill(c.rec.Pod, id)
	} else {
		err = c.proc.signal(sig)
	}
	if err != nil {
		return fmt.Errorf("signal container %s: %w", id, err)
	}
	return nil
}

// Remove implements runtime.Engine.
func (e *Engine) Remove(ctx context.Context, id string) error {
	end, err := e.works.begin()
	if err != nil {
		return err
	}
	defer end()
	c, ok := e.held.container(id)
	if !ok {
		return nil
	}
	uid := c.rec.Container.PodUID
	what := runtime.Late{What: runtime.Removing, PodUID: uid, Container: id}
	_, err = bounded(ctx, e.works, what, func(ctx context.Context) (struct{}, error) {
		unlock, err := e.pods.lock(ctx, uid)
		if err != nil {
			return struct{}{}, err
		}
		defer unlock()
		return struct{}{}, e.remove(ctx, c)
	})
	return err
}

// diesWithin is how long a killed container may take to end.
const diesWithin = 15 * time.Second

// remove is called with the pod locked.
func (e *Engine) remove(ctx context.Context, c *container) error {
	id := c.rec.Container.ID
	if c.alive() {
		if err := e.cfg.Runner.Kill(c.rec.Pod, id); err != nil {
			return fmt.Errorf("kill container %s: %w", id, err)
		}
	}
	late := time.NewTimer(diesWithin)
	defer late.Stop()
	select {
	case <-c.swept: // two at a time would be in each other's way
	case <-ctx.Done():
		return fmt.Errorf("remove container %s: %w", id, ctx.Err())
	case <-e.quit:
		return fmt.Errorf("remove container %s: %w", id, runtime.ErrUnavailable)
	case <-late.C:
		return fmt.Errorf("remove container %s: it does not die of SIGKILL", id)
	}
	if err := e.cfg.Runner.Unmake(c.dir, c.rec.Pod, id); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	if err := os.RemoveAll(c.dir); err != nil {
		return fmt.Errorf("remove container %s: %w", id, err)
	}
	e.held.drop(id)
	return nil
}

// List implements runtime.Engine.
func (e *Engine) List(context.Context) (runtime.State, error) {
	end, err := e.works.begin()
	if err != nil {
		return runtime.State{}, err
	}
	defer end()
	return e.held.state(), nil
}

// copyStatus keeps what callers do to a status away from ours.
func copyStatus(s runtime.Status) runtime.Status {
	s.Labels = maps.Clone(s.Labels)
	if s.Exit != nil {
		x := *s.Exit
		s.Exit = &x
	}
	return s
}

func (e *Engine) podDir(uid string) string { return filepath.Join(podsDir(e.cfg.RunDir), uid) }
func (e *Engine) containerDir(id string) string {
	return filepath.Join(containersDir(e.cfg.RunDir), id)
}
