package libct

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/opencontainers/cgroups"
	"github.com/opencontainers/runc/libcontainer"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// A command that runs in a container gets a cgroup of its own below the container's. So all that it starts can be found and killed, even
// a process that has left its session and its parents. On v1 that is done in one hierarchy; in all the others the command joins the
// container.
const execPrefix = "exec-"

// Exec starts a command in a running container and gives its PID, a child of this process that the caller must wait
// for. group names its processes for EndExec and LeaveExec; nothing of it is left after an error. c is the container
// as it was started, with Args, Env, Cwd, User and TTY those of the command. ctx counts as in Start.
func (r *Runner) Exec(ctx context.Context, dir string, p runtime.Pod, c runtime.Container, size runtime.Size, stdio [3]*os.File,
	console *os.File, group string) (int, error) {
	if err := errors.Join(check(c), runtime.CheckID("group", group)); err != nil {
		return 0, err
	}
	lc, err := libcontainer.Load(stateRoot(dir), c.ID)
	if err != nil {
		return 0, fmt.Errorf("load: %w", err)
	}
	controller, cg, err := r.execGroup(p, c.ID, group)
	if err != nil {
		return 0, err
	}
	// Not MkdirAll: the cgroup of a container that ends now must not come back.
	if err := os.Mkdir(cg, 0o755); err != nil {
		return 0, fmt.Errorf("make the cgroup of a command: %w", err)
	}
	proc := process(c, stdio, console)
	proc.Init = false
	proc.ConsoleWidth, proc.ConsoleHeight = size.Width, size.Height
	proc.SubCgroupPaths = map[string]string{controller: execPrefix + group}
	config := lc.Config()
	if err := r.filters.lend(proc, config.Seccomp, false); err != nil {
		return 0, errors.Join(err, r.tree.endGroup(cg))
	}
	state, err := lc.State()
	if err != nil {
		return 0, errors.Join(err, r.tree.endGroup(cg))
	}
	in := entering{mounts: mountsOf(state.InitProcessPid)}
	defer in.reap()
	kill := func() error { return errors.Join(r.tree.endGroup(cg), in.kill()) }
	if err := killLate(ctx, kill, func() error { return lc.Run(proc) }); err != nil {
		return 0, errors.Join(err, r.tree.endGroup(cg))
	}
	pid, err := proc.Pid()
	if err != nil {
		return 0, errors.Join(err, r.tree.endGroup(cg))
	}
	return pid, nil
}

// execGroup says in which hierarchy the commands of a container are kept apart, and where.
func (r *Runner) execGroup(p runtime.Pod, id, group string) (controller, dir string, err error) {
	if err := errors.Join(runtime.CheckID("container", id), checkCgroup(p.Cgroup)); err != nil {
		return "", "", err
	}
	m, err := r.tree.open(r.tree.containerCgroup(p, id), nil)
	if err != nil {
		return "", "", err
	}
	if !r.tree.unified {
		// The freezer holds still what is being killed; devices is always there (checkV1).
		if controller = "freezer"; m.Path(controller) == "" {
			controller = "devices"
		}
	}
	if m.Path(controller) == "" {
		return "", "", fmt.Errorf("container %s has no cgroup to run a command in", id)
	}
	return controller, filepath.Join(m.Path(controller), execPrefix+group), nil
}

// EndExec kills what a command started and still runs, and removes its cgroup.
func (r *Runner) EndExec(p runtime.Pod, id, group string) error {
	_, cg, err := r.execGroup(p, id, group)
	if err != nil {
		return err
	}
	return r.tree.endGroup(cg)
}

// EndExecs does that for every command of a container: those of a keeper that died.
func (r *Runner) EndExecs(p runtime.Pod, id string) error {
	_, cg, err := r.execGroup(p, id, "")
	if err != nil {
		return err
	}
	entries, err := os.ReadDir(filepath.Dir(cg))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, d := range entries {
		if d.IsDir() && strings.HasPrefix(d.Name(), execPrefix) {
			err = errors.Join(err, r.tree.endGroup(filepath.Join(filepath.Dir(cg), d.Name())))
		}
	}
	return err
}

// LeaveExec makes what a command left running a part of the container, and removes the command's cgroup.
func (r *Runner) LeaveExec(p runtime.Pod, id, group string) error {
	_, cg, err := r.execGroup(p, id, group)
	if err != nil {
		return err
	}
	// Each pass may miss what is forked meanwhile; what forks faster than it can be moved is killed.
	for range 16 {
		if err := unix.Rmdir(cg); err == nil || errors.Is(err, unix.ENOENT) {
			return nil
		}
		pids, err := cgroups.GetAllPids(cg)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		for _, pid := range pids {
			if err := cgroups.WriteCgroupProc(filepath.Dir(cg), pid); err != nil {
				// Inside the container somebody manages cgroups (v2: no processes beside inner cgroups): there it stays.
				return nil
			}
		}
		if len(pids) == 0 {
			time.Sleep(time.Millisecond) // the last one is on its way out
		}
	}
	return r.tree.endGroup(cg)
}

// endGroup kills every process of a command's cgroup and removes it.
func (t *tree) endGroup(cg string) error {
	deadline := time.Now().Add(emptyWithin)
	for wait := time.Millisecond; ; wait = min(2*wait, 50*time.Millisecond) {
		pids, err := cgroups.GetAllPids(cg)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case len(pids) == 0:
			return cgroups.RemovePath(cg)
		case time.Now().After(deadline):
			return fmt.Errorf("processes %v of a command do not die", pids)
		}
		if err := t.killGroup(cg, pids); err != nil {
			return err
		}
		time.Sleep(wait)
	}
}

func (t *tree) killGroup(cg string, pids []int) error {
	if t.unified && cgroups.WriteFile(cg, "cgroup.kill", "1") == nil { // kernel 5.14
		return nil
	}
	state, frozen, thawed := "freezer.state", "FROZEN", "THAWED"
	if t.unified {
		state, frozen, thawed = "cgroup.freeze", "1", "0"
	}
	// Frozen processes cannot fork away from us. Where there is no freezer the caller's repetition has to do.
	still := cgroups.WriteFile(cg, state, frozen) == nil
	var err error
	if still {
		if pids, err = cgroups.GetAllPids(cg); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
	}
	for _, pid := range pids {
		if kerr := unix.Kill(pid, unix.SIGKILL); kerr != nil && kerr != unix.ESRCH {
			err = errors.Join(err, fmt.Errorf("kill %d: %w", pid, kerr))
		}
	}
	if still {
		err = errors.Join(err, cgroups.WriteFile(cg, state, thawed))
	}
	return err
}

// entering are the processes of this one that are in the mounts of a container and in no cgroup of it yet: a command on its way in. On
// version 1, where it joins the command's cgroup late, the container's root can stop it there (SIGSTOP).
type entering struct {
	mounts string // of the container
	killed []int  // pidfds
}

// kill kills those there are.
func (e *entering) kill() error {
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return err
	}
	all, err := os.ReadDir("/proc")
	if err != nil {
		return err
	}
	for _, d := range all {
		pid, err := strconv.Atoi(d.Name())
		if err != nil || mountsOf(pid) != e.mounts {
			continue
		}
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue
		}
		// Looked at again: by now the number may be another one's.
		if cg, err := os.ReadFile("/proc/" + d.Name() + "/cgroup"); err != nil || !bytes.Equal(cg, own) || mountsOf(pid) != e.mounts {
			_ = unix.Close(fd)
			continue
		}
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0)
		e.killed = append(e.killed, fd)
	}
	return nil
}

// reap takes those that libcontainer does not know of: as long as one is left, the container's first process does not end.
func (e *entering) reap() {
	for _, fd := range e.killed {
		for range 500 {
			var info unix.Siginfo
			err := unix.Waitid(unix.P_PIDFD, fd, &info, unix.WEXITED|unix.WNOHANG, nil)
			if err != nil && err != unix.EINTR || err == nil && info.Signo != 0 {
				break
			}
			time.Sleep(2 * time.Millisecond)
		}
		_ = unix.Close(fd)
	}
}

// mountsOf names the mounts a process sees; empty if it has ended.
func mountsOf(pid int) string {
	ns, _ := os.Readlink("/proc/" + strconv.Itoa(pid) + "/ns/mnt")
	return ns
}
