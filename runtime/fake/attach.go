package fake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"ledge/runtime"
)

// Program is what a container's own program does with its streams. It must come to an end when ctx does; stdin ends
// then.
type Program func(ctx context.Context, stdin io.Reader, stdout, stderr io.Writer) (code int)

// program is the running one, and who is attached to it.
type program struct {
	spec  runtime.Container
	ctx   context.Context
	end   context.CancelFunc
	stdin *io.PipeReader
	write *io.PipeWriter // to stdin; it is closed when stdin has ended

	mu    sync.Mutex
	taps  map[*tap]bool
	early []chunk // with StdinOnce: what was said before the first attacher
	heard bool    // somebody has attached
}

// tap is one attacher's share of the output, as far behind as it may be.
type tap struct {
	news chan chunk
	slow context.CancelCauseFunc
}

type chunk struct {
	stderr bool
	data   string
}

const behind = 64 // chunks

func newProgram(spec runtime.Container) *program {
	p := &program{spec: spec, taps: map[*tap]bool{}}
	p.ctx, p.end = context.WithCancel(context.Background())
	p.stdin, p.write = io.Pipe()
	if !spec.Stdin {
		_ = p.write.Close()
	}
	return p
}

func (p *program) stop() {
	p.end()
	_ = p.write.Close()
}

func (e *Engine) runMain(c *container) {
	code := c.does.Main(c.main.ctx, c.main.stdin, output{c.main, false}, output{c.main, !c.main.spec.TTY})
	_ = c.main.stdin.Close() // what is written to it goes nowhere now
	e.mu.Lock()
	defer e.mu.Unlock()
	e.end(c, runtime.Exit{Code: code})
}

// output gives what is written to everyone who is attached, and never waits.
type output struct {
	p      *program
	stderr bool
}

func (o output) Write(b []byte) (int, error) {
	o.p.mu.Lock()
	defer o.p.mu.Unlock()
	if o.p.spec.StdinOnce && !o.p.heard && len(o.p.early) < behind {
		o.p.early = append(o.p.early, chunk{o.stderr, string(b)})
	}
	for t := range o.p.taps {
		select {
		case t.news <- chunk{o.stderr, string(b)}:
		default:
			t.slow(runtime.ErrTooSlow)
			delete(o.p.taps, t)
		}
	}
	return len(b), nil
}

// Attach implements runtime.Attacher.
func (e *Engine) Attach(ctx context.Context, x runtime.Attach) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	c, err := e.enter(x.Container, &cancel)
	if err == nil {
		defer e.leave(c, &cancel)
		if x.Stdin != nil && !c.main.spec.Stdin {
			err = runtime.ErrNoStdin
		} else {
			err = c.main.attach(ctx, cancel, x)
		}
	}
	if err != nil {
		return fmt.Errorf("attach to container %s: %w", x.Container, err)
	}
	return nil
}

func (p *program) attach(ctx context.Context, cancel context.CancelCauseFunc, x runtime.Attach) error {
	t := &tap{news: make(chan chunk, behind), slow: cancel}
	p.mu.Lock()
	p.taps[t] = true
	for _, c := range p.early {
		t.news <- c
	}
	p.early, p.heard = nil, true
	p.mu.Unlock()
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.taps, t)
	}()
	once := p.spec.StdinOnce && !p.spec.TTY
	if x.Stdin != nil {
		if once {
			defer p.write.Close()
		}
		go func() {
			_, _ = io.Copy(p.write, x.Stdin)
			_, _ = io.Copy(io.Discard, x.Stdin) // the container reads no more
			if once {
				_ = p.write.Close()
			} else {
				cancel(errHadEnough)
			}
		}()
	}
	for {
		select {
		case c := <-t.news:
			if err := take(x, c); err != nil {
				return err
			}
		case <-ctx.Done():
			return p.attachEnded(context.Cause(ctx), t, x)
		}
	}
}

// errHadEnough is the cause of an attachment's end when its input has ended.
var errHadEnough = errors.New("the input has ended")

// attachEnded gives what was written before a container ended.
func (p *program) attachEnded(why error, t *tap, x runtime.Attach) error {
	if why != errEnded && why != errHadEnough {
		return why
	}
	for {
		select {
		case c := <-t.news:
			if err := take(x, c); err != nil {
				return err
			}
		default:
			return nil
		}
	}
}

func take(x runtime.Attach, c chunk) error {
	w := x.Stdout
	if c.stderr {
		w = x.Stderr
	}
	if w == nil {
		return nil
	}
	_, err := io.WriteString(w, c.data)
	return err
}
