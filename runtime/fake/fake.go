// Package fake is a runtime.Engine without a kernel under it: containers are entries in a table that behave as a
// script says, by the clock of package time, so that a testing/synctest bubble can run years of it. It passes
// runtime/runtimetest like the real ones.
package fake

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"syscall"
	"time"

	"ledge/runtime"
)

// Behaviour is what a container will do.
type Behaviour struct {
	// StartErr, when set, is what Start answers; nothing is left.
	StartErr error
	// StartTakes is how long Start takes.
	StartTakes time.Duration
	// ExitAfter, when set, ends the container by itself this long after it has started, with Exit.
	ExitAfter *time.Duration
	Exit      runtime.Exit
	// IgnoreTERM leaves SIGTERM without effect. Otherwise it ends the container TermTakes later, with TermCode.
	IgnoreTERM bool
	TermTakes  time.Duration
	TermCode   int
	// Exec is what commands run in it do; nil: they exit 0 at once.
	Exec Command
	// Main is the program itself, where it reads or writes; nil: it is silent. When it returns the container ends with
	// that code.
	Main Program
}

// For is a Behaviour that exits with code after d.
func For(d time.Duration, code int) Behaviour {
	return Behaviour{ExitAfter: &d, Exit: runtime.Exit{Code: code}}
}

// Config of a fake engine.
type Config struct {
	// Script says how a container behaves. Nil: it runs until it is told to stop, and then exits 143.
	Script func(runtime.Container) Behaviour
	// AppArmor and SELinux are what the machine has.
	AppArmor, SELinux bool
}

// Engine is the fake. Its timers are those of package time; it has no goroutines of its own but those of Program.
type Engine struct {
	cfg Config

	mu       sync.Mutex
	away     bool
	nextPid  int
	pods     map[string]runtime.PodStatus
	cons     map[string]*container
	watchers map[*watcher]bool
	groups   map[string]runtime.Resources
}

var (
	_ runtime.Engine   = (*Engine)(nil)
	_ runtime.Limiter  = (*Engine)(nil)
	_ runtime.Attacher = (*Engine)(nil)
)

type container struct {
	status runtime.Status
	does   Behaviour
	ready  chan struct{} // closed when Start has come to an end
	failed error
	timers []*time.Timer
	execs  map[*context.CancelCauseFunc]bool // commands that run in it, and attachers
	main   *program

	processesOf string
}

// New makes an empty engine.
func New(cfg Config) *Engine {
	if cfg.Script == nil {
		cfg.Script = func(runtime.Container) Behaviour { return Behaviour{TermCode: 143} }
	}
	return &Engine{cfg: cfg, nextPid: 1000, pods: map[string]runtime.PodStatus{}, cons: map[string]*container{},
		watchers: map[*watcher]bool{}, groups: map[string]runtime.Resources{}}
}

// SetAway makes the engine unavailable, as a keeper is while it restarts: calls fail and watches end. The
// containers go on.
func (e *Engine) SetAway(away bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.away = away
	for _, c := range e.cons {
		c.endExecs(runtime.ErrUnavailable)
	}
	for w := range e.watchers {
		w.poke()
	}
}

// End ends a running container from outside, as the kernel's OOM killer would; false if it does not run.
func (e *Engine) End(id string, x runtime.Exit) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	c := e.cons[id]
	if c == nil || c.status.Phase != runtime.Running {
		return false
	}
	e.end(c, x)
	return true
}

// Reboot forgets everything without a word, as a power cut does. Watches end.
func (e *Engine) Reboot() {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range e.cons {
		c.halt()
	}
	clear(e.pods)
	clear(e.cons)
	for w := range e.watchers {
		w.lost = true
		w.poke()
	}
}

// check is called with the lock held.
func (e *Engine) check() error {
	if e.away {
		return fmt.Errorf("fake: %w", runtime.ErrUnavailable)
	}
	return nil
}

// Info implements runtime.Engine.
func (e *Engine) Info(context.Context) (runtime.Info, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return runtime.Info{Name: "fake", Version: "v0", CgroupVersion: 2, CgroupRoot: "/", Seccomp: true,
		AppArmor: e.cfg.AppArmor, SELinux: e.cfg.SELinux}, e.check()
}

// EnsurePod implements runtime.Engine.
func (e *Engine) EnsurePod(_ context.Context, p runtime.Pod) (runtime.PodStatus, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return runtime.PodStatus{}, err
	}
	if err := runtime.CheckID("pod", p.UID); err != nil {
		return runtime.PodStatus{}, err
	}
	if st, ok := e.pods[p.UID]; ok {
		return st, nil
	}
	st := runtime.PodStatus{Pod: p, CreatedAt: time.Now()}
	if !p.HostNetwork {
		st.NetNS = "/fake/" + p.UID + "/net"
	}
	e.pods[p.UID] = st
	return st, nil
}

// RemovePod implements runtime.Engine.
func (e *Engine) RemovePod(_ context.Context, uid string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return err
	}
	for id, c := range e.cons {
		if c.status.PodUID == uid {
			c.halt()
			delete(e.cons, id)
		}
	}
	delete(e.pods, uid)
	return nil
}

// Start implements runtime.Engine.
func (e *Engine) Start(ctx context.Context, spec runtime.Container) (runtime.Status, error) {
	c, mine, err := e.admit(spec)
	if err != nil {
		return runtime.Status{}, err
	}
	if mine {
		if c.does.StartTakes > 0 {
			time.Sleep(c.does.StartTakes)
		}
		e.mu.Lock()
		defer e.mu.Unlock()
		defer close(c.ready)
		return e.begin(spec.ID, c)
	}
	select { // somebody else is starting it, or has
	case <-c.ready:
	case <-ctx.Done():
		return runtime.Status{}, ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.failed != nil {
		return runtime.Status{}, c.failed
	}
	return copyStatus(c.status), nil
}

// admit finds the container, or enters it for the caller to start.
func (e *Engine) admit(spec runtime.Container) (c *container, mine bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return nil, false, err
	}
	if err := runtime.CheckID("container", spec.ID); err != nil {
		return nil, false, err
	}
	if c, ok := e.cons[spec.ID]; ok {
		return c, false, nil
	}
	if _, ok := e.pods[spec.PodUID]; !ok {
		return nil, false, fmt.Errorf("start container %s: pod %s: %w", spec.ID, spec.PodUID, runtime.ErrNotFound)
	}
	c = &container{does: e.cfg.Script(spec), ready: make(chan struct{}), execs: map[*context.CancelCauseFunc]bool{},
		status: runtime.Status{ID: spec.ID,
			PodUID: spec.PodUID, Name: spec.Name, Attempt: spec.Attempt, LogPath: spec.LogPath, Labels: maps.Clone(spec.Labels),
			Resources: spec.Resources}}
	c.processesOf, c.main = spec.ProcessesOf, newProgram(spec)
	e.cons[spec.ID] = c
	return c, true, nil
}

// begin has a container run; called with the lock held.
func (e *Engine) begin(id string, c *container) (runtime.Status, error) {
	if e.cons[id] != c { // removed, or the power went
		c.failed = fmt.Errorf("start container %s: %w", id, runtime.ErrNotFound)
		return runtime.Status{}, c.failed
	}
	if of := c.processesOf; of != "" && (e.cons[of] == nil || e.cons[of].status.Phase != runtime.Running) {
		delete(e.cons, id)
		c.failed = fmt.Errorf("start container %s: enter the processes of container %s: %w", id, of, runtime.ErrNotRunning)
		return runtime.Status{}, c.failed
	}
	if c.does.StartErr != nil {
		delete(e.cons, id)
		c.failed = fmt.Errorf("start container %s: %w", id, c.does.StartErr)
		return runtime.Status{}, c.failed
	}
	e.nextPid++
	c.status.Phase, c.status.Pid, c.status.StartedAt = runtime.Running, e.nextPid, time.Now()
	if d := c.does.ExitAfter; d != nil {
		e.endLater(c, *d, c.does.Exit)
	}
	if c.does.Main != nil {
		go e.runMain(c)
	}
	st := copyStatus(c.status)
	e.changed(id)
	return st, nil
}

func (e *Engine) endLater(c *container, d time.Duration, x runtime.Exit) {
	c.timers = append(c.timers, time.AfterFunc(d, func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.end(c, x)
	}))
}

// end is called with the lock held.
func (e *Engine) end(c *container, x runtime.Exit) {
	if c.status.Phase != runtime.Running || e.cons[c.status.ID] != c {
		return
	}
	c.halt()
	if x.FinishedAt.IsZero() {
		x.FinishedAt = time.Now()
	}
	c.status.Phase, c.status.Exit = runtime.Exited, &x
	e.changed(c.status.ID)
	for _, guest := range e.cons {
		if guest.processesOf == c.status.ID {
			e.end(guest, runtime.Exit{Code: 137, Signal: 9})
		}
	}
}

// halt ends what goes on in a container; called with the lock held.
func (c *container) halt() {
	c.endExecs(errEnded)
	c.main.stop()
	for _, t := range c.timers {
		t.Stop()
	}
	c.timers = nil
}

// Signal implements runtime.Engine. SIGTERM, SIGINT and SIGQUIT ask politely; SIGKILL does not ask; the others have
// no effect.
func (e *Engine) Signal(_ context.Context, id string, sig syscall.Signal) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return err
	}
	c, ok := e.cons[id]
	if !ok {
		return fmt.Errorf("container %s: %w", id, runtime.ErrNotFound)
	}
	if c.status.Phase != runtime.Running {
		return nil
	}
	switch sig {
	case syscall.SIGKILL:
		e.end(c, runtime.Exit{Code: 137, Signal: 9})
	case syscall.SIGTERM, syscall.SIGINT, syscall.SIGQUIT:
		if !c.does.IgnoreTERM {
			e.endLater(c, c.does.TermTakes, runtime.Exit{Code: c.does.TermCode})
		}
	}
	return nil
}

// Limit implements runtime.Limiter.
func (e *Engine) Limit(_ context.Context, at runtime.Place, r runtime.Resources) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return err
	}
	if err := at.Check(); err != nil {
		return err
	}
	switch {
	case at.Group != "":
		e.groups[at.Group] = e.groups[at.Group].With(r)
	case at.Pod != "":
		p, ok := e.pods[at.Pod]
		if !ok {
			return fmt.Errorf("limit pod %s: %w", at.Pod, runtime.ErrNotFound)
		}
		p.Pod.Resources = p.Pod.Resources.With(r)
		e.pods[at.Pod] = p
	default:
		c, ok := e.cons[at.Container]
		if !ok {
			return fmt.Errorf("limit container %s: %w", at.Container, runtime.ErrNotFound)
		}
		if c.status.Phase == runtime.Running {
			c.status.Resources = c.status.Resources.With(r)
			e.changed(at.Container)
		}
	}
	return nil
}

// Group is what a cgroup above the pods was last limited to.
func (e *Engine) Group(name string) runtime.Resources {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.groups[name]
}

// Remove implements runtime.Engine.
func (e *Engine) Remove(_ context.Context, id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return err
	}
	if c, ok := e.cons[id]; ok {
		c.halt()
		delete(e.cons, id)
	}
	return nil
}

// List implements runtime.Engine.
func (e *Engine) List(context.Context) (runtime.State, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return runtime.State{}, err
	}
	var s runtime.State
	for _, p := range e.pods {
		s.Pods = append(s.Pods, p)
	}
	for _, c := range e.cons {
		if c.status.Phase != "" {
			s.Containers = append(s.Containers, copyStatus(c.status))
		}
	}
	slices.SortFunc(s.Pods, func(a, b runtime.PodStatus) int { return cmp.Compare(a.Pod.UID, b.Pod.UID) })
	slices.SortFunc(s.Containers, func(a, b runtime.Status) int { return cmp.Compare(a.ID, b.ID) })
	return s, nil
}

func copyStatus(s runtime.Status) runtime.Status {
	s.Labels = maps.Clone(s.Labels)
	if s.Exit != nil {
		x := *s.Exit
		s.Exit = &x
	}
	return s
}

// watcher is one caller of Watch and what it has yet to be told.
type watcher struct {
	dirty map[string]bool
	wake  chan struct{}
	lost  bool
}

func (w *watcher) poke() {
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// changed is called with the lock held.
func (e *Engine) changed(id string) {
	for w := range e.watchers {
		w.dirty[id] = true
		w.poke()
	}
}

// Watch implements runtime.Engine.
func (e *Engine) Watch(ctx context.Context, fn func(runtime.Status)) error {
	w := &watcher{dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	e.mu.Lock()
	if err := e.check(); err != nil {
		e.mu.Unlock()
		return err
	}
	for id := range e.cons {
		w.dirty[id] = true
	}
	e.watchers[w] = true
	e.mu.Unlock()
	defer func() {
		e.mu.Lock()
		delete(e.watchers, w)
		e.mu.Unlock()
	}()
	for {
		list, err := e.news(w)
		if err != nil {
			return err
		}
		for _, st := range list {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			fn(st)
		}
		select {
		case <-w.wake:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// news gives what a watcher has yet to be told.
func (e *Engine) news(w *watcher) ([]runtime.Status, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if err := e.check(); err != nil {
		return nil, err
	}
	if w.lost {
		return nil, fmt.Errorf("fake: %w", runtime.ErrUnavailable)
	}
	var list []runtime.Status
	for _, id := range slices.Sorted(maps.Keys(w.dirty)) {
		if c, ok := e.cons[id]; ok && c.status.Phase != "" {
			list = append(list, copyStatus(c.status))
		}
	}
	w.dirty = map[string]bool{}
	return list, nil
}
