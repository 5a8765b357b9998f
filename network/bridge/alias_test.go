package bridge

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"

	"ledge/network"
	"ledge/network/plan"
)

// A board is upgraded with pods running, and an upgrade may be taken back: each version reads what the other wrote.
func TestPodAlias(t *testing.T) {
	four, six := netip.MustParseAddr("10.42.0.2"), netip.MustParseAddr("fd42::2")
	for _, tc := range []struct {
		name, alias, bridge string
		want                podLink
		ok                  bool
	}{
		{"today's", podAlias(marked("u-1", four, netip.Addr{}), "ledge0"), "ledge0", podLink{uid: "u-1", addr: four}, true},
		{"today's with IPv6", podAlias(marked("u-1", four, six), "ledge0"), "ledge0", podLink{uid: "u-1", addr: four, addr6: six}, true},
		{"without a bridge", "ledge pod u-1 10.42.0.2", "ledge0", podLink{uid: "u-1", addr: four}, true},
		{"without a bridge, with IPv6", "ledge pod u-1 10.42.0.2,fd42::2", "ledge0", podLink{uid: "u-1", addr: four, addr6: six}, true},
		{"another node's", "ledge pod u-1 10.42.0.2,,ledge1", "ledge0", podLink{}, false},
		{"another node's whose name goes on", "ledge pod u-1 10.42.0.2,,ledge0x", "ledge0", podLink{}, false},
		{"no address", "ledge pod u-1", "ledge0", podLink{}, false},
		{"damaged", "ledge pod u-1 10.42.0,,ledge0", "ledge0", podLink{}, false},
		{"the anchor", anchorMark + "ledge0", "ledge0", podLink{}, false},
		{"somebody's", "uplink", "ledge0", podLink{}, false},
		{"none", "", "ledge0", podLink{}, false},
	} {
		if got, ok := readPodAlias(tc.alias, tc.bridge); got != tc.want || ok != tc.ok {
			t.Errorf("%s: %+v %v", tc.name, got, ok)
		}
	}

	for _, e := range []plan.Entry{marked("u-1", four, netip.Addr{}), marked("u-1", four, six)} {
		alias := podAlias(e, "ledge0")
		// As versions read it that did not write the name.
		rest, _ := strings.CutPrefix(alias, podMark)
		uid, ips, _ := strings.Cut(rest, " ")
		ip, _, _ := strings.Cut(ips, ",")
		if addr, err := netip.ParseAddr(ip); uid != "u-1" || addr != four || err != nil || !strings.HasPrefix(alias, podMark+"u-1 ") {
			t.Errorf("%q reads as %q %q, %v", alias, uid, addr, err)
		}
	}

	longest := podAlias(marked(strings.Repeat("u", 128), netip.MustParseAddr("100.100.100.100"),
		netip.MustParseAddr("fd42:1111:2222:3333:4444:5555:6666:7777")), "fifteen-letters")
	if len(longest) > 255 {
		t.Errorf("the kernel takes no alias of %d bytes", len(longest))
	}
}

func marked(uid string, four, six netip.Addr) plan.Entry {
	return plan.Entry{Pod: network.Pod{UID: uid}, Addr: four, Addr6: six}
}

// All that a node makes names its bridge, also what an earlier version made, once it was looked at.
func TestAliases(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	p := l.pod(s, "a")
	check := func(name, want string) {
		t.Helper()
		l.in(l.host, func() error {
			return withLink(name, func(link netlink.Link) error {
				l.expect("alias of "+name, link.Attrs().Alias, want)
				return nil
			})
		})
	}
	port, other := s.anchor()
	check(port, "ledge anchor ledge0")
	check(other, "ledge anchor ledge0")
	check(linkName("ledge0", "a"), "ledge pod a "+p.ip+",,ledge0")

	l.in(l.host, func() error {
		return withLink(linkName("ledge0", "a"), func(link netlink.Link) error { return netlink.LinkSetAlias(link, "ledge pod a "+p.ip) })
	})
	l.must(os.RemoveAll(s.cfg.RunDir)) // the alias has to do
	s = l.setup(s.cfg)
	if e, ok := s.book.Get("a"); !ok || e.Addr.String() != p.ip {
		t.Errorf("after an upgrade: %v %v", e, ok)
	}
	addrs, err := s.Attach(t.Context(), p.Pod)
	if err != nil || addrs[0].String() != p.ip {
		t.Errorf("attached after an upgrade: %v %v", addrs, err)
	}
	check(linkName("ledge0", "a"), "ledge pod a "+p.ip+",,ledge0")
	l.must(s.Close(t.Context()))
	if left := l.left(s.cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

// The anchor goes with the node, also where somebody has removed the bridge from under it.
func TestAnchorWithoutBridge(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	l.must(s.Ready(t.Context()))
	l.in(l.host, func() error { return withLink("ledge0", netlink.LinkDel) })
	l.must(s.Close(t.Context()))
	port, _ := s.anchor()
	l.in(l.host, func() error {
		if _, err := netlink.LinkByName(port); err == nil {
			t.Error("the anchor is left behind")
		}
		return nil
	})
}
