package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/internal/testrun"
	"ledge/network"
)

func tcp(host, pod uint16) network.Port {
	return network.Port{HostPort: host, ContainerPort: pod, Protocol: "TCP"}
}

func udp(host, pod uint16) network.Port {
	return network.Port{HostPort: host, ContainerPort: pod, Protocol: "UDP"}
}

const gateway = "10.77.0.1"

// bridgeNetfilter sets whether bridged frames pass the IP hooks: 1 with Docker about, 0 without.
func bridgeNetfilter(l *lab, value string) {
	l.in(l.host, func() error {
		if have, _ := sysctl("bridge", "bridge-nf-call-iptables"); have == "" {
			if value == "1" {
				l.t.Skip("no br_netfilter")
			}
			return nil
		}
		return setSysctl(value, "bridge", "bridge-nf-call-iptables")
	})
}

func TestTraffic(t *testing.T) {
	testrun.OnHost(t)
	for _, nf := range []string{"0", "1"} {
		t.Run("br_netfilter="+nf, func(t *testing.T) {
			l := newLab(t)
			bridgeNetfilter(l, nf)
			s := l.node("ledge0", "10.77.0.0/24")
			a := l.pod(s, "a", tcp(8080, 80), udp(5353, 53))
			b := l.pod(s, "b")
			for _, p := range []testPod{a, b} {
				l.serve(p.NetNS, p.UID, "tcp", ":80")
				l.serve(p.NetNS, p.UID, "udp", ":53")
			}
			l.serve(l.outside, "outside", "tcp", ":80")
			l.serve(l.host, "host", "tcp", ":81")
			for _, c := range []struct{ what, from, proto, to, want string }{
				{"pod to pod", b.NetNS, "tcp", a.ip + ":80", "a " + b.ip},
				{"pod to pod, UDP", b.NetNS, "udp", a.ip + ":53", "a " + b.ip},
				{"pod to itself", a.NetNS, "tcp", a.ip + ":80", "a " + a.ip},
				{"pod to its localhost", a.NetNS, "tcp", "127.0.0.1:80", "a 127.0.0.1"},
				{"pod to board", a.NetNS, "tcp", gateway + ":81", "host " + a.ip},
				{"pod to board's other address", a.NetNS, "tcp", hostIP + ":81", "host " + a.ip},
				{"board to pod", l.host, "tcp", a.ip + ":80", "a " + gateway},
				{"pod to outside is masqueraded", a.NetNS, "tcp", outsideIP + ":80", "outside " + hostIP},
				{"outside to host port keeps its address", l.outside, "tcp", hostIP + ":8080", "a " + outsideIP},
				{"outside to host port, UDP", l.outside, "udp", hostIP + ":5353", "a " + outsideIP},
				{"board to its host port", l.host, "tcp", hostIP + ":8080", "a " + hostIP},
				{"board to its host port by localhost", l.host, "tcp", "127.0.0.1:8080", "a " + gateway},
				{"the same, UDP", l.host, "udp", "127.0.0.1:5353", "a " + gateway},
				{"pod to host port of another", b.NetNS, "tcp", hostIP + ":8080", "a " + b.ip},
				{"pod to host port of another, by the bridge", b.NetNS, "tcp", gateway + ":8080", "a " + b.ip},
				{"pod to its own host port", a.NetNS, "tcp", hostIP + ":8080", "a " + gateway},
				{"pod to its own host port by the bridge", a.NetNS, "tcp", gateway + ":8080", "a " + gateway},
				{"pod to its own host port, UDP", a.NetNS, "udp", hostIP + ":5353", "a " + gateway},
			} {
				l.expect(c.what, l.ask(c.from, c.proto, c.to), c.want)
			}
			l.fails("a port that is none", l.ask(l.outside, "tcp", hostIP+":8081"))
			l.fails("a pod's localhost is its own", l.ask(b.NetNS, "tcp", "127.0.0.1:8080"))
			l.fails("UDP port by TCP", l.ask(l.outside, "tcp", hostIP+":5353"))

			l.must(s.Detach(t.Context(), "a"))
			l.fails("host port after Detach", l.ask(l.outside, "tcp", hostIP+":8080"))
			l.fails("localhost after Detach", l.ask(l.host, "tcp", "127.0.0.1:8080"))
			l.expect("the other pod goes on", l.ask(l.host, "tcp", b.ip+":80"), "b "+gateway)
		})
	}
}

// A DNS pod on port 53 of all addresses leaves the host's own resolver on 127.0.0.53 alone; what was on the port of an
// address that pods get is refused.
func TestPortsOfTheHost(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	l.serve(l.host, "resolved", "udp", "127.0.0.53:53")
	l.serve(l.host, "resolved", "tcp", "127.0.0.53:53")
	p := l.pod(s, "dns", udp(53, 53), tcp(53, 53))
	l.serve(p.NetNS, "pod", "udp", ":53")
	l.serve(p.NetNS, "pod", "tcp", ":53")
	for _, proto := range []string{"udp", "tcp"} {
		l.expect("resolver "+proto, l.ask(l.host, proto, "127.0.0.53:53"), "resolved 127.0.0.1")
		l.expect("pod "+proto, l.ask(l.host, proto, "127.0.0.1:53"), "pod "+gateway)
		l.expect("pod from outside "+proto, l.ask(l.outside, proto, hostIP+":53"), "pod "+outsideIP)
	}

	l.serve(l.host, "sshd", "tcp", ":22")
	l.serve(l.host, "mdns", "udp", hostIP+":5353")
	l.serve(l.host, "db", "tcp", "127.0.0.1:5432")
	for _, c := range []struct {
		port network.Port
		want string
	}{
		{tcp(22, 80), "host port is in use: a process of this machine has 22/TCP on 127.0.0.1"},
		{udp(5353, 80), "a process of this machine has 5353/UDP on 192.0.2.1"},
		{tcp(5432, 80), "a process of this machine has 5432/TCP on 127.0.0.1"},
		{network.Port{HostIP: netip.MustParseAddr("192.0.2.99"), HostPort: 80, ContainerPort: 80},
			"host port 192.0.2.99:80/TCP: this machine has no address 192.0.2.99"},
	} {
		_, err := s.Attach(t.Context(), network.Pod{UID: "x", Namespace: "default", Name: "x", NetNS: l.netns("x"),
			Ports: []network.Port{c.port}})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want %q", c.port, err, c.want)
		}
	}
	l.expect("sshd", l.ask(l.outside, "tcp", hostIP+":22"), "sshd "+outsideIP)
	// One address of the host is not the other.
	q := l.pod(s, "q", network.Port{HostIP: netip.MustParseAddr(hostIP), HostPort: 5432, ContainerPort: 80})
	l.serve(q.NetNS, "q", "tcp", ":80")
	l.expect("db", l.ask(l.host, "tcp", "127.0.0.1:5432"), "db 127.0.0.1")
	l.expect("q", l.ask(l.outside, "tcp", hostIP+":5432"), "q "+outsideIP)
	l.fails("q by the bridge's address", l.ask(p.NetNS, "tcp", gateway+":5432"))
	// What failed left nothing.
	if got := len(s.book.Entries()); got != 2 {
		t.Error(got, "pods in the book")
	}
}

// CVE-2020-8558: with route_localnet a pod could reach what listens on the board's loopback only.
func TestPodsDoNotReachTheHostsLoopback(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	p := l.pod(s, "evil")
	l.serve(l.host, "secret", "tcp", "127.0.0.1:2379")
	l.in(p.NetNS, func() error { // the pod makes 127.0.0.1 the board's
		lo, err := netlink.LinkByName("lo")
		if err != nil {
			return err
		}
		if err := netlink.LinkSetDown(lo); err != nil {
			return err
		}
		if err := setSysctl("1", "ipv4", "conf", "eth0", "route_localnet"); err != nil {
			return err
		}
		addrs, err := netlink.AddrList(lo, netlink.FAMILY_V4)
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if err := netlink.AddrDel(lo, &a); err != nil {
				return err
			}
		}
		eth, err := netlink.LinkByName("eth0")
		if err != nil {
			return err
		}
		dst := ipNet(netip.MustParsePrefix("127.0.0.1/32"))
		return netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Dst: dst, Gw: netip.MustParseAddr(gateway).AsSlice(),
			Src: netip.MustParseAddr(p.ip).AsSlice()})
	})
	l.fails("the host's loopback", l.ask(p.NetNS, "tcp", "127.0.0.1:2379"))
	l.in(l.host, func() error { // without the guard it works, so that this test proves something
		c, err := nftables.New()
		if err != nil {
			return err
		}
		c.FlushChain(&nftables.Chain{Name: "guard", Table: &nftables.Table{Name: s.table, Family: nftables.TableFamilyIPv4}})
		return c.Flush()
	})
	l.expect("the attack itself", l.ask(p.NetNS, "tcp", "127.0.0.1:2379"), "secret "+p.ip)
	l.must(s.Ready(t.Context()))
	l.fails("Ready repaired the guard", l.ask(p.NetNS, "tcp", "127.0.0.1:2379"))
}

// A UDP client that never stops keeps its connection tracking entry alive; when the host port moves it must follow.
func TestUDPFollowsAMovedPort(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	ask := l.udpClient(l.outside, hostIP+":5353")
	l.fails("before anybody has it", ask())
	a := l.pod(s, "a", udp(5353, 53))
	l.serve(a.NetNS, "a", "udp", ":53")
	l.expect("first owner", ask(), "a "+outsideIP)
	l.must(s.Detach(t.Context(), "a"))
	b := l.pod(s, "b", udp(5353, 53))
	l.serve(b.NetNS, "b", "udp", ":53")
	l.expect("second owner", ask(), "b "+outsideIP)
	l.must(s.Detach(t.Context(), "b"))
	l.serve(l.host, "host", "udp", ":5353")
	l.expect("back at the host", ask(), "host "+outsideIP)
	l.in(l.host, func() error {
		flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
		for _, f := range flows {
			if strings.Contains(f.String(), a.ip+" ") || strings.Contains(f.String(), b.ip+" ") {
				t.Error("still tracked:", f)
			}
		}
		return err
	})
}

// TestConnectionsOfPodsThatHaveGone: what a pod was connected to is forgotten a while after it has gone, or before another pod gets
// its address.
func TestConnectionsOfPodsThatHaveGone(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/29")
	for i := range 4 { // leave one address
		l.pod(s, fmt.Sprint("other", i))
	}
	l.serve(l.outside, "world", "tcp", ":80")
	tracked := func(ip string) (n int) {
		l.in(l.host, func() error {
			flows, err := netlink.ConntrackTableList(netlink.ConntrackTable, unix.AF_INET)
			for _, f := range flows {
				if f.Forward.SrcIP.String() == ip {
					n++
				}
			}
			return err
		})
		return n
	}
	connected := func(uid string) testPod {
		p := l.pod(s, uid)
		if n := tracked(p.ip); n > 0 {
			t.Errorf("%s has %d connections from before", uid, n)
		}
		l.expect(uid, l.ask(p.NetNS, "tcp", outsideIP+":80"), "world "+hostIP)
		if tracked(p.ip) == 0 {
			t.Fatal("nothing is tracked: this test shows nothing")
		}
		return p
	}
	a := connected("a")
	l.must(s.Detach(t.Context(), "a"))
	if b := connected("b"); b.ip != a.ip {
		t.Fatalf("addresses %s and %s: this test shows nothing", a.ip, b.ip)
	}
	l.must(s.Detach(t.Context(), "b"))
	testrun.Until(t, 20*time.Second, "nothing is tracked", func() bool { return tracked(a.ip) == 0 })
}

func TestTwoNodesSideBySide(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	one, two := l.node("ledge0", "10.77.0.0/24"), l.node("br-two", "10.78.0.0/24")
	a, b := l.pod(one, "a", tcp(8080, 80)), l.pod(two, "b", tcp(8081, 80))
	l.serve(a.NetNS, "a", "tcp", ":80")
	l.serve(b.NetNS, "b", "tcp", ":80")
	check := func() {
		t.Helper()
		l.expect("one", l.ask(l.outside, "tcp", hostIP+":8080"), "a "+outsideIP)
		l.expect("one by localhost", l.ask(l.host, "tcp", "127.0.0.1:8080"), "a "+gateway)
	}
	check()
	l.expect("two", l.ask(l.outside, "tcp", hostIP+":8081"), "b "+outsideIP)
	l.expect("from one to two", l.ask(a.NetNS, "tcp", hostIP+":8081"), "b "+gateway2(a))
	l.must(one.Ready(t.Context()))
	l.must(two.Close(context.Background()))
	check()
	l.fails("two is closed", l.ask(l.outside, "tcp", hostIP+":8081"))
	if left := l.left(filepath.Join(l.dir, "run-br-two")); strings.Contains(fmt.Sprint(left), "two") {
		t.Error(left)
	}
	l.must(one.Close(context.Background()))
	if left := l.left(); len(left) > 0 {
		t.Error("left:", left)
	}

	// The same bridge for another run directory is refused, and not harmed by that other node's Close.
	l.must(one.Ready(t.Context()))
	cfg := l.config("ledge0", "10.79.0.0/24")
	cfg.RunDir = filepath.Join(l.dir, "other")
	rival := l.setup(cfg)
	if err := rival.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "it belongs to the node in "+one.cfg.RunDir) {
		t.Error("a rival for the bridge:", err)
	}
	l.must(rival.Close(context.Background()))
	l.must(one.Ready(t.Context()))
	l.must(os.RemoveAll(one.cfg.RunDir)) // that node is gone for good: its bridge may be taken over
	l.must(rival.Ready(t.Context()))
	l.must(rival.Close(context.Background()))
	if left := l.left(cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

// gateway2: between nodes packets leave one bridge and are masqueraded with the other's address.
func gateway2(testPod) string { return "10.78.0.1" }

// TestNeighbours: what pods send each other passes the board's rules, also what a pod sends straight to another's hardware address.
func TestNeighbours(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	bridgeNetfilter(l, "0")
	s := l.node("ledge0", dualCIDR)
	a, b := l.pod(s, "a"), l.pod(s, "b")
	l.serve(b.NetNS, "b", "tcp", ":80")
	l.serve(b.NetNS, "b", "tcp", "[::]:80")
	l.expect("by the board", l.ask(a.NetNS, "tcp", b.ip+":80"), "b "+a.ip)
	l.expect("by the board, IPv6", l.ask(a.NetNS, "tcp", "["+b.ip6+"]:80"), "b "+a.ip6)
	// As a pod with rights over its network would: a neighbour that is reached without the board.
	l.in(a.NetNS, func() error {
		eth, err := netlink.LinkByName(podInterface)
		if err != nil {
			return err
		}
		for _, ip := range []string{b.ip, b.ip6} {
			addr := netip.MustParseAddr(ip)
			hw := mac(netip.MustParseAddr(b.ip))
			l.must(netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Scope: netlink.SCOPE_LINK,
				Dst: ipNet(netip.PrefixFrom(addr, addr.BitLen()))}))
			l.must(netlink.NeighSet(&netlink.Neigh{LinkIndex: eth.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: hw,
				State: netlink.NUD_PERMANENT}))
		}
		return nil
	})
	l.fails("past the board", l.ask(a.NetNS, "tcp", b.ip+":80"))
	l.fails("past the board, IPv6", l.ask(a.NetNS, "tcp", "["+b.ip6+"]:80"))
	// br_netfilter comes, and goes.
	bridgeNetfilter(l, "1")
	l.must(s.Ready(t.Context()))
	l.expect("frames that the rules see pass", l.ask(a.NetNS, "tcp", b.ip+":80"), "b "+a.ip)
	bridgeNetfilter(l, "0")
	l.must(s.Ready(t.Context()))
	l.fails("past the board again", l.ask(a.NetNS, "tcp", b.ip+":80"))
}

// TestOlderPods: a pod that an earlier version connected, to a network whose pods spoke to each other past the board, is put in order
// when it is attached again, and loses no connection.
func TestOlderPods(t *testing.T) {
	l := newLab(t)
	bridgeNetfilter(l, "0")
	s := l.node("ledge0", dualCIDR)
	a, b := l.pod(s, "a"), l.pod(s, "b")
	l.serve(b.NetNS, "b", "udp", ":53")
	for _, p := range []testPod{a, b} {
		l.in(l.host, func() error {
			link, err := netlink.LinkByName(linkName("ledge0", p.UID))
			if err != nil {
				return err
			}
			return netlink.LinkSetIsolated(link, false)
		})
		l.in(p.NetNS, func() error {
			eth, err := netlink.LinkByName(podInterface)
			if err != nil {
				return err
			}
			return netlink.RouteAdd(&netlink.Route{LinkIndex: eth.Attrs().Index, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_KERNEL,
				Dst: ipNet(netip.MustParsePrefix("10.77.0.0/24")), Src: netip.MustParseAddr(p.ip).AsSlice()})
		})
	}
	ask := l.udpClient(a.NetNS, b.ip+":53")
	l.expect("as it was", ask(), "b "+a.ip)
	for _, p := range []testPod{a, b} {
		_, err := s.Attach(t.Context(), p.Pod)
		l.must(err)
		l.expect("after "+p.UID, ask(), "b "+a.ip)
	}
	l.in(a.NetNS, func() error {
		routes, err := netlink.RouteList(nil, netlink.FAMILY_V4)
		for _, r := range routes {
			if dst, _ := prefixOf(r.Dst); dst.Bits() == 24 {
				t.Errorf("still there: %v", r)
			}
		}
		return err
	})
}
