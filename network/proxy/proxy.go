// Package proxy forwards connections that are made to Services, with nftables over netlink; no packet passes a process.
//
//	client -> near or far: (address . protocol . port) -> pick-3 -> endpoints: (address . protocol . port . random 0..2) -> DNAT
//
// There is one chain for each number of endpoints, not one for each Service: an endpoint that comes or goes is an element of a map,
// and a connection costs two lookups, however many Services there are. Chains never change; their names say what they do. A table of
// each family of addresses, named after the board's bridge, holds everything, so that several boards can share a machine.
//
// Pods of the board and the machine itself are "near"; whatever else comes in is "far". A ClusterIP is for those who are near only.
package proxy

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"ledge/network"
	"ledge/network/netns"
	"ledge/network/nft"
	"ledge/network/service"
)

// Config says for which board.
type Config struct {
	// Bridge that its pods are on; none: only the machine itself is near.
	Bridge string
	// Dir is one that only this node has: its table is named after it where there is no bridge.
	Dir string
	// NetNS is the path of the network namespace that plays the host; if empty, that of this process.
	NetNS string
}

// Proxy implements network.Forwarder. It is safe for concurrent use.
type Proxy struct {
	cfg   Config
	table string
	nft   nft.Conn

	mu       sync.Mutex
	wanted   map[string]network.Service // by name
	standing map[string]network.Service // what of it the kernel was given
	claims   map[service.Claim]string   // whose standing ports are
	weight   int                        // of all that stands
	short    map[string]string          // who does not get all it wants, and why
	tables   map[family]bool            // that the kernel has
	chains   map[chainID]bool           // that the kernel has, beside the base
	left     bool                       // a Service left one of them: maybe nobody needs it any more
	swept    int                        // how many there were after the last sweep
	known    bool                       // the kernel has what stands
	applied  uint32                     // nftables generation at which that was so; 0: others changed something since
	warned   bool                       // of connection tracking
	refused  error                      // why the kernel was given nothing of IPv6; nil: it was
}

var _ network.Forwarder = (*Proxy)(nil)

// New changes nothing yet.
func New(cfg Config) *Proxy {
	p := &Proxy{cfg: cfg, table: cfg.table()}
	p.reset()
	return p
}

// table is not one of those that network/bridge counts, which tell it whether other boards' pods use this machine.
func (c Config) table() string {
	if c.Bridge == "" {
		h := fnv.New32a()
		_, _ = h.Write([]byte(c.Dir))
		return fmt.Sprintf("ledgesvc.%08x", h.Sum32())
	}
	return "ledgesvc_" + strings.ReplaceAll(c.Bridge, "-", ".")
}

func (p *Proxy) reset() {
	p.wanted, p.standing = map[string]network.Service{}, map[string]network.Service{}
	p.claims, p.weight, p.short = map[service.Claim]string{}, 0, nil
	p.tables, p.chains, p.known, p.applied = map[family]bool{}, map[chainID]bool{}, false, 0
	p.left, p.swept, p.refused = false, 0, nil
}

// Update implements network.Forwarder.
func (p *Proxy) Update(ctx context.Context, changed []network.Service) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range changed {
		if p.wanted[s.Name] = s; empty(s) {
			delete(p.wanted, s.Name)
		}
	}
	return p.half(p.inHost(func() error {
		if p.known {
			err := p.change(p.allotted(changed))
			if err == nil || !errors.Is(err, unix.ENOENT) && !errors.Is(err, unix.EEXIST) && !errors.Is(err, unix.EBUSY) {
				return err
			}
			slog.Warn("the rules for Services are not as they were left; reading them", "table", p.table, "err", err)
		}
		return p.renew()
	}))
}

// half says that what is of IPv6 was left out. The caller holds the lock.
func (p *Proxy) half(err error) error {
	if err != nil || p.refused == nil {
		return err
	}
	return &network.HalfForwarded{Err: fmt.Errorf("nftables table ip6 %s: %w", p.table, explain(p.refused))}
}

// Prune implements network.Forwarder.
func (p *Proxy) Prune(ctx context.Context, all []network.Service) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.wanted = map[string]network.Service{}
	for _, s := range all {
		if !empty(s) {
			p.wanted[s.Name] = s
		}
	}
	return p.half(p.inHost(p.renew))
}

// Stands implements network.Forwarder.
func (p *Proxy) Stands(ctx context.Context) (stands bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	err = p.inHost(func() error {
		for _, f := range families {
			there, err := p.there(f)
			if err != nil {
				return err
			}
			stands = stands || there
		}
		return nil
	})
	return stands, err
}

// Delete implements network.Forwarder.
func (p *Proxy) Delete(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.reset()
	return p.inHost(p.deleteTables)
}

func empty(s network.Service) bool { return len(s.Forwards) == 0 && len(s.ClusterIPs) == 0 }

// inHost runs f where the rules live. The caller holds the lock.
func (p *Proxy) inHost(f func() error) error {
	return netns.At(p.cfg.NetNS, func() error {
		err := f()
		if err != nil {
			p.known, p.applied = false, 0
			p.nft.Drop()
			return fmt.Errorf("forward Services by nftables table %s: %w", p.table, explain(err))
		}
		return nil
	})
}

// allotted says what stands after some services changed, of those that are other than before: an empty one is gone.
func (p *Proxy) allotted(changed []network.Service) []network.Service {
	if len(p.short) == 0 && p.fits(changed) {
		return changed
	}
	all, short := service.Allot(slices.Collect(maps.Values(p.wanted)))
	p.tell(short)
	var out []network.Service
	seen := map[string]bool{}
	for _, s := range all {
		seen[s.Name] = true
		if !same(s, p.standing[s.Name]) {
			out = append(out, s)
		}
	}
	for name := range p.standing {
		if !seen[name] {
			out = append(out, network.Service{Name: name})
		}
	}
	return out
}

// fits: nobody else has what these claim, and there is room.
func (p *Proxy) fits(changed []network.Service) bool {
	weight, own, taken := p.weight, map[string]bool{}, map[service.Claim]bool{}
	for _, s := range changed {
		if own[s.Name] {
			return false // twice in one change: the last counts
		}
		own[s.Name] = true
		weight += service.Weight(s) - service.Weight(p.standing[s.Name])
	}
	for _, s := range changed {
		for _, c := range service.Claims(s) {
			if of, had := p.claims[c]; taken[c] || had && !own[of] {
				return false
			}
			taken[c] = true
		}
	}
	return weight <= service.MostElements
}

// tell takes note of who goes without, and logs it once.
func (p *Proxy) tell(short map[string]string) {
	if len(short) > 0 && !maps.Equal(short, p.short) {
		names := slices.Sorted(maps.Keys(short))
		slog.Warn("some Services are not forwarded as they ask: an older one has the address and port, or there are too many endpoints",
			"services", strings.Join(names[:min(len(names), 5)], ", "), "count", len(names))
	}
	p.short = short
}

// Short implements network.Forwarder.
func (p *Proxy) Short() map[string]string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.short
}

func same(a, b network.Service) bool {
	return slices.Equal(a.ClusterIPs, b.ClusterIPs) && slices.EqualFunc(a.Forwards, b.Forwards, func(x, y network.Forward) bool {
		return x.To == y.To && x.Protocol == y.Protocol && x.Outside == y.Outside && x.Masquerade == y.Masquerade && x.Drop == y.Drop &&
			x.Sticky == y.Sticky && slices.Equal(x.Near, y.Near) && slices.Equal(x.Far, y.Far) && slices.Equal(x.Sources, y.Sources)
	})
}

// stand takes note of what the kernel now has.
func (p *Proxy) stand(changed []network.Service) {
	for _, s := range changed {
		old := p.standing[s.Name]
		p.weight += service.Weight(s) - service.Weight(old)
		for _, c := range service.Claims(old) {
			if p.claims[c] == s.Name {
				delete(p.claims, c)
			}
		}
	}
	for _, s := range changed {
		for _, c := range service.Claims(s) {
			p.claims[c] = s.Name
		}
		if p.standing[s.Name] = s; empty(s) {
			delete(p.standing, s.Name)
		}
	}
}

// mostLeft bounds the chains that nobody needs: whoever changes the sources of a Service makes a new one each time.
const mostLeft = 64

// change tells the kernel what is other than what it has.
func (p *Proxy) change(changed []network.Service) error {
	b := batch{chains: map[chainID]special{}}
	left := false
	for _, s := range changed {
		old, now := compile(p.standing[s.Name]), compile(s)
		for id := range old.chains {
			if _, stays := now.chains[id]; !stays {
				left = true
			}
		}
		b.differ(old.elements, now.elements)
		for id, c := range now.chains {
			if !p.chains[id] {
				b.chains[id] = c
			}
		}
	}
	b.whole = p.missing(b)
	p.abandon(&b, changed)
	if err := p.apply(b); err != nil {
		return err
	}
	p.stand(changed)
	if p.left = p.left || left; p.left && len(p.chains) >= p.swept+mostLeft {
		return p.sweep()
	}
	return nil
}

// renew reads what the kernel has and makes it what is wanted. Where nobody changed any rule since, there is nothing to read.
func (p *Proxy) renew() error {
	gen, err := nft.Generation()
	if err != nil {
		return err
	}
	all, short := service.Allot(slices.Collect(maps.Values(p.wanted)))
	if p.known && gen == p.applied && gen != 0 && p.refused == nil {
		if err := p.change(p.allotted(p.differing())); err != nil || !p.left {
			return err
		}
		return p.sweep()
	}
	p.tell(short)
	if len(all) == 0 {
		p.reset()
		return p.deleteTables()
	}
	b, err := p.compare(all)
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	p.standing, p.claims, p.weight, p.applied = map[string]network.Service{}, map[service.Claim]string{}, 0, gen
	if err := p.applyOrHalf(b); err != nil {
		return err
	}
	p.stand(all)
	p.known = true
	return p.sweep()
}

// differing are the wanted services that do not stand so, and those that are not wanted any more.
func (p *Proxy) differing() (out []network.Service) {
	for name, s := range p.wanted {
		if !same(s, p.standing[name]) {
			out = append(out, s)
		}
	}
	for name := range p.standing {
		if _, ok := p.wanted[name]; !ok {
			out = append(out, network.Service{Name: name})
		}
	}
	return out
}
