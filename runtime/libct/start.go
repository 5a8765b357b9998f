package libct

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path"
	"path/filepath"
	"time"

	"github.com/opencontainers/runc/libcontainer"
	"github.com/opencontainers/runc/libcontainer/configs"
	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// Start runs a container up to the point where its own program executes, and gives the PID of its first process, a
// child of this one that the caller must wait for. With TTY, console is the end of a socket pair that gets the
// terminal's master; stdio is then not used. After an error nothing is left: no process, cgroup or directory. When ctx ends
// before the program executes, what has been started is killed, and the error is ctx's.
func (r *Runner) Start(ctx context.Context, podDir, dir string, p runtime.Pod, c runtime.Container, stdio [3]*os.File,
	console *os.File) (int, error) {
	if err := check(c); err != nil {
		return 0, err
	}
	r.tree.swift.begin(r.tree.ownProcs)
	rootfs, err := filepath.EvalSymlinks(c.Rootfs) // libcontainer wants the real path
	if err != nil {
		return 0, fmt.Errorf("rootfs: %w", err)
	}
	c.Rootfs = rootfs
	if err := r.ensureInit(ctx, podDir, p); err != nil {
		return 0, err
	}
	if err := checkRootfs(c.Rootfs); err != nil {
		return 0, err
	}
	if p.Users != nil {
		shown, hide, err := r.showRoot(p, c)
		if err != nil {
			return 0, err
		}
		defer hide()
		c.Rootfs = shown
	}
	cfg, err := r.compile(podDir, p, c)
	if err != nil {
		return 0, err
	}
	if c.ProcessesOf != "" {
		ns, err := processesOf(dir, c.ProcessesOf)
		if err != nil {
			return 0, err
		}
		cfg.Namespaces.Add(configs.NEWPID, ns)
	}
	lc, err := libcontainer.Create(stateRoot(dir), c.ID, cfg)
	if err != nil {
		return 0, errors.Join(fmt.Errorf("create: %w", err), os.RemoveAll(stateRoot(dir)))
	}
	proc := process(c, stdio, console)
	if err := r.filters.lend(proc, cfg.Seccomp, alone(cfg)); err != nil {
		return 0, errors.Join(err, r.abandon(dir, p, c.ID, proc))
	}
	err = killLate(ctx, func() error { return r.Kill(p, c.ID) }, func() error { return lc.Run(proc) })
	if err != nil {
		return 0, errors.Join(fmt.Errorf("start: %w", err), r.abandon(dir, p, c.ID, proc))
	}
	pid, err := proc.Pid()
	if err != nil {
		return 0, errors.Join(err, r.abandon(dir, p, c.ID, proc))
	}
	return pid, nil
}

// processesOf finds the PID namespace of a container that stands beside this one. The caller keeps it from being reaped.
func processesOf(dir, id string) (string, error) {
	lc, err := libcontainer.Load(stateRoot(filepath.Join(filepath.Dir(dir), id)), id)
	if err != nil {
		return "", fmt.Errorf("find the processes of container %s: %w", id, err)
	}
	state, err := lc.State()
	if err != nil {
		return "", fmt.Errorf("find the processes of container %s: %w", id, err)
	}
	return fmt.Sprintf("/proc/%d/ns/pid", state.InitProcessPid), nil
}

func check(c runtime.Container) error {
	if err := runtime.CheckID("container", c.ID); err != nil {
		return err
	}
	if len(c.Args) == 0 || c.Args[0] == "" {
		return errors.New("no command to run")
	}
	if c.Cwd != "" && !path.IsAbs(c.Cwd) {
		return fmt.Errorf("working directory %q is not an absolute path", c.Cwd)
	}
	for _, id := range append([]uint32{c.User.UID, c.User.GID}, c.User.Groups...) {
		if id > math.MaxInt32 { // CVE-2024-40635: larger ones became 0 on the way
			return fmt.Errorf("user or group %d is above %d", id, math.MaxInt32)
		}
	}
	return nil
}

// stateRoot is where libcontainer keeps its state: one directory per container, so that removing it is one call.
func stateRoot(dir string) string { return filepath.Join(dir, "libct") }

func process(c runtime.Container, stdio [3]*os.File, console *os.File) *libcontainer.Process {
	proc := &libcontainer.Process{
		Args: c.Args, Env: withHome(c), Cwd: c.Cwd, Init: true,
		UID: int(c.User.UID), GID: int(c.User.GID),
	}
	if proc.Cwd == "" {
		proc.Cwd = "/"
	}
	for _, g := range c.User.Groups {
		proc.AdditionalGroups = append(proc.AdditionalGroups, int(g))
	}
	if c.TTY {
		proc.ConsoleSocket = console
		return proc
	}
	// Only real files: for anything else os/exec would copy through goroutines of its own.
	proc.Stdin, proc.Stdout, proc.Stderr = stdio[0], stdio[1], stdio[2]
	return proc
}

// killLate runs start, which waits for a child of its own, and has kill end that child once ctx has ended.
func killLate(ctx context.Context, kill, start func() error) error {
	started, late := make(chan struct{}), make(chan bool, 1)
	go func() {
		select {
		case <-started:
			late <- false
			return
		case <-ctx.Done():
		}
		for { // the child may not be yet where kill looks for it
			_ = kill()
			select {
			case <-started:
				late <- true
				return
			case <-time.After(20 * time.Millisecond):
			}
		}
	}()
	err := start()
	close(started)
	if <-late {
		return fmt.Errorf("%w (%w)", context.Cause(ctx), errors.Join(err, errKilledLate))
	}
	return err
}

var errKilledLate = errors.New("the container's first process was killed before it came to its program")

// abandon cleans up after a failed start. libcontainer has usually killed and reaped its process by then; not so
// if it failed after the process was let go.
func (r *Runner) abandon(dir string, p runtime.Pod, id string, proc *libcontainer.Process) error {
	// A goroutine of libcontainer may still sit in open(2) of this FIFO; opening both ends lets it go.
	if f, err := os.OpenFile(filepath.Join(stateRoot(dir), id, "exec.fifo"), os.O_RDWR|unix.O_NONBLOCK, 0); err == nil {
		f.Close()
	}
	m, err := r.tree.open(r.tree.containerCgroup(p, id), nil)
	if err == nil {
		err = killOnce(m)
	}
	_, _ = proc.Wait()
	return errors.Join(err, r.Unmake(dir, p, id))
}

// Kill sends SIGKILL to every process of a container and does not wait.
func (r *Runner) Kill(p runtime.Pod, id string) error {
	m, err := r.tree.open(r.tree.containerCgroup(p, id), nil)
	if err != nil {
		return err
	}
	return killOnce(m)
}

// Unmake removes what Start made, after killing whatever still runs there, and fails if anything is left. A
// container that is not there is not an error.
func (r *Runner) Unmake(dir string, p runtime.Pod, id string) error {
	if err := errors.Join(runtime.CheckID("container", id), checkCgroup(p.Cgroup)); err != nil {
		return err
	}
	if err := r.tree.removeCgroup(r.tree.containerCgroup(p, id)); err != nil {
		return err
	}
	return os.RemoveAll(stateRoot(dir))
}
