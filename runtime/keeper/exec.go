package keeper

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// execSpec is a runtime.Exec without its streams: those travel as files.
type execSpec struct {
	Container string
	Args      []string
	Env       []string
	Cwd       string
	User      *runtime.User `json:",omitempty"`
	TTY       bool
	Size      runtime.Size
	// Files tells which of standard input, output and error come along.
	Files [3]bool
}

func specOf(x runtime.Exec) execSpec {
	return execSpec{Container: x.Container, Args: x.Args, Env: x.Env, Cwd: x.Cwd, User: x.User, TTY: x.TTY, Size: x.Size}
}

// in gives the container as the command is to find it.
func (x execSpec) in(c runtime.Container) runtime.Container {
	c.Args, c.TTY = x.Args, x.TTY
	c.Env = slices.Concat(c.Env, x.Env)
	if x.TTY {
		c.Env = withTerm(c.Env)
	}
	if x.Cwd != "" {
		c.Cwd = x.Cwd
	}
	if x.User != nil {
		c.User = *x.User
	}
	return c
}

// withTerm names a terminal, unless one is named already.
func withTerm(env []string) []string {
	if slices.ContainsFunc(env, func(kv string) bool { return strings.HasPrefix(kv, "TERM=") }) {
		return env
	}
	return append(slices.Clip(env), "TERM=xterm")
}

// Exec implements runtime.Engine.
func (e *Engine) Exec(ctx context.Context, x runtime.Exec) (runtime.Exit, error) {
	p, err := plumb(x)
	if err != nil {
		return runtime.Exit{}, err
	}
	defer p.close()
	exit, err := e.commands.run(ctx, specOf(x), p.child, func(tty *os.File) error { p.start(tty); return nil })
	if err != nil {
		return runtime.Exit{}, err
	}
	return exit, p.finish()
}

// commands runs commands in containers.
type commands struct {
	runner Runner
	reaper *reaper
	works  *works
	held   *holdings
	quit   chan struct{} // closed when the keeper ends
	places *places       // on their way into a container: a start that hangs keeps nobody from looking
	ran    atomic.Uint64 // so far; names them
}

// run runs a command with these files. started is called when the command runs, with its terminal if it has one;
// started then owns the terminal.
func (r *commands) run(ctx context.Context, x execSpec, files [3]*os.File, started func(tty *os.File) error) (runtime.Exit, error) {
	end, err := r.works.begin()
	if err != nil {
		return runtime.Exit{}, err
	}
	defer end()
	c, ok := r.held.container(x.Container)
	group := strconv.FormatUint(r.ran.Add(1), 10)
	if !ok {
		return runtime.Exit{}, fmt.Errorf("exec in container %s: %w", x.Container, runtime.ErrNotFound)
	}
	what := runtime.Late{What: runtime.Entering, PodUID: c.rec.Container.PodUID, Container: x.Container}
	in, err := bounded(ctx, r.works, what, func(ctx context.Context) (entered, error) { return r.enter(ctx, c, x, files, group) })
	if err != nil {
		return runtime.Exit{}, fmt.Errorf("exec in container %s: %w", x.Container, err)
	}
	exit, err := r.follow(ctx, c, in.proc, group, func() error { return started(in.tty) })
	if err != nil {
		return exit, fmt.Errorf("exec in container %s: %w", x.Container, err)
	}
	return exit, nil
}

// entered is a command that runs in its container.
type entered struct {
	proc *process
	tty  *os.File
}

// enter waits for a command's turn and brings it into its container.
func (r *commands) enter(ctx context.Context, c *container, x execSpec, files [3]*os.File, group string) (entered, error) {
	select {
	case c.turn <- struct{}{}:
		defer func() { <-c.turn }()
	case <-ctx.Done():
		return entered{}, context.Cause(ctx)
	}
	leave, err := r.places.take(ctx)
	if err != nil {
		return entered{}, err
	}
	defer leave()
	proc, tty, err := r.fork(ctx, c, x, files, group)
	return entered{proc, tty}, err
}

// endEntering ends commands that have not come into their container yet.
func (r *commands) endEntering(c *container, cause error) {
	r.works.endAll(cause, func(l runtime.Late) bool { return l.What == runtime.Entering && l.Container == c.rec.Container.ID })
}

// fork starts the command and takes hold of it.
func (r *commands) fork(ctx context.Context, c *container, x execSpec, files [3]*os.File, group string) (_ *process, tty *os.File,
	err error) {
	// The command enters namespaces by PID. Meanwhile nobody may reap that process, or the PID could become another
	// process's.
	c.entering.RLock()
	defer c.entering.RUnlock()
	if !c.alive() || c.proc == nil || c.proc.hasEnded() {
		return nil, nil, runtime.ErrNotRunning
	}
	var pair, console *os.File
	if x.TTY {
		if pair, console, err = socketPair(); err != nil {
			return nil, nil, err
		}
		defer pair.Close()
		defer console.Close()
	}
	std, closeNull, err := orNull(files)
	if err != nil {
		return nil, nil, err
	}
	defer closeNull()
	r.reaper.begin()
	owned := 0
	defer func() { r.reaper.end(owned) }()
	id := c.rec.Container.ID
	pid, err := r.runner.Exec(ctx, c.dir, c.rec.Pod, x.in(c.rec.Container), x.Size, std, console, group)
	if err != nil {
		if c.proc.ending() {
			err = errors.Join(runtime.ErrNotRunning, err)
		}
		return nil, nil, err
	}
	proc, err := openProcess(pid, 0) // our own child: its number stays its own until we wait for it
	if err == nil && x.TTY {
		tty, err = receiveTerminal(pair)
	}
	if err != nil {
		err = errors.Join(err, r.runner.EndExec(c.rec.Pod, id, group))
		if proc != nil {
			_ = proc.fd.Close()
		}
		return nil, nil, err // the reaper takes the child
	}
	owned = pid
	return proc, tty, nil
}

// follow waits for the command's end, or brings it about when ctx ends.
func (r *commands) follow(ctx context.Context, c *container, proc *process, group string, started func() error) (runtime.Exit, error) {
	defer proc.fd.Close()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	// The keeper goes: its successor could not tell anybody how the command ended.
	left := make(chan struct{})
	defer close(left)
	go func() {
		select {
		case <-r.quit:
			cancel(runtime.ErrUnavailable)
		case <-left:
		}
	}()
	if err := started(); err != nil {
		cancel(err)
	}
	var kerr error
	killed := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(killed)
		if kerr = r.runner.EndExec(c.rec.Pod, c.rec.Container.ID, group); kerr != nil {
			proc.stop() // it does not die: nobody waits for it
		}
	})
	exit, err := proc.wait()
	r.reaper.gone(proc.pid)
	if stop() {
		return exit, errors.Join(err, r.runner.LeaveExec(c.rec.Pod, c.rec.Container.ID, group))
	}
	<-killed
	return runtime.Exit{}, errors.Join(context.Cause(ctx), kerr)
}

// orNull puts /dev/null where no file is.
func orNull(files [3]*os.File) (std [3]*os.File, done func(), err error) {
	var null *os.File
	for i, f := range files {
		if f == nil && null == nil {
			if null, err = openBlocking(os.DevNull, os.O_RDWR); err != nil {
				return std, nil, err
			}
		}
		if std[i] = f; f == nil {
			std[i] = null
		}
	}
	return std, func() {
		if null != nil {
			_ = null.Close()
		}
	}, nil
}

// hasEnded asks without waiting.
func (p *process) hasEnded() bool {
	rc, err := p.fd.SyscallConn()
	if err != nil {
		return true
	}
	ended := true
	_ = rc.Control(func(fd uintptr) {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
		ended = n > 0 || err != nil && err != unix.EINTR
	})
	return ended
}

// ending says whether a process has ended or is about to: the kernel takes its namespaces away before it reports the end.
func (p *process) ending() bool {
	_, err := os.Readlink("/proc/" + strconv.Itoa(p.pid) + "/ns/mnt")
	return err != nil || p.hasEnded()
}
