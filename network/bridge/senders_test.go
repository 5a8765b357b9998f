package bridge

import (
	"net"
	"net/netip"
	"os"
	"reflect"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/nft"
	"ledge/network/plan"
)

// TestCompileSenders: what pods may send with, in the form that the kernel compares: the name of the port, then whole words.
func TestCompileSenders(t *testing.T) {
	entries := []plan.Entry{
		{Addr: netip.MustParseAddr("10.42.0.2"), Addr6: netip.MustParseAddr("fd42::2"), Pod: network.Pod{UID: "a"}},
		{Addr: netip.MustParseAddr("10.42.0.3"), Pod: network.Pod{UID: "b"}}}
	got := compileSenders("ledge0", entries)
	a, b := string(ifname(linkName("ledge0", "a"))), string(ifname(linkName("ledge0", "b")))
	want := senders{
		setPorts: {a: true, b: true},
		setMACs:  {a + "\x0a\x1e\x0a\x2a\x00\x02\x00\x00": true, b + "\x0a\x1e\x0a\x2a\x00\x03\x00\x00": true},
		setOwn:   {a + "\x0a\x2a\x00\x02": true, b + "\x0a\x2a\x00\x03": true},
		setOwn6:  {a + string(entries[0].Addr6.AsSlice()): true},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
}

// liar is a pod that has all rights over its own network, and who hears it.
type liar struct {
	l       *lab
	s       *Setup
	a, b, c testPod // a lies, as b, to c
	ears    map[string]net.PacketConn
}

func newLiar(t *testing.T) *liar {
	l := newLab(t)
	s := l.node("ledge0", dualCIDR)
	x := &liar{l: l, s: s, a: l.pod(s, "a"), b: l.pod(s, "b"), c: l.pod(s, "c"), ears: map[string]net.PacketConn{}}
	for _, proto := range []string{"udp4", "udp6"} {
		l.in(x.c.NetNS, func() (err error) {
			x.ears[proto], err = net.ListenPacket(proto, ":5353")
			return err
		})
		t.Cleanup(func() { x.ears[proto].Close() })
	}
	return x
}

// heard says as whom c hears a packet from a, "" if it hears nothing.
func (x *liar) heard(proto, from, to string) string {
	x.l.t.Helper()
	x.l.in(x.a.NetNS, func() error {
		conn, err := net.ListenPacket(proto, net.JoinHostPort(from, "0"))
		if err != nil {
			return err
		}
		defer conn.Close()
		_, err = conn.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), 5353)))
		return err
	})
	ear := x.ears[proto]
	x.l.must(ear.SetReadDeadline(time.Now().Add(testrun.Patience(300 * time.Millisecond))))
	_, who, err := ear.ReadFrom(make([]byte, 9))
	if os.IsTimeout(err) {
		return ""
	}
	x.l.must(err)
	return netip.MustParseAddrPort(who.String()).Addr().Unmap().String()
}

// port does something with a's interface.
func (x *liar) port(do func(netlink.Link) error) {
	x.l.t.Helper()
	x.l.in(x.a.NetNS, func() error {
		link, err := netlink.LinkByName(podInterface)
		if err != nil {
			return err
		}
		return do(link)
	})
}

// takes gives a the addresses of b.
func (x *liar) takes() {
	x.l.t.Helper()
	x.port(func(link netlink.Link) error {
		for _, ip := range []string{x.b.ip, x.b.ip6} {
			addr := netip.MustParseAddr(ip)
			a := &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, addr.BitLen())), Flags: unix.IFA_F_NODAD}
			if err := netlink.AddrAdd(link, a); err != nil {
				return err
			}
		}
		return nil
	})
}

// TestSenders: a pod sends with no other address than its own, of hardware or of IP.
func TestSenders(t *testing.T) {
	x := newLiar(t)
	l, a, b, c := x.l, x.a, x.b, x.c
	l.expect("its own", x.heard("udp4", a.ip, c.ip), a.ip)
	l.expect("its own, IPv6", x.heard("udp6", a.ip6, c.ip6), a.ip6)
	x.takes()
	l.expect("as another", x.heard("udp4", b.ip, c.ip), "")
	l.expect("as another, IPv6", x.heard("udp6", b.ip6, c.ip6), "")
	x.port(func(link netlink.Link) error {
		return netlink.LinkSetHardwareAddr(link, mac(netip.MustParseAddr(b.ip)))
	})
	l.expect("with another's hardware address", x.heard("udp4", a.ip, c.ip), "")
	x.port(func(link netlink.Link) error {
		return netlink.LinkSetHardwareAddr(link, mac(netip.MustParseAddr(a.ip)))
	})
	l.expect("its own again", x.heard("udp4", a.ip, c.ip), a.ip)
	l.must(x.s.Detach(t.Context(), "b"))
	l.expect("as another, after it has gone", x.heard("udp4", b.ip, c.ip), "")
	l.expect("still its own", x.heard("udp4", a.ip, c.ip), a.ip)
}

// TestSaysItIs: the board asks who has an address, and a pod that answers for another is not believed.
func TestSaysItIs(t *testing.T) {
	x := newLiar(t)
	x.takes()
	want := mac(netip.MustParseAddr(x.b.ip)).String()
	for range 10 {
		x.l.in(x.l.host, func() error {
			br, err := netlink.LinkByName("ledge0")
			if err != nil {
				return err
			}
			for _, ip := range []string{x.b.ip, x.b.ip6} {
				_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: br.Attrs().Index, IP: netip.MustParseAddr(ip).AsSlice()})
				if conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip, "9"), time.Second); err == nil { // refused
					conn.Close()
				}
			}
			all, err := netlink.NeighList(br.Attrs().Index, netlink.FAMILY_ALL)
			for _, n := range all {
				if ip := n.IP.String(); (ip == x.b.ip || ip == x.b.ip6) && len(n.HardwareAddr) > 0 && n.HardwareAddr.String() != want {
					t.Errorf("the board takes %s for that of %s", n.HardwareAddr, ip)
				}
			}
			return err
		})
	}
}

// TestSendersAreMended: what somebody else has changed comes back, and of a pod that has gone nothing is left.
func TestSendersAreMended(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", dualCIDR)
	l.pod(s, "a")
	l.pod(s, "b")
	table := sendersTable(s.table)
	for _, harm := range []struct {
		what string
		do   func(c *nftables.Conn)
	}{
		{"nothing", func(*nftables.Conn) {}},
		{"no table", func(c *nftables.Conn) { c.DelTable(table) }},
		{"no rules", func(c *nftables.Conn) { c.FlushChain(&nftables.Chain{Name: sendersChain, Table: table}) }},
		{"no ports", func(c *nftables.Conn) { c.FlushSet(sendersSets(table)[setPorts]) }},
		{"a pod less", func(*nftables.Conn) { l.must(s.Detach(t.Context(), "b")) }},
	} {
		l.in(l.host, func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			harm.do(c)
			return c.Flush()
		})
		l.must(s.Ready(t.Context()))
		l.in(l.host, func() error {
			h := &host{nft: &nft.Conn{}}
			defer h.nft.Drop()
			if have, err := h.readSenders(s.table); err != nil || !reflect.DeepEqual(have, compileSenders("ledge0", s.book.Entries())) {
				t.Errorf("%s: %+v %v", harm.what, have, err)
			}
			return nil
		})
	}
	l.still(s)
}
