package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

const (
	settleAddresses = time.Second      // one lease makes several messages, and so does each pod's interface
	lookAtAddresses = 10 * time.Minute // without any
)

// WatchAddresses calls changed at once, and whenever an interface or an address of this machine may have changed, until ctx
// ends; now and then without a reason too. Several changes are told as one.
func WatchAddresses(ctx context.Context, changed func()) error {
	f, err := routeEvents(unix.RTMGRP_LINK | unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV6_IFADDR)
	if err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	defer f.Close()
	defer context.AfterFunc(ctx, func() { _ = f.SetReadDeadline(time.Unix(1, 0)) })()
	buf := make([]byte, 16<<10)
	hear := func(long time.Duration) error {
		_ = f.SetReadDeadline(time.Now().Add(long))
		if err := ctx.Err(); err != nil {
			return err // the deadline may have undone the one that ends us
		}
		_, err := f.Read(buf)
		if errors.Is(err, unix.ENOBUFS) { // more came than the socket holds
			err = nil
		}
		return err
	}
	for {
		changed()
		err := hear(lookAtAddresses)
		for until := time.Now().Add(settleAddresses); err == nil; {
			err = hear(time.Until(until))
		}
		if ctx.Err() != nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) {
			return fmt.Errorf("watch addresses: %w", err)
		}
	}
}

// routeEvents is a socket on which the kernel tells of what the groups are about.
func routeEvents(groups uint32) (*os.File, error) {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	if err := unix.Bind(fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: groups}); err != nil {
		return nil, errors.Join(err, unix.Close(fd))
	}
	return os.NewFile(uintptr(fd), "netlink"), nil
}
