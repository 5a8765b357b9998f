package httpd

import (
	"context"
	"net"
	"syscall"
	"time"
)

// goneLook is how often it is looked whether a client is still there whose words wait to be read: a program that does not read its input
// holds up who sends it, and so hides that he has left.
var goneLook = 15 * time.Second // a variable for tests

// whenGone calls left when the other end of a connection has closed it, though what it said before is not read yet. It looks until ctx
// ends. A connection inside this process is not looked at: its end is heard when it is read.
func whenGone(ctx context.Context, conn net.Conn, left func()) {
	raw := rawOf(conn)
	if raw == nil {
		return
	}
	tick := time.NewTicker(goneLook)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if hungUp(raw) {
				left()
				return
			}
		}
	}
}

// rawOf is the socket under a connection; nil: there is none.
func rawOf(conn net.Conn) syscall.RawConn {
	for {
		switch c := conn.(type) {
		case syscall.Conn:
			raw, err := c.SyscallConn()
			if err != nil {
				return nil
			}
			return raw
		case interface{ NetConn() net.Conn }:
			conn = c.NetConn()
		default:
			return nil
		}
	}
}
