package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// Aliases are how the kernel remembers for us whose an interface is.
const (
	bridgeMark = "ledge bridge "
	podMark    = "ledge pod "    // podAlias has the rest
	anchorMark = "ledge anchor " // and the bridge's name, by which leftovers are found
)

func (s *Setup) mark() string {
	m := bridgeMark + s.cfg.RunDir
	return m[:min(len(m), 250)] // the kernel keeps 255
}

// ownBridge tells whether a link with the bridge's name is this node's, or left by a node whose run directory is
// gone. If not the error says whose it is.
func (s *Setup) ownBridge(l netlink.Link) error {
	alias := l.Attrs().Alias
	owner, marked := strings.CutPrefix(alias, bridgeMark)
	unfinished := alias == "" && s.book != nil && l.Attrs().HardwareAddr.String() == mac(s.book.Gateway()).String()
	switch {
	case foreign(l) || !marked && !unfinished:
		return errForeign
	case alias == s.mark() || unfinished:
		return nil
	}
	if _, err := os.Stat(owner); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return fmt.Errorf("it belongs to the node in %s; choose another name", owner)
}

// ensureBridge makes the bridge and gives it its address.
func (s *Setup) ensureBridge(h *host) error {
	if s.unchanged {
		return s.bridgeSysctls()
	}
	name := s.cfg.Bridge
	link, err := h.LinkByName(name)
	if notFound(err) {
		if link, err = s.makeBridge(h); err != nil {
			return err
		}
	}
	if err != nil {
		return err
	}
	if err := s.ownBridge(link); err != nil {
		return err
	}
	if link.Attrs().Alias != s.mark() {
		if strings.HasPrefix(link.Attrs().Alias, bridgeMark) { // of a node that is gone: its duties come with it
			if err := s.forwarding.recall(h); err != nil {
				return err
			}
		}
		if err := h.LinkSetAlias(link, s.mark()); err != nil {
			return fmt.Errorf("mark as ours: %w", err)
		}
	}
	if err := s.bridgeSysctls(); err != nil {
		return err
	}
	if s.book.Dual() {
		if err := h.floodMulticast(link); err != nil {
			return err
		}
	}
	if err := h.onlyAddress(link, netip.PrefixFrom(s.book.Gateway(), s.book.CIDR().Bits())); err != nil {
		return err
	}
	if err := h.up(link); err != nil {
		return err
	}
	if s.book.Dual() { // an interface that goes down loses these
		if err := h.onlyAddress(link, netip.PrefixFrom(s.book.Gateway6(), s.book.CIDR6().Bits())); err != nil {
			return err
		}
	}
	if err := s.ensureAnchor(h, link); err != nil {
		return fmt.Errorf("make anchor: %w", err)
	}
	if s.book.Dual() {
		return errors.Join(waitHeard(name, s.book.Gateway6()), h.waitLinkLocal(link))
	}
	return nil
}

// bridgeSysctls are what nobody is told of when it changes.
func (s *Setup) bridgeSysctls() error {
	own := quietIPv6
	if s.book.Dual() {
		own = ownIPv6
	}
	if err := own(s.cfg.Bridge); err != nil {
		return fmt.Errorf("set up IPv6: %w", err)
	}
	// 127.0.0.1 reaches host ports only so; the guard chain keeps pods from using it.
	if err := setSysctl("1", "ipv4", "conf", s.cfg.Bridge, "route_localnet"); err != nil {
		return fmt.Errorf("set route_localnet: %w", err)
	}
	return nil
}

// anchor names the two ends of a veth pair that is always on the bridge. A bridge without ports has no carrier, and
// when the first pod brings it back the kernel may take a second to let packets out again (linkwatch runs once a
// second): the first answer of the name server would be lost.
func (s *Setup) anchor() (port, other string) {
	return linkName(s.cfg.Bridge, " port"), linkName(s.cfg.Bridge, " other") // no UID has a space
}

func (s *Setup) ensureAnchor(h *host, br netlink.Link) error {
	port, other := s.anchor()
	a := netlink.NewLinkAttrs()
	a.Name, a.MTU = port, br.Attrs().MTU
	if err := h.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: other, PeerTxQLen: -1}); err != nil && !errors.Is(err, unix.EEXIST) {
		return err
	}
	started := false
	// The port last: then the bridge's carrier comes with it and not with a later event.
	for _, name := range []string{other, port} {
		link, err := h.LinkByName(name)
		if err != nil {
			return err
		}
		if link.Attrs().Flags&net.FlagUp != 0 && (name == other || link.Attrs().MasterIndex == br.Attrs().Index) {
			continue
		}
		if err := s.startAnchor(h, br, link, name == port); err != nil {
			return err
		}
		started = true
	}
	if started {
		return h.waitCarrier(s.cfg.Bridge)
	}
	return nil
}

// startAnchor keeps the pair silent: no IPv6, no ARP (nothing else may answer for the host's addresses), no flooding;
// what is broadcast all the same the guard chain drops.
func (s *Setup) startAnchor(h *host, br, link netlink.Link, isPort bool) error {
	if err := quietIPv6(link.Attrs().Name); err != nil {
		return err
	}
	if err := h.LinkSetAlias(link, anchorMark+s.cfg.Bridge); err != nil {
		return err
	}
	if err := h.LinkSetARPOff(link); err != nil {
		return err
	}
	if isPort {
		if err := h.LinkSetMaster(link, br); err != nil {
			return err
		}
		if err := errors.Join(h.LinkSetFlood(link, false), h.LinkSetLearning(link, false)); err != nil {
			return err
		}
	}
	return h.LinkSetUp(link)
}

func (s *Setup) makeBridge(h *host) (netlink.Link, error) {
	if err := h.overlap(s.book.CIDR()); err != nil {
		return nil, err
	}
	if s.book.Dual() {
		if err := h.overlap(s.book.CIDR6()); err != nil {
			return nil, err
		}
	}
	a := netlink.NewLinkAttrs()
	a.Name, a.HardwareAddr = s.cfg.Bridge, mac(s.book.Gateway())
	if err := s.record(); err != nil {
		return nil, err
	}
	if err := h.LinkAdd(&netlink.Bridge{LinkAttrs: a}); err != nil {
		return nil, fmt.Errorf("make: %w", err)
	}
	link, err := h.LinkByName(s.cfg.Bridge)
	if err != nil {
		return nil, err
	}
	// Set afterwards, or the bridge would follow its ports.
	if err := h.LinkSetMTU(link, h.mtuOf(s.cfg)); err != nil {
		return nil, fmt.Errorf("set MTU: %w", err)
	}
	return h.LinkByName(s.cfg.Bridge)
}

// overlap looks for an address or a route of the host inside the pods' network. A wider route is fine: the
// bridge's own is more specific.
func (h *host) overlap(cidr netip.Prefix) error {
	used, err := h.prefixes("", familyOf(cidr.Addr()))
	if err != nil {
		return err
	}
	for _, u := range used {
		if cidr.Contains(u.prefix.Addr()) && (u.isAddr || u.prefix.Bits() >= cidr.Bits()) {
			return fmt.Errorf("pod CIDR %s: the machine uses %s on %s; choose another", cidr, u.prefix, u.link)
		}
	}
	return nil
}

type usedPrefix struct {
	prefix netip.Prefix
	link   string
	isAddr bool
}

// prefixes are the networks of a family that the host knows, by addresses and by routes; not those of the interface except.
func (h *host) prefixes(except string, family int) ([]usedPrefix, error) {
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	names := map[int]string{}
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	var out []usedPrefix
	add := func(n *net.IPNet, index int, isAddr bool) {
		p, ok := toPrefix(n)
		if ok && (except == "" || names[index] != except) {
			out = append(out, usedPrefix{prefix: p, link: names[index], isAddr: isAddr})
		}
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, family) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	for _, a := range addrs {
		add(a.IPNet, a.LinkIndex, true)
	}
	routes, err := dump(func() ([]netlink.Route, error) { return h.RouteList(nil, family) })
	if err != nil {
		return nil, fmt.Errorf("list routes: %w", err)
	}
	for _, r := range routes {
		add(r.Dst, r.LinkIndex, false)
	}
	return out, nil
}

func toPrefix(n *net.IPNet) (netip.Prefix, bool) {
	if n == nil {
		return netip.Prefix{}, false
	}
	ip, ok := netip.AddrFromSlice(n.IP)
	ip = ip.Unmap()
	ones, bits := n.Mask.Size()
	return netip.PrefixFrom(ip, ones), ok && bits == ip.BitLen()
}

// UsedPrefixes are the IPv4 networks of the machine that pods must stay out of, for plan.ChooseCIDR; what belongs
// to the bridge of cfg does not count.
func UsedPrefixes(cfg Config) ([]netip.Prefix, error) {
	var out []netip.Prefix
	s := &Setup{cfg: cfg}
	err := s.onHost(func(h *host) error {
		used, err := h.prefixes(cfg.Bridge, netlink.FAMILY_V4)
		for _, u := range used {
			out = append(out, u.prefix.Masked())
		}
		return err
	})
	return out, err
}

// mtuOf is the configured one, or that of the interface of the default route.
func (h *host) mtuOf(cfg Config) int {
	if cfg.MTU != 0 {
		return cfg.MTU
	}
	routes, err := dump(func() ([]netlink.Route, error) { return h.RouteList(nil, netlink.FAMILY_V4) })
	if err != nil {
		return 1500
	}
	for _, r := range routes {
		if r.Dst != nil && !r.Dst.IP.IsUnspecified() {
			continue
		}
		if l, err := h.LinkByIndex(r.LinkIndex); err == nil && l.Attrs().MTU >= 576 {
			return l.Attrs().MTU
		}
	}
	return 1500
}

// onlyAddress makes p the one address of its family of a link, beside what IPv6 gives every link.
func (h *host) onlyAddress(link netlink.Link, p netip.Prefix) error {
	have, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(link, familyOf(p.Addr())) })
	if err != nil {
		return fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
	}
	found := false
	for _, a := range have {
		if q, ok := toPrefix(a.IPNet); ok && q == p {
			found = true
			continue
		}
		if a.IP.IsLinkLocalUnicast() && p.Addr().Is6() {
			continue
		}
		if err := h.AddrDel(link, &a); err != nil && !errors.Is(err, unix.EADDRNOTAVAIL) {
			return fmt.Errorf("remove address %s from %s: %w", a.IPNet, link.Attrs().Name, err)
		}
	}
	if found {
		return nil
	}
	a := &netlink.Addr{IPNet: ipNet(p)}
	if link.Attrs().Name == podInterface {
		a.Flags = unix.IFA_F_NOPREFIXROUTE
	}
	if p.Addr().Is6() {
		a.Flags |= unix.IFA_F_NODAD // nobody else gives out these, and a second's wait for nothing would be every pod's
	}
	if err := h.AddrReplace(link, a); err != nil {
		return fmt.Errorf("give %s to %s: %w", p, link.Attrs().Name, err)
	}
	return nil
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// removeBridge takes the bridge away, with what of ours is still on it.
func (s *Setup) removeBridge(h *host) error {
	// The anchor also where somebody has removed the bridge from under it.
	port, _ := s.anchor()
	if anchor, err := h.LinkByName(port); err == nil {
		if err := h.LinkDel(anchor); err != nil && !notFound(err) {
			return fmt.Errorf("remove anchor: %w", err)
		}
	}
	link, err := h.LinkByName(s.cfg.Bridge)
	if notFound(err) {
		return nil
	}
	if err != nil {
		return err
	}
	ports, err := h.podLinks(link)
	if err != nil {
		return err
	}
	for _, p := range ports {
		if err := h.LinkDel(p.link); err != nil && !notFound(err) {
			return fmt.Errorf("remove %s: %w", p.link.Attrs().Name, err)
		}
	}
	if err := h.LinkDel(link); err != nil && !notFound(err) {
		return err
	}
	return nil
}
