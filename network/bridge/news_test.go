package bridge

import (
	"fmt"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestNews(t *testing.T) {
	l := newLab(t)
	l.in(l.host, func() error { return giveAddress("lo", "10.99.0.1/24") })
	var n news
	defer n.stop()
	hear := func(what string, want bool) {
		t.Helper()
		l.in(l.host, func() error {
			if got := n.any(); got != want {
				t.Errorf("%s: news %v, want %v", what, got, want)
			}
			return nil
		})
	}
	// The kernel tells of an IPv6 address when it has taken it, in its own time.
	wait := func(what string) {
		t.Helper()
		l.in(l.host, func() error {
			for end := time.Now().Add(10 * time.Second); !n.any(); time.Sleep(time.Millisecond) {
				if time.Now().After(end) {
					return fmt.Errorf("%s: no news", what)
				}
			}
			return nil
		})
	}
	hear("nobody has listened before", true)
	hear("nothing", false)
	for _, c := range []struct {
		what   string
		change func() error
	}{
		{"address", func() error { return giveAddress("lo", "10.99.0.2/24") }},
		{"IPv6", func() error { return giveAddress("lo", "fd99::2/64") }},
		{"alias", func() error {
			return withLink("lo", func(link netlink.Link) error { return netlink.LinkSetAlias(link, "loop") })
		}},
		{"down", func() error { return withLink("lo", netlink.LinkSetDown) }},
		{"interface", func() error { return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "br9"}}) }},
	} {
		l.in(l.host, c.change)
		wait(c.what)
		hear("after "+c.what, false)
	}

	// More than the kernel keeps for a listener.
	if err := unix.SetsockoptInt(n.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1); err != nil {
		t.Fatal(err)
	}
	l.in(l.host, func() error {
		for range 50 {
			if err := withLink("lo", netlink.LinkSetUp); err != nil {
				return err
			}
			if err := withLink("lo", netlink.LinkSetDown); err != nil {
				return err
			}
		}
		return nil
	})
	hear("too much", true)
	hear("after too much", false)

	n.stop()
	hear("after a time without ears", true)
	unix.Close(n.fd)
	hear("ears that are gone", true)
	n.open = false // its number may be somebody else's by now
	hear("new ears", true)
	hear("nothing again", false)
}
