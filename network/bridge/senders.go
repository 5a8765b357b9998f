package bridge

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"ledge/network/plan"
)

// Kubernetes gives containers NET_RAW, and with that they write what they like. As another pod one would get past network policies, or be
// sent what is meant for it. So each pod sends frames with its own hardware address and packets with its own addresses, and of nobody
// else's address does it say that it has it. A table of the bridge's family holds that; it looks at what comes from pods only, and
// costs the same however many there are.

// senders are the sets of that table, by name: what stands in them, as the kernel compares it.
type senders map[string]map[string]bool

// The sets: ports of pods; with the hardware address, and with the addresses of each family, that may be sent from there.
const (
	setPorts = "ports"
	setMACs  = "macs"
	setOwn   = "own"
	setOwn6  = "own6"
)

// sendersChain has the number of its rules' version.
const sendersChain = "senders1"

func compileSenders(bridge string, entries []plan.Entry) senders {
	out := senders{setPorts: {}, setMACs: {}, setOwn: {}, setOwn6: {}}
	for _, e := range entries {
		port := string(ifname(linkName(bridge, e.Pod.UID)))
		out[setPorts][port] = true
		out[setMACs][port+string(mac(e.Addr))+"\x00\x00"] = true // whole words
		out[setOwn][port+string(e.Addr.AsSlice())] = true
		if e.Addr6.IsValid() {
			out[setOwn6][port+string(e.Addr6.AsSlice())] = true
		}
	}
	return out
}

// senderCheck is that table as it was left.
type senderCheck struct {
	have         senders // nil: unknown
	seen, unseen bool    // whether this kernel shows frames to nftables; neither: it was not tried yet
}

// ensure makes the kernel's table what it should be, if it is not. known: nobody has changed it since we did.
func (s *senderCheck) ensure(h *host, table string, want senders, known bool) (wrote bool, err error) {
	if s.unseen {
		return false, nil
	}
	have := s.have
	if !known || have == nil {
		if have, err = h.readSenders(table); err != nil {
			return false, fmt.Errorf("read nftables table bridge %s: %w", table, err)
		}
	}
	switch {
	case have == nil:
		wrote, err = true, h.replaceSenders(table, want)
	case !maps.EqualFunc(have, want, maps.Equal[map[string]bool, map[string]bool]):
		wrote, err = true, h.changeSenders(table, want, have)
	}
	if !s.seen && lacks(err) {
		s.unseen = true
		slog.Warn("this kernel shows nftables no frames: a pod with NET_RAW can send with the address of another one", "err", err)
		return false, nil
	}
	if err != nil {
		s.have = nil
		return false, fmt.Errorf("write nftables table bridge %s: %w", table, explain(err))
	}
	s.have, s.seen = want, true
	return wrote, nil
}

func sendersTable(name string) *nftables.Table {
	return &nftables.Table{Name: name, Family: nftables.TableFamilyBridge}
}

// sendersSets are the sets as the kernel knows them.
func sendersSets(t *nftables.Table) map[string]*nftables.Set {
	port := nftables.TypeIFName
	with := func(name string, what nftables.SetDatatype) *nftables.Set {
		return &nftables.Set{Table: t, Name: name, KeyType: nftables.MustConcatSetType(port, what), Concatenation: true}
	}
	return map[string]*nftables.Set{setPorts: {Table: t, Name: setPorts, KeyType: port}, setMACs: with(setMACs, nftables.TypeEtherAddr),
		setOwn: with(setOwn, nftables.TypeIPAddr), setOwn6: with(setOwn6, nftables.TypeIP6Addr)}
}

// readSenders gives what is in the sets; nil: the table is not there, or another one.
func (h *host) readSenders(name string) (senders, error) {
	c, err := h.nft.Get()
	if err != nil {
		return nil, err
	}
	t := sendersTable(name)
	rules, err := c.GetRules(t, &nftables.Chain{Name: sendersChain})
	if lacks(err) || err == nil && len(rules) != len(sendersRules()) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	out := senders{}
	for set, s := range sendersSets(t) {
		elements, err := c.GetSetElements(s)
		if lacks(err) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		out[set] = map[string]bool{}
		for _, e := range elements {
			out[set][string(e.Key)] = true
		}
	}
	return out, nil
}

// replaceSenders makes the table anew, in one transaction.
func (h *host) replaceSenders(name string, want senders) error {
	c, err := h.nft.Get()
	if err != nil {
		return err
	}
	t := sendersTable(name)
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	for set, s := range sendersSets(t) {
		if err := c.AddSet(s, keys(want[set])); err != nil {
			return err
		}
	}
	chain := c.AddChain(&nftables.Chain{Name: sendersChain, Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookPrerouting,
		Priority: nftables.ChainPriorityRef(priorityRaw)})
	for _, r := range sendersRules() {
		c.AddRule(&nftables.Rule{Table: t, Chain: chain, Exprs: r.does, UserData: userdata.AppendString(nil, userdata.TypeComment, r.note)})
	}
	return c.Flush()
}

// changeSenders adds what is missing and takes out what is too much, in one transaction.
func (h *host) changeSenders(name string, want, have senders) error {
	c, err := h.nft.Get()
	if err != nil {
		return err
	}
	for set, s := range sendersSets(sendersTable(name)) {
		gone, fresh := keys(without(have[set], want[set])), keys(without(want[set], have[set]))
		if len(gone) > 0 {
			err = c.SetDeleteElements(s, gone)
		}
		if err == nil && len(fresh) > 0 {
			err = c.SetAddElements(s, fresh)
		}
		if err != nil {
			return err
		}
	}
	return c.Flush()
}

func keys(of map[string]bool) (out []nftables.SetElement) {
	for _, k := range slices.Sorted(maps.Keys(of)) {
		out = append(out, nftables.SetElement{Key: []byte(k)})
	}
	return out
}

func without(a, b map[string]bool) map[string]bool {
	out := maps.Clone(a)
	maps.DeleteFunc(out, func(k string, _ bool) bool { return b[k] })
	return out
}

// sending is one rule about what pods send.
type sending struct {
	note string
	does []expr.Any
}

var (
	linkLocal = netip.MustParsePrefix("fe80::/10")
	noAddress = netip.MustParsePrefix("::/128") // of who asks whether an address is free
)

// Registers of four bytes: the name of the port takes the first four, what it may send with stands behind it.
const (
	portReg = 8
	withReg = portReg + unix.IFNAMSIZ/4
)

// sendersRules are the same for all pods.
func sendersRules() []sending {
	port := &expr.Meta{Key: expr.MetaKeyIIFNAME, Register: portReg}
	kind := func(ether uint16) []expr.Any {
		return []expr.Any{&expr.Meta{Key: expr.MetaKeyPROTOCOL, Register: portReg},
			&expr.Cmp{Op: expr.CmpOpEq, Register: portReg, Data: binaryutil.BigEndian.PutUint16(ether)}}
	}
	in := func(set string, base expr.PayloadBase, offset, n uint32, not bool) []expr.Any {
		return []expr.Any{port, &expr.Payload{DestRegister: withReg, Base: base, Offset: offset, Len: n},
			&expr.Lookup{SourceRegister: portReg, SetName: set, Invert: not}}
	}
	const network, transport = expr.PayloadBaseNetworkHeader, expr.PayloadBaseTransportHeader
	pass, drop := []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
	ip6 := kind(unix.ETH_P_IPV6)
	const advertisement, target = 136, 8 // of a neighbour, and where it says of which address
	advert := slices.Concat(ip6, []expr.Any{&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: portReg},
		&expr.Cmp{Op: expr.CmpOpEq, Register: portReg, Data: []byte{unix.IPPROTO_ICMPV6}},
		&expr.Payload{DestRegister: portReg, Base: transport, Len: 1},
		&expr.Cmp{Op: expr.CmpOpEq, Register: portReg, Data: []byte{advertisement}}})
	return []sending{
		{"not a pod", slices.Concat([]expr.Any{port, &expr.Lookup{SourceRegister: portReg, SetName: setPorts, Invert: true}}, pass)},
		{"hardware address", slices.Concat(in(setMACs, expr.PayloadBaseLLHeader, 6, 6, true), drop)},
		{"its own", slices.Concat(kind(unix.ETH_P_IP), in(setOwn, network, source.v4, 4, false), pass)},
		{"says its own", slices.Concat(kind(unix.ETH_P_ARP), in(setOwn, network, 14, 4, false), pass)},
		{"says its own", slices.Concat(advert, in(setOwn6, transport, target, 16, false), pass)},
		{"says its own", slices.Concat(advert, part(transport, target, linkLocal, expr.CmpOpEq), pass)},
		{"says somebody else's", slices.Concat(advert, drop)},
		{"its own", slices.Concat(ip6, in(setOwn6, network, source.v6, 16, false), pass)},
		{"on its link", slices.Concat(ip6, part(network, source.v6, linkLocal, expr.CmpOpEq), pass)},
		{"asks for one", slices.Concat(ip6, part(network, source.v6, noAddress, expr.CmpOpEq), pass)},
		{"somebody else's", drop},
	}
}
