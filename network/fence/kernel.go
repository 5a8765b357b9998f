package fence

import (
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/binaryutil"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/nft"
)

const (
	setIn, setOut = "in", "out" // address : chain
	setSelf       = "self"      // address . the same: a pod always reaches itself
	chainForward  = "forward"
	netsPrefix    = "nets-"
)

// perMessage bounds the elements in one message, whose length the kernel counts in 16 bits.
const perMessage = 500

// In the order of the machine: established and related.
const stateKnown = 2 | 4

var protocols = map[string]uint8{"TCP": unix.IPPROTO_TCP, "UDP": unix.IPPROTO_UDP, "SCTP": unix.IPPROTO_SCTP}

// family is the shape of a table in IPv4 or IPv6.
type family struct{ v6 bool }

func (f family) table() nftables.TableFamily {
	if f.v6 {
		return nftables.TableFamilyIPv6
	}
	return nftables.TableFamilyIPv4
}

func (f family) address() nftables.SetDatatype {
	if f.v6 {
		return nftables.TypeIP6Addr
	}
	return nftables.TypeIPAddr
}

func (f family) size() uint32 {
	if f.v6 {
		return 16
	}
	return 4
}

// Registers of four bytes: the source, then the destination.
func (f family) from() uint32 { return unix.NFT_REG32_00 }
func (f family) to() uint32   { return unix.NFT_REG32_00 + f.size()/4 }

func (f family) load(to bool) expr.Any {
	offset := map[bool]uint32{false: 12, true: 8}[f.v6]
	p := &expr.Payload{DestRegister: f.from(), Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: f.size()}
	if to {
		p.DestRegister, p.Offset = f.to(), offset+f.size()
	}
	return p
}

// forward is the chain that every forwarded packet meets.
func (f family) forward() [][]expr.Any {
	r := f.from()
	lead := func(to bool, set string) []expr.Any {
		load := f.load(to).(*expr.Payload)
		return []expr.Any{load, &expr.Lookup{SourceRegister: load.DestRegister, DestRegister: unix.NFT_REG_VERDICT, IsDestRegSet: true,
			SetName: set}}
	}
	return [][]expr.Any{
		{&expr.Ct{Key: expr.CtKeySTATE, Register: r},
			&expr.Bitwise{SourceRegister: r, DestRegister: r, Len: 4, Mask: binaryutil.NativeEndian.PutUint32(stateKnown), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: r, Data: make([]byte, 4)}, &expr.Verdict{Kind: expr.VerdictAccept}},
		{f.load(false), f.load(true), &expr.Lookup{SourceRegister: f.from(), SetName: setSelf}, &expr.Verdict{Kind: expr.VerdictAccept}},
		lead(false, setOut),
		lead(true, setIn),
	}
}

// rules of a chain: what it lets through goes on, the rest ends here.
func (f family) rules(chain string, passes []network.Pass) (out [][]expr.Any) {
	inward := chain[:min(len(chain), 3)] == "in-"
	for _, p := range passes {
		var r []expr.Any
		if set := setOf(p); set != "" {
			load := f.load(!inward).(*expr.Payload)
			r = append(r, load, &expr.Lookup{SourceRegister: load.DestRegister, SetName: set})
		}
		if p.Protocol != "" {
			r = append(r, &expr.Meta{Key: expr.MetaKeyL4PROTO, Register: f.from()},
				&expr.Cmp{Op: expr.CmpOpEq, Register: f.from(), Data: []byte{protocols[p.Protocol]}})
		}
		if p.First != 0 || p.Last != 0 { // TCP, UDP and SCTP have it at the same place
			r = append(r, &expr.Payload{DestRegister: f.from(), Base: expr.PayloadBaseTransportHeader, Offset: 2, Len: 2},
				&expr.Cmp{Op: expr.CmpOpGte, Register: f.from(), Data: binaryutil.BigEndian.PutUint16(p.First)},
				&expr.Cmp{Op: expr.CmpOpLte, Register: f.from(), Data: binaryutil.BigEndian.PutUint16(p.Last)})
		}
		out = append(out, append(r, &expr.Verdict{Kind: expr.VerdictReturn}))
	}
	return append(out, []expr.Any{&expr.Verdict{Kind: expr.VerdictDrop}})
}

// setOf is the set that the other end of a pass is in; "": it may be anybody.
func setOf(p network.Pass) string {
	if p.Pods == "" && p.Nets != nil {
		return netsName(p.Nets)
	}
	return p.Pods
}

// netsName: as the names of network/policy, no two lists may come to one.
func netsName(spans []network.Span) string {
	sum := sha256.Sum256(fmt.Append(nil, spans))
	return fmt.Sprintf("%s%x", netsPrefix, sum[:16])
}

// kernel is a batch of changes to one table.
type kernel struct {
	c *nftables.Conn
	family
	name string
}

func (k kernel) t() *nftables.Table { return &nftables.Table{Name: k.name, Family: k.table()} }

func (k kernel) drop() { k.c.DelTable(k.t()) }

// fixed are the sets that every table has.
func (k kernel) fixed() map[string]*nftables.Set {
	self := nftables.MustConcatSetType(k.address(), k.address())
	return map[string]*nftables.Set{
		setIn:   {Table: k.t(), Name: setIn, IsMap: true, KeyType: k.address(), DataType: nftables.TypeVerdict},
		setOut:  {Table: k.t(), Name: setOut, IsMap: true, KeyType: k.address(), DataType: nftables.TypeVerdict},
		setSelf: {Table: k.t(), Name: setSelf, KeyType: self, Concatenation: true},
	}
}

func (k kernel) podsSet(name string) *nftables.Set {
	return &nftables.Set{Table: k.t(), Name: name, KeyType: k.address()}
}

func (k kernel) netsSet(name string) *nftables.Set {
	return &nftables.Set{Table: k.t(), Name: name, KeyType: k.address(), Interval: true}
}

// create makes an empty table, in place of any that is there.
func (k kernel) create() error {
	t := k.t()
	k.c.AddTable(t) // so that there is one to delete
	k.c.DelTable(t)
	k.c.AddTable(t)
	for _, s := range k.fixed() {
		if err := k.c.AddSet(s, nil); err != nil {
			return err
		}
	}
	k.c.AddChain(&nftables.Chain{Name: chainForward, Table: t, Type: nftables.ChainTypeFilter, Hooknum: nftables.ChainHookForward,
		Priority: nftables.ChainPriorityFilter})
	return k.addRules(chainForward, k.forward())
}

func (k kernel) addRules(chain string, rules [][]expr.Any) error {
	for _, r := range rules {
		mark, err := nft.Digest(k.table(), r)
		if err != nil {
			return err
		}
		k.c.AddRule(&nftables.Rule{Table: k.t(), Chain: &nftables.Chain{Name: chain, Table: k.t()}, Exprs: r,
			UserData: userdata.Append(nil, userdata.TypeComment, append([]byte(mark), 0))})
	}
	return nil
}

// marks are what the comments of rules say.
func (f family) marks(rules [][]expr.Any) (string, error) {
	var out []string
	for _, r := range rules {
		mark, err := nft.Digest(f.table(), r)
		if err != nil {
			return "", err
		}
		out = append(out, mark)
	}
	return strings.Join(out, " "), nil
}

// change turns a part of what a table has into what is wanted.
func (k kernel) change(have, want *layout, of part) (after *layout, did bool, err error) {
	after = have.clone()
	for name, pods := range want.pods {
		if err := k.changePods(after, name, pods, of, &did); err != nil {
			return nil, false, err
		}
	}
	for name, spans := range want.nets {
		old, is := have.nets[name]
		if is && slices.Equal(old, spans) {
			continue
		}
		if err := k.setNets(name, spans, is); err != nil {
			return nil, false, err
		}
		after.nets[name], did = spans, true
	}
	for name, passes := range want.passes {
		rules := k.rules(name, passes)
		marks, err := k.marks(rules)
		if err != nil {
			return nil, false, err
		}
		old, is := have.chains[name]
		if is && old == marks {
			continue
		}
		chain := &nftables.Chain{Name: name, Table: k.t()}
		if is { // somebody has changed it
			k.c.FlushChain(chain)
		} else {
			k.c.AddChain(chain)
		}
		if err := k.addRules(name, rules); err != nil {
			return nil, false, err
		}
		after.chains[name], did = marks, true
	}
	moved, err := k.changeLeads(after, want, of)
	return after, did || moved, err
}

func (k kernel) changePods(after *layout, name string, want map[string]bool, of part, did *bool) error {
	set, old := k.podsSet(name), after.pods[name]
	if old == nil {
		if err := k.c.AddSet(set, nil); err != nil {
			return err
		}
		*did = true
	}
	var add, remove []nftables.SetElement
	next := map[string]bool{}
	for a := range want {
		if next[a] = true; !old[a] {
			add = append(add, nftables.SetElement{Key: []byte(a)})
		}
	}
	for a := range old {
		switch {
		case want[a]:
		case of.holds(a):
			next[a] = true
		default:
			remove = append(remove, nftables.SetElement{Key: []byte(a)})
		}
	}
	after.pods[name] = next
	return k.elements(set, add, remove, did)
}

func (k kernel) elements(set *nftables.Set, add, remove []nftables.SetElement, did *bool) error {
	for some := range slices.Chunk(remove, perMessage) {
		if err := k.c.SetDeleteElements(set, some); err != nil {
			return err
		}
		*did = true
	}
	for some := range slices.Chunk(add, perMessage) {
		if err := k.c.SetAddElements(set, some); err != nil {
			return err
		}
		*did = true
	}
	return nil
}

func (k kernel) setNets(name string, spans []network.Span, there bool) error {
	set := k.netsSet(name)
	if there { // somebody has changed it
		k.c.FlushSet(set)
	} else if err := k.c.AddSet(set, nil); err != nil {
		return err
	}
	var add []nftables.SetElement
	for _, s := range spans {
		add = append(add, nftables.SetElement{Key: s.First.AsSlice()})
		if end := s.Last.Next(); end.IsValid() {
			add = append(add, nftables.SetElement{Key: end.AsSlice(), IntervalEnd: true})
		}
	}
	return k.elements(set, add, nil, new(bool))
}

// changeLeads changes which address leads to which chain.
func (k kernel) changeLeads(after, want *layout, of part) (did bool, err error) {
	fixed := k.fixed()
	before := addressesOf(after)
	for _, d := range []struct {
		set         string
		after, want map[string]string
	}{{setIn, after.in, want.in}, {setOut, after.out, want.out}} {
		var add, remove []nftables.SetElement
		for a, chain := range d.after {
			now, is := d.want[a]
			if is && now == chain || of.leaves(a) {
				continue
			}
			remove = append(remove, lead(a, chain))
			delete(d.after, a)
		}
		for a, chain := range d.want {
			if d.after[a] == "" {
				add = append(add, lead(a, chain))
				d.after[a] = chain
			}
		}
		if err := k.elements(fixed[d.set], add, remove, &did); err != nil {
			return false, err
		}
	}
	now := addressesOf(after)
	var add, remove []nftables.SetElement
	for a := range now {
		if !before[a] {
			add = append(add, nftables.SetElement{Key: []byte(a + a)})
		}
	}
	for a := range before {
		if !now[a] {
			remove = append(remove, nftables.SetElement{Key: []byte(a + a)})
		}
	}
	return did, k.elements(fixed[setSelf], add, remove, &did)
}

func lead(a, chain string) nftables.SetElement {
	return nftables.SetElement{Key: []byte(a), VerdictData: &expr.Verdict{Kind: expr.VerdictJump, Chain: chain}}
}

func addressesOf(l *layout) map[string]bool {
	out := map[string]bool{}
	for a := range l.in {
		out[a] = true
	}
	for a := range l.out {
		out[a] = true
	}
	return out
}

// sweep removes from the kernel, and from have, what want does not need.
func (k kernel) sweep(have, want *layout) (did bool) {
	for name := range have.chains {
		if _, is := want.chains[name]; !is {
			k.c.DelChain(&nftables.Chain{Name: name, Table: k.t()})
			delete(have.chains, name)
			did = true
		}
	}
	for name := range have.pods {
		if _, is := want.pods[name]; !is {
			k.c.DelSet(k.podsSet(name))
			delete(have.pods, name)
			did = true
		}
	}
	for name := range have.nets {
		if _, is := want.nets[name]; !is {
			k.c.DelSet(k.netsSet(name))
			delete(have.nets, name)
			did = true
		}
	}
	return did
}
