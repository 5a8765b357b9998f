package host

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"reflect"
	"slices"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
)

// TestWatchAddresses: an address that comes is told, and the end is not waited for.
func TestWatchAddresses(t *testing.T) { inOwnNetwork(t, testWatchAddresses) }

func testWatchAddresses(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	lease := netip.MustParsePrefix("192.0.2.7/24")
	looks := 0
	if err := WatchAddresses(ctx, func() {
		have, err := New(Config{}).Addresses() // WatchAddresses calls from the thread that it was called on
		if err != nil {
			t.Error(err)
		}
		if looks++; looks == 1 {
			if len(have) > 0 {
				t.Errorf("it begins with %v", have)
			}
			if err := addWithAddress("wired0", lease); err != nil {
				t.Error(err)
				cancel()
			}
		}
		if slices.Contains(have, lease.Addr()) {
			cancel()
		}
	}); err != nil {
		t.Error(err)
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		t.Error("the address was not told")
	}
	if looks > 10 {
		t.Errorf("%d looks for one address", looks)
	}
}

func addWithAddress(name string, address netip.Prefix) error {
	link := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: name}, PeerName: name + "p"}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	return addAddress(name, address.String(), "")
}

// TestKernelInterfaces holds the one question beside the many of package net.
func TestKernelInterfaces(t *testing.T) { inOwnNetwork(t, testKernelInterfaces) }

func testKernelInterfaces(t *testing.T) {
	type address struct{ own, peer string }
	for _, c := range []struct {
		name      string
		addresses []address
	}{
		{"wired0", []address{{"192.0.2.7/24", ""}, {"192.0.2.8/32", ""}, {"2001:db8::7/64", ""}}},
		{"empty0", nil},
		{"point0", []address{{"192.0.2.9/32", "198.51.100.1/32"}, {"2001:db8:1::1/128", "2001:db8:1::2/128"}}},
		{"down0", []address{{"10.0.0.1/8", ""}}},
	} {
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: c.name}, PeerName: c.name + "p"}); err != nil {
			t.Error(err)
			return
		}
		for _, a := range c.addresses {
			if err := addAddress(c.name, a.own, a.peer); err != nil {
				t.Error(a, err)
			}
		}
	}
	for _, name := range []string{"wired0", "point0", "lo"} {
		link, err := netlink.LinkByName(name)
		if err != nil || netlink.LinkSetUp(link) != nil {
			t.Error(name, err)
		}
	}
	got, err := kernelInterfaces()
	if want := interfacesByNet(t); err != nil || len(got) != 4 || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v %v\nwant %+v", got, err, want)
	}
}

func interfacesByNet(t *testing.T) (out []Interface) {
	ifaces, err := net.Interfaces()
	if err != nil {
		t.Error(err)
	}
	for _, i := range ifaces {
		addrs, err := i.Addrs()
		if err != nil {
			t.Error(err)
		}
		x := Interface{Name: i.Name, Index: i.Index, Up: i.Flags&net.FlagUp != 0, Loopback: i.Flags&net.FlagLoopback != 0,
			Multicast: i.Flags&net.FlagMulticast != 0 && i.Flags&net.FlagPointToPoint == 0}
		for _, a := range addrs {
			x.Addresses = append(x.Addresses, netip.MustParsePrefix(a.String()))
		}
		if len(addrs) > 0 {
			out = append(out, x)
		}
	}
	return out
}

func addAddress(name, own, peer string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	addr, err := netlink.ParseAddr(own)
	if err != nil {
		return err
	}
	if peer != "" {
		if addr.Peer, err = netlink.ParseIPNet(peer); err != nil {
			return err
		}
	}
	return netlink.AddrAdd(link, addr)
}
