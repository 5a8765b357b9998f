package bridge

import (
	"errors"
	"log/slog"

	"golang.org/x/sys/unix"
)

// news hears of changes to the interfaces and addresses of a network namespace. A node looks after its bridge every ten
// seconds, as long as it lives; to list them each time only to see that nothing has changed was a third of what an idle
// node did, for the listings and for the garbage they leave (64 KiB for each answer).
type news struct {
	fd   int
	open bool
}

// any says whether something may have changed since the last call. It must be called on a thread that is in the
// namespace. The first call begins to listen and knows nothing of the time before; a kernel that lets nobody listen has
// news each time.
func (n *news) any() bool {
	if !n.open {
		if err := n.listen(); err != nil {
			slog.Debug("changes to interfaces are not heard", "err", err)
		}
		return true
	}
	changed := false
	for {
		// What has changed does not matter: one byte of a message is taken, the kernel drops the rest.
		var b [1]byte
		_, _, err := unix.Recvfrom(n.fd, b[:], 0)
		switch {
		case err == nil, errors.Is(err, unix.ENOBUFS): // more than the kernel keeps for us
			changed = true
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return changed
		default:
			slog.Debug("changes to interfaces are not heard", "err", err)
			n.stop()
			return true
		}
	}
}

func (n *news) listen() error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	groups := uint32(1<<(unix.RTNLGRP_LINK-1) | 1<<(unix.RTNLGRP_IPV4_IFADDR-1) | 1<<(unix.RTNLGRP_IPV6_IFADDR-1))
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		unix.Close(fd)
		return err
	}
	n.fd, n.open = fd, true
	return nil
}

func (n *news) stop() {
	if n.open {
		unix.Close(n.fd)
		n.open = false
	}
}
