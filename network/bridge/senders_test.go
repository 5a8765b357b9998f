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

// TestSenders: a pod that has all rights over its own network sends with no other address than its own, of hardware or of IP, and is
// not taken for another pod whose address it says it has.
func TestSenders(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", dualCIDR)
	a, b, c := l.pod(s, "a"), l.pod(s, "b"), l.pod(s, "c")
	ears := map[string]net.PacketConn{}
	for _, proto := range []string{"udp4", "udp6"} {
		l.in(c.NetNS, func() (err error) {
			ears[proto], err = net.ListenPacket(proto, ":5353")
			return err
		})
		defer ears[proto].Close()
	}
	// heard says as whom c hears a packet from a, "" if it hears nothing.
	heard := func(proto, from, to string) string {
		l.in(a.NetNS, func() error {
			conn, err := net.ListenPacket(proto, net.JoinHostPort(from, "0"))
			if err != nil {
				return err
			}
			defer conn.Close()
			_, err = conn.WriteTo([]byte("x"), net.UDPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(to), 5353)))
			return err
		})
		ear := ears[proto]
		l.must(ear.SetReadDeadline(time.Now().Add(300 * time.Millisecond)))
		_, who, err := ear.ReadFrom(make([]byte, 9))
		if os.IsTimeout(err) {
			return ""
		}
		l.must(err)
		return netip.MustParseAddrPort(who.String()).Addr().Unmap().String()
	}
	eth := func(do func(netlink.Link) error) {
		l.in(a.NetNS, func() error {
			link, err := netlink.LinkByName(podInterface)
			if err != nil {
				return err
			}
			return do(link)
		})
	}
	l.expect("its own", heard("udp4", a.ip, c.ip), a.ip)
	l.expect("its own, IPv6", heard("udp6", a.ip6, c.ip6), a.ip6)
	eth(func(link netlink.Link) error {
		for _, ip := range []string{b.ip, b.ip6} {
			addr := netip.MustParseAddr(ip)
			if err := netlink.AddrAdd(link, &netlink.Addr{IPNet: ipNet(netip.PrefixFrom(addr, addr.BitLen())), Flags: unix.IFA_F_NODAD}); err != nil {
				return err
			}
		}
		return nil
	})
	l.expect("as another", heard("udp4", b.ip, c.ip), "")
	l.expect("as another, IPv6", heard("udp6", b.ip6, c.ip6), "")
	// It answers now when the board asks who has these addresses, and so does their owner.
	for range 10 {
		l.in(l.host, func() error {
			br, err := netlink.LinkByName("ledge0")
			if err != nil {
				return err
			}
			for _, ip := range []string{b.ip, b.ip6} {
				_ = netlink.NeighDel(&netlink.Neigh{LinkIndex: br.Attrs().Index, IP: netip.MustParseAddr(ip).AsSlice()})
				if conn, err := net.DialTimeout("tcp", net.JoinHostPort(ip, "9"), time.Second); err == nil { // refused
					conn.Close()
				}
			}
			all, err := netlink.NeighList(br.Attrs().Index, netlink.FAMILY_ALL)
			for _, n := range all {
				ip := n.IP.String()
				if (ip == b.ip || ip == b.ip6) && len(n.HardwareAddr) > 0 && n.HardwareAddr.String() != mac(netip.MustParseAddr(b.ip)).String() {
					t.Errorf("the board takes %s for that of %s", n.HardwareAddr, ip)
				}
			}
			return err
		})
	}
	eth(func(link netlink.Link) error {
		return netlink.LinkSetHardwareAddr(link, mac(netip.MustParseAddr(b.ip)))
	})
	l.expect("with another's hardware address", heard("udp4", a.ip, c.ip), "")
	eth(func(link netlink.Link) error {
		return netlink.LinkSetHardwareAddr(link, mac(netip.MustParseAddr(a.ip)))
	})
	l.expect("its own again", heard("udp4", a.ip, c.ip), a.ip)
	// What somebody else has changed is mended, and of a pod that has gone nothing is left.
	mended := func(what string, harm func(c *nftables.Conn)) {
		l.in(l.host, func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			harm(c)
			return c.Flush()
		})
		l.must(s.Ready(t.Context()))
		l.in(l.host, func() error {
			h := &host{nft: &nft.Conn{}}
			defer h.nft.Drop()
			if have, err := h.readSenders(s.table); err != nil || !reflect.DeepEqual(have, compileSenders("ledge0", s.book.Entries())) {
				t.Errorf("%s: %+v %v", what, have, err)
			}
			return nil
		})
	}
	mended("nothing", func(*nftables.Conn) {})
	mended("no table", func(c *nftables.Conn) { c.DelTable(sendersTable(s.table)) })
	mended("no rules", func(c *nftables.Conn) {
		c.FlushChain(&nftables.Chain{Name: sendersChain, Table: sendersTable(s.table)})
	})
	mended("no ports", func(c *nftables.Conn) { c.FlushSet(sendersSets(sendersTable(s.table))[setPorts]) })
	l.must(s.Detach(t.Context(), "b"))
	mended("a pod less", func(*nftables.Conn) {})
	l.expect("as another, after it has gone", heard("udp4", b.ip, c.ip), "")
	l.expect("still its own", heard("udp4", a.ip, c.ip), a.ip)
	l.still(s)
}
