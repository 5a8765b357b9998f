package nfs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// childName is the name that a child of this program has as its first word.
const childName = "ledge-share"

// order is what a child is told, on its standard input.
type order struct {
	Do    string // mount, look, leave
	Share Share
	At    string
}

// obeys says that this program has asked Child whether it is one: a program that does not would run as itself again, and start further
// children.
var obeys atomic.Bool

// Child does what the parent has ordered. ok: this process is such a child. Each program that mounts shares calls it first of all.
func Child(args []string) (code int, ok bool) {
	obeys.Store(true)
	if len(args) == 0 || args[0] != childName {
		return 0, false
	}
	var o order
	err := json.NewDecoder(os.Stdin).Decode(&o)
	if err == nil {
		err = o.carryOut()
	}
	if err != nil {
		fmt.Fprint(os.Stderr, err)
		return 1, true
	}
	return 0, true
}

func (o order) carryOut() error {
	switch o.Do {
	case "mount":
		return mount(o.Share, o.At)
	case "look":
		var st unix.Statfs_t
		return unix.Statfs(o.At, &st)
	case "leave":
		err := unix.Unmount(o.At, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
		if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.ENOENT) { // nothing is mounted there
			return nil
		}
		return err
	}
	return fmt.Errorf("ledge bug: unknown order %q", o.Do)
}

func mount(s Share, at string) error {
	flags, versions, rest, err := kernelOptions(s)
	if err != nil {
		return err
	}
	server, err := netip.ParseAddr(strings.Trim(s.Server, "[]"))
	if err != nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		found, err := net.DefaultResolver.LookupNetIP(ctx, "ip", s.Server)
		if err != nil {
			return fmt.Errorf("mount %s: find the server: %w", s, err)
		}
		server = found[0].Unmap()
	}
	own := ownAddress(server)
	for _, version := range versions {
		if err = unix.Mount(s.String(), at, "nfs", flags, data(version, server, own, rest)); !next(err) {
			break
		}
	}
	if err != nil {
		return plainly(s, err)
	}
	return nil
}

// patience is how long a child is waited for.
const patience = 10 * time.Second

// mostChildren bounds the children that hang on a board at a time.
const mostChildren = 64

// Shares has the children. The zero value is ready.
type Shares struct {
	mu   sync.Mutex
	left map[string]*child // by what they do and where
}

type child struct {
	cmd   *exec.Cmd
	over  chan struct{}
	err   error
	since time.Time
	what  string
}

// ErrWaits says that a server has not answered yet: a child still asks it.
var ErrWaits = errors.New("the server does not answer")

// Mount mounts a share at a directory. While a child is at it already, that one is asked again.
func (s *Shares) Mount(ctx context.Context, share Share, at string) error {
	if _, _, _, err := kernelOptions(share); err != nil {
		return err
	}
	return s.order(ctx, order{"mount", share, at})
}

// Look says whether the server of what is mounted somewhere answers.
func (s *Shares) Look(ctx context.Context, at string) error {
	return s.order(ctx, order{Do: "look", At: at})
}

// Leave takes a mount away from its place. ErrWaits: the child is still at it, which the place need not be.
func (s *Shares) Leave(ctx context.Context, at string) error {
	return s.order(ctx, order{Do: "leave", At: at})
}

// Stop ends the children that still try to mount something at a place, or look at it, and waits a moment for it: one that the kernel holds
// ends when it can.
func (s *Shares) Stop(at string) {
	s.mu.Lock()
	var ended []*child
	for _, do := range []string{"mount", "look"} {
		if c := s.left[do+" "+at]; c != nil {
			_ = c.cmd.Process.Kill()
			ended = append(ended, c)
		}
	}
	s.mu.Unlock()
	for _, c := range ended {
		select {
		case <-c.over:
		case <-time.After(time.Second):
		}
	}
}

func (s *Shares) order(ctx context.Context, o order) error {
	c, err := s.child(o)
	if err != nil {
		return err
	}
	timer := time.NewTimer(patience)
	defer timer.Stop()
	select {
	case <-c.over:
		return c.err
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return fmt.Errorf("%s: %w, for %s now", c.what, ErrWaits, time.Since(c.since).Round(time.Second))
	}
}

// child is the one that does this already, or a new one.
func (s *Shares) child(o order) (*child, error) {
	if !obeys.Load() {
		return nil, errors.New("this program mounts no shares")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	key := o.Do + " " + o.At
	if c := s.left[key]; c != nil {
		return c, nil
	}
	if len(s.left) >= mostChildren {
		return nil, fmt.Errorf("%d processes wait for servers of shares that do not answer, and there are no more", len(s.left))
	}
	text, err := json.Marshal(o)
	if err != nil {
		return nil, err
	}
	c := &child{cmd: exec.Command("/proc/self/exe"), over: make(chan struct{}), since: time.Now(), what: o.Do + " " + o.At}
	if o.Do == "mount" {
		c.what = "mount " + o.Share.String()
	}
	var said bytes.Buffer
	c.cmd.Args, c.cmd.Stdin, c.cmd.Stderr = []string{childName}, bytes.NewReader(text), &limited{to: &said, most: 1024}
	c.cmd.WaitDelay = patience // until what it said has been read, on a board that is busy
	if err := c.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start a child for a share: %w", err)
	}
	if s.left == nil {
		s.left = map[string]*child{}
	}
	s.left[key] = c
	go func() {
		if err := c.cmd.Wait(); err != nil {
			if c.err = err; said.Len() > 0 {
				c.err = errors.New(said.String())
			}
		}
		s.mu.Lock()
		delete(s.left, key)
		s.mu.Unlock()
		close(c.over)
	}()
	return c, nil
}

// limited drops what is beyond most.
type limited struct {
	to   io.Writer
	most int
}

func (l *limited) Write(p []byte) (int, error) {
	n := min(len(p), l.most)
	l.most -= n
	if _, err := l.to.Write(p[:n]); err != nil {
		return 0, err
	}
	return len(p), nil
}
