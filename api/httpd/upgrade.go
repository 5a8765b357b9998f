package httpd

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net"
	"net/http"
	"time"
)

// upgradeTCP asks for a connection as it is, between the parts of ledge.
const upgradeTCP = "tcp"

// Upgrade asks at the other end of a connection for a connection to what a path names. What is answered instead comes back as
// an error with its Status; the connection is closed then.
func Upgrade(ctx context.Context, conn net.Conn, path string) (_ net.Conn, err error) {
	ctx, cancel := context.WithTimeout(ctx, boardTime)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { conn.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !stop() && err == nil {
			err = ctx.Err()
		}
		if err != nil {
			conn.Close()
		}
	}()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://board"+path, nil)
	if err != nil {
		return nil, err
	}
	req.Header.Set("Connection", "Upgrade")
	req.Header.Set("Upgrade", upgradeTCP)
	if err := req.Write(conn); err != nil {
		return nil, err
	}
	head := &io.LimitedReader{R: conn, N: maxForeignHeader + maxForeignError} // net/http sets no bound here
	in := bufio.NewReader(head)
	answer, err := http.ReadResponse(in, req)
	switch {
	case err != nil && head.N <= 0:
		return nil, refused(fmt.Sprintf("answered with more than %d bytes of headers", maxForeignHeader))
	case err != nil:
		return nil, err
	case answer.StatusCode != http.StatusSwitchingProtocols:
		return nil, answered(answer)
	}
	head.N = math.MaxInt64
	return &bufferedConn{conn, in}, nil
}

// CloseWrite says that no more will be written, where that can be said.
func (c *bufferedConn) CloseWrite() error {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return fmt.Errorf("end one direction: %w", errors.ErrUnsupported)
}

// NetConn is the connection underneath.
func (c *bufferedConn) NetConn() net.Conn { return c.Conn }

// splice carries bytes between two connections until both directions have ended, one fails or ctx ends.
func splice(ctx context.Context, a, b net.Conn) {
	stop := context.AfterFunc(ctx, func() { a.Close(); b.Close() })
	defer stop()
	ends := make(chan error, 2)
	carry := func(to, from net.Conn) {
		_, err := io.Copy(to, from)
		if half, ok := to.(interface{ CloseWrite() error }); err == nil && ok {
			err = half.CloseWrite()
		} else if err == nil {
			err = errors.ErrUnsupported // then the end of one direction is the end
		}
		ends <- err
	}
	go carry(a, b)
	go carry(b, a)
	if <-ends == nil {
		<-ends
	}
	a.Close()
	b.Close()
}
