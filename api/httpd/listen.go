package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"sync"
	"syscall"
	"time"

	"ledge/api"
)

// Listener is where connections to a Server come from, and how their peers are known.
type Listener struct {
	net.Listener
	tls     *tls.Config // nil where caller names the peer
	streams uint32      // of HTTP/2 on one connection; 0: maxStreams
	// caller names the peer of a connection without TLS, or says why it is turned away.
	caller func(net.Conn) (api.User, error)
}

// ListenUnix opens a unix socket that only root can use: its file is 0600, and whoever connects is asked for by
// the kernel besides (SO_PEERCRED). trust may turn more away, with the reason that they are told; nil: every root is
// answered, that of a container too. A socket that a dead process left is replaced; one that answers is not.
func ListenUnix(path string, trust func(net.Conn) error) (*Listener, error) {
	if err := removeDeadSocket(path); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	l, err := listenClosed(path)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", path, err)
	}
	return &Listener{Listener: l, caller: func(conn net.Conn) (api.User, error) { return peerUser(conn, trust) }}, nil
}

// listenClosed makes the socket under another name and moves it to its place when its mode is right, so that
// there is no moment in which others may connect. The umask would do it too, but belongs to the whole process.
func listenClosed(path string) (net.Listener, error) {
	tmp := fmt.Sprintf("%s.%d", path, os.Getpid())
	if err := os.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: tmp, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then it has another name, which removeOnClose knows
	if err = os.Chmod(tmp, 0o600); err == nil {
		err = os.Rename(tmp, path)
	}
	if err != nil {
		l.Close()
		os.Remove(tmp)
		return nil, err
	}
	return &removeOnClose{Listener: l, path: path}, nil
}

// removeOnClose takes its socket away when it closes, unless another process has put its own there by then.
type removeOnClose struct {
	net.Listener
	path string
	once sync.Once
}

func (l *removeOnClose) Close() error {
	err := net.ErrClosed
	l.once.Do(func() {
		err = l.Listener.Close()
		if removeDeadSocket(l.path) != nil {
			slog.Debug("socket is somebody else's now", "path", l.path)
		}
	})
	return err
}

// removeDeadSocket removes a socket that nobody answers on. Anything else at that path is left and reported.
func removeDeadSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != fs.ModeSocket:
		return errors.New("there is a file of that name that is no socket")
	}
	conn, err := net.DialTimeout("unix", path, time.Second)
	if err == nil {
		conn.Close()
		return fmt.Errorf("%w: another process answers there", syscall.EADDRINUSE)
	}
	if !errors.Is(err, syscall.ECONNREFUSED) {
		return err
	}
	return os.Remove(path)
}

// ListenTLS opens a TCP address for TLS. The configuration must demand verified client certificates: there is no
// other way in, but for WithTokens.
func ListenTLS(address string, conf *tls.Config) (*Listener, error) {
	if err := checkTLS(conf); err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, err)
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("listen on %s: %w", address, unwrapOp(err))
	}
	return WrapTLS(l, conf)
}

// WrapTLS is ListenTLS for a listener that is open already.
func WrapTLS(l net.Listener, conf *tls.Config) (*Listener, error) {
	if err := checkTLS(conf); err != nil {
		return nil, err
	}
	return &Listener{Listener: newCapped(l), tls: conf}, nil
}

// Strangers is a listener for people who have neither a certificate nor a token: whoever answers them finds out who they are. Browsers are
// not asked for a certificate.
func Strangers(l net.Listener, conf *tls.Config) (*Listener, error) {
	out, err := WrapTLS(l, conf)
	if err != nil {
		return nil, err
	}
	out.tls, out.streams = conf.Clone(), strangersStreams
	out.tls.ClientAuth, out.tls.ClientCAs = tls.NoClientCert, nil
	return out, nil
}

// Loopback is the same for programs on this machine, without TLS.
func Loopback(l net.Listener) (*Listener, error) {
	if at, ok := l.Addr().(*net.TCPAddr); !ok || !at.IP.IsLoopback() {
		return nil, fmt.Errorf("plain HTTP is served on this machine alone, and %s is not", l.Addr())
	}
	return &Listener{Listener: newCapped(l), caller: func(net.Conn) (api.User, error) { return api.User{}, errUnauthorized() }}, nil
}

// WithTokens lets those in who have no certificate but may have a token. Without a good one they are answered 401;
// a certificate, if there is one, must still be good.
func (l *Listener) WithTokens() *Listener {
	if l.tls != nil {
		l.tls = l.tls.Clone()
		l.tls.ClientAuth = tls.VerifyClientCertIfGiven
	}
	return l
}

func checkTLS(conf *tls.Config) error {
	switch {
	case conf == nil:
		return errors.New("plain HTTP is not served: no TLS configuration given")
	case conf.ClientAuth != tls.RequireAndVerifyClientCert || conf.ClientCAs == nil:
		return errors.New("the TLS configuration does not demand client certificates")
	case conf.MinVersion < tls.VersionTLS12:
		return errors.New("the TLS configuration allows versions before 1.2")
	}
	return nil
}

// unwrapOp drops the words that net puts before the reason, because the address is in our own.
func unwrapOp(err error) error {
	var op *net.OpError
	if errors.As(err, &op) && op.Err != nil {
		return op.Err
	}
	return err
}

// connContext puts the peer of a connection into the context of its requests.
func (l *Listener) connContext(ctx context.Context, conn net.Conn) context.Context {
	if l.tls != nil {
		if t, ok := conn.(*tls.Conn); ok {
			if c, ok := t.NetConn().(*cappedConn); ok {
				return context.WithValue(ctx, connKey{}, c)
			}
		}
		return ctx
	}
	u, err := l.caller(conn)
	if err != nil {
		return withoutCaller(ctx, err)
	}
	return withCaller(ctx, u)
}
