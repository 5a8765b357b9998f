package httpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	goruntime "runtime"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/pki"
)

func overSocket(path string) *http.Client {
	return &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", path)
		}}}
}

func TestSocket(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	path := filepath.Join(dir, "api.sock")
	l, err := httpd.ListenUnix(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Lstat(path)
	if err != nil || info.Mode() != fs.ModeSocket|0o600 {
		t.Errorf("socket: %v %v, want 0600", info.Mode(), err)
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the socket: %v", entries)
	}
	stop := run(t, &httpd.Server{Handler: handler(t), Listeners: []*httpd.Listener{l}})
	if code, body, err := get(overSocket(path), "http://x/api/v1/nodes"); code != 200 {
		t.Errorf("root: %d %s %v", code, body, err)
	}

	// Were the file's mode ever widened, the kernel still says who is there.
	if err := os.Chmod(path, 0o666); err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{dir, filepath.Dir(dir)} {
		if err := os.Chmod(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	conn := dialAs(t, 65534, path)
	defer conn.Close()
	fmt.Fprint(conn, "GET /api/v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n")
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || resp.StatusCode != 401 {
		t.Errorf("somebody else: %v %v, want 401", resp, err)
	}

	if _, err := httpd.ListenUnix(path, nil); !errors.Is(err, syscall.EADDRINUSE) || !strings.Contains(err.Error(), path) {
		t.Errorf("a socket in use: %v", err)
	}
	stop()
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the socket is left behind: %v", err)
	}
}

// Root may be turned away all the same, and is told why.
func TestSocketTrust(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	path := filepath.Join(t.TempDir(), "api.sock")
	l, err := httpd.ListenUnix(path, func(conn net.Conn) error {
		if _, ok := conn.(*net.UnixConn); !ok {
			t.Errorf("asked about %T", conn)
		}
		return errors.New("it comes from elsewhere")
	})
	if err != nil {
		t.Fatal(err)
	}
	run(t, &httpd.Server{Handler: handler(t), Listeners: []*httpd.Listener{l}})
	for _, page := range []string{"/api/v1/nodes", "/livez", "/version", "/ledge/v1/pressure"} {
		code, body, err := get(overSocket(path), "http://x"+page)
		if err != nil || code != 403 || !strings.Contains(body, "it comes from elsewhere") || !strings.Contains(body, `"reason":"Forbidden"`) {
			t.Errorf("%s: %d %s %v", page, code, body, err)
		}
	}
}

// dialAs connects as another user. Only this thread changes its identity, and it ends with the goroutine.
func dialAs(t *testing.T, uid int, path string) net.Conn {
	t.Helper()
	type result struct {
		conn net.Conn
		err  error
	}
	out := make(chan result)
	go func() {
		goruntime.LockOSThread()
		fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
		if err == nil {
			if _, _, e := unix.RawSyscall(unix.SYS_SETRESUID, ^uintptr(0), uintptr(uid), ^uintptr(0)); e != 0 {
				err = e
			}
		}
		if err == nil {
			err = unix.Connect(fd, &unix.SockaddrUnix{Name: path})
		}
		if err != nil {
			out <- result{nil, err}
			return
		}
		file := os.NewFile(uintptr(fd), path)
		conn, err := net.FileConn(file)
		file.Close()
		out <- result{conn, err}
	}()
	r := <-out
	if r.err != nil {
		t.Fatal(r.err)
	}
	return r.conn
}

func TestSocketOfADeadProcess(t *testing.T) {
	path := filepath.Join(t.TempDir(), "api.sock")
	dead, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		t.Fatal(err)
	}
	dead.SetUnlinkOnClose(false)
	dead.Close()
	l, err := httpd.ListenUnix(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.Close()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := httpd.ListenUnix(path, nil); err == nil || !strings.Contains(err.Error(), "no socket") {
		t.Errorf("a file in the way: %v", err)
	}
	if _, err := os.Stat(path); err != nil {
		t.Errorf("the file in the way was removed: %v", err)
	}
}

func TestTLS(t *testing.T) {
	url, a, _ := secured(t, handler(t))
	for _, tc := range []struct {
		user   string
		groups []string
		path   string
		want   int
	}{
		{"ledge-admin", []string{api.AdminGroup}, "/api/v1/nodes", 200},
		{"system:node:a", []string{"system:nodes"}, "/api/v1/nodes", 403},
		{"system:node:a", []string{"system:nodes"}, "/api/v1/nodes?fieldSelector=metadata.name%3Da", 200},
		{"bob", nil, "/api/v1/nodes", 403},
		{"bob", nil, "/version", 200},
	} {
		code, body, err := get(withCert(t, a, tc.user, tc.groups...), url+tc.path)
		if code != tc.want {
			t.Errorf("%s %s: %d %s %v, want %d", tc.user, tc.path, code, body, err, tc.want)
		}
	}
	resp, err := withCert(t, a, "bob").Get(url + "/version")
	if err != nil || resp.Proto != "HTTP/2.0" {
		t.Errorf("HTTP/2: %v %v", resp, err)
	} else {
		resp.Body.Close()
	}
	// No anonymous access, not even to the version, and nothing but TLS.
	if code, body, err := get(withCert(t, a, ""), url+"/version"); err == nil {
		t.Errorf("without a certificate: %d %s", code, body)
	}
	if code, body, _ := get(http.DefaultClient, strings.Replace(url, "https", "http", 1)+"/version"); code == 200 {
		t.Errorf("plain HTTP: %d %s", code, body)
	}
}

func TestListenTLSRefuses(t *testing.T) {
	a, err := pki.Open(pki.Config{Dir: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	good, err := a.ServerTLS(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	change := func(f func(*tls.Config)) *tls.Config {
		c := good.Clone()
		f(c)
		return c
	}
	for name, conf := range map[string]*tls.Config{
		"no TLS":         nil,
		"no client CA":   change(func(c *tls.Config) { c.ClientCAs = nil }),
		"optional certs": change(func(c *tls.Config) { c.ClientAuth = tls.VerifyClientCertIfGiven }),
		"TLS 1.1":        change(func(c *tls.Config) { c.MinVersion = tls.VersionTLS11 }),
		"TLS unset":      change(func(c *tls.Config) { c.MinVersion = 0 }),
	} {
		if l, err := httpd.ListenTLS("127.0.0.1:0", conf); err == nil {
			l.Close()
			t.Errorf("%s: accepted", name)
		}
	}
	l, err := httpd.ListenTLS("127.0.0.1:0", good)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, err = httpd.ListenTLS(l.Addr().String(), good)
	if !errors.Is(err, syscall.EADDRINUSE) || strings.Count(err.Error(), "127.0.0.1") != 1 {
		t.Errorf("a port in use: %v", err)
	}
}

// Connections above the cap are closed, those that have said nothing for the longest first: whoever comes after them is served.
func TestConnectionsAreCapped(t *testing.T) {
	url, a, _ := secured(t, handler(t))
	address := strings.TrimPrefix(url, "https://")
	var open []net.Conn
	defer func() {
		for _, c := range open {
			c.Close()
		}
	}()
	for range 128 {
		c, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, c)
	}
	start := time.Now()
	if code, _, err := get(withCert(t, a, "x"), url+"/version"); err != nil || code != 200 {
		t.Errorf("one more: %d %v", code, err)
	}
	if _, err := open[0].Read(make([]byte, 1)); err == nil || time.Since(start) > 4*time.Second {
		t.Errorf("after %s: %v, want the first connection closed", time.Since(start), err)
	}
}

// Half a handshake holds its connection no longer than headers may take.
func TestHalfOpenHandshake(t *testing.T) {
	if testing.Short() {
		t.Skip("takes 5 s")
	}
	url, _, _ := secured(t, answering)
	c, err := net.Dial("tcp", strings.TrimPrefix(url, "https://"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	start := time.Now()
	c.SetDeadline(start.Add(20 * time.Second))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("after %s: %v, want the connection closed", time.Since(start), err)
	}
}
