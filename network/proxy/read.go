package proxy

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/nft"
)

// compare finds what makes of the kernel's tables what these services want.
func (p *Proxy) compare(all []network.Service) (batch, error) {
	b := batch{chains: map[chainID]special{}}
	p.chains, p.tables = map[chainID]bool{}, map[family]bool{}
	var want, have []element
	specials, needed := map[chainID]special{}, map[family]bool{}
	for _, s := range all {
		c := compile(s)
		want = append(want, c.elements...)
		maps.Copy(specials, c.chains)
	}
	for _, e := range want {
		needed[family{e.v6}] = true
	}
	for _, f := range families {
		elements, err := p.read(f, specials)
		switch {
		case errors.Is(err, errOther) && needed[f]: // it is made anew
		case errors.Is(err, errOther):
			b.drop = append(b.drop, f)
		case errors.Is(err, errNone):
		case err != nil:
			return b, err
		case !needed[f]:
			b.drop = append(b.drop, f)
		default:
			p.tables[f] = true
			have = append(have, elements...)
		}
	}
	for id, s := range specials {
		if !p.chains[id] {
			b.chains[id] = s
		}
	}
	b.differ(have, want)
	b.whole = p.missing(b)
	return b, nil
}

// What a look at a table may find.
var (
	errNone  = errors.New("there is no such table")
	errOther = errors.New("the table is not as this version makes it")
)

// read gives the elements of a table, and notes its chains.
func (p *Proxy) read(f family, specials map[chainID]special) ([]element, error) {
	c, err := p.nft.Get()
	if err != nil {
		return nil, err
	}
	all, err := c.ListTablesOfFamily(f.table())
	if err != nil && !lacks(err) {
		return nil, err
	}
	if !slices.ContainsFunc(all, func(t *nftables.Table) bool { return t.Name == p.table }) {
		return nil, errNone
	}
	names, err := p.readChains(f, specials)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		p.chains[chainID{f.v6, name}] = true
	}
	return p.readElements(f)
}

// readChains gives the chains of a table beside the base. errOther: something in it is not as it should be.
func (p *Proxy) readChains(f family, specials map[chainID]special) (names []string, err error) {
	c, err := p.nft.Get()
	if err != nil {
		return nil, err
	}
	all, err := c.ListChainsOfTableFamily(f.table())
	if err != nil {
		return nil, err
	}
	want := map[string][][]expr.Any{}
	for _, ch := range f.base(p.cfg.Bridge) {
		want[ch.name] = ch.rules
	}
	base := len(want)
	for _, ch := range all {
		if ch.Table.Name != p.table {
			continue
		}
		rules, ok := want[ch.Name]
		if ok {
			base--
		} else {
			names = append(names, ch.Name)
			s, used := specials[chainID{f.v6, ch.Name}]
			if !used {
				continue // it goes
			}
			rules = f.rules(s)
		}
		if ok, err := p.hasRules(f, ch.Name, rules); err != nil || !ok {
			return nil, cmp.Or(err, errOther)
		}
	}
	sets, err := c.GetSets(&nftables.Table{Name: p.table, Family: f.table()})
	if err == nil && (base != 0 || len(sets) != len(f.sets(nil))) {
		err = errOther
	}
	return names, err
}

func (p *Proxy) hasRules(f family, chain string, want [][]expr.Any) (bool, error) {
	c, err := p.nft.Get()
	if err != nil {
		return false, err
	}
	have, err := c.GetRules(&nftables.Table{Name: p.table, Family: f.table()}, &nftables.Chain{Name: chain})
	if err != nil || len(have) != len(want) {
		return false, err
	}
	for i, r := range want {
		mark, err := nft.Digest(f.table(), r)
		if err != nil || nft.Comment(have[i].UserData) != mark {
			return false, err
		}
	}
	return true, nil
}

func (p *Proxy) readElements(f family) (out []element, err error) {
	c, err := p.nft.Get()
	if err != nil {
		return nil, err
	}
	for _, set := range f.sets(&nftables.Table{Name: p.table, Family: f.table()}) {
		if set.Name == setAffinity {
			continue
		}
		elements, err := c.GetSetElements(set)
		if err != nil {
			return nil, fmt.Errorf("set %s: %w", set.Name, err)
		}
		for _, e := range elements {
			value := string(e.Val)
			if set.IsMap && set.DataType.Name == nftables.TypeVerdict.Name {
				value = verdictOf(e.Val)
			}
			out = append(out, element{item{f.v6, set.Name, string(e.Key)}, value})
		}
	}
	return out, nil
}

// verdictOf reads what an element of a verdict map does; the library leaves it as it came.
func verdictOf(data []byte) string {
	data = append(slices.Clone(data), make([]byte, -len(data)&3)...) // the library panics where the last attribute has no padding
	attrs, err := nl.ParseRouteAttr(data)
	if err != nil {
		return ""
	}
	code, chain := int32(0), ""
	for _, a := range attrs {
		switch a.Attr.Type &^ (unix.NLA_F_NESTED | unix.NLA_F_NET_BYTEORDER) {
		case unix.NFTA_VERDICT_CODE:
			if len(a.Value) == 4 {
				code = int32(binary.BigEndian.Uint32(a.Value))
			}
		case unix.NFTA_VERDICT_CHAIN:
			chain = strings.TrimRight(string(a.Value), "\x00")
		}
	}
	if chain == "" && code == int32(expr.VerdictDrop) {
		return valueDrop
	}
	return chain
}
