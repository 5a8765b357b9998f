package plugins

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/devices"
	"ledge/node/grpc"
)

// doorName is what plugins watch for: a new one has them register anew.
const doorName = "kubelet.sock"

const (
	mostConnections = 32
	lookAtDoor      = 10 * time.Second
	tryDoorAgain    = 10 * time.Second
)

// Run serves plugins until ctx ends.
func (p *Plugins) Run(ctx context.Context) error {
	defer p.end()
	for ctx.Err() == nil && p.cfg.Dir != "" {
		err := p.serve(ctx)
		p.serving.About("device plugins cannot register; it is tried again", err, "directory", p.cfg.Dir)
		select {
		case <-ctx.Done():
		case <-time.After(tryDoorAgain):
		}
	}
	<-ctx.Done()
	return nil
}

// end waits for what follows plugins; more of it does not begin.
func (p *Plugins) end() {
	p.mu.Lock()
	p.ended = true
	p.mu.Unlock()
	p.tasks.Wait()
}

// serve takes registrations until ctx ends, or somebody has taken the socket away.
func (p *Plugins) serve(ctx context.Context) error {
	l, err := openDoor(p.cfg.Dir)
	if err != nil {
		return err
	}
	protocols := new(http.Protocols)
	protocols.SetUnencryptedHTTP2(true)
	s := &http.Server{Protocols: protocols, ReadHeaderTimeout: handshakeWithin, ReadTimeout: time.Minute, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 8},
		ErrorLog: slog.NewLogLogger(slog.Default().Handler(), slog.LevelDebug),
		Handler: grpc.Handler(map[string]grpc.Method{register: func(_ context.Context, m []byte) ([]byte, error) {
			return nil, p.register(ctx, m)
		}}, mostRequest)}
	done := make(chan error, 1)
	go func() { done <- s.Serve(&bounded{Listener: l, free: make(chan struct{}, mostConnections)}) }()
	ours, name := inode(l.name), l.name
	for err == nil && ctx.Err() == nil {
		p.serving.About("", nil)
		select {
		case <-ctx.Done():
		case err = <-done:
			done <- err
		case <-time.After(lookAtDoor):
			if inode(name) != ours {
				err = fmt.Errorf("somebody has taken %s away", name)
			}
		}
	}
	_ = s.Close()
	<-done
	if inode(name) == ours {
		_ = os.Remove(name)
	}
	if ctx.Err() != nil {
		return nil
	}
	return err
}

// inode tells a file from another of its name, which may get the same number; 0: there is none.
func inode(name string) int64 {
	var st unix.Stat_t
	if unix.Lstat(name, &st) != nil {
		return 0
	}
	return int64(st.Ino) ^ st.Ctim.Nano()
}

type door struct {
	*net.UnixListener
	name string
}

// openDoor makes the socket for registrations, and takes away those of plugins that have to make theirs anew, as a kubelet does.
func openDoor(dir string) (*door, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var st unix.Stat_t
	switch err := unix.Lstat(dir, &st); {
	case err != nil:
		return nil, os.NewSyscallError("lstat", err)
	case st.Mode&unix.S_IFMT != unix.S_IFDIR || st.Uid != uint32(os.Geteuid()) || st.Mode&0o022 != 0:
		return nil, fmt.Errorf("%s is to be a directory into which root alone may write: whoever has a socket there hands out devices", dir)
	}
	name := filepath.Join(dir, doorName)
	if c, err := net.DialTimeout("unix", name, time.Second); err == nil {
		_ = c.Close()
		return nil, fmt.Errorf("a kubelet, or another ledge, serves %s: stop it, or name another directory in the key devicePlugins", name)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	for _, e := range list {
		switch at := filepath.Join(dir, e.Name()); {
		case e.Type()&fs.ModeSocket != 0:
			if err := os.Remove(at); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
		case e.Name() == doorName:
			return nil, fmt.Errorf("%s is no socket: remove it", at)
		}
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: name, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false)
	if err := os.Chmod(name, 0o600); err != nil {
		_ = l.Close()
		return nil, err
	}
	return &door{l, name}, nil
}

// bounded has as many connections at a time as free holds; others wait.
type bounded struct {
	net.Listener
	free chan struct{}
}

func (b *bounded) Accept() (net.Conn, error) {
	b.free <- struct{}{}
	c, err := b.Listener.Accept()
	if err != nil {
		<-b.free
		return nil, err
	}
	return &counted{Conn: c, left: sync.OnceFunc(func() { <-b.free })}, nil
}

type counted struct {
	net.Conn
	left func()
}

func (c *counted) Close() error {
	c.left()
	return c.Conn.Close()
}

// register is Registration.Register. A plugin that is taken lives as long as ctx.
func (p *Plugins) register(ctx context.Context, message []byte) error {
	r, err := parseRegistration(message)
	if err == nil {
		err = r.check()
	}
	if err != nil {
		slog.Warn("a device plugin is turned away", "err", err)
		return grpc.Error{Code: grpc.InvalidArgument, Message: err.Error()}
	}
	name := filepath.Join(p.cfg.Dir, r.endpoint)
	e := &endpoint{client: grpc.NewClient(grpc.Client{Authority: "localhost", Agent: p.cfg.Agent, Most: mostMessage},
		func(ctx context.Context) (net.Conn, error) { return dialSoon(ctx, name) })}
	within, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	b, err := e.client.Call(within, plugin+"GetDevicePluginOptions", nil)
	if err == nil {
		e.options, err = parseOptions(b)
	}
	if err != nil {
		err = fmt.Errorf("ask the device plugin of %s at %s for its options: %w", r.resource, name, err)
	} else {
		err = p.add(ctx, r.resource, e)
	}
	if err != nil {
		e.client.Close()
		slog.Warn("a device plugin is turned away", "err", err)
		return err
	}
	slog.Info("a device plugin has registered", "resource", r.resource, "socket", name)
	return nil
}

func (r registration) check() error {
	switch {
	case r.version != version:
		return fmt.Errorf("requested API version %.100q is not supported by kubelet. Supported version is %q", r.version, version)
	case !api.IsExtended(corev1.ResourceName(r.resource)), strings.HasPrefix(r.resource, devices.Domain):
		return fmt.Errorf("the ResourceName %.300q is invalid: it is the vendor's domain and a name, such as example.com/radio", r.resource)
	case r.endpoint == "" || r.endpoint == "." || r.endpoint == ".." || r.endpoint == doorName || len(r.endpoint) > mostEndpoint ||
		strings.ContainsAny(r.endpoint, "/\x00"):
		return fmt.Errorf("the Endpoint %.300q is not the name of a socket beside %s", r.endpoint, doorName)
	}
	return nil
}

// listensWithin is how long a plugin that has registered may take until it listens: many do both at once.
const listensWithin = 2 * time.Second

// dialSoon connects to a socket that may be about to be there.
func dialSoon(ctx context.Context, name string) (c net.Conn, err error) {
	for end := time.Now().Add(listensWithin); ; {
		c, err = dialSocket(ctx, name)
		if !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, unix.ECONNREFUSED) || time.Now().After(end) {
			return c, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// dialSocket connects to a socket itself, and to nothing that a link leads to.
func dialSocket(ctx context.Context, name string) (net.Conn, error) {
	fd, err := unix.Open(name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: err}
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, os.NewSyscallError("fstat", err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is no socket", name)
	}
	return (&net.Dialer{}).DialContext(ctx, "unix", fmt.Sprintf("/proc/self/fd/%d", fd))
}
