package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"ledge/internal/durable"
	"ledge/internal/grumble"
)

// every is how often it is looked whether there is something else to say. Nothing is written where there is not.
const every = 10 * time.Second

// sink takes the lines, each time they are others.
type sink interface {
	show(lines []string) error
	close() error
}

// Config says where it is shown.
type Config struct {
	Facts func(context.Context) Facts
	// Init: ledge is process 1, and the screen and the serial lines are its own. Else what logs in to the machine shows it.
	Init bool
	Dev  string // /dev
	Sys  string // /sys
	Run  string // /run
}

// Run shows it until ctx ends. A machine without a screen shows nothing.
func Run(ctx context.Context, cfg Config) error {
	last := &shown{}
	g, ctx := errgroup.WithContext(ctx)
	var sinks []sink
	if cfg.Init {
		if s, err := openScreen(cfg.Dev); err == nil {
			sinks = append(sinks, s)
		} else if !absent(err) {
			slog.Warn("this board shows nothing on its screen", "err", err)
		}
		for _, line := range serialLines(cfg.Sys) {
			if f, err := openLine(filepath.Join(cfg.Dev, line)); err == nil {
				g.Go(func() error { return answer(ctx, f, last, pauseLine) })
			}
		}
	} else if cfg.Run != "" {
		sinks = append(sinks, issue{cfg.Run})
	}
	g.Go(func() error {
		defer func() {
			for _, s := range sinks {
				_ = s.close() // the machine goes down, or the next start writes it anew
			}
		}()
		follow(ctx, cfg.Facts, last, sinks)
		return nil
	})
	return g.Wait()
}

// follow looks, and shows what is new.
func follow(ctx context.Context, facts func(context.Context) Facts, last *shown, sinks []sink) {
	shows, failed := make([][]string, len(sinks)), make([]grumble.Once, len(sinks))
	for {
		lines := Lines(facts(ctx), time.Now())
		last.set(lines)
		for i, s := range sinks {
			if slices.Equal(shows[i], lines) {
				continue
			}
			err := s.show(lines)
			failed[i].About("this board cannot show how it is; trying again", err)
			if err == nil {
				shows[i] = lines
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(every):
		}
	}
}

// shown is what was said last.
type shown struct {
	mu    sync.Mutex
	lines []string
}

func (s *shown) set(lines []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.lines = lines
}

func (s *shown) last() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lines
}

func absent(err error) bool {
	return errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENXIO) || errors.Is(err, unix.ENODEV) || errors.Is(err, unix.EIO)
}

// screen is a virtual terminal of its own, the second: the kernel and the log write to the first, which Alt+F1 shows.
type screen struct{ f *os.File }

// What the kernel's virtual terminals are asked, of linux/vt.h and tiocl.h.
const (
	vtActivate    = 0x5606
	tiocLinux     = 0x541C
	messagesFirst = 17 | 1<<8 // redirect the kernel's messages, to terminal 1: two bytes
)

func openScreen(dev string) (*screen, error) {
	ctl, err := os.OpenFile(filepath.Join(dev, "tty0"), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		return nil, err
	}
	defer ctl.Close()
	f, err := os.OpenFile(filepath.Join(dev, "tty2"), os.O_WRONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	_ = unix.IoctlSetPointerInt(int(ctl.Fd()), tiocLinux, messagesFirst) // a kernel that cannot writes over what is shown
	if err := unix.IoctlSetInt(int(ctl.Fd()), vtActivate, 2); err != nil {
		return nil, errors.Join(fmt.Errorf("show terminal 2: %w", err), f.Close())
	}
	if err := keysAlone(f); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &screen{f}, nil
}

// keysAlone has a terminal neither show nor hold back what is typed: keys would scroll away what stands there, or stop it (Ctrl-S, Scroll
// Lock).
func keysAlone(f *os.File) error {
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) {
		var t *unix.Termios
		if t, err = unix.IoctlGetTermios(int(fd), unix.TCGETS); err != nil {
			return
		}
		t.Iflag &^= unix.IXON | unix.IXOFF
		t.Lflag &^= unix.ICANON | unix.ECHO | unix.ISIG
		t.Oflag |= unix.OPOST | unix.ONLCR
		t.Cc[unix.VMIN], t.Cc[unix.VTIME] = 1, 0
		err = unix.IoctlSetTermios(int(fd), unix.TCSETS, t)
	})
	if err = errors.Join(err, cerr); err != nil {
		return fmt.Errorf("set up terminal %s: %w", f.Name(), err)
	}
	return nil
}

// showTime is how long a terminal may take what is said: one that was stopped takes nothing.
const showTime = time.Second

// show draws all of it: clear, home, no cursor.
func (s *screen) show(lines []string) error {
	if err := s.f.SetWriteDeadline(time.Now().Add(showTime)); err != nil {
		return err
	}
	_, err := s.f.WriteString("\x1b[?25l\x1b[2J\x1b[H" + strings.Join(lines, "\r\n") + "\r\n")
	return err
}

func (s *screen) close() error { return s.f.Close() }

// serialName is what a serial line is called, and no virtual terminal.
var serialName = regexp.MustCompile(`^tty[A-Za-z]+[0-9]+$`)

// serialLines are the kernel's consoles that are serial lines.
func serialLines(sys string) (out []string) {
	data, err := os.ReadFile(filepath.Join(sys, "class/tty/console/active"))
	if err != nil {
		return nil
	}
	for _, name := range strings.Fields(string(data)) {
		if serialName.MatchString(name) {
			out = append(out, name)
		}
	}
	return out
}

func openLine(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	if err := keysAlone(f); err != nil { // there is no line behind the name
		f.Close()
		return nil, err
	}
	return f, nil
}

// pauseLine keeps a line that nothing is plugged into, and that hears noise, from being written to all the time.
const pauseLine = 2 * time.Second

// answer says it whenever Enter is pressed on a serial line.
func answer(ctx context.Context, f *os.File, last *shown, pause time.Duration) error {
	defer context.AfterFunc(ctx, func() { f.Close() })()
	defer f.Close()
	for buf := make([]byte, 256); ; {
		n, err := f.Read(buf)
		if err != nil || n == 0 { // the line is gone
			return nil //nolint:nilerr // a board runs its pods all the same
		}
		if !bytes.ContainsAny(buf[:n], "\r\n") {
			continue
		}
		if err := f.SetWriteDeadline(time.Now().Add(showTime)); err != nil {
			return nil //nolint:nilerr // likewise
		}
		if _, err := io.WriteString(f, "\n"+strings.Join(last.last(), "\n")+"\n"); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			return nil //nolint:nilerr // likewise
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// issue is what a login shows above it: a file that agetty reads, and another that tells it to look again.
type issue struct{ run string }

func (i issue) path() string { return filepath.Join(i.run, "issue.d", "ledge.issue") }

func (i issue) show(lines []string) error {
	text := strings.ReplaceAll(strings.Join(lines, "\n"), `\`, `\\`) // agetty's own escape
	err := os.MkdirAll(filepath.Dir(i.path()), 0o755)
	if err == nil {
		err = durable.Volatile.Replace(i.path(), []byte(text+"\n\n"), 0o644)
	}
	if err != nil {
		return fmt.Errorf("show it at the login: %w", err)
	}
	return i.reload()
}

// reload has the logins that wait show it.
func (i issue) reload() error {
	path := filepath.Join(i.run, "agetty.reload")
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil // none waits
	}
	now := time.Now()
	return os.Chtimes(path, now, now)
}

func (i issue) close() error {
	err := os.Remove(i.path())
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return errors.Join(err, i.reload())
}

// Remove takes away what a node that was killed has left at the login.
func Remove(run string) error { return issue{run}.close() }
