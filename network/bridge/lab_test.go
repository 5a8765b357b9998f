package bridge

import (
	"context"
	"fmt"
	"io"
	"net"
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
	"ledge/network/netns"
	"ledge/network/networktest"
)

// lab is a machine of its own: a network namespace that plays the host, and one that plays the world outside, joined
// by a cable. Nothing touches the network of the machine the test runs on.
//
//	outside 192.0.2.2 ── 192.0.2.1 host (uplink0)
type lab struct {
	t       *testing.T
	dir     string
	host    string
	outside string
}

const (
	hostIP     = "192.0.2.1"
	outsideIP  = "192.0.2.2"
	hostIP6    = "2001:db8::1"
	outsideIP6 = "2001:db8::2"
)

func newLab(t *testing.T) *lab {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root")
	}
	l := &lab{t: t, dir: t.TempDir()}
	l.host, l.outside = l.netns("host"), l.netns("outside")
	out, err := netns.Open(l.outside)
	l.must(err)
	defer unix.Close(out)
	l.in(l.host, func() error {
		up("lo")
		l.must(setSysctl("0", "ipv4", "ip_forward")) // a new namespace takes over what the machine has
		a := netlink.NewLinkAttrs()
		a.Name = "uplink0"
		l.must(netlink.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "cable", PeerNamespace: netlink.NsFd(out)}))
		l.must(giveAddress("uplink0", hostIP6+"/64"))
		return giveAddress("uplink0", hostIP+"/24")
	})
	l.in(l.outside, func() error {
		up("lo")
		l.must(giveAddress("cable", outsideIP6+"/64"))
		return giveAddress("cable", outsideIP+"/24")
	})
	// Both ends have the same index: the kernel may let the first packets through a second later.
	l.in(l.host, func() error { return carrier("uplink0") })
	l.in(l.outside, func() error { return carrier("cable") })
	return l
}

func up(name string) {
	if link, err := netlink.LinkByName(name); err == nil {
		_ = netlink.LinkSetUp(link)
	}
}

func giveAddress(name, cidr string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return err
	}
	a, err := netlink.ParseAddr(cidr)
	if err != nil {
		return err
	}
	a.Flags = unix.IFA_F_NODAD
	if err := netlink.AddrAdd(link, a); err != nil {
		return err
	}
	return netlink.LinkSetUp(link)
}

func carrier(name string) error {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer h.Close()
	return (&host{Handle: h}).waitCarrier(name)
}

func (l *lab) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatal(err)
	}
}

// netns makes a namespace and pins it to a file, as the keeper does.
func (l *lab) netns(name string) string {
	l.t.Helper()
	path := filepath.Join(l.dir, fmt.Sprintf("ns-%s-%d", name, time.Now().UnixNano()))
	l.must(os.WriteFile(path, nil, 0o600))
	l.must(netns.InNew(func() error { return unix.Mount("/proc/thread-self/ns/net", path, "", unix.MS_BIND, "") }))
	l.t.Cleanup(func() {
		if err := unix.Unmount(path, unix.MNT_DETACH); err != nil && err != unix.EINVAL {
			l.t.Error("unpin", path, err)
		}
	})
	// Without it what is forwarded gets out only after a second, in which others may object to the address.
	l.in(path, func() error { return setSysctl("0", "ipv6", "conf", "default", "accept_dad") })
	return path
}

// in runs f inside a namespace.
func (l *lab) in(ns string, f func() error) {
	l.t.Helper()
	l.must(l.try(ns, f))
}

func (l *lab) try(ns string, f func() error) error {
	fd, err := netns.Open(ns)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	return netns.Within(fd, f)
}

func (l *lab) config(bridge, cidr string) Config {
	v4, v6, dual := strings.Cut(cidr, ",")
	c := Config{Bridge: bridge, PodCIDR: netip.MustParsePrefix(v4), RunDir: filepath.Join(l.dir, "run-"+bridge), NetNS: l.host}
	if dual {
		c.PodCIDR6 = netip.MustParsePrefix(v6)
	}
	return c
}

func (l *lab) setup(cfg Config) *Setup {
	l.t.Helper()
	s, err := New(cfg)
	l.must(err)
	return s
}

// node is a Setup that is ready, closed at the end, after which nothing may be left.
func (l *lab) node(bridge, cidr string) *Setup {
	l.t.Helper()
	s := l.setup(l.config(bridge, cidr))
	l.must(s.Ready(l.t.Context()))
	l.t.Cleanup(func() {
		if err := s.Close(context.Background()); err != nil {
			l.t.Error("close:", err)
		}
	})
	return s
}

// still looks at the bridge until a look has had nothing to list: only then does the next one show that harm is heard of.
func (l *lab) still(s *Setup) {
	l.t.Helper()
	testrun.Until(l.t, 10*time.Second, "interfaces and addresses stay as they are", func() bool {
		if !s.unchanged {
			l.must(s.Ready(l.t.Context()))
		}
		return s.unchanged
	})
	for range 2 { // our own changes of the last look were news for the first of these
		l.must(s.Ready(l.t.Context()))
	}
	if !s.unchanged {
		l.t.Error("nothing has changed, and the interfaces were listed again")
	}
}

type testPod struct {
	network.Pod
	ip, ip6 string
}

func (l *lab) pod(s *Setup, uid string, ports ...network.Port) testPod {
	l.t.Helper()
	p := network.Pod{UID: uid, Namespace: "default", Name: uid, NetNS: l.netns(uid), Ports: ports}
	addrs, err := s.Attach(l.t.Context(), p)
	l.must(err)
	out := testPod{Pod: p, ip: addrs[0].String()}
	if len(addrs) > 1 {
		out.ip6 = addrs[1].String()
	}
	return out
}

// netOf is a protocol in the family of an address.
func netOf(proto, addr string) string {
	if strings.HasPrefix(addr, "[") {
		return proto + "6"
	}
	return proto + "4"
}

// serve answers, in a namespace, every TCP connection and every UDP packet with who it is and who asks.
func (l *lab) serve(ns, who, proto, addr string) {
	l.t.Helper()
	if proto == "udp" {
		var c net.PacketConn
		l.in(ns, func() (err error) { c, err = net.ListenPacket(netOf("udp", addr), addr); return err })
		l.t.Cleanup(func() { c.Close() })
		go func() {
			buf := make([]byte, 100)
			for {
				_, from, err := c.ReadFrom(buf)
				if err != nil {
					return
				}
				host, _, _ := net.SplitHostPort(from.String())
				_, _ = c.WriteTo([]byte(who+" "+host), from)
			}
		}()
		return
	}
	var ln net.Listener
	l.in(ns, func() (err error) { ln, err = net.Listen(netOf("tcp", addr), addr); return err })
	l.t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			host, _, _ := net.SplitHostPort(c.RemoteAddr().String())
			_, _ = io.WriteString(c, who+" "+host)
			c.Close()
		}
	}()
}

// ask gives the answer of a server, as seen from a namespace: "who asker", or the error.
func (l *lab) ask(ns, proto, addr string) string {
	l.t.Helper()
	var answer string
	within := testrun.Patience(700 * time.Millisecond)
	err := l.try(ns, func() error {
		c, err := net.DialTimeout(netOf(proto, addr), addr, within)
		if err != nil {
			return err
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(within))
		if proto == "udp" {
			if _, err := c.Write([]byte("?")); err != nil {
				return err
			}
			buf := make([]byte, 100)
			n, err := c.Read(buf)
			answer = string(buf[:n])
			return err
		}
		b, err := io.ReadAll(c)
		answer = string(b)
		return err
	})
	if err != nil {
		return "error: " + err.Error()
	}
	return answer
}

// udpClient asks again and again from one socket.
func (l *lab) udpClient(ns, addr string) func() string {
	l.t.Helper()
	var c net.Conn
	l.in(ns, func() (err error) { c, err = net.Dial(netOf("udp", addr), addr); return err })
	l.t.Cleanup(func() { c.Close() })
	return func() string {
		buf := make([]byte, 100)
		var last error
		for range 3 { // an ICMP error of the last question may answer the next
			_ = c.SetDeadline(time.Now().Add(testrun.Patience(300 * time.Millisecond)))
			if _, last = c.Write([]byte("?")); last != nil {
				continue
			}
			var n int
			if n, last = c.Read(buf); last == nil {
				return string(buf[:n])
			}
		}
		return "error: " + last.Error()
	}
}

func (l *lab) expect(what, got, want string) {
	l.t.Helper()
	if got != want {
		l.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func (l *lab) fails(what, got string) {
	l.t.Helper()
	if !strings.HasPrefix(got, "error: ") {
		l.t.Errorf("%s: got %q, want an error", what, got)
	}
}

// left lists everything in the host namespace that a node could have made.
func (l *lab) left(dirs ...string) []string {
	l.t.Helper()
	var out []string
	l.in(l.host, func() error {
		links, err := netlink.LinkList()
		if err != nil {
			return err
		}
		for _, link := range links {
			if n := link.Attrs().Name; n != "lo" && n != "uplink0" {
				out = append(out, "interface "+n)
			}
		}
		c, err := nftables.New()
		if err != nil {
			return err
		}
		tables, err := c.ListTables()
		for _, t := range tables {
			out = append(out, "table "+t.Name)
		}
		for _, name := range []string{"uplink0", "default", "all", "lo"} {
			v, err := sysctl("ipv4", "conf", name, "forwarding")
			if err != nil || v != "0" {
				out = append(out, "forwarding of "+name)
			}
			if v, err := sysctl("ipv6", "conf", name, "forwarding"); err != nil || v != "0" {
				out = append(out, "forwarding of IPv6 of "+name)
			}
		}
		return err
	})
	for _, d := range dirs {
		if _, err := os.Stat(d); err == nil {
			out = append(out, "directory "+d)
		}
	}
	return out
}

func TestSuite(t *testing.T) {
	networktest.Run(t, func(t *testing.T, cidr, cidr6 netip.Prefix) networktest.Machine {
		l := newLab(t)
		cfg := l.config("ledge0", cidr.String())
		cfg.PodCIDR6 = cidr6
		return networktest.Machine{
			Start: func(t *testing.T) network.Setup { return l.setup(cfg) },
			NetNS: func(t *testing.T, name string) string { return l.netns(name) },
			Left:  func(t *testing.T) []string { return l.left(cfg.RunDir) },
		}
	})
}
