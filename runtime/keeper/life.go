package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ledge/runtime"
)

// Start implements runtime.Engine.
func (e *Engine) Start(ctx context.Context, c runtime.Container) (runtime.Status, error) {
	if err := runtime.CheckID("container", c.ID); err != nil {
		return runtime.Status{}, err
	}
	return bounded(ctx, e.works, runtime.Late{What: runtime.Starting, PodUID: c.PodUID, Container: c.ID},
		func(ctx context.Context) (runtime.Status, error) {
			return e.startOnce(ctx, c)
		})
}

func (e *Engine) startOnce(ctx context.Context, c runtime.Container) (runtime.Status, error) {
	unlock, err := e.pods.lock(ctx, c.PodUID)
	if err != nil {
		return runtime.Status{}, err
	}
	defer unlock()
	old, exists := e.held.container(c.ID)
	var st runtime.Status
	if exists {
		st = old.status()
	}
	pod, ok := e.held.pod(c.PodUID)
	switch {
	case exists && st.PodUID != c.PodUID:
		return runtime.Status{}, fmt.Errorf("start container %s: the ID belongs to pod %s", c.ID, st.PodUID)
	case exists:
		return st, nil
	case !ok:
		return runtime.Status{}, fmt.Errorf("start container %s: pod %s: %w", c.ID, c.PodUID, runtime.ErrNotFound)
	}
	leave, err := e.starts.take(ctx)
	if err != nil {
		return runtime.Status{}, fmt.Errorf("start container %s: %w", c.ID, err)
	}
	defer leave()
	st, err = e.start(ctx, pod.Status.Pod, c)
	if err != nil {
		return runtime.Status{}, fmt.Errorf("start container %s: %w", c.ID, err)
	}
	return st, nil
}

// start makes the container or leaves nothing. Once the container's program executes ctx counts no more.
func (e *Engine) start(ctx context.Context, p runtime.Pod, spec runtime.Container) (_ runtime.Status, err error) {
	if spec.TTY {
		spec.Env = withTerm(spec.Env)
	}
	c := newContainer(e.containerDir(spec.ID), containerRecord{Container: spec, Pod: p, Status: runtime.Status{ID: spec.ID,
		PodUID: spec.PodUID, Name: spec.Name, Attempt: spec.Attempt, LogPath: spec.LogPath, Labels: spec.Labels, Resources: spec.Resources}})
	var child *childFiles
	defer func() {
		if err != nil {
			e.unpark(c)
			if c.stdio != nil {
				c.stdio.close()
			}
			err = errors.Join(err, e.cfg.Runner.Unmake(c.dir, p, spec.ID), os.RemoveAll(c.dir))
		}
	}()
	if err := os.MkdirAll(c.dir, 0o700); err != nil {
		return runtime.Status{}, err
	}
	// Whoever finds this record without a start time knows that something half-made may be about.
	if err := c.save(); err != nil {
		return runtime.Status{}, err
	}
	c.stdio, child, err = makeStdio(c.dir, spec, openLog(spec, e.budgets.of(spec), e.log), e.cfg.Park != nil)
	if err != nil {
		return runtime.Status{}, err
	}
	defer child.close()
	for name, f := range c.stdio.files {
		e.lot.add(parkName(spec.ID, name), f, false)
	}
	if err := e.fork(ctx, c, child); err != nil {
		return runtime.Status{}, err
	}
	if spec.TTY {
		if err := c.stdio.receiveTTY(child.pair); err != nil {
			return runtime.Status{}, errors.Join(err, e.discard(c))
		}
		e.lot.add(parkName(spec.ID, nameTTY), c.stdio.files[nameTTY], false)
	}
	c.rec.Status.Phase, c.rec.Status.StartedAt = runtime.Running, time.Now()
	if err := c.save(); err != nil {
		return runtime.Status{}, errors.Join(err, e.discard(c))
	}
	e.lot.add(parkName(spec.ID, namePid), c.proc.fd, false)
	if spec.StdinOnce {
		c.stdio.expect(&e.early)
	}
	st := copyStatus(c.rec.Status)
	e.follow(c, nil)
	return st, nil
}

// fork starts the process and takes hold of it. The reaper keeps its hands off meanwhile.
func (e *Engine) fork(ctx context.Context, c *container, child *childFiles) error {
	if of := c.rec.Container.ProcessesOf; of != "" {
		leave, err := e.enterBeside(c, of)
		if err != nil {
			return err
		}
		defer leave()
	}
	e.reaper.begin()
	owned := 0
	defer func() { e.reaper.end(owned) }()
	pid, err := e.cfg.Runner.Start(ctx, e.podDir(c.rec.Pod.UID), c.dir, c.rec.Pod, c.rec.Container, child.std, child.console)
	if err != nil {
		return err
	}
	// Our own child that nobody has waited for: its number stays its own, even if it has ended already.
	if c.rec.StartTime, err = startTime(pid); err == nil {
		c.proc, err = openProcess(pid, 0)
	}
	if err != nil {
		_ = e.cfg.Runner.Kill(c.rec.Pod, c.rec.Container.ID)
		return err // the reaper takes the child
	}
	c.rec.Status.Pid, owned = pid, pid
	return nil
}

// enterBeside keeps the first process of another container of the pod from being reaped, while one enters its processes.
func (e *Engine) enterBeside(c *container, id string) (leave func(), err error) {
	target, ok := e.held.container(id)
	if !ok || target.rec.Container.PodUID != c.rec.Container.PodUID {
		return nil, fmt.Errorf("enter the processes of container %s: %w", id, runtime.ErrNotFound)
	}
	target.entering.RLock()
	if !target.alive() || target.proc == nil || target.proc.hasEnded() {
		target.entering.RUnlock()
		return nil, fmt.Errorf("enter the processes of container %s: %w", id, runtime.ErrNotRunning)
	}
	return target.entering.RUnlock, nil
}

// discard ends a container whose start failed after its process was there.
func (e *Engine) discard(c *container) error {
	err := e.cfg.Runner.Kill(c.rec.Pod, c.rec.Container.ID)
	_, werr := c.proc.wait()
	e.reaper.gone(c.proc.pid)
	_ = c.proc.fd.Close()
	return errors.Join(err, werr)
}

// follow makes the container known and waits for its end. ended is not nil if it has ended already.
func (e *Engine) follow(c *container, ended *runtime.Exit) {
	c.run(&e.wg)
	e.held.add(c)
	e.wg.Go(func() {
		if ended == nil {
			if err := c.proc.ended(); err != nil { // told to stop
				c.endStreams(leave)
				return
			}
			e.commands.endEntering(c, runtime.ErrNotRunning)
			c.entering.Lock()
			x := c.proc.exit()
			c.entering.Unlock()
			e.reaper.gone(c.proc.pid)
			ended = &x
		}
		e.finish(c, *ended)
	})
}

// finish follows the end of a container's first process: the rest is killed, the log is read to its end, the exit
// is recorded, and then told.
func (e *Engine) finish(c *container, x runtime.Exit) {
	id := c.rec.Container.ID
	log := e.log.With("container", id)
	defer close(c.swept)
	// With a PID namespace of its own the kernel has killed the rest by now.
	if err := e.cfg.Runner.Kill(c.rec.Pod, id); err != nil {
		log.Warn("the rest of an ended container could not be killed", "err", err)
	}
	if oom, err := e.cfg.Runner.OOM(c.rec.Pod, id); err != nil {
		log.Warn("OOM kills of a container could not be counted", "err", err)
	} else if oom.Kills > 0 && x.Code != 0 {
		x.OOMKilled, x.MemoryPeak, x.MemoryLimit = true, oom.Peak, oom.Limit
	}
	c.endStreams(finish)
	e.unpark(c)
	c.stdio.close()
	if err := writeJSON(filepath.Join(c.dir, "exit.json"), x); err != nil {
		log.Error("the exit of a container could not be recorded; a restarted keeper will not know it", "err", err)
	}
	c.exited(x)
	e.held.changed(id)
	// Its cgroup pins memory. Should this fail, Remove tries again and reports it.
	if err := e.cfg.Runner.Unmake(c.dir, c.rec.Pod, id); err != nil {
		log.Warn("something of an ended container is left until it is removed", "err", err)
	}
}

// takeBack gets a file that a brain held for an earlier keeper. Only a terminal is needed: everything else is
// opened by name, or was opened anew.
func (e *Engine) takeBack(name string, f *os.File) {
	id, kind, _ := strings.Cut(name, "/")
	c, ok := e.held.container(id)
	if !ok || kind != nameTTY {
		return
	}
	master, err := c.takeTTY(f, &e.wg)
	if err != nil {
		e.log.Warn("a terminal could not be taken back", "container", id, "err", err)
		return
	}
	if master != nil {
		e.lot.add(name, master, false)
	}
}

// unpark takes all files of a container out of the parking lots.
func (e *Engine) unpark(c *container) {
	for _, name := range allNames {
		e.lot.remove(parkName(c.rec.Container.ID, name))
	}
}
