package bridge

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"ledge/network/nft"
)

const tablePrefix = "ledge_"

// wanted are the tables of this node.
func (s *Setup) wanted() []table {
	_, anchor := s.anchor()
	out := []table{compile(s.table, s.cfg.Bridge, anchor, s.book.CIDR(), s.book.Entries(), s.forwarding.v4, s.reached)}
	if s.cfg.Questions {
		out[0].keepQuestions(s.cfg.Bridge, s.book.Gateway())
	}
	if s.book.Dual() {
		out = append(out, compile6(s.table, s.cfg.Bridge, anchor, s.book.CIDR6(), s.book.Entries(), s.forwarding.uplinks6, s.reached))
	}
	return out
}

// ensureRules makes the kernel's tables what they should be, if they are not.
func (s *Setup) ensureRules(h *host) error {
	want := s.wanted()
	gen, err := nft.Generation()
	if err != nil {
		return fmt.Errorf("ask for the state of nftables: %w", err)
	}
	known := gen == s.applied && s.applied != 0 && len(s.have) == len(want)
	s.applied = 0
	writes := uint32(0)
	for i, w := range want {
		var have *table
		if known {
			have = &s.have[i]
		}
		wrote, err := h.ensureTable(w, have)
		if err != nil {
			return err
		}
		if wrote {
			writes++
		}
	}
	wrote, err := s.senders.ensure(h, s.table, compileSenders(s.cfg.Bridge, s.book.Entries()), known)
	if err != nil {
		return err
	}
	if wrote {
		writes++
	}
	if writes > 0 {
		before := gen
		if gen, err = nft.Generation(); err != nil || gen != before+writes {
			gen = 0 // somebody else changed rules meanwhile: read next time
		}
	}
	s.applied, s.have = gen, want
	return nil
}

// ensureTable makes one table what it should be. have is what is known to be in the kernel; nil: it is read.
func (h *host) ensureTable(want table, have *table) (wrote bool, err error) {
	var stale []change
	whole := false
	// The kernel counts the changes anyone makes: the same count means that the table is as we left it.
	if have != nil {
		stale = want.changes(*have)
	} else if stale, whole, err = h.staleChains(want); err != nil {
		return false, fmt.Errorf("read nftables table %s: %w", want.name, err)
	}
	if whole {
		err = h.replaceTable(want)
	} else if len(stale) > 0 {
		err = h.changeChains(want, stale)
	}
	if err != nil {
		return false, fmt.Errorf("write nftables table %s: %w", want.name, explain(err))
	}
	return whole || len(stale) > 0, nil
}

func (t table) family() nftables.TableFamily {
	if t.v6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

// staleChains compares by the comments of the rules, which carry a mark of their content. whole: the table is not
// there, or has other chains.
func (h *host) staleChains(want table) (stale []change, whole bool, err error) {
	c, err := h.nft.Get()
	if err != nil {
		return nil, false, err
	}
	all, err := c.ListChainsOfTableFamily(want.family())
	if err != nil {
		return nil, false, err
	}
	have := map[string]bool{}
	for _, ch := range all {
		if ch.Table.Name == want.name {
			have[ch.Name] = true
		}
	}
	if len(have) != len(want.chains) {
		return nil, true, nil
	}
	t := &nftables.Table{Name: want.name, Family: want.family()}
	for _, ch := range want.chains {
		if !have[ch.name] {
			return nil, true, nil
		}
		rules, err := c.GetRules(t, &nftables.Chain{Name: ch.name})
		if err != nil {
			return nil, false, err
		}
		same := func(have *nftables.Rule, want rule) bool { return nft.Comment(have.UserData) == want.comment() }
		if !slices.EqualFunc(rules, ch.rules, same) {
			stale = append(stale, change{chain: ch.name, flush: true, add: ch.rules})
		}
	}
	return stale, false, nil
}

// uplinks reads back, from the table itself, which interfaces an earlier process made forward packets.
func (h *host) uplinks(t table) ([]string, error) {
	c, err := h.nft.Get()
	if err != nil {
		return nil, err
	}
	tables, err := h.tablesOf(t.family())
	if err != nil || !slices.Contains(tables, t.name) {
		return nil, err
	}
	rules, err := c.GetRules(&nftables.Table{Name: t.name, Family: t.family()}, &nftables.Chain{Name: chainUplinks})
	if err != nil {
		return nil, fmt.Errorf("read nftables table %s: %w", t.name, err)
	}
	var out []string
	for _, r := range rules {
		for _, e := range r.Exprs {
			if cmp, ok := e.(*expr.Cmp); ok && len(cmp.Data) == unix.IFNAMSIZ {
				out = append(out, strings.TrimRight(string(cmp.Data), "\x00"))
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

// replaceTable makes the table anew, in one transaction: packets meet the old table or the new one.
func (h *host) replaceTable(want table) error {
	c, err := h.nft.Get()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: want.name, Family: want.family()}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	for _, ch := range want.chains {
		k := &nftables.Chain{Name: ch.name, Table: t}
		if ch.hook != "" {
			k.Type = nftables.ChainType(ch.kind)
			k.Hooknum = hooks()[ch.hook]
			k.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(ch.priority))
		}
		c.AddChain(k)
	}
	for _, ch := range want.chains {
		addRules(c, t, ch.name, ch.rules)
	}
	return c.Flush()
}

// changeChains changes only the rules of some chains, also in one transaction. It is ten times as fast as the whole
// table, whose hooks the kernel takes out and puts in.
func (h *host) changeChains(of table, changes []change) error {
	c, err := h.nft.Get()
	if err != nil {
		return err
	}
	t := &nftables.Table{Name: of.name, Family: of.family()}
	for _, ch := range changes {
		if ch.flush {
			c.FlushChain(&nftables.Chain{Name: ch.chain, Table: t})
		}
		addRules(c, t, ch.chain, ch.add)
	}
	return c.Flush()
}

func addRules(c *nftables.Conn, t *nftables.Table, chain string, rules []rule) {
	for _, r := range rules {
		c.AddRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Name: chain, Table: t}, Exprs: r.exprs(),
			UserData: userdata.Append(nil, userdata.TypeComment, append([]byte(r.comment()), 0))})
	}
}

func hooks() map[string]*nftables.ChainHook {
	return map[string]*nftables.ChainHook{"prerouting": nftables.ChainHookPrerouting, "output": nftables.ChainHookOutput,
		"postrouting": nftables.ChainHookPostrouting, "forward": nftables.ChainHookForward}
}

// deleteTable removes the tables of a name; none is fine, also where the kernel has no nftables at all.
func (h *host) deleteTable(name string) error {
	return h.deleteTables(name, nftables.TableFamilyIPv4, nftables.TableFamilyIPv6, nftables.TableFamilyBridge)
}

func (h *host) deleteTables(name string, families ...nftables.TableFamily) error {
	for _, family := range families {
		others, err := h.tablesOf(family)
		if err != nil {
			if lacks(err) || errors.Is(err, unix.EINVAL) {
				continue
			}
			return fmt.Errorf("list nftables tables: %w", err)
		}
		if !slices.Contains(others, name) {
			continue
		}
		c, err := h.nft.Get()
		if err != nil {
			return err
		}
		c.DelTable(&nftables.Table{Name: name, Family: family})
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return fmt.Errorf("delete nftables table %s: %w", name, err)
		}
	}
	return nil
}

// tables are the names of all tables that instances of ledge made. Each has one of IPv4.
func (h *host) tables() ([]string, error) { return h.tablesOf(nftables.TableFamilyIPv4) }

func (h *host) tablesOf(family nftables.TableFamily) ([]string, error) {
	c, err := h.nft.Get()
	if err != nil {
		return nil, err
	}
	tables, err := c.ListTablesOfFamily(family)
	var out []string
	for _, t := range tables {
		if strings.HasPrefix(t.Name, tablePrefix) {
			out = append(out, t.Name)
		}
	}
	return out, err
}

// exprs translates a rule for the kernel's machine: load into register 1, compare.
func (r rule) exprs() []expr.Any {
	var out []expr.Any
	meta := func(key expr.MetaKey, op expr.CmpOp, want []byte) {
		out = append(out, &expr.Meta{Key: key, Register: 1}, &expr.Cmp{Op: op, Register: 1, Data: want})
	}
	if r.iif != "" {
		meta(expr.MetaKeyIIFNAME, expr.CmpOpEq, ifname(r.iif))
	}
	if r.oif != "" {
		meta(expr.MetaKeyOIFNAME, expr.CmpOpEq, ifname(r.oif))
	}
	if r.notOIF != "" {
		meta(expr.MetaKeyOIFNAME, expr.CmpOpNeq, ifname(r.notOIF))
	}
	if r.src.IsValid() {
		out = append(out, address(source, r.src, expr.CmpOpEq)...)
	}
	if r.dst.IsValid() {
		out = append(out, address(destination, r.dst, expr.CmpOpEq)...)
	}
	if r.notDst.IsValid() {
		out = append(out, address(destination, r.notDst, expr.CmpOpNeq)...)
	}
	if r.dstLocal {
		out = append(out, &expr.Fib{Register: 1, ResultADDRTYPE: true, FlagDADDR: true},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.NativeEndian.PutUint32(unix.RTN_LOCAL)})
	}
	if r.dnated {
		const dstNAT = 1 << 5 // IPS_DST_NAT
		out = append(out, &expr.Ct{Key: expr.CtKeySTATUS, Register: 1},
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(dstNAT), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: 1, Data: make([]byte, 4)})
	}
	if r.proto != 0 {
		meta(expr.MetaKeyL4PROTO, expr.CmpOpEq, []byte{r.proto})
	}
	if r.dport != 0 { // TCP, UDP and SCTP have it at the same place
		out = append(out, &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
			&expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: binaryutil.BigEndian.PutUint16(r.dport)})
	}
	return append(out, r.action()...)
}

func (r rule) action() []expr.Any {
	switch r.verdict {
	case pass:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictAccept}}
	case masquerade:
		return []expr.Any{&expr.Masq{}}
	case jump:
		return []expr.Any{&expr.Verdict{Kind: expr.VerdictJump, Chain: r.chain}}
	case dnat:
		family := uint32(unix.NFPROTO_IPV4)
		if r.to.Addr().Is6() {
			family = unix.NFPROTO_IPV6
		}
		return []expr.Any{&expr.Immediate{Register: 1, Data: r.to.Addr().AsSlice()},
			&expr.Immediate{Register: 2, Data: binaryutil.BigEndian.PutUint16(r.to.Port())},
			&expr.NAT{Type: expr.NATTypeDestNAT, Family: family, RegAddrMin: 1, RegProtoMin: 2}}
	}
	return []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}}
}

// Where the addresses stand in a packet's header.
type where struct{ v4, v6 uint32 }

var source, destination = where{12, 8}, where{16, 24}

func address(at where, want netip.Prefix, op expr.CmpOp) []expr.Any {
	offset := at.v4
	if want.Addr().Is6() {
		offset = at.v6
	}
	return part(expr.PayloadBaseNetworkHeader, offset, want, op)
}

// part compares an address that stands somewhere in a packet.
func part(base expr.PayloadBase, offset uint32, want netip.Prefix, op expr.CmpOp) []expr.Any {
	n := want.Addr().BitLen() / 8
	out := []expr.Any{&expr.Payload{DestRegister: 1, Base: base, Offset: offset, Len: uint32(n)}}
	if want.Bits() < 8*n {
		out = append(out, &expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: uint32(n), Mask: net.CIDRMask(want.Bits(), 8*n),
			Xor: make([]byte, n)})
	}
	return append(out, &expr.Cmp{Op: op, Register: 1, Data: want.Masked().Addr().AsSlice()})
}

// ifname is an interface name as the kernel compares it: all 16 bytes.
func ifname(name string) []byte {
	b := make([]byte, unix.IFNAMSIZ)
	copy(b, name)
	return b
}
