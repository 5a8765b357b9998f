//go:build !linux

package httpd

import (
	"net"
)

// peerUID knows nobody where the kernel cannot be asked.
func peerUID(net.Conn) (uint32, bool) { return 0, false }
