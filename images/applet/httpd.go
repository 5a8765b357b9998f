package applet

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	maxConns   = 64
	maxRequest = 8 << 10
	ioTimeout  = 10 * time.Second
	lastWords  = 5 * time.Second // for requests that are being answered at SIGTERM
)

// httpd answers every request with the host's name and the address it was reached at, until SIGTERM. It speaks
// just enough HTTP by hand: net/http is servers' business elsewhere and would be most of the program.
func httpd(args []string) error {
	port, err := httpdPort(args)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", net.JoinHostPort("", port))
	if err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "httpd: listening on %s\n", l.Addr())
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	return serve(l, stop)
}

func httpdPort(args []string) (string, error) {
	port := "80"
	for len(args) > 0 {
		value, ok := strings.CutPrefix(args[0], "-p")
		if !ok {
			return "", fmt.Errorf("unknown argument %q", args[0])
		}
		args = args[1:]
		if value == "" {
			if len(args) == 0 {
				return "", errors.New("-p needs a port")
			}
			value, args = args[0], args[1:]
		}
		port = value
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return "", fmt.Errorf("%q is no port", port)
	}
	return port, nil
}

// serve answers until stop, then closes the listener and waits for what is under way.
func serve(l net.Listener, stop <-chan os.Signal) error {
	accepted := make(chan error, 1)
	var conns sync.WaitGroup
	slots := make(chan struct{}, maxConns)
	go func() {
		for {
			slots <- struct{}{}
			c, err := l.Accept()
			if err != nil {
				accepted <- err
				return
			}
			conns.Go(func() {
				defer func() { <-slots }()
				defer c.Close()
				_ = answer(c) // a client that went away needs no answer
			})
		}
	}()
	select {
	case err := <-accepted:
		return err
	case <-stop:
	}
	if err := l.Close(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() { conns.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(lastWords):
	}
	return nil
}

func answer(c net.Conn) error {
	if err := c.SetDeadline(time.Now().Add(ioTimeout)); err != nil {
		return err
	}
	method, err := readRequest(bufio.NewReader(io.LimitReader(c, maxRequest)))
	if err != nil {
		_, werr := io.WriteString(c, "HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
		return errors.Join(err, werr)
	}
	host, err := os.Hostname()
	if err != nil {
		return err
	}
	addr, _, err := net.SplitHostPort(c.LocalAddr().String())
	if err != nil {
		return err
	}
	body := host + " " + addr + "\n"
	head := fmt.Sprintf("HTTP/1.1 200 OK\r\nServer: ledge\r\nContent-Type: text/plain; charset=utf-8\r\nContent-Length: %d\r\nConnection: close\r\n\r\n", len(body))
	if method == "HEAD" {
		body = ""
	}
	_, err = io.WriteString(c, head+body)
	return err
}

// readRequest reads up to the empty line that ends the headers; a body is of no interest.
func readRequest(r *bufio.Reader) (method string, err error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return "", err
	}
	f := strings.Fields(line)
	if len(f) != 3 || !strings.HasPrefix(f[2], "HTTP/1.") {
		return "", errors.New("not an HTTP request")
	}
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			return "", err
		}
		if strings.TrimRight(line, "\r\n") == "" {
			return f[0], nil
		}
	}
}
