package host

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// StaticAddress is the address that a wired interface is to have.
type StaticAddress struct {
	Interface string // empty: the first
	Address   netip.Prefix
	Gateway   netip.Addr // zero: none
}

// KeepAddress gives the address to the interface, whenever that comes, and again after it was gone. tell hears of each change.
func KeepAddress(a StaticAddress, tell func(on string, err error)) {
	said := ""
	for {
		heard, err := linkEvents()
		if err != nil {
			tell("", err)
			return
		}
		for err == nil {
			on, serr := setAddress(a)
			if text := fmt.Sprint(on, serr); text != said {
				said = text
				tell(on, serr)
			}
			err = heard()
		}
		// More came than the socket holds: it begins anew.
	}
}

// linkEvents gives a function that waits until something happened to an interface.
func linkEvents() (wait func() error, err error) {
	f, err := routeEvents(unix.RTMGRP_LINK)
	if err != nil {
		return nil, fmt.Errorf("listen for interfaces: %w", err)
	}
	buf := make([]byte, 16<<10)
	return func() error {
		_, err := f.Read(buf)
		if err != nil {
			_ = f.Close()
		}
		return err
	}, nil
}

var errNoInterface = errors.New("no wired interface is there yet")

// setAddress does nothing that is done already.
func setAddress(a StaticAddress) (on string, err error) {
	on = a.Interface
	if on == "" {
		if on, err = FirstWired("/sys/class/net"); err != nil {
			return "", err
		}
	}
	fail := func(err error) (string, error) {
		return on, fmt.Errorf("give %s the address %s: %w", on, a.Address, err)
	}
	link, err := netlink.LinkByName(on)
	if err != nil {
		return fail(err)
	}
	if link.Attrs().Flags&net.FlagUp == 0 {
		if err := netlink.LinkSetUp(link); err != nil {
			return fail(err)
		}
	}
	addr := a.Address.Addr()
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: &net.IPNet{IP: addr.AsSlice(),
		Mask: net.CIDRMask(a.Address.Bits(), addr.BitLen())}}); err != nil {
		return fail(err)
	}
	if !a.Gateway.IsValid() {
		return on, nil
	}
	// IPv4 and IPv6 have their own place for everywhere.
	everywhere := &net.IPNet{IP: make(net.IP, len(addr.AsSlice())), Mask: net.CIDRMask(0, addr.BitLen())}
	if err := netlink.RouteReplace(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: everywhere, Gw: a.Gateway.AsSlice()}); err != nil {
		return on, fmt.Errorf("the gateway %s cannot be reached from %s: %w", a.Gateway, a.Address, err)
	}
	return on, nil
}

// FirstWired is the first interface by name that is a device and no radio.
func FirstWired(sys string) (string, error) {
	list, err := os.ReadDir(sys)
	if err != nil {
		return "", err
	}
	has := func(name, what string) bool {
		_, err := os.Stat(filepath.Join(sys, name, what))
		return err == nil
	}
	i := slices.IndexFunc(list, func(e os.DirEntry) bool {
		return has(e.Name(), "device") && !has(e.Name(), "wireless") && !has(e.Name(), "phy80211")
	})
	if i < 0 {
		return "", errNoInterface
	}
	return list[i].Name(), nil
}
