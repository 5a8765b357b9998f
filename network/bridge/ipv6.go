package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/google/nftables"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network/plan"
)

func familyOf(a netip.Addr) int {
	if a.Is6() {
		return netlink.FAMILY_V6
	}
	return netlink.FAMILY_V4
}

// ownIPv6 switches IPv6 on for an interface whose addresses we give: nothing a router says counts there
// (CVE-2020-10749), and nobody is asked whether an address is taken.
func ownIPv6(ifname string) error {
	if have, err := sysctl("ipv6", "conf", ifname, "disable_ipv6"); err != nil || have == "" {
		return errors.Join(err, errors.New("pods are to have IPv6 addresses, and this kernel has no IPv6 (ipv6.disable=1?); leave its network out of --pod-cidr"))
	}
	for _, kv := range [][2]string{{"accept_ra", "0"}, {"autoconf", "0"}, {"accept_dad", "0"}, {"dad_transmits", "0"}, {"disable_ipv6", "0"}} {
		if err := setSysctl(kv[1], "ipv6", "conf", ifname, kv[0]); err != nil {
			return fmt.Errorf("set %s: %w", kv[0], err)
		}
	}
	return nil
}

// floodMulticast makes the bridge send multicast to all pods. With snooping the bridge learns a new pod's groups a
// second late, and until then nobody hears a neighbour solicitation for that pod.
func (h *host) floodMulticast(link netlink.Link) error {
	br, ok := link.(*netlink.Bridge)
	if !ok || br.MulticastSnooping != nil && !*br.MulticastSnooping {
		return nil
	}
	a := netlink.NewLinkAttrs()
	a.Name, a.Index = br.Name, br.Index
	if err := h.LinkModify(&netlink.Bridge{LinkAttrs: a, MulticastSnooping: new(false)}); err != nil {
		return fmt.Errorf("switch multicast snooping off: %w", err)
	}
	return nil
}

// waitHeard waits until an interface hears the question for one of its addresses, which is sent to a group of its own.
// The kernel joins that in its own time, a moment after it took the address; who asks before asks again a second
// later.
func waitHeard(ifname string, a netip.Addr) error {
	b := a.As16()
	group := fmt.Sprintf("ff0200000000000000000001ff%02x%02x%02x", b[13], b[14], b[15])
	for pause := 50 * time.Microsecond; pause < time.Second; pause = pause * 3 / 2 {
		// Of this thread: others of this process are in other namespaces.
		data, err := os.ReadFile("/proc/thread-self/net/igmp6")
		if err != nil {
			return fmt.Errorf("look at multicast groups: %w", err)
		}
		for line := range strings.Lines(string(data)) {
			if f := strings.Fields(line); len(f) > 2 && f[1] == ifname && f[2] == group {
				return nil
			}
		}
		time.Sleep(pause)
	}
	return nil // it will be a moment later
}

// waitLinkLocal waits for the bridge's link-local address. When the kernel forwards to a pod it solicits the pod from
// that address, and drops the packet while there is none.
func (h *host) waitLinkLocal(link netlink.Link) error {
	for pause := 50 * time.Microsecond; pause < time.Second; pause = pause * 3 / 2 {
		addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(link, netlink.FAMILY_V6) })
		if err != nil {
			return fmt.Errorf("list addresses of %s: %w", link.Attrs().Name, err)
		}
		if slices.ContainsFunc(addrs, func(a netlink.Addr) bool {
			return a.IP.IsLinkLocalUnicast() && a.Flags&unix.IFA_F_TENTATIVE == 0
		}) {
			return nil
		}
		time.Sleep(pause)
	}
	return nil // packets will flow a moment later
}

// compile6 is the table of IPv6. What is reached by 127.0.0.1 has no counterpart: the kernel takes nothing from or to
// ::1 that is not of the loopback.
func compile6(name, bridge, anchor string, cidr netip.Prefix, entries []plan.Entry, uplinks []string, peers []netip.Prefix) table {
	toPods, toPeers, toSelf := hostPorts(entries, true), keepAddress(peers, true), hairpins(entries, true)
	stay, uplink := keepApart(uplinks)
	return table{name: name, v6: true, chains: []chain{
		toPods, stay, toPeers, toSelf,
		{name: "guard", kind: "filter", hook: "prerouting", priority: priorityRaw, rules: []rule{
			{iif: anchor, verdict: drop, note: "only keeps the bridge's carrier"}}},
		{name: "prerouting", kind: "nat", hook: "prerouting", priority: priorityDestNAT, rules: []rule{
			{dstLocal: true, verdict: jump, chain: toPods.name}}},
		{name: "output", kind: "nat", hook: "output", priority: priorityDestNAT, rules: []rule{
			{notDst: localhost6, dstLocal: true, verdict: jump, chain: toPods.name}}},
		{name: "postrouting", kind: "nat", hook: "postrouting", priority: prioritySrcNAT, rules: []rule{
			{src: cidr, notOIF: bridge, verdict: jump, chain: toPeers.name},
			{src: cidr, notOIF: bridge, verdict: masquerade, note: "pods to elsewhere"},
			{src: cidr, oif: bridge, dnated: true, verdict: jump, chain: toSelf.name}}},
		uplink,
	}}
}

var localhost6 = netip.MustParsePrefix("::1/128")

// recall reads back from the tables what an earlier process switched on.
func (f *forwarding) recall(h *host) (err error) {
	if f.v4, err = h.uplinks(table{name: f.table}); err != nil {
		return err
	}
	if f.uplinks6, err = h.uplinks(table{name: f.table, v6: true}); err != nil {
		return err
	}
	f.v6 = len(f.uplinks6) > 0
	return nil
}

// ensure6 makes the board forward IPv6. The kernel has one switch for that, which also makes a router of
// every interface: routers do not listen to routers, and a board would lose its address and the way out. So each
// interface is made a host again at once; only the one switch decides about forwarding. What did not forward before
// is kept from doing so by rules, as with IPv4.
func (f *forwarding) ensure6(h *host, record, rules func() error) error {
	all, err := sysctl("ipv6", "conf", "all", "forwarding")
	if err != nil {
		return err
	}
	on := all == "1"
	if on && !f.v6 {
		return nil // somebody else wants it
	}
	uplinks, err := f.withAddresses(h, netlink.FAMILY_V6)
	if err != nil {
		return err
	}
	if !f.v6 || !slices.Equal(uplinks, f.uplinks6) {
		f.v6, f.uplinks6 = true, uplinks
		// Recorded first: a crash in between must not make us forget to switch it off.
		if err := record(); err != nil {
			return err
		}
	}
	if on {
		return nil
	}
	// The rules first: not for a moment may the board forward between networks that it kept apart.
	if err := rules(); err != nil {
		return err
	}
	return h.forward6()
}

// leaveIPv6 takes back what was done for an IPv6 network that pods have no more.
func (s *Setup) leaveIPv6(h *host) error {
	ours := s.forwarding.v6
	if s.made && !ours {
		return nil
	}
	if err := h.deleteTables(s.table, nftables.TableFamilyIPv6); err != nil {
		return err
	}
	if err := s.forwarding.restore6(h); err != nil || !ours {
		return err
	}
	return s.record()
}

// forward6 turns the switch and leaves every interface as it was.
func (h *host) forward6() error {
	links, err := dump(h.LinkList)
	if err != nil {
		return fmt.Errorf("list interfaces: %w", err)
	}
	type was struct{ name, key, value string }
	var before []was
	for _, name := range append([]string{"default"}, names(links)...) {
		// accept_ra before forwarding, and after it again: routes that routers told of are dropped when an interface
		// becomes a router that does not listen (2: it does).
		ra, err := sysctl("ipv6", "conf", name, "accept_ra")
		if err != nil {
			return err
		}
		role, err := sysctl("ipv6", "conf", name, "forwarding")
		if err != nil {
			return err
		}
		before = append(before, was{name, "forwarding", role})
		if ra == "1" {
			before = append(before, was{name, "accept_ra", ra})
			if err := setSysctl("2", "ipv6", "conf", name, "accept_ra"); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
	}
	errs := []error{setSysctl("1", "ipv6", "conf", "all", "forwarding")}
	for _, b := range before {
		if b.value == "" { // gone meanwhile, or without IPv6
			continue
		}
		if err := setSysctl(b.value, "ipv6", "conf", b.name, b.key); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func names(links []netlink.Link) (out []string) {
	for _, l := range links {
		out = append(out, l.Attrs().Name)
	}
	return out
}

// restore6 turns the switch back, unless another node of ledge depends on it, which then has a table of IPv6.
func (f *forwarding) restore6(h *host) error {
	ours := f.v6
	f.v6, f.uplinks6 = false, nil
	if !ours {
		return nil
	}
	others, err := h.tablesOf(nftables.TableFamilyIPv6)
	if err != nil || slices.ContainsFunc(others, func(name string) bool { return name != f.table }) {
		return err
	}
	if err := setSysctl("0", "ipv6", "conf", "all", "forwarding"); err != nil {
		return fmt.Errorf("restore forwarding of IPv6: %w", err)
	}
	return nil
}
