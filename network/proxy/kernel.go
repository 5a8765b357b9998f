package proxy

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/nft"
)

// families may have tables: each has one when a Service has an address of it.
var families = []family{{}, {v6: true}}

// batch is one transaction: packets meet all of it or nothing.
type batch struct {
	drop   []family            // delete these tables first
	whole  []family            // make these tables anew
	chains map[chainID]special // to add
	remove []element           // before anything is added
	add    []element
}

func (b batch) empty() bool { return b.size() == 0 }

func (b batch) size() int {
	return len(b.drop) + len(b.whole) + len(b.chains) + len(b.remove) + len(b.add)
}

// differ notes what turns old into now.
func (b *batch) differ(old, now []element) {
	had := make(map[item]string, len(old))
	for _, e := range old {
		had[e.item] = e.value
	}
	for _, e := range now {
		value, ok := had[e.item]
		if ok && value == e.value {
			delete(had, e.item)
			continue
		}
		b.add = append(b.add, e)
	}
	for i, value := range had {
		b.remove = append(b.remove, element{i, value})
	}
}

// ipv4 is the part of a batch that is of IPv4.
func (b batch) ipv4() batch {
	v6 := func(f family) bool { return f.v6 }
	of := func(e element) bool { return e.v6 }
	out := batch{drop: slices.DeleteFunc(slices.Clone(b.drop), v6), whole: slices.DeleteFunc(slices.Clone(b.whole), v6),
		remove: slices.DeleteFunc(slices.Clone(b.remove), of), add: slices.DeleteFunc(slices.Clone(b.add), of), chains: maps.Clone(b.chains)}
	maps.DeleteFunc(out.chains, func(id chainID, _ special) bool { return id.v6 })
	return out
}

// applyOrHalf runs a batch that was made of what the kernel has, or that of IPv4 if the kernel refuses the rest: one that lacks what IPv6
// needs forwards IPv4 all the same.
func (p *Proxy) applyOrHalf(b batch) error {
	p.refused = nil
	err := p.apply(b)
	half := b.ipv4()
	if err == nil || half.size() == b.size() || passing(err) {
		return err
	}
	p.nft.Drop()
	p.refused = err
	if p.apply(half) != nil {
		p.refused = nil
		return err
	}
	return nil
}

// passing says whether an error may be gone with the next try.
func passing(err error) bool {
	return slices.ContainsFunc([]error{unix.EBUSY, unix.ENOBUFS, unix.ENOMEM, unix.EAGAIN, unix.EINTR, unix.EEXIST},
		func(e error) bool { return errors.Is(err, e) })
}

// perMessage elements stay below the 64 KB that one attribute of netlink holds.
const perMessage = 300

// apply runs a batch, and has connection tracking forget what it made wrong. Where nobody else changes rules the kernel counts one
// transaction more: it is not asked, as that takes a socket, and the kernel closes none before an RCU grace period is over.
func (p *Proxy) apply(b batch) error {
	if p.refused != nil {
		b = b.ipv4()
	}
	if b.empty() {
		return nil
	}
	c, err := p.nft.Get()
	if err != nil {
		return err
	}
	if err := p.fill(c, b); err != nil {
		return err
	}
	if err := c.Flush(); err != nil {
		return err
	}
	if p.made(b); p.applied != 0 {
		p.applied++
	}
	p.forget(b)
	return nil
}

// made takes note of the tables and chains that a batch made.
func (p *Proxy) made(b batch) {
	for _, f := range b.drop {
		delete(p.tables, f)
		maps.DeleteFunc(p.chains, func(id chainID, _ bool) bool { return id.v6 == f.v6 })
	}
	for _, f := range b.whole {
		p.tables[f] = true
	}
	for id := range b.chains {
		p.chains[id] = true
	}
}

// missing are the families of which something is to be added, and that have no table.
func (p *Proxy) missing(b batch) (out []family) {
	for _, f := range families {
		if !p.tables[f] && slices.ContainsFunc(b.add, func(e element) bool { return e.v6 == f.v6 }) {
			out = append(out, f)
		}
	}
	return out
}

// abandon has a batch drop the tables of families that no service has an address of any more.
func (p *Proxy) abandon(b *batch, changed []network.Service) {
	needed := map[family]bool{}
	note := func(s network.Service) {
		for _, a := range s.ClusterIPs {
			needed[family{a.Is6()}] = true
		}
		for _, f := range s.Forwards {
			needed[family{f.To.Addr().Is6()}] = true
		}
	}
	other := map[string]bool{}
	for _, s := range changed {
		other[s.Name] = true
		note(s)
	}
	unneeded := func(f family) bool { return p.tables[f] && !needed[f] }
	for name, s := range p.standing {
		if !slices.ContainsFunc(families, unneeded) {
			return
		}
		if !other[name] {
			note(s)
		}
	}
	for _, f := range families {
		if unneeded(f) {
			b.drop = append(b.drop, f)
			b.remove = slices.DeleteFunc(b.remove, func(e element) bool { return e.v6 == f.v6 })
		}
	}
}

func (p *Proxy) fill(c *nftables.Conn, b batch) error {
	for _, f := range b.drop {
		c.DelTable(&nftables.Table{Name: p.table, Family: f.table()})
	}
	for _, f := range b.whole {
		if err := f.create(c, p.table, p.cfg.Bridge); err != nil {
			return err
		}
	}
	for id, s := range b.chains {
		f := family{id.v6}
		t := &nftables.Table{Name: p.table, Family: f.table()}
		c.AddChain(&nftables.Chain{Name: id.name, Table: t})
		if err := f.addRules(c, t, id.name, f.rules(s)); err != nil {
			return err
		}
	}
	for _, step := range []struct {
		what []element
		do   func(*nftables.Set, []nftables.SetElement) error
	}{{b.remove, c.SetDeleteElements}, {b.add, c.SetAddElements}} {
		for _, f := range families {
			t := &nftables.Table{Name: p.table, Family: f.table()}
			for _, set := range f.sets(t) {
				for some := range slices.Chunk(elementsOf(step.what, f.v6, set), perMessage) {
					if err := step.do(set, some); err != nil {
						return err
					}
				}
			}
		}
	}
	return nil
}

// elementsOf are those of one set, as the library wants them.
func elementsOf(all []element, v6 bool, set *nftables.Set) (out []nftables.SetElement) {
	for _, e := range all {
		if e.v6 != v6 || e.set != set.Name {
			continue
		}
		x := nftables.SetElement{Key: []byte(e.key)}
		switch {
		case !set.IsMap:
		case set.DataType.Name != nftables.TypeVerdict.Name:
			x.Val = []byte(e.value)
		case e.value == valueDrop:
			x.VerdictData = &expr.Verdict{Kind: expr.VerdictDrop}
		case set.Name == setGuarded: // it comes back
			x.VerdictData = &expr.Verdict{Kind: expr.VerdictJump, Chain: e.value}
		default:
			x.VerdictData = &expr.Verdict{Kind: expr.VerdictGoto, Chain: e.value}
		}
		out = append(out, x)
	}
	return out
}

// create makes a table with what every board has, in place of any that is there.
func (f family) create(c *nftables.Conn, name, bridge string) error {
	t := &nftables.Table{Name: name, Family: f.table()}
	c.AddTable(t) // so that there is one to delete
	c.DelTable(t)
	c.AddTable(t)
	for _, s := range f.sets(t) {
		if err := c.AddSet(s, nil); err != nil {
			return err
		}
	}
	base := f.base(bridge)
	for _, ch := range base {
		k := &nftables.Chain{Name: ch.name, Table: t}
		if ch.hook != nil {
			k.Type, k.Hooknum = nftables.ChainType(ch.kind), ch.hook
			k.Priority = nftables.ChainPriorityRef(nftables.ChainPriority(ch.priority))
		}
		c.AddChain(k)
	}
	for _, ch := range base {
		if err := f.addRules(c, t, ch.name, ch.rules); err != nil {
			return err
		}
	}
	return nil
}

func (f family) addRules(c *nftables.Conn, t *nftables.Table, chain string, rules [][]expr.Any) error {
	for _, r := range rules {
		mark, err := nft.Digest(f.table(), r)
		if err != nil {
			return err
		}
		c.AddRule(&nftables.Rule{Table: t, Chain: &nftables.Chain{Name: chain, Table: t}, Exprs: r,
			UserData: userdata.Append(nil, userdata.TypeComment, append([]byte(mark), 0))})
	}
	return nil
}

// sweep removes chains that no service needs. Before Linux 6.2 the kernel holds one for a moment after the last element that led to
// it: then the next sweep has it.
func (p *Proxy) sweep() error {
	used := map[chainID]bool{}
	for _, s := range p.standing {
		for id := range compile(s).chains {
			used[id] = true
		}
	}
	c, err := p.nft.Get()
	if err != nil {
		return err
	}
	gone := 0
	for id := range p.chains {
		if used[id] || id.v6 && p.refused != nil {
			continue
		}
		t := &nftables.Table{Name: p.table, Family: family{id.v6}.table()}
		c.DelChain(&nftables.Chain{Name: id.name, Table: t})
		gone++
	}
	p.left, p.swept = false, len(p.chains)-gone
	if gone == 0 {
		return nil
	}
	if err := c.Flush(); err != nil {
		p.nft.Drop()
		if errors.Is(err, unix.EBUSY) {
			p.left, p.swept = true, len(p.chains)
			return nil
		}
		return fmt.Errorf("remove chains: %w", err)
	}
	maps.DeleteFunc(p.chains, func(id chainID, _ bool) bool { return !used[id] })
	if p.applied != 0 {
		p.applied++
	}
	return nil
}

// deleteTables removes ours; none is fine, also where the kernel has no nftables at all.
func (p *Proxy) deleteTables() error {
	for _, f := range families {
		there, err := p.there(f)
		if err != nil {
			return err
		}
		if !there {
			continue
		}
		c, err := p.nft.Get()
		if err != nil {
			return err
		}
		c.DelTable(&nftables.Table{Name: p.table, Family: f.table()})
		if err := c.Flush(); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}

// there says whether the kernel has our table of a family.
func (p *Proxy) there(f family) (bool, error) {
	c, err := p.nft.Get()
	if err != nil {
		return false, err
	}
	all, err := c.ListTablesOfFamily(f.table())
	if lacks(err) || errors.Is(err, unix.EPERM) { // who may not look has made none
		return false, nil
	}
	return slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == p.table }), err
}

func seconds(n uint32) time.Duration { return time.Duration(n) * time.Second }
