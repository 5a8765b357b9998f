package bridge

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/nft"
)

// After a restart Ready finds everything as it was, and puts right what somebody broke meanwhile.
func TestRestartRepairs(t *testing.T) {
	l := newLab(t)
	cfg := l.config("ledge0", "10.77.0.0/24")
	s := l.node("ledge0", "10.77.0.0/24")
	a := l.pod(s, "a", tcp(8080, 80))
	l.serve(a.NetNS, "a", "tcp", ":80")
	ask := func() string { return l.ask(l.outside, "tcp", hostIP+":8080") }
	l.expect("before", ask(), "a "+outsideIP)

	s = l.setup(cfg)
	l.expect("nobody there", ask(), "a "+outsideIP)
	l.must(s.Ready(t.Context()))
	l.expect("after Ready, before Attach", ask(), "a "+outsideIP)

	for what, harm := range map[string]func() error{
		"table deleted": func() error { return (&host{nft: &nft.Conn{}}).deleteTable(s.table) },
		"rules flushed": func() error {
			c, _ := nftables.New()
			c.FlushTable(&nftables.Table{Name: s.table, Family: nftables.TableFamilyIPv4})
			return c.Flush()
		},
		"ruleset flushed": func() error { c, _ := nftables.New(); c.FlushRuleset(); return c.Flush() },
		"bridge down":     func() error { return withLink("ledge0", netlink.LinkSetDown) },
		"address removed": func() error {
			return withLink("ledge0", func(link netlink.Link) error {
				return netlink.AddrDel(link, &netlink.Addr{IPNet: ipNet(netip.MustParsePrefix("10.77.0.1/24"))})
			})
		},
		"other address": func() error { return giveAddress("ledge0", "10.99.0.1/24") },
		"no forwarding": func() error {
			if err := setSysctl("1", "ipv4", "ip_forward"); err != nil {
				return err
			}
			return setSysctl("0", "ipv4", "ip_forward")
		},
		"bridge deleted": func() error { return withLink("ledge0", netlink.LinkDel) },
		"anchor deleted": func() error { port, _ := s.anchor(); return withLink(port, netlink.LinkDel) },
		"pod cut off":    func() error { return withLink(linkName("ledge0", "a"), netlink.LinkDel) },
		"port off bridge": func() error {
			return withLink(linkName("ledge0", "a"), netlink.LinkSetNoMaster)
		},
	} {
		l.still(s)
		l.in(l.host, harm)
		l.must(s.Ready(t.Context()))
		addrs, err := s.Attach(t.Context(), a.Pod)
		if err != nil || addrs[0].String() != a.ip {
			t.Errorf("%s: %v %v", what, addrs, err)
		}
		l.expect(what, ask(), "a "+outsideIP)
		l.in(l.host, func() error {
			return withLink("ledge0", func(link netlink.Link) error {
				addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
				if len(addrs) != 1 {
					t.Errorf("%s: addresses of the bridge: %v", what, addrs)
				}
				return err
			})
		})
	}

	// The records are lost: the kernel still knows pods and addresses.
	l.must(os.RemoveAll(cfg.RunDir))
	s = l.setup(cfg)
	if e, ok := s.book.Get("a"); !ok || e.Addr.String() != a.ip {
		t.Error("without records:", e, ok)
	}
	// Records of another boot are void, and the kernel's word counts.
	cfg.BootID = "another"
	if s = l.setup(cfg); len(s.book.Entries()) != 1 {
		t.Error(s.book.Entries())
	}
	l.must(s.Close(t.Context()))
	if left := l.left(cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

func withLink(name string, f func(netlink.Link) error) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	return f(link)
}

func TestSandboxMadeAnew(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	a := l.pod(s, "a", tcp(8080, 80))
	old := a.NetNS
	a.NetNS = l.netns("a2")
	_, err := s.Attach(t.Context(), a.Pod)
	l.must(err)
	l.serve(a.NetNS, "second", "tcp", ":80")
	l.expect("new namespace", l.ask(l.outside, "tcp", hostIP+":8080"), "second "+outsideIP)
	l.in(old, func() error {
		if _, err := netlink.LinkByName("eth0"); err == nil {
			t.Error("the old namespace still has its interface")
		}
		return nil
	})
}

// Fifty pods, as at the boot of a full board.
func TestFiftyPods(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	const pods = 50
	var ns []string
	for i := range pods {
		ns = append(ns, l.netns(fmt.Sprint("p", i)))
	}
	begin := time.Now()
	var slowest time.Duration
	for i := range pods {
		one := time.Now()
		p := network.Pod{UID: fmt.Sprint("p", i), Namespace: "default", Name: fmt.Sprint("p", i), NetNS: ns[i],
			Ports: []network.Port{tcp(uint16(20000+i), 80), udp(uint16(20000+i), 80)}}
		if _, err := s.Attach(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		slowest = max(slowest, time.Since(one))
	}
	attached := time.Since(begin)
	plain := network.Pod{UID: "plain", Namespace: "default", Name: "plain", NetNS: l.netns("plain")}
	begin = time.Now()
	if _, err := s.Attach(t.Context(), plain); err != nil {
		t.Fatal(err)
	}
	t.Logf("a pod without host ports: attached in %v", time.Since(begin))
	l.serve(ns[pods-1], "last", "tcp", ":80")
	l.expect("the last one", l.ask(l.outside, "tcp", fmt.Sprintf("%s:%d", hostIP, 20000+pods-1)), "last "+outsideIP)
	l.in(l.host, func() error { // what was added bit by bit is what is wanted
		h := &host{nft: &nft.Conn{}}
		defer h.nft.Drop()
		stale, whole, err := h.staleChains(s.have[0])
		if len(stale) > 0 || whole || len(s.have[0].chains[0].rules) != 2*pods {
			t.Error("the kernel's rules differ:", whole, stale)
		}
		return err
	})
	begin = time.Now()
	for range 100 {
		l.must(s.Ready(t.Context()))
	}
	ready := time.Since(begin) / 100
	begin = time.Now()
	var together sync.WaitGroup
	for i := range pods { // as when a board goes down
		together.Go(func() {
			if err := s.Detach(t.Context(), fmt.Sprint("p", i)); err != nil {
				t.Error(err)
			}
		})
	}
	together.Wait()
	if left := s.book.Others(nil); !slices.Equal(left, []string{"plain"}) {
		t.Errorf("left: %q", left)
	}
	l.must(s.Retain(t.Context(), nil))
	t.Logf("%d pods with 2 host ports each: attached in %v (slowest %v), Ready %v, all detached in %v", pods, attached, slowest, ready,
		time.Since(begin))
	if attached > time.Minute { // emulated guests on busy machines are slow
		t.Errorf("attaching %d pods took %v", pods, attached)
	}
}

// Several hundred rules are one transaction, and its acknowledgements are not lost.
func TestManyPorts(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	var ports []network.Port
	for i := range 600 {
		ports = append(ports, tcp(uint16(20000+i), uint16(1000+i)))
	}
	begin := time.Now()
	p := l.pod(s, "many", ports...)
	t.Logf("600 host ports in %v", time.Since(begin))
	l.serve(p.NetNS, "many", "tcp", ":1599")
	l.expect("the last one", l.ask(l.outside, "tcp", hostIP+":20599"), "many "+outsideIP)
}

func TestAttachFailsCleanly(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	plain := filepath.Join(l.dir, "plain")
	l.must(os.WriteFile(plain, nil, 0o600))
	mnt, err := os.MkdirTemp(l.dir, "dir")
	l.must(err)
	busy := l.netns("busy")
	l.in(busy, func() error {
		a := netlink.NewLinkAttrs()
		a.Name = "eth0"
		return netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a})
	})
	for _, c := range []struct{ ns, want string }{
		{"", "open network namespace"}, {filepath.Join(l.dir, "none"), "no such file"}, {plain, "is not a network namespace"},
		{mnt, "is not a network namespace"}, {"/proc/self/ns/mnt", "is not a network namespace"},
		{l.host, "its network namespace is the host's own"}, {busy, "has an eth0 already that ledge did not make"},
	} {
		_, err := s.Attach(t.Context(), network.Pod{UID: "x", Namespace: "default", Name: "x", NetNS: c.ns, Ports: []network.Port{tcp(80, 80)}})
		if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "default/x") {
			t.Errorf("%s: %v, want %q", c.ns, err, c.want)
		}
		if len(s.book.Entries()) != 0 {
			t.Errorf("%s: left in the book", c.ns)
		}
	}
	for _, uid := range []string{"", "a b", "../x", strings.Repeat("x", 200)} {
		if _, err := s.Attach(t.Context(), network.Pod{UID: uid, NetNS: l.netns("u")}); err == nil && uid != "../x" {
			t.Errorf("UID %q was accepted", uid)
		}
	}
	l.must(s.Close(t.Context()))
	if left := l.left(s.cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

func TestNames(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	dir := t.TempDir()
	for _, name := range []string{"a/b", "0ab", "sixteen-letters-", "a b", "br.1", ".."} {
		if _, err := New(Config{Bridge: name, RunDir: dir}); err == nil {
			t.Errorf("bridge name %q was accepted", name)
		}
	}
	if _, err := New(Config{}); err == nil {
		t.Error("no RunDir was accepted")
	}
	if _, err := New(Config{RunDir: dir, MTU: 100}); err == nil {
		t.Error("MTU 100 was accepted")
	}
	s, err := New(Config{RunDir: dir}) // no CIDR: only for taking down
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "no pod CIDR") {
		t.Error(err)
	}
	if a, b := linkName("ledge0", "x"), linkName("ledge1", "x"); a == b || len(a) > 15 {
		t.Error(a, b)
	}
}

// What is on the host's network already is not given to pods, and an interface of others is not touched.
func TestForeignThingsAreLeftAlone(t *testing.T) {
	l := newLab(t)
	l.in(l.host, func() error {
		a := netlink.NewLinkAttrs()
		a.Name = "br0"
		if err := netlink.LinkAdd(&netlink.Bridge{LinkAttrs: a}); err != nil {
			return err
		}
		return giveAddress("br0", "10.50.0.1/16")
	})
	for _, c := range []struct{ bridge, cidr, want string }{
		{"br0", "10.77.0.0/24", "bridge br0: an interface of that name exists that ledge did not make"},
		{"uplink0", "10.77.0.0/24", "bridge uplink0: an interface of that name exists"},
		{"ledge0", "192.0.2.0/24", "pod CIDR 192.0.2.0/24: the machine uses 192.0.2.1/24 on uplink0"},
		{"ledge0", "10.50.0.0/24", "pod CIDR 10.50.0.0/24: the machine uses 10.50.0.1/16 on br0"},
	} {
		s := l.setup(l.config(c.bridge, c.cidr))
		if err := s.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v", c.bridge, c.cidr, err)
		}
		l.must(s.Close(t.Context()))
	}
	if left := fmt.Sprint(l.left()); left != "[interface br0]" {
		t.Error(left)
	}
	used, err := UsedPrefixes(Config{NetNS: l.host, Bridge: "br0"})
	if err != nil || fmt.Sprint(used) != "[127.0.0.0/8 192.0.2.0/24 192.0.2.0/24]" {
		t.Error(used, err)
	}
	if used, err = UsedPrefixes(Config{NetNS: l.host}); err != nil || !strings.Contains(fmt.Sprint(used), "10.50.0.0/16") {
		t.Error(used, err)
	}
	// A wider route is no conflict: the bridge's own is more specific.
	l.must(l.node("ledge0", "10.50.7.0/24").Ready(t.Context()))
}

func TestTakeDownWithoutConfig(t *testing.T) {
	l := newLab(t)
	cfg := l.config("ledge0", "10.77.0.0/24")
	s := l.setup(cfg)
	l.must(s.Ready(t.Context()))
	l.pod(s, "a", tcp(8080, 80))
	cfg.PodCIDR = netip.Prefix{}
	l.must(l.setup(cfg).Close(t.Context()))
	if left := l.left(cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

// A crash between making an interface and marking it leaves things that are still recognized.
func TestUnmarkedLeftovers(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	p := l.pod(s, "a")
	l.in(l.host, func() error {
		for _, name := range []string{"ledge0", linkName("ledge0", "a")} {
			if err := withLink(name, func(link netlink.Link) error { return netlink.LinkSetAlias(link, "") }); err != nil {
				return err
			}
		}
		return nil
	})
	s = l.setup(s.cfg)
	l.must(s.Ready(t.Context()))
	_, err := s.Attach(t.Context(), p.Pod)
	l.must(err)
	l.must(s.Close(t.Context()))
	if left := l.left(s.cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

// A Setup that is not told of a namespace works in that of its thread.
func TestInOwnNamespace(t *testing.T) {
	l := newLab(t)
	cfg := l.config("ledge0", "10.77.0.0/24")
	cfg.NetNS = ""
	ns := l.netns("a")
	l.in(l.host, func() error {
		s, err := New(cfg)
		if err != nil {
			return err
		}
		addrs, err := s.Attach(t.Context(), network.Pod{UID: "a", NetNS: ns, Ports: []network.Port{tcp(8080, 80)}})
		if err != nil {
			return err
		}
		l.serve(ns, "a", "tcp", ":80")
		l.expect("host port", l.ask(l.outside, "tcp", hostIP+":8080"), "a "+outsideIP)
		l.expect("address", addrs[0].String(), "10.77.0.2")
		return s.Close(t.Context())
	})
	if left := l.left(cfg.RunDir); len(left) > 0 {
		t.Error("left:", left)
	}
}

// Pods take the MTU of the way out, and no pod can become a router for the host or for others (CVE-2020-10749).
func TestInterfacesOfPods(t *testing.T) {
	l := newLab(t)
	l.in(l.host, func() error {
		return withLink("uplink0", func(link netlink.Link) error {
			if err := netlink.LinkSetMTU(link, 1420); err != nil {
				return err
			}
			all := ipNet(netip.MustParsePrefix("0.0.0.0/0"))
			return netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Gw: netip.MustParseAddr(outsideIP).AsSlice()})
		})
	})
	s := l.node("ledge0", "10.77.0.0/24")
	p := l.pod(s, "a")
	check := func(ns, name string, mtu int, setting, want string) {
		l.in(ns, func() error {
			if v, err := sysctl("ipv6", "conf", name, setting); err != nil || v != want {
				t.Errorf("%s of %s is %q, want %s, %v", setting, name, v, want, err)
			}
			return withLink(name, func(link netlink.Link) error {
				if link.Attrs().MTU != mtu {
					t.Errorf("MTU of %s is %d", name, link.Attrs().MTU)
				}
				return nil
			})
		})
	}
	check(l.host, "ledge0", 1420, "disable_ipv6", "1")
	check(l.host, linkName("ledge0", "a"), 1420, "disable_ipv6", "1")
	check(p.NetNS, "eth0", 1420, "accept_ra", "0")
	l.must(s.Close(t.Context()))
	cfg := l.config("ledge0", "10.77.0.0/24")
	cfg.MTU = 1300
	s = l.setup(cfg)
	l.must(s.Ready(t.Context()))
	check(l.host, "ledge0", 1300, "disable_ipv6", "1")
	l.must(s.Close(t.Context()))
}
