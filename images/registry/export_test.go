package registry

import (
	"context"
	"net"
	"net/http"
)

// DialFor has connections to one address go to another: a registry that is not on this board, on this board.
func DialFor(c *Client, address, to string) {
	for _, list := range c.places {
		for _, p := range list {
			t := p.call.own.Transport.(*http.Transport)
			t.DialContext = func(ctx context.Context, network, addr string) (net.Conn, error) {
				if addr == address {
					addr = to
				}
				return (&net.Dialer{}).DialContext(ctx, network, addr)
			}
		}
	}
}
