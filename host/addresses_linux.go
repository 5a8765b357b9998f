package host

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	gatherAddresses = time.Second      // one lease makes several messages, and so does each pod's interface
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
		for until := time.Now().Add(gatherAddresses); err == nil; {
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

// kernelInterfaces asks once for all addresses, and then only about the interfaces that have some. Package net lists all
// interfaces, and all addresses once for each of them: of fifty pods, fifty times.
func kernelInterfaces() ([]Interface, error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETADDR, syscall.AF_UNSPEC)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	addresses := map[uint32][]netip.Prefix{}
	for _, m := range messages {
		if index, p := addressOf(&m); p.IsValid() {
			addresses[index] = append(addresses[index], p)
		}
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("ask for interfaces: %w", err)
	}
	defer unix.Close(socket)
	var out []Interface
	for _, index := range slices.Sorted(maps.Keys(addresses)) {
		ask, err := unix.NewIfreq("")
		if err != nil {
			return nil, fmt.Errorf("ask for interfaces: %w", err)
		}
		ask.SetUint32(index)
		if unix.IoctlIfreq(socket, unix.SIOCGIFNAME, ask) != nil || unix.IoctlIfreq(socket, unix.SIOCGIFFLAGS, ask) != nil {
			continue // it went away meanwhile
		}
		flags := ask.Uint16()
		out = append(out, Interface{Name: ask.Name(), Index: int(index), Up: flags&unix.IFF_UP != 0, Loopback: flags&unix.IFF_LOOPBACK != 0,
			Multicast: flags&unix.IFF_MULTICAST != 0 && flags&unix.IFF_POINTOPOINT == 0, Addresses: addresses[index]})
	}
	return out, nil
}

// addressOf reads one of the kernel's messages; not valid: it tells no address.
func addressOf(m *syscall.NetlinkMessage) (index uint32, p netip.Prefix) {
	if m.Header.Type != syscall.RTM_NEWADDR || len(m.Data) < unix.SizeofIfAddrmsg {
		return 0, p
	}
	attrs, err := syscall.ParseNetlinkRouteAttr(m)
	if err != nil {
		return 0, p
	}
	bits := int(m.Data[1]) // ifaddrmsg: family, bits, flags, scope, index
	index = binary.NativeEndian.Uint32(m.Data[4:])
	for _, a := range attrs {
		// Of two ends (PPP) IFA_LOCAL is this one; IPv6 has IFA_ADDRESS alone.
		if a.Attr.Type != unix.IFA_LOCAL && (a.Attr.Type != unix.IFA_ADDRESS || p.IsValid()) {
			continue
		}
		if ip, ok := netip.AddrFromSlice(a.Value); ok {
			p = netip.PrefixFrom(ip, bits)
		}
	}
	return index, p
}
