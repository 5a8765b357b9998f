package bridge

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"slices"
	"strings"

	"github.com/vishvananda/netlink"
)

// forwarding is what this node switched on so that packets are forwarded, to be switched off when it ends.
type forwarding struct {
	bridge, table string

	v4       []string // interfaces that forward IPv4 because of us
	v6       bool     // IPv6 is forwarded because of us
	uplinks6 []string // interfaces that forward IPv6 since then

	addressed map[int][]string // interfaces with addresses of a family, until there is news
}

// ensure makes the bridge and the interfaces with addresses forward packets, each by its own switch. The
// global switch (ip_forward) is never touched. If it is on, somebody else needs it and there is nothing to do. If it
// is off when ledge ends, ledge can switch its own interfaces off without harm to others. record keeps what is switched on.
func (f *forwarding) ensure(h *host, record func() error) error {
	if err := setSysctl("1", "ipv4", "conf", f.bridge, "forwarding"); err != nil {
		return err
	}
	ours, err := f.want(h)
	if err != nil {
		return err
	}
	if !slices.Equal(ours, f.v4) {
		// Recorded first: a crash in between must not make us forget to switch it off.
		was := f.v4
		f.v4 = ours
		if err := record(); err != nil {
			f.v4 = was
			return err
		}
	}
	for _, name := range ours {
		if err := setSysctl("1", "ipv4", "conf", name, "forwarding"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// want lists the interfaces that would not forward without us: found off now, or switched on by us before.
func (f *forwarding) want(h *host) ([]string, error) {
	if all, err := sysctl("ipv4", "ip_forward"); err != nil || all == "1" {
		return nil, err
	}
	uplinks, err := f.withAddresses(h, netlink.FAMILY_V4)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, name := range uplinks {
		have, err := sysctl("ipv4", "conf", name, "forwarding")
		if err != nil {
			return nil, err
		}
		if have == "0" || have == "1" && slices.Contains(f.v4, name) {
			out = append(out, name)
		}
	}
	return out, nil
}

// withAddresses are the interfaces of the board that have addresses of a family, but those of pods.
func (f *forwarding) withAddresses(h *host, family int) ([]string, error) {
	if known, ok := f.addressed[family]; ok {
		return known, nil
	}
	links, err := dump(h.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	addrs, err := dump(func() ([]netlink.Addr, error) { return h.AddrList(nil, family) })
	if err != nil {
		return nil, fmt.Errorf("list addresses: %w", err)
	}
	var out []string
	for _, l := range links {
		a := l.Attrs()
		hasAddr := slices.ContainsFunc(addrs, func(x netlink.Addr) bool { return x.LinkIndex == a.Index })
		if hasAddr && a.Flags&net.FlagLoopback == 0 && !strings.HasPrefix(a.Alias, bridgeMark) {
			out = append(out, a.Name)
		}
	}
	slices.Sort(out)
	f.addressed[family] = out
	return out, nil
}

// restore switches off what this node switched on, unless somebody came to depend on it: another node of
// ledge, or whoever set the global switch.
func (f *forwarding) restore(h *host) error {
	names := f.v4
	f.v4 = nil
	if all, err := sysctl("ipv4", "ip_forward"); err != nil || all == "1" || len(names) == 0 {
		return err
	}
	if others, err := h.tables(); err != nil || len(others) > 0 {
		return err
	}
	for _, name := range names {
		if err := setSysctl("0", "ipv4", "conf", name, "forwarding"); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("restore forwarding of %s: %w", name, err)
		}
	}
	return nil
}
