package keeper

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

const (
	retryFirst = 20 * time.Millisecond
	retryLast  = 2 * time.Second
	// A keeper that was started gets this long to answer. One that dies at once is started again ever more slowly.
	startsWithin = 10 * time.Second
)

// Run holds the keeper's files until ctx ends, so that containers keep their logs and terminals while the keeper
// restarts, and starts a keeper when there is none and the configuration says how.
func (c *Client) Run(ctx context.Context) error {
	held := map[string]*os.File{}
	defer func() {
		for _, f := range held {
			_ = f.Close()
		}
		c.lent.close()
	}()
	var children sync.WaitGroup
	defer children.Wait()
	for wait := retryFirst; ctx.Err() == nil; wait = min(2*wait, retryLast) {
		connected, err := c.hold(ctx, held)
		if ctx.Err() != nil {
			break
		}
		if connected {
			wait = retryFirst
			c.log.Warn("the keeper went away; containers go on without it", "err", err)
		} else if !errors.Is(err, runtime.ErrUnavailable) {
			c.log.Error("the keeper cannot be reached", "err", err)
		}
		if len(c.cfg.Command) > 0 && errors.Is(err, runtime.ErrUnavailable) {
			if err := c.startKeeper(ctx, &children); err != nil {
				c.log.Error("a keeper could not be started", "err", err)
			}
		}
		_ = sleep(ctx, wait)
	}
	return nil
}

// hold keeps one connection on which the keeper says what to hold.
func (c *Client) hold(ctx context.Context, held map[string]*os.File) (connected bool, err error) {
	conn, err := c.dial(ctx, request{Op: opPark})
	if err != nil {
		return false, err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	gone := func(err error) error { return fmt.Errorf("keeper: %w: %w", runtime.ErrUnavailable, err) }
	for name, f := range held {
		if err := send(conn, parkFrame{Hold: name}, f); err != nil {
			return false, gone(err)
		}
	}
	if err := send(conn, parkFrame{Synced: true}); err != nil {
		return false, gone(err)
	}
	c.lendAll(ctx)
	fresh := map[string]bool{}
	for {
		var fr parkFrame
		f, err := receiveFile(conn, &fr)
		if err != nil {
			return connected, gone(err)
		}
		connected = true
		drop := fr.Drop
		if f != nil {
			drop = fr.Hold // an older copy
		}
		if old := held[drop]; old != nil {
			_ = old.Close()
			delete(held, drop)
		}
		if f != nil {
			held[fr.Hold] = f
			fresh[fr.Hold] = true
		}
		if fr.Synced {
			for name, f := range held {
				if !fresh[name] {
					_ = f.Close()
					delete(held, name)
				}
			}
		}
	}
}

// startKeeper starts a keeper that outlives this process, and waits until it answers, dies or has had its time.
func (c *Client) startKeeper(ctx context.Context, children *sync.WaitGroup) error {
	if err := os.MkdirAll(c.cfg.RunDir, 0o700); err != nil {
		return err
	}
	cmd := exec.Command(c.cfg.Command[0], c.cfg.Command[1:]...)
	cmd.Dir = "/"
	// Its own session: Ctrl-C and the end of the terminal are for the brain alone.
	cmd.SysProcAttr = &unix.SysProcAttr{Setsid: true}
	cmd.Env = c.cfg.Env
	if cmd.Env == nil {
		cmd.Env = slices.DeleteFunc(os.Environ(), fromSystemd)
	}
	out := c.cfg.Output
	if out == nil {
		var err error
		out, err = os.OpenFile(filepath.Join(c.cfg.RunDir, "keeper.log"), os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
		if err != nil {
			return err
		}
		defer out.Close()
	}
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Start(); err != nil {
		return err
	}
	p, err := openProcess(cmd.Process.Pid, 0)
	if err != nil {
		return err
	}
	_ = cmd.Process.Release()
	c.log.Info("a keeper was started", "pid", p.pid)
	waiting, answered := context.WithTimeout(ctx, startsWithin)
	stop := context.AfterFunc(ctx, p.stop)
	children.Go(func() {
		defer stop()
		defer answered() // no use in waiting for one that has died
		x, err := p.wait()
		_ = p.fd.Close()
		if err == nil && x.Code != 0 {
			c.log.Warn("the keeper ended", "code", x.Code, "it said", lastLine(out.Name()))
		}
	})
	_, _ = c.WaitReady(waiting)
	return nil
}

// lastLine is what a program that has ended wrote last, or nothing.
func lastLine(path string) string {
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	text := make([]byte, 2048)
	if end, err := f.Seek(0, io.SeekEnd); err != nil {
		return ""
	} else if n, err := f.ReadAt(text, max(0, end-int64(len(text)))); err == nil || errors.Is(err, io.EOF) {
		text = bytes.TrimSpace(text[:n])
	}
	return string(text[bytes.LastIndexByte(text, '\n')+1:])
}

// fromSystemd tells what systemd meant for this process only.
func fromSystemd(kv string) bool {
	for _, name := range []string{"NOTIFY_SOCKET", "LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES", "WATCHDOG_PID",
		"WATCHDOG_USEC", "FDSTORE"} {
		if strings.HasPrefix(kv, name+"=") {
			return true
		}
	}
	return false
}
