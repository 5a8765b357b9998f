package bridge

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"strings"
	"testing"
	"unsafe"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/netns"
)

// firewall makes a forward chain as another program would.
func firewall(policy nftables.ChainPolicy, family nftables.TableFamily, rules ...[]expr.Any) error {
	c, err := nftables.New()
	if err != nil {
		return err
	}
	t := c.AddTable(&nftables.Table{Name: "filter", Family: family})
	ch := c.AddChain(&nftables.Chain{Name: "FORWARD", Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter, Policy: &policy})
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: t, Chain: ch, Exprs: r})
	}
	return c.Flush()
}

func accept(match ...expr.Any) []expr.Any {
	return append(match, &expr.Counter{}, &expr.Verdict{Kind: expr.VerdictAccept})
}

func iif(name []byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: 1}, &expr.Cmp{Register: 1, Data: name}}
}

func TestOtherFirewalls(t *testing.T) {
	testrun.OnHost(t)
	reject := []expr.Any{&expr.Counter{}, &expr.Reject{Type: unix.NFT_REJECT_ICMP_UNREACH, Code: 13}}
	src := rule{src: netip.MustParsePrefix("10.77.0.0/24"), verdict: drop}.exprs()
	src[len(src)-1] = &expr.Verdict{Kind: expr.VerdictAccept}
	v4, inet := nftables.TableFamilyIPv4, nftables.TableFamilyINet
	yes, no := nftables.ChainPolicyAccept, nftables.ChainPolicyDrop
	for _, c := range []struct {
		name    string
		make    func() error
		blocked bool
	}{
		{"docker", func() error { return firewall(no, v4, accept(iif(ifname("docker0"))...)) }, true},
		{"empty, policy drop, inet", func() error { return firewall(no, inet) }, true},
		{"firewalld", func() error { return firewall(yes, inet, accept(iif(ifname("lo"))...), reject) }, true},
		{"policy accept", func() error { return firewall(yes, v4, accept(iif(ifname("docker0"))...)) }, false},
		{"rejects one interface", func() error { return firewall(yes, v4, append(iif(ifname("docker0")), reject...)) }, false},
		{"IPv6 only", func() error { return firewall(no, nftables.TableFamilyIPv6) }, false},
		{"knows the bridge", func() error { return firewall(no, v4, accept(iif(ifname("ledge0"))...)) }, false},
		{"knows ledge+", func() error { return firewall(no, v4, accept(iif([]byte("ledge"))...)) }, false},
		{"knows the network", func() error { return firewall(no, v4, src) }, false},
		{"knows another bridge", func() error { return firewall(no, v4, accept(iif(ifname("ledge01"))...)) }, true},
		{"knows all interfaces that begin with l", func() error { return firewall(no, v4, accept(iif([]byte("l"))...)) }, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := newLab(t)
			s := l.node("ledge0", "10.77.0.0/24")
			l.in(l.host, c.make)
			err := s.Ready(t.Context())
			if got := errors.Is(err, network.ErrBlocked); got != c.blocked || err != nil && !got {
				t.Fatal(err)
			}
			if err != nil && (!strings.Contains(err.Error(), "table filter, chain FORWARD") ||
				!strings.Contains(err.Error(), "iptables -I FORWARD -i ledge0 -j ACCEPT")) {
				t.Error("no remedy:", err)
			}
			// Blocked is not broken: pods are connected all the same.
			p := l.pod(s, "a")
			l.serve(p.NetNS, "a", "tcp", ":80")
			l.expect("board to pod", l.ask(l.host, "tcp", p.ip+":80"), "a "+gateway)
		})
	}
}

func TestLegacyFirewall(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	l.in(l.host, func() error {
		_, err := readIPTables("filter")
		if err != nil {
			t.Skip("no legacy iptables:", err)
		}
		return nil
	})
	l.must(s.Ready(t.Context())) // its policies are ACCEPT
	l.in(l.host, func() error { return setForwardPolicy(-1) })
	err := s.Ready(t.Context())
	if !errors.Is(err, network.ErrBlocked) || !strings.Contains(err.Error(), "iptables (legacy) FORWARD policy DROP") {
		t.Error(err)
	}
	p := l.pod(s, "a")
	l.serve(l.outside, "outside", "tcp", ":80")
	l.fails("it does block", l.ask(p.NetNS, "tcp", outsideIP+":80"))
	l.in(l.host, func() error { return setForwardPolicy(-2) })
	l.must(s.Ready(t.Context()))
	l.expect("open again", l.ask(p.NetNS, "tcp", outsideIP+":80"), "outside "+hostIP)
}

// setForwardPolicy does what "iptables -P FORWARD" does: it writes the table back with another verdict.
func setForwardPolicy(verdict int32) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	info := make([]byte, iptInfoSize)
	copy(info, "filter")
	if err := getsockopt(fd, iptSoGetInfo, info); err != nil {
		return err
	}
	t, err := readIPTables("filter")
	if err != nil {
		return err
	}
	v := uint32(verdict)
	binary.NativeEndian.PutUint32(t.entries[int(t.underflow[2])+iptEntrySize+iptTargetHeader:], v)
	entries := binary.NativeEndian.Uint32(info[76:])
	counters := make([]byte, 16*entries)
	const header = 96 // struct ipt_replace on 64 bits
	buf := make([]byte, header, header+len(t.entries))
	copy(buf, "filter")
	copy(buf[32:], info[32:36])                                     // valid_hooks
	binary.NativeEndian.PutUint32(buf[36:], entries)                // num_entries
	binary.NativeEndian.PutUint32(buf[40:], uint32(len(t.entries))) // size
	copy(buf[44:], info[36:76])                                     // hook_entry, underflow
	binary.NativeEndian.PutUint32(buf[84:], entries)                // num_counters
	*(*unsafe.Pointer)(unsafe.Pointer(&buf[88])) = unsafe.Pointer(&counters[0])
	buf = append(buf, t.entries...)
	_, _, e := unix.Syscall6(unix.SYS_SETSOCKOPT, uintptr(fd), unix.IPPROTO_IP, 64, uintptr(unsafe.Pointer(&buf[0])), uintptr(len(buf)), 0)
	if e != 0 {
		return e
	}
	return nil
}

func TestLegacyEntries(t *testing.T) {
	cidr := netip.MustParsePrefix("10.42.0.0/24")
	build := func(change func(e []byte)) ipTable {
		e := make([]byte, iptEntrySize+40)
		binary.NativeEndian.PutUint16(e[90:], uint16(len(e)))
		change(e)
		drop := int32(-1)
		binary.NativeEndian.PutUint32(e[iptEntrySize+iptTargetHeader:], uint32(drop))
		return ipTable{entries: append(make([]byte, 0), e...)}
	}
	iface := func(at int, name string, n int) func([]byte) {
		return func(e []byte) {
			copy(e[at:], name)
			for i := range n {
				e[at+32+i] = 0xff
			}
		}
	}
	for _, c := range []struct {
		name   string
		change func([]byte)
		want   bool
	}{
		{"any", func([]byte) {}, false},
		{"-i ledge0", iface(16, "ledge0", 7), true}, {"-o ledge0", iface(32, "ledge0", 7), true},
		{"-i ledge+", iface(16, "ledge", 5), true}, {"-i ledge01", iface(16, "ledge01", 8), false},
		{"-i eth0", iface(16, "eth0", 5), false},
		{"-s network", func(e []byte) { copy(e, []byte{10, 42, 0, 0}) }, true},
		{"-d network", func(e []byte) { copy(e[4:], []byte{10, 42, 0, 0}) }, true},
		{"-d other", func(e []byte) { copy(e[4:], []byte{10, 42, 1, 0}) }, false},
	} {
		table := build(c.change)
		if got := table.mentions("ledge0", cidr); got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
		if !table.drops(hookForward) {
			t.Errorf("%s: not seen as drop", c.name)
		}
	}
	// Damaged data is no reason to crash or to hang.
	for _, bad := range []ipTable{{}, {entries: make([]byte, iptEntrySize)}, {underflow: [5]uint32{2: 1 << 30}, entries: make([]byte, 500)}} {
		if bad.drops(hookForward) || bad.mentions("ledge0", cidr) {
			t.Error("sense made of nonsense")
		}
	}
}

// Forwarding is switched on per interface, only where needed; the board does not become a router between its networks,
// and somebody else's global switch is respected.
func TestForwarding(t *testing.T) {
	l := newLab(t)
	far := l.netns("far")
	l.in(l.host, func() error {
		fd, err := netns.Open(far)
		if err != nil {
			return err
		}
		defer unix.Close(fd)
		a := netlink.NewLinkAttrs()
		a.Name = "uplink1"
		if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "cable1", PeerNamespace: netlink.NsFd(fd)}); err != nil {
			return err
		}
		return giveAddress("uplink1", "198.51.100.1/24")
	})
	route := func(ns, dev, cidr, via string) {
		l.in(ns, func() error {
			return withLink(dev, func(link netlink.Link) error {
				return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: ipNet(netip.MustParsePrefix(cidr)),
					Gw: netip.MustParseAddr(via).AsSlice()})
			})
		})
	}
	l.in(far, func() error { return giveAddress("cable1", "198.51.100.2/24") })
	route(far, "cable1", "192.0.2.0/24", "198.51.100.1")
	route(l.outside, "cable", "198.51.100.0/24", hostIP)
	l.in(l.host, func() error { return carrier("uplink1") })
	l.serve(l.outside, "outside", "tcp", ":80")
	l.fails("no router before", l.ask(far, "tcp", outsideIP+":80"))

	s := l.node("ledge0", "10.77.0.0/24")
	p := l.pod(s, "a", tcp(8080, 80))
	l.serve(p.NetNS, "a", "tcp", ":80")
	l.expect("pod to the first network", l.ask(p.NetNS, "tcp", outsideIP+":80"), "outside "+hostIP)
	l.expect("host port from the second", l.ask(far, "tcp", "198.51.100.1:8080"), "a 198.51.100.2")
	l.fails("no router with pods", l.ask(far, "tcp", outsideIP+":80"))
	l.in(l.host, func() error {
		if v, err := sysctl("ipv4", "ip_forward"); err != nil || v != "0" {
			t.Error("the global switch was touched:", v, err)
		}
		return setSysctl("1", "ipv4", "ip_forward") // the operator makes it a router
	})
	l.must(s.Ready(t.Context()))
	l.expect("a router by will", l.ask(far, "tcp", outsideIP+":80"), "outside 198.51.100.2")
	l.must(s.Close(t.Context()))
	l.expect("still a router", l.ask(far, "tcp", outsideIP+":80"), "outside 198.51.100.2")
}

// Nothing of this process is left open by working Setups.
func TestNoDescriptorsLeak(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	open := func() (files []string) {
		entries, err := os.ReadDir("/proc/self/fd")
		l.must(err)
		for _, e := range entries {
			if to, err := os.Readlink("/proc/self/fd/" + e.Name()); err == nil {
				files = append(files, e.Name()+" "+to)
			}
		}
		return files
	}
	ns := l.netns("a")
	round := func() {
		s := l.setup(l.config("ledge0", "10.77.0.0/24"))
		for range 5 {
			_, err := s.Attach(t.Context(), network.Pod{UID: "a", NetNS: ns, Ports: []network.Port{udp(5353, 53)}})
			l.must(err)
			l.must(s.Ready(t.Context()))
			_, err = s.Attach(t.Context(), network.Pod{UID: "b", NetNS: "/none"})
			if err == nil {
				t.Fatal("attached nowhere")
			}
			l.must(s.Detach(t.Context(), "a"))
		}
		l.must(s.Close(t.Context()))
	}
	round()
	before := open()
	for range 4 {
		round()
	}
	if after := open(); len(after) > len(before) {
		t.Errorf("descriptors before: %q, after: %q", before, after)
	}
}
