// Package fence keeps pods from what network policies do not let them have, with nftables over netlink; no packet passes a process.
//
//	forwarded -> known connection? passes
//	          -> out: address of the sender   -> chain: what it may connect to, else dropped
//	          -> in:  address of the receiver -> chain: who may connect to it, else dropped
//
// A chain is named by what it lets through, so it never changes, and pods of which the same is said share it. The other end of a pass is a
// set: a pod that comes or goes is an element of it. A table of each family, named after the board's bridge, holds everything; without
// fenced pods there is none.
package fence

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/netns"
	"ledge/network/nft"
)

// Config says for which board.
type Config struct {
	// Bridge that its pods are on.
	Bridge string
	// NetNS is the path of the network namespace that plays the host; if empty, that of this process.
	NetNS string
}

// Fencer implements network.Fencer. It is safe for concurrent use.
type Fencer struct {
	cfg   Config
	table string
	nft   nft.Conn

	mu      sync.Mutex
	have    map[bool]*layout // by family, v6 or not; what the kernel has
	known   bool             // it has that
	applied uint32           // nftables generation at which that was so
}

var _ network.Fencer = (*Fencer)(nil)

// New changes nothing yet.
func New(cfg Config) *Fencer {
	return &Fencer{cfg: cfg, table: "ledgenp_" + strings.ReplaceAll(cfg.Bridge, "-", "."), have: map[bool]*layout{}}
}

var families = []bool{false, true}

// Add implements network.Fencer.
func (n *Fencer) Add(ctx context.Context, about []netip.Addr, f network.Fence) error {
	return n.do(ctx, func() error {
		if !n.known {
			if err := n.read(); err != nil {
				return err
			}
		}
		err := n.apply(f, part{about: about})
		if err == nil || !stale(err) {
			return err
		}
		slog.Warn("the rules of network policies are not as they were left; reading them", "table", n.table, "err", err)
		n.nft.Drop()
		if err := n.read(); err != nil {
			return err
		}
		return n.apply(f, part{about: about})
	})
}

// Prune implements network.Fencer.
func (n *Fencer) Prune(ctx context.Context, f network.Fence) error {
	return n.do(ctx, func() error {
		if err := n.look(); err != nil {
			return err
		}
		if err := n.apply(f, all); err != nil {
			return err
		}
		return n.sweep(f)
	})
}

// Merge implements network.Fencer. Chains and sets that nothing leads to stay until Prune knows that nobody needs them.
func (n *Fencer) Merge(ctx context.Context, own map[netip.Addr]bool, f network.Fence) error {
	p := part{whole: true, own: map[string]bool{}}
	for a, sure := range own {
		p.own[string(a.AsSlice())] = sure
	}
	return n.do(ctx, func() error {
		if err := n.look(); err != nil {
			return err
		}
		return n.apply(f, p)
	})
}

// look reads what the kernel has, where others may have changed it.
func (n *Fencer) look() error {
	gen, err := nft.Generation()
	if err != nil || n.known && gen == n.applied {
		return err
	}
	if err := n.read(); err != nil {
		return err
	}
	n.applied = gen
	return nil
}

// Delete implements network.Fencer.
func (n *Fencer) Delete(ctx context.Context) error {
	return n.do(ctx, func() error {
		if err := n.read(); err != nil {
			if lacks(err) || errors.Is(err, unix.EPERM) { // who may not look has made none
				return nil
			}
			return err
		}
		return n.apply(network.Fence{}, all)
	})
}

// stale: something that is there was taken for missing, or the other way.
func stale(err error) bool {
	return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.EEXIST) || errors.Is(err, unix.EBUSY)
}

func (n *Fencer) do(ctx context.Context, f func() error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return netns.At(n.cfg.NetNS, func() error {
		err := f()
		if err != nil {
			n.known, n.applied = false, 0
			n.nft.Drop()
			return fmt.Errorf("hold network policies by nftables table %s: %w", n.table, explain(err))
		}
		return nil
	})
}

// layout is what a table holds beside what all have.
type layout struct {
	in, out map[string]string          // address: chain
	chains  map[string]string          // name: the marks of its rules
	passes  map[string][]network.Pass  // what is wanted of a chain
	pods    map[string]map[string]bool // set: addresses
	nets    map[string][]network.Span  // set: what its name says
	odd     bool                       // it is not as this version makes it
}

func newLayout() *layout {
	return &layout{in: map[string]string{}, out: map[string]string{}, chains: map[string]string{}, passes: map[string][]network.Pass{},
		pods: map[string]map[string]bool{}, nets: map[string][]network.Span{}}
}

func (l *layout) clone() *layout {
	return &layout{in: maps.Clone(l.in), out: maps.Clone(l.out), chains: maps.Clone(l.chains), pods: maps.Clone(l.pods),
		nets: maps.Clone(l.nets)}
}

func (l *layout) peers(set string) map[string]bool {
	if l == nil {
		return nil
	}
	return l.pods[set]
}

func (l *layout) empty() bool { return len(l.in) == 0 && len(l.out) == 0 }

// layouts splits a fence by family.
func layouts(f network.Fence) map[bool]*layout {
	out := map[bool]*layout{}
	for _, v6 := range families {
		l := newLayout()
		of := func(a netip.Addr) bool { return a.Is6() == v6 }
		for _, d := range []struct {
			from map[netip.Addr]string
			to   map[string]string
		}{{f.In, l.in}, {f.Out, l.out}} {
			for a, chain := range d.from {
				if of(a) {
					d.to[string(a.AsSlice())] = chain
					l.passes[chain] = f.Chains[chain]
				}
			}
		}
		for _, passes := range l.passes {
			for _, p := range passes {
				switch {
				case p.Pods != "":
					set := map[string]bool{}
					for _, s := range f.Sets[p.Pods] {
						if of(s.First) {
							set[string(s.First.AsSlice())] = true
						}
					}
					l.pods[p.Pods] = set
				case p.Nets != nil:
					var mine []network.Span
					for _, s := range p.Nets {
						if of(s.First) {
							mine = append(mine, s)
						}
					}
					l.nets[netsName(p.Nets)] = mine
				}
			}
		}
		if !l.empty() {
			out[v6] = l
		}
	}
	return out
}

// part is what of a table is to be as a fence says.
type part struct {
	about []netip.Addr    // without whole: what leads from these addresses, no more
	whole bool            // what leads from any address
	own   map[string]bool // not nil: of sets these alone; what leads from one that is false stays
}

var all = part{whole: true}

// leaves says that what leads from an address stays.
func (p part) leaves(a string) bool {
	if p.whole {
		sure, is := p.own[a]
		return is && !sure
	}
	return !slices.ContainsFunc(p.about, func(x netip.Addr) bool { return string(x.AsSlice()) == a })
}

// holds says that an address stays in the sets that have it.
func (p part) holds(a string) bool {
	_, is := p.own[a]
	return !p.whole || p.own != nil && !is
}

// apply makes a part of the kernel's tables what a fence says. It writes nothing where nothing differs.
func (n *Fencer) apply(f network.Fence, of part) error {
	want, whole := layouts(f), of.whole
	c, err := n.nft.Get()
	if err != nil {
		return err
	}
	wrote, next := false, maps.Clone(n.have)
	for _, v6 := range families {
		w, h := want[v6], n.have[v6]
		k := kernel{c, family{v6}, n.table}
		switch {
		case w == nil && h == nil:
			continue
		case w == nil && whole:
			k.drop()
			delete(next, v6)
			wrote = true
			continue
		case w == nil:
			w = newLayout()
		}
		if h != nil && h.odd && !whole {
			return errOdd
		}
		if h == nil || h.odd {
			if err := k.create(); err != nil {
				return err
			}
			for name := range w.pods {
				for a := range h.peers(name) {
					if of.holds(a) {
						w.pods[name][a] = true
					}
				}
			}
			h, wrote = newLayout(), true
		}
		after, did, err := k.change(h, w, of)
		if err != nil {
			return err
		}
		next[v6], wrote = after, wrote || did
	}
	if wrote {
		if err := c.Flush(); err != nil {
			return err
		}
		if n.applied != 0 {
			n.applied++
		}
	}
	n.have, n.known = next, true
	return nil
}

// errOdd: what is there may hold pods that nobody has told of yet.
var errOdd = errors.New("somebody has changed the table; it is made anew once all pods of this board are known")

// sweep removes what no fenced pod needs any more. Before Linux 6.2 the kernel holds a chain for a moment after the last element that led
// to it: then the next sweep has it.
func (n *Fencer) sweep(f network.Fence) error {
	want := layouts(f)
	c, err := n.nft.Get()
	if err != nil {
		return err
	}
	gone := false
	next := map[bool]*layout{}
	for v6, h := range n.have {
		w := want[v6]
		if w == nil {
			continue
		}
		next[v6] = h.clone()
		if (kernel{c, family{v6}, n.table}).sweep(next[v6], w) {
			gone = true
		}
	}
	if !gone {
		return nil
	}
	if err := c.Flush(); err != nil {
		n.nft.Drop()
		if errors.Is(err, unix.EBUSY) {
			return nil
		}
		return fmt.Errorf("remove chains: %w", err)
	}
	if n.applied != 0 {
		n.applied++
	}
	n.have = next
	return nil
}

func lacks(err error) bool {
	return errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.EINVAL)
}

// explain adds what the kernel's terse answer means here.
func explain(err error) error {
	if errors.Is(err, unix.ENOENT) || lacks(err) {
		return fmt.Errorf("this kernel lacks something (ledge doctor tries it): %w", err)
	}
	return err
}
