package keeper

import (
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// plumbing is the caller's side of a command's streams: pipes whose far ends the command gets, or a terminal.
type plumbing struct {
	x     runtime.Exec
	child [3]*os.File // the far ends
	stdin *os.File
	outs  []*outlet
	tty   *os.File
	over  chan struct{} // closed by close

	started bool
}

// outlet carries one output to its writer.
type outlet struct {
	from *os.File
	to   io.Writer
	done chan struct{}
	err  error // of the writer
}

// plumb makes the pipes. A command with a terminal brings that when it runs.
func plumb(x runtime.Exec) (_ *plumbing, err error) {
	p := &plumbing{x: x, over: make(chan struct{})}
	defer func() {
		if err != nil {
			p.close()
		}
	}()
	if x.TTY {
		return p, nil
	}
	if x.Stdin != nil {
		if p.child[0], p.stdin, err = pipe(1); err != nil {
			return nil, err
		}
	}
	for i, w := range []io.Writer{x.Stdout, x.Stderr} {
		if w == nil {
			continue
		}
		o := &outlet{to: w, done: make(chan struct{})}
		if p.child[i+1], o.from, err = pipe(0); err != nil {
			return nil, err
		}
		p.outs = append(p.outs, o)
	}
	return p, nil
}

// pipe makes one for a command: the command's end is blocking, as programs expect, ours (0: the one to read from, 1:
// the one to write to) is for Go's poller.
func pipe(our int) (theirs, ours *os.File, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, nil, fmt.Errorf("pipe: %w", err)
	}
	if ours, err = pollable(fds[our], "pipe"); err != nil {
		return nil, nil, errors.Join(err, unix.Close(fds[1-our]))
	}
	return os.NewFile(uintptr(fds[1-our]), "pipe"), ours, nil
}

// start carries the streams, once the command runs and has its ends.
func (p *plumbing) start(tty *os.File) {
	p.closeChild()
	if p.tty = tty; tty != nil {
		p.stdin = tty
		p.outs = []*outlet{{from: tty, to: p.x.Stdout, done: make(chan struct{})}}
		if p.x.Stdout == nil {
			p.outs[0].to = io.Discard
		}
		if p.x.Resize != nil {
			go p.resize()
		}
	}
	p.started = true
	for _, o := range p.outs {
		go o.run()
	}
	if p.x.Stdin != nil {
		go p.feed()
	}
}

// join is start for a caller who attaches. Here a terminal's output has a pipe too. in takes the input, nil if there is none; ended is
// called when there is no more input.
func (p *plumbing) join(in *os.File, tty bool, ended func()) {
	p.closeChild()
	if p.stdin = in; tty {
		p.tty = in
		if p.x.Resize != nil {
			go p.resize()
		}
	}
	p.started = true
	for _, o := range p.outs {
		go o.run()
	}
	if p.x.Stdin == nil {
		return
	}
	go func() {
		if in != nil {
			p.feed()
		}
		_, _ = io.Copy(io.Discard, p.x.Stdin) // the container reads no more
		ended()
	}()
}

// drain waits for the end of all output and says whether a writer failed.
func (p *plumbing) drain() error {
	var errs []error
	for _, o := range p.outs {
		<-o.done
		errs = append(errs, o.err)
	}
	return errors.Join(errs...)
}

func (p *plumbing) feed() {
	_, _ = io.Copy(p.stdin, p.x.Stdin) // the command need not read it
	if p.tty == nil {
		_ = p.stdin.Close()
	}
}

func (p *plumbing) resize() {
	for {
		select {
		case size, ok := <-p.x.Resize:
			if !ok {
				return
			}
			if rc, err := p.tty.SyscallConn(); err == nil {
				_ = rc.Control(func(fd uintptr) {
					_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Col: size.Width, Row: size.Height})
				})
			}
		case <-p.over:
			return
		}
	}
}

// ttyRest is how long a terminal may take to hand out what was written last, which waits in a queue of the kernel. If the command left
// nothing in the background, the terminal ends at once.
const ttyRest = 100 * time.Millisecond

// finish copies the rest of the output after the command has ended, and returns the errors of the writers. What the command left running
// may hold the pipes open for ever, so finish takes only what is in them now: that is what the command wrote.
func (p *plumbing) finish() error {
	var errs []error
	for _, o := range p.outs {
		rest := time.Unix(1, 0)
		if p.tty != nil {
			rest = time.Now().Add(ttyRest)
		}
		_ = o.from.SetReadDeadline(rest)
		<-o.done
		if o.err == nil {
			o.rest()
		}
		errs = append(errs, o.err)
	}
	return errors.Join(errs...)
}

func (o *outlet) run() {
	defer close(o.done)
	if _, err := io.Copy(marked{o}, o.from); o.err != nil {
		o.err = fmt.Errorf("write the output of a container: %w", err)
		_ = o.from.Close()
	}
}

// marked tells errors of the writer from those of the reader, of which every one is an end (EIO is a terminal's).
type marked struct{ o *outlet }

func (m marked) Write(b []byte) (int, error) {
	n, err := m.o.to.Write(b)
	m.o.err = err
	return n, err
}

// rest takes what a pipe holds, and no more than it can hold, since somebody may go on writing.
func (o *outlet) rest() {
	rc, err := o.from.SyscallConn()
	if err != nil {
		return
	}
	buf, left := make([]byte, 4096), 64<<10 // a terminal holds less
	_ = rc.Control(func(fd uintptr) {
		if size, err := unix.FcntlInt(fd, unix.F_GETPIPE_SZ, 0); err == nil {
			left = size // whoever has the other end may have made it larger
		}
	})
	for left > 0 && o.err == nil {
		n := 0
		if err := rc.Control(func(fd uintptr) { n, _ = unix.Read(int(fd), buf) }); err != nil || n <= 0 {
			return
		}
		left -= n
		_, o.err = o.to.Write(buf[:n])
	}
}

func (p *plumbing) closeChild() {
	for i, f := range p.child {
		if f != nil {
			_ = f.Close()
			p.child[i] = nil
		}
	}
}

// close gives everything back. No writer is used after it.
func (p *plumbing) close() {
	close(p.over)
	p.closeChild()
	if p.stdin != nil {
		_ = p.stdin.Close()
	}
	for _, o := range p.outs {
		_ = o.from.Close()
		if p.started {
			<-o.done
		}
	}
}
