package bridge

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/netns"
	"ledge/network/nft"
	"ledge/network/plan"
)

// Trial is one thing the kernel must be able to do for pods to have a network of their own.
type Trial struct {
	Name   string
	Err    error  // nil: it works
	Remedy string // what to do if it does not
	Fatal  bool   // pods cannot do without it
}

// Try does each of them in a network namespace that is gone afterwards: more certain than any kernel configuration.
func Try() []Trial {
	out := []Trial{
		{Name: "bridge", Fatal: true, Remedy: "use a kernel with CONFIG_BRIDGE (module bridge), or run ledge with --bridge none"},
		{Name: "veth", Fatal: true, Remedy: "use a kernel with CONFIG_VETH (module veth), or run ledge with --bridge none"},
		{Name: "nftables", Fatal: true,
			Remedy: "use a kernel with CONFIG_NF_TABLES, NF_TABLES_IPV4, NFT_NAT, NFT_MASQ, NFT_CT and NFT_FIB_IPV4, or run ledge with --bridge none"},
		{Name: "connection tracking",
			Remedy: "use a kernel with CONFIG_NF_CT_NETLINK (module nf_conntrack_netlink); without it UDP clients of a moved host port may hang"},
		{Name: "senders",
			Remedy: "use a kernel with CONFIG_NF_TABLES_BRIDGE and NFT_BRIDGE_META; without it a pod with NET_RAW can send with the address of another pod of its board"},
	}
	if err := netns.InNew(func() error { return tryHere(out) }); err != nil {
		for i := range out {
			out[i].Err = err
		}
	}
	return out
}

// Check finds, before anything is made, what will never become right by itself: an interface of others that has the bridge's name, or a
// kernel that lacks what a bridge of pods takes. Where the bridge stands already the kernel has it.
func Check(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return lacking(Try())
	}
	if foreign(link) {
		return errForeign
	}
	return nil
}

var errForeign = errors.New("an interface of that name exists that ledge did not make; choose another name")

// foreign: no node has made this, or begun to.
func foreign(l netlink.Link) bool {
	a := l.Attrs()
	// The kernel takes an alias only from an interface that is there: a crash can leave it without.
	unfinished := a.Alias == "" && bytes.HasPrefix(a.HardwareAddr, macPrefix)
	return l.Type() != "bridge" || !strings.HasPrefix(a.Alias, bridgeMark) && !unfinished
}

// lacking is the first trial of those that pods need which this kernel cannot pass. Any other failure may be over at the next try, and
// without the others they can do.
func lacking(of []Trial) error {
	for _, t := range of {
		if t.Fatal && lacks(t.Err) {
			return fmt.Errorf("%s: %w; %s", t.Name, t.Err, t.Remedy)
		}
	}
	return nil
}

func tryHere(out []Trial) error {
	nh, err := netlink.NewHandle(unix.NETLINK_ROUTE, unix.NETLINK_NETFILTER)
	if err != nil {
		return fmt.Errorf("open netlink: %w", err)
	}
	defer nh.Close()
	h := &host{Handle: nh, nft: &nft.Conn{}}
	defer h.nft.Drop()
	for i, try := range []func(*host) error{tryBridge, tryVeth, tryRules, tryFlows, trySenders} {
		if err := try(h); err != nil {
			out[i].Err = explain(err)
		}
	}
	return nil
}

// explain adds what the kernel's terse answer means here.
func explain(err error) error {
	if lacks(err) {
		return fmt.Errorf("this kernel lacks something (ledge doctor tries each part): %w", err)
	}
	return err
}

func lacks(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EPROTONOSUPPORT)
}

func tryBridge(h *host) error {
	a := netlink.NewLinkAttrs()
	a.Name = "ledgetry"
	return h.LinkAdd(&netlink.Bridge{LinkAttrs: a})
}

func tryVeth(h *host) error {
	a := netlink.NewLinkAttrs()
	a.Name = "ledgetry0"
	return h.LinkAdd(&netlink.Veth{LinkAttrs: a, PeerName: "ledgetry1", PeerTxQLen: -1})
}

// tryRules writes a table with every kind of rule a node uses.
func tryRules(h *host) error {
	cidr := netip.MustParsePrefix("10.42.0.0/24")
	e := plan.Entry{Addr: cidr.Addr().Next().Next(), Pod: network.Pod{UID: "try", Ports: []network.Port{
		{HostIP: localhost.Addr(), HostPort: 1, ContainerPort: 1, Protocol: "TCP"}}}}
	return h.replaceTable(compile(tablePrefix+"try", "ledgetry", "ledgetry0", cidr, []plan.Entry{e}, []string{"lo"},
		[]netip.Prefix{netip.MustParsePrefix("10.43.0.0/24")}))
}

func tryFlows(h *host) error {
	return h.deleteFlows(staleFlows{addrs: []netip.Addr{netip.MustParseAddr("10.42.0.2")}}, false)
}

func trySenders(h *host) error {
	e := plan.Entry{Addr: netip.MustParseAddr("10.42.0.2"), Addr6: netip.MustParseAddr("fd00::2"), Pod: network.Pod{UID: "try"}}
	return h.replaceSenders(tablePrefix+"try", compileSenders("ledgetry", []plan.Entry{e}))
}
