package keeper

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"ledge/runtime"
)

// adopt takes over what an earlier keeper left: pods and containers by their records, running processes by PID and
// start time, files by what was parked. What was half-made is unmade. It runs before anybody can ask for anything.
func (e *Engine) adopt() error {
	parked := map[string]map[string]*os.File{}
	for _, f := range e.cfg.Parked {
		id, name, ok := strings.Cut(f.Name(), "/")
		if !ok {
			_ = f.Close()
			continue
		}
		if parked[id] == nil {
			parked[id] = map[string]*os.File{}
		}
		parked[id][name] = f
	}
	if err := e.adoptPods(); err != nil {
		return err
	}
	entries, err := os.ReadDir(containersDir(e.cfg.RunDir))
	if err != nil {
		return err
	}
	for _, d := range entries {
		files := parked[d.Name()]
		delete(parked, d.Name())
		// One that cannot be taken over must not keep the others from being.
		if err := e.adoptContainer(d.Name(), files); err != nil {
			e.log.Error("a container could not be taken over", "container", d.Name(), "err", err)
		}
	}
	for id, files := range parked { // of containers that are no more
		e.release(id, files)
	}
	return nil
}

// release gives up parked files that nobody needs.
func (e *Engine) release(id string, files map[string]*os.File) {
	for name, f := range files {
		_ = f.Close()
		if e.cfg.Unpark != nil {
			_ = e.cfg.Unpark(parkName(id, name))
		}
	}
}

func (e *Engine) adoptPods() error {
	entries, err := os.ReadDir(podsDir(e.cfg.RunDir))
	if err != nil {
		return err
	}
	for _, d := range entries {
		if err := e.adoptPod(d.Name()); err != nil {
			e.log.Error("a pod could not be taken over", "uid", d.Name(), "err", err)
		}
	}
	return nil
}

func (e *Engine) adoptPod(uid string) error {
	dir := e.podDir(uid)
	var rec podRecord
	err := readJSON(filepath.Join(dir, "pod.json"), &rec)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err == nil && rec.Made {
		e.held.setPod(uid, rec)
		return nil
	}
	// The previous keeper died while making this pod and reported it to nobody.
	if err := e.cfg.Runner.UnmakePod(dir, rec.Status.Pod); err != nil {
		return err
	}
	return os.RemoveAll(dir)
}

func (e *Engine) adoptContainer(id string, files map[string]*os.File) error {
	c := newContainer(e.containerDir(id), containerRecord{})
	err := readJSON(filepath.Join(c.dir, "container.json"), &c.rec)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err != nil || c.rec.StartTime == 0 {
		// The previous keeper died while starting this container and reported it to nobody.
		e.release(id, files)
		if err == nil {
			err = e.cfg.Runner.Unmake(c.dir, c.rec.Pod, id)
		} else {
			err = nil
		}
		return errors.Join(err, os.RemoveAll(c.dir))
	}
	var x runtime.Exit
	switch err := readJSON(filepath.Join(c.dir, "exit.json"), &x); {
	case err == nil:
		e.release(id, files)
		c.rec.Status.Phase, c.rec.Status.Exit = runtime.Exited, &x
		close(c.done)
		close(c.swept)
		e.held.add(c)
		return e.cfg.Runner.Unmake(c.dir, c.rec.Pod, id)
	case !errors.Is(err, fs.ErrNotExist):
		return err
	}
	return e.adoptRunning(c, files)
}

// adoptRunning goes on with a container that ran when the last keeper ended; it may have ended since.
func (e *Engine) adoptRunning(c *container, files map[string]*os.File) error {
	id := c.rec.Container.ID
	var err error
	if c.stdio, err = reopenStdio(c.dir, c.rec.Container, openLog(c.rec.Container, e.budgets.of(c.rec.Container), e.log), files); err != nil {
		return err
	}
	for name, f := range c.stdio.files {
		e.lot.add(parkName(id, name), f, files[name] != nil)
	}
	// A parked pidfd names the process even if it has ended, and remembers how.
	var ended *runtime.Exit
	if f := files[namePid]; f != nil {
		var dup *os.File
		if dup, err = dupFile(f); err == nil {
			c.proc = &process{pid: c.rec.Status.Pid, fd: dup}
		}
	} else {
		c.proc, err = openProcess(c.rec.Status.Pid, c.rec.StartTime)
	}
	if err != nil {
		x := unknownExit()
		ended = &x
		e.log.Warn("a container ended unseen; its exit code is not known", "container", id)
	} else {
		e.lot.add(parkName(id, namePid), c.proc.fd, files[namePid] != nil)
	}
	for name, f := range files {
		if name == namePid || c.stdio.files[name] != nil {
			_ = f.Close() // opened again by name, or copied
			delete(files, name)
		}
	}
	e.release(id, files)
	// Whoever waited for these has been told that they are lost.
	if err := e.cfg.Runner.EndExecs(c.rec.Pod, id); err != nil {
		e.log.Warn("commands that ran in a container could not be ended", "container", id, "err", err)
	}
	e.follow(c, ended)
	return nil
}
