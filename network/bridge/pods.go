package bridge

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network/netns"
	"ledge/network/plan"
)

// podInterface is the name of a pod's interface inside the pod.
const podInterface = "eth0"

// linkName is the host's end of a pod's veth pair: the same for the same pod and bridge, 14 characters.
func linkName(bridge, uid string) string {
	sum := sha256.Sum256([]byte(bridge + " " + uid))
	return "lv" + hex.EncodeToString(sum[:6])
}

// mac derives a hardware address from an IPv4 one, so that neighbour entries stay right when an address gets a new
// owner, and the bridge's does not change with its ports.
func mac(a netip.Addr) net.HardwareAddr {
	b := a.As4()
	return append(slices.Clone(macPrefix), b[:]...)
}

var macPrefix = net.HardwareAddr{0x0a, 0x1e}

type podLink struct {
	uid         string
	addr, addr6 netip.Addr
	link        netlink.Link
}

// podLinks are the ports of a bridge that carry our mark.
func (h *host) podLinks(bridge netlink.Link) ([]podLink, error) {
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	var out []podLink
	for _, l := range links {
		if l.Attrs().MasterIndex != bridge.Attrs().Index {
			continue
		}
		if p, ok := readPodAlias(l.Attrs().Alias, bridge.Attrs().Name); ok {
			p.link = l
			out = append(out, p)
		}
	}
	return out, nil
}

// podAlias marks a pod's interface. The bridge's name, by which leftovers are found, comes last and behind a comma even
// where there is no IPv6 address: versions that did not write it read the rest as they would without (an upgrade may be
// taken back), but for the IPv6 address, which they know from the record.
func podAlias(e plan.Entry, bridge string) string {
	six := ""
	if e.Addr6.IsValid() {
		six = e.Addr6.String()
	}
	return podMark + e.Pod.UID + " " + e.Addr.String() + "," + six + "," + bridge
}

// readPodAlias reads the alias of a port of a bridge; false if it is not this bridge's pod. One without a bridge's name is
// of an earlier version.
func readPodAlias(alias, bridge string) (podLink, bool) {
	rest, ours := strings.CutPrefix(alias, podMark)
	uid, ips, ok := strings.Cut(rest, " ")
	ip, rest, _ := strings.Cut(ips, ",")
	ip6, name, named := strings.Cut(rest, ",")
	addr, err := netip.ParseAddr(ip)
	if !ours || !ok || err != nil || named && name != bridge {
		return podLink{}, false
	}
	addr6, _ := netip.ParseAddr(ip6) // mostly there is none
	return podLink{uid: uid, addr: addr, addr6: addr6}, true
}

// ensureLink makes the veth pair between the bridge and the pod's namespace.
func (s *Setup) ensureLink(h *host, e plan.Entry, ns int) error {
	br, err := h.LinkByName(s.cfg.Bridge)
	if err != nil {
		s.made = false // whoever took it away: the next try makes it again
		return fmt.Errorf("find bridge %s: %w", s.cfg.Bridge, err)
	}
	alias, name := podAlias(e, s.cfg.Bridge), linkName(s.cfg.Bridge, e.Pod.UID)
	link, err := h.LinkByName(name)
	if err == nil && (!ours(link, e.Pod.UID) || !paired(link, ns)) {
		// It leads to a namespace the pod no longer has.
		if err := h.LinkDel(link); err != nil && !notFound(err) {
			return fmt.Errorf("replace %s: %w", name, err)
		}
		link, err = nil, netlink.LinkNotFoundError{}
	}
	if notFound(err) {
		link, err = h.makeVeth(name, br.Attrs().MTU, e.Addr, ns)
	}
	if err != nil {
		return err
	}
	if link.Attrs().Alias != alias {
		if err := h.LinkSetAlias(link, alias); err != nil {
			return fmt.Errorf("mark %s as ours: %w", name, err)
		}
	}
	if link.Attrs().MasterIndex != br.Attrs().Index {
		if err := h.LinkSetMaster(link, br); err != nil {
			return fmt.Errorf("put %s on bridge: %w", name, err)
		}
	}
	// With br_netfilter a pod that calls itself, by a host port or a Service, is answered on the port it came from.
	if err := h.LinkSetHairpin(link, true); err != nil {
		return fmt.Errorf("set hairpin of %s: %w", name, err)
	}
	if err := h.LinkSetIsolated(link, !s.framesFiltered); err != nil {
		return fmt.Errorf("keep %s from other pods' frames: %w", name, err)
	}
	if err := quietIPv6(name); err != nil {
		return fmt.Errorf("switch IPv6 of %s off: %w", name, err)
	}
	return h.up(link)
}

// ensureRouted has no frame go from pod to pod past the rules of the board: pods send all they send to the bridge's address, and the
// bridge hands no frame from one pod to another. Where br_netfilter shows frames to the rules it must: there a connection that the
// board leads to a pod of its own is handed on as a frame. Pods of an earlier process are isolated when they are attached again,
// when they learn to send to the bridge.
func (h *host) ensureRouted(s *Setup) error {
	called, err := sysctl("bridge", "bridge-nf-call-iptables")
	if err != nil || s.made && s.framesFiltered == (called == "1") {
		return err
	}
	s.framesFiltered = called == "1"
	if !s.made {
		return nil
	}
	br, err := h.LinkByName(s.cfg.Bridge)
	if err != nil {
		return err
	}
	ports, err := h.podLinks(br)
	for _, p := range ports {
		err = errors.Join(err, h.LinkSetIsolated(p.link, !s.framesFiltered))
	}
	return err
}

func (h *host) makeVeth(name string, mtu int, addr netip.Addr, ns int) (netlink.Link, error) {
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = name, mtu
	v := &netlink.Veth{LinkAttrs: a, PeerName: podInterface, PeerHardwareAddr: mac(addr), PeerNamespace: netlink.NsFd(ns), PeerTxQLen: -1}
	if err := h.LinkAdd(v); err != nil {
		if errors.Is(err, unix.EEXIST) {
			return nil, fmt.Errorf("make %s: the pod has an %s already that ledge did not make: %w", name, podInterface, err)
		}
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	return h.LinkByName(name)
}

// paired tells whether the other end of a veth is the interface of the namespace ns.
func paired(link netlink.Link, ns int) bool {
	same := false
	_ = netns.Within(ns, func() error { // a namespace that cannot be entered fails where it is used
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		peer, err := h.LinkByName(podInterface)
		same = err == nil && peer.Type() == "veth" && peer.Attrs().ParentIndex == link.Attrs().Index &&
			peer.Attrs().Index == link.Attrs().ParentIndex
		return err
	})
	return same
}

// configurePod sets up a pod's side: loopback, its addresses, the way out.
func configurePod(ns int, e plan.Entry, book *plan.Book) error {
	return netns.Within(ns, func() error {
		nh, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return fmt.Errorf("open netlink: %w", err)
		}
		defer nh.Close()
		h := &host{Handle: nh}
		lo, err := h.LinkByName("lo")
		if err != nil {
			return fmt.Errorf("find loopback: %w", err)
		}
		if err := h.up(lo); err != nil {
			return err
		}
		eth, err := h.LinkByName(podInterface)
		if err != nil {
			return fmt.Errorf("find %s: %w", podInterface, err)
		}
		if err := h.onlyAddress(eth, netip.PrefixFrom(e.Addr, book.CIDR().Bits())); err != nil {
			return err
		}
		if err := errors.Join(refuseRouters(), refuseShortcuts()); err != nil {
			return err
		}
		if book.Dual() {
			if err := ownIPv6(podInterface); err != nil {
				return err
			}
		}
		if err := h.up(eth); err != nil {
			return err
		}
		if err := h.wayOut(eth, book.Gateway(), book.CIDR()); err != nil || !book.Dual() {
			return err
		}
		if err := h.onlyAddress(eth, netip.PrefixFrom(e.Addr6, book.CIDR6().Bits())); err != nil {
			return err
		}
		if err := waitHeard(podInterface, e.Addr6); err != nil {
			return err
		}
		return h.wayOut(eth, book.Gateway6(), book.CIDR6())
	})
}

// wayOut has a pod send everything to the board, what is for its neighbours too: only so it passes the board's rules.
func (h *host) wayOut(link netlink.Link, gateway netip.Addr, neighbours netip.Prefix) error {
	all := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	if gateway.Is6() {
		all = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
	}
	index := link.Attrs().Index
	board := netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK, Dst: ipNet(netip.PrefixFrom(gateway, gateway.BitLen()))}
	if err := h.RouteReplace(&board); err != nil {
		return fmt.Errorf("set route to the board: %w", err)
	}
	if err := h.RouteReplace(&netlink.Route{LinkIndex: index, Gw: gateway.AsSlice(), Dst: ipNet(all)}); err != nil {
		return fmt.Errorf("set default route: %w", err)
	}
	// The kernel's, which comes with an address that an earlier version gave.
	err := h.RouteDel(&netlink.Route{LinkIndex: index, Scope: netlink.SCOPE_LINK, Dst: ipNet(neighbours.Masked())})
	if err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("remove route to neighbours: %w", err)
	}
	return nil
}

// refuseShortcuts: the board tells pods that a neighbour can be reached without it. They would, where its rules are meant to hold.
func refuseShortcuts() error {
	for _, path := range [][]string{{"ipv4", "conf", "all"}, {"ipv4", "conf", podInterface}, {"ipv6", "conf", podInterface}} {
		path = append(path, "accept_redirects")
		if have, err := sysctl(path...); err != nil || have == "" {
			continue // a kernel without IPv6
		}
		if err := setSysctl("0", path...); err != nil {
			return fmt.Errorf("refuse redirects: %w", err)
		}
	}
	return nil
}

// refuseRouters keeps another pod from becoming the IPv6 router of this one (CVE-2020-10749).
func refuseRouters() error {
	have, err := sysctl("ipv6", "conf", podInterface, "accept_ra")
	if err == nil && have != "" {
		err = setSysctl("0", "ipv6", "conf", podInterface, "accept_ra")
	}
	if err != nil {
		return fmt.Errorf("refuse router advertisements: %w", err)
	}
	return nil
}

func (h *host) up(link netlink.Link) error {
	if link.Attrs().Flags&net.FlagUp != 0 {
		return nil
	}
	if err := h.LinkSetUp(link); err != nil {
		return fmt.Errorf("start %s: %w", link.Attrs().Name, err)
	}
	return nil
}

// waitCarrier waits until both ends of a new pair carry packets. The end that was started first learns of the other
// asynchronously, at once in most cases, but up to a second later if both ends happen to have the same index.
func (h *host) waitCarrier(link string) error {
	for pause := 50 * time.Microsecond; pause < time.Second; pause = pause * 3 / 2 {
		l, err := h.LinkByName(link)
		if err != nil {
			return fmt.Errorf("wait for %s: %w", link, err)
		}
		if l.Attrs().OperState == netlink.OperUp {
			return nil
		}
		time.Sleep(pause)
	}
	return nil // packets will flow a moment later
}

// removeLink deletes a pod's veth pair; the end inside the pod goes with it.
func (s *Setup) removeLink(h *host, uid string) error {
	link, err := h.LinkByName(linkName(s.cfg.Bridge, uid))
	if notFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	if !ours(link, uid) {
		return nil
	}
	if err := h.LinkDel(link); err != nil && !notFound(err) {
		return err
	}
	return nil
}

// ours tells whether a link with the name of a pod's is that pod's. Without a mark it is one that a crash left: the
// kernel takes an alias only from an interface that is there, and the name alone is hardly chance.
func ours(link netlink.Link, uid string) bool {
	alias := link.Attrs().Alias
	return link.Type() == "veth" && (alias == "" || strings.HasPrefix(alias, podMark+uid+" "))
}
