package host

import (
	"context"
	"errors"
	"net/netip"
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
		have, err := Addresses() // WatchAddresses calls from the thread that it was called on
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
	addr, err := netlink.ParseAddr(address.String())
	if err != nil {
		return err
	}
	return netlink.AddrAdd(link, addr)
}
