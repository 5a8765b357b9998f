package host

import (
	"cmp"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
)

// Interface is a network interface that has addresses.
type Interface struct {
	Name         string
	Index        int
	Up, Loopback bool
	Multicast    bool // many machines at once are reached
	Addresses    []netip.Prefix
}

// Addresses are the machine's usable addresses, best first: of the interface the default route leaves by (N-1.43), then
// of other hardware, then of bridges and the like; on each, IPv4 first. The interfaces named in not (pods' bridges)
// are left out. Names are not looked up: a board must start while no name server answers.
func (h *Host) Addresses(not ...string) ([]netip.Addr, error) {
	ifaces, err := h.cfg.Interfaces()
	if err != nil {
		return nil, err
	}
	ifaces = slices.DeleteFunc(slices.Clone(ifaces), func(i Interface) bool { return slices.Contains(not, i.Name) })
	hardware := func(name string) bool {
		_, err := os.Stat(filepath.Join(h.cfg.Sys, "class/net", name, "device"))
		return err == nil
	}
	return order(ifaces, h.defaultRoutes(), h.passingAddresses(), hardware), nil
}

// Outside are the interfaces on which this machine meets others: hardware, what stands over it (a bridge, a bond, a VLAN), and where
// the default route leaves; of pods none. Addresses that are not to be relied on are left out, and link-local ones of IPv6 beside others.
func Outside(h *Host) ([]Interface, error) {
	ifaces, err := h.cfg.Interfaces()
	if err != nil {
		return nil, err
	}
	outside, passing := outsideOf(h), h.passingAddresses()
	var out []Interface
	for _, i := range ifaces {
		if !i.Up || i.Loopback || !i.Multicast || !outside(i.Name) {
			continue
		}
		routed := slices.ContainsFunc(i.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() && usable(p.Addr()) && !passing[p.Addr()] })
		i.Addresses = slices.DeleteFunc(slices.Clone(i.Addresses), func(p netip.Prefix) bool {
			return passing[p.Addr()] || routed && p.Addr().Is6() && p.Addr().IsLinkLocalUnicast()
		})
		if len(i.Addresses) > 0 {
			out = append(out, i)
		}
	}
	return out, nil
}

// Inside are the other interfaces: bridges of pods, tunnels and the like.
func Inside(h *Host) (names []string) {
	ifaces, err := h.cfg.Interfaces()
	if err != nil {
		return nil // whoever asks for addresses next hears of it
	}
	outside := outsideOf(h)
	for _, i := range ifaces {
		if !outside(i.Name) {
			names = append(names, i.Name)
		}
	}
	return names
}

// outsideOf tells which interfaces are hardware, stand over it, or are where the default route leaves.
func outsideOf(h *Host) func(name string) bool {
	defaults, all := h.defaultRoutes(), filepath.Join(h.cfg.Sys, "class/net")
	return func(name string) bool {
		_, leaves := defaults[name]
		return leaves || overHardware(all, name, mostLayers)
	}
}

// mostLayers is a VLAN on a bridge of bonds, and one more.
const mostLayers = 4

// overHardware says whether an interface is hardware, or stands over some.
func overHardware(all, name string, layers int) bool {
	dir := filepath.Join(all, name)
	if _, err := os.Stat(filepath.Join(dir, "device")); err == nil || layers == 0 {
		return err == nil
	}
	below, _ := filepath.Glob(filepath.Join(dir, "lower_*"))
	return slices.ContainsFunc(below, func(path string) bool {
		return overHardware(all, strings.TrimPrefix(filepath.Base(path), "lower_"), layers-1)
	})
}

// order sorts the usable addresses. defaults has the metric of the default route of an interface.
func order(ifaces []Interface, defaults map[string]uint32, passing map[netip.Addr]bool, hardware func(string) bool) []netip.Addr {
	type ranked struct {
		addr                  netip.Addr
		kind, metric, version uint32
	}
	var all []ranked
	for _, i := range ifaces {
		if !i.Up || i.Loopback {
			continue
		}
		for _, p := range i.Addresses {
			r := ranked{addr: p.Addr().Unmap().WithZone(""), kind: 2}
			if !usable(r.addr) || passing[r.addr] {
				continue
			}
			if metric, ok := defaults[i.Name]; ok {
				r.kind, r.metric = 0, metric
			} else if hardware(i.Name) {
				r.kind = 1
			}
			if r.addr.Is6() {
				r.version = 1
			}
			all = append(all, r)
		}
	}
	sort.SliceStable(all, func(i, j int) bool {
		a, b := all[i], all[j]
		return cmp.Or(cmp.Compare(a.kind, b.kind), cmp.Compare(a.metric, b.metric), cmp.Compare(a.version, b.version)) < 0
	})
	var out []netip.Addr
	for _, r := range all {
		out = append(out, r.addr)
	}
	return slices.Compact(out)
}

func usable(ip netip.Addr) bool {
	return ip.IsValid() && !ip.IsLoopback() && !ip.IsLinkLocalUnicast() && !ip.IsMulticast() && !ip.IsUnspecified()
}

// route is a line of the kernel's route tables.
type route struct {
	prefix netip.Prefix
	iface  string
	metric uint32
	reject bool
}

// routes4 reads /proc/net/route, whose addresses are in the byte order of the machine.
func (h *Host) routes4() ([]route, error) {
	data, err := os.ReadFile(filepath.Join(h.cfg.Proc, "net/route"))
	if err != nil {
		return nil, fmt.Errorf("read routes: %w", err)
	}
	var out []route
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line) // Iface Destination Gateway Flags RefCnt Use Metric Mask ...
		if len(f) < 8 || f[0] == "Iface" {
			continue
		}
		dst, err1 := strconv.ParseUint(f[1], 16, 32)
		flags, err2 := strconv.ParseUint(f[3], 16, 32)
		metric, err3 := strconv.ParseUint(f[6], 10, 32)
		mask, err4 := strconv.ParseUint(f[7], 16, 32)
		if err1 != nil || err2 != nil || err3 != nil || err4 != nil {
			continue
		}
		var b [4]byte
		binary.NativeEndian.PutUint32(b[:], uint32(dst))
		const rejects = 0x200 // RTF_REJECT
		out = append(out, route{prefix: netip.PrefixFrom(netip.AddrFrom4(b), bits.OnesCount32(uint32(mask))), iface: f[0],
			metric: uint32(metric), reject: flags&rejects != 0})
	}
	return out, nil
}

// defaultRoutes has the best metric of each interface a default route leaves by.
func (h *Host) defaultRoutes() map[string]uint32 {
	out := map[string]uint32{}
	add := func(name string, metric uint32) {
		if have, ok := out[name]; !ok || metric < have {
			out[name] = metric
		}
	}
	if routes, err := h.routes4(); err == nil {
		for _, r := range routes {
			if r.prefix.Bits() == 0 && !r.reject {
				add(r.iface, r.metric)
			}
		}
	}
	if len(out) > 0 {
		return out
	}
	data, err := os.ReadFile(filepath.Join(h.cfg.Proc, "net/ipv6_route")) // an IPv6-only network
	if err != nil {
		return out
	}
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line) // destination, its bits, source, its bits, next hop, metric, 2 counts, flags, interface
		if len(f) < 10 || f[1] != "00" || strings.Trim(f[0], "0") != "" || f[9] == "lo" {
			continue
		}
		if metric, err := strconv.ParseUint(f[5], 16, 32); err == nil {
			add(f[9], uint32(metric))
		}
	}
	return out
}

// passingAddresses are the IPv6 addresses that are not to be relied on: made for privacy and changed daily, on their
// way out, or not yet known to be free.
func (h *Host) passingAddresses() map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	data, err := os.ReadFile(filepath.Join(h.cfg.Proc, "net/if_inet6"))
	if err != nil {
		return out
	}
	const temporary, failed, deprecated, tentative = 0x01, 0x08, 0x20, 0x40 // IFA_F_*
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line) // address, index, prefix length, scope, flags, interface
		if len(f) != 6 {
			continue
		}
		raw, err1 := hex.DecodeString(f[0])
		flags, err2 := strconv.ParseUint(f[4], 16, 32)
		ip, ok := netip.AddrFromSlice(raw)
		if err1 == nil && err2 == nil && ok && flags&(temporary|failed|deprecated|tentative) != 0 {
			out[ip] = true
		}
	}
	return out
}

// Prefixes are the IPv4 networks this machine has addresses in or routes to, default routes apart: pods' addresses must
// be elsewhere.
func (h *Host) Prefixes() ([]netip.Prefix, error) {
	ifaces, err := h.cfg.Interfaces()
	if err != nil {
		return nil, err
	}
	var out []netip.Prefix
	for _, i := range ifaces {
		for _, p := range i.Addresses {
			if p.Addr().Is4() {
				out = append(out, p.Masked())
			}
		}
	}
	routes, err := h.routes4()
	if err != nil {
		return nil, err
	}
	for _, r := range routes {
		if r.prefix.Bits() > 0 {
			out = append(out, r.prefix.Masked())
		}
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return cmp.Or(a.Addr().Compare(b.Addr()), a.Bits()-b.Bits()) < 0
	})
	return slices.Compact(out), nil
}
