package brain

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"os"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/internal/grumble"
	"ledge/network/dns"
	"ledge/network/plan"
)

// names answers the questions of this board's pods for names, at the board's address in their network (decision 105).
type names struct {
	b       *Brain
	moved   chan struct{} // capacity 1: the pods have another network
	trouble grumble.Once
	deaf    grumble.Once

	at      netip.AddrPort
	sockets dns.Sockets
	open    bool                     // there are sockets
	asked   atomic.Pointer[[]string] // where new pods are told to ask; nil: not here
}

// lender is a keeper that holds files beyond the end of this process.
type lender interface {
	Lend(ctx context.Context, name string, files []*os.File) error
	Lent(ctx context.Context, name string) ([]*os.File, error)
}

const (
	socketsOfNames = "names"
	lendWithin     = 2 * time.Second

	namesHeardWithin = 2 * time.Second // less than a C library waits before it asks again
	namesRetry       = 5 * time.Second
	// namesLook is how often a firewall between pods and the board is looked for: what is found is known by then.
	namesLook = 30 * time.Second
)

// openNames takes the sockets before a pod starts, those of the process before this one if they are there: questions wait in them.
func openNames(ctx context.Context, b *Brain) *names {
	if b.given == nil || b.forwarding.loop == nil || b.rims.Names == nil || !b.File.ServesNames() {
		return nil
	}
	n := &names{b: b, moved: make(chan struct{}, 1)}
	n.take(ctx)
	return n
}

// servers are whom pods with dnsPolicy ClusterFirst ask just now: this board, if it answers, or who is named.
func (n *names) servers(named []string) []string {
	if n == nil {
		return named
	}
	if at := n.asked.Load(); at != nil {
		return *at
	}
	return nil
}

// questions tells how many were answered, by kind.
func (b *Brain) questions(each func(kind string, n uint64)) {
	for i, kind := range dns.Kinds {
		each(kind, b.asked[i].Load())
	}
}

// move says that the pods have another network.
func (n *names) move() {
	if n == nil {
		return
	}
	select {
	case n.moved <- struct{}{}:
	default:
	}
}

// take makes or takes over the sockets. Without them pods ask whom the board asks.
func (n *names) take(ctx context.Context) {
	cidr, _ := n.b.given.CIDRs()
	book, err := plan.NewBook(cidr, netip.Prefix{})
	if err == nil {
		n.at = netip.AddrPortFrom(book.Gateway(), 53)
		n.sockets, err = n.listen(ctx)
	}
	if n.open = err == nil; n.open {
		n.judge()
	}
	n.trouble.About("the board cannot answer its pods' questions for names; they ask whom the board asks", err)
}

func (n *names) listen(ctx context.Context) (dns.Sockets, error) {
	keeper, ok := n.b.keeper.(lender)
	if !ok {
		return n.b.rims.Names(ctx, n.at)
	}
	asking, cancel := context.WithTimeout(ctx, lendWithin)
	defer cancel()
	if files, err := keeper.Lent(asking, socketsOfNames); err == nil {
		if s, ok := dns.Adopt(files, n.at); ok {
			keep(asking, keeper, s)
			return s, nil
		}
		_ = keeper.Lend(asking, socketsOfNames, nil) // those of another network
	}
	s, err := n.b.rims.Names(ctx, n.at)
	if err == nil {
		keep(asking, keeper, s)
	}
	return s, err
}

// keep has the keeper hold the sockets. One that does not is told again when it comes back, and one that cannot is an older one.
func keep(ctx context.Context, keeper lender, s dns.Sockets) {
	if err := keeper.Lend(ctx, socketsOfNames, s.Files()); err != nil {
		slog.Debug("the keeper does not hold the sockets for names yet", "err", err)
	}
}

// judge says whether pods can be told to ask here.
func (n *names) judge() {
	err := n.b.given.Answerable()
	if n.asked.Store(nil); err == nil {
		n.asked.Store(&[]string{n.at.Addr().String()})
	}
	n.deaf.About("new pods ask whom the board asks for names, for they do not reach the board", err)
}

// Run answers until ctx ends.
func (n *names) Run(ctx context.Context) error {
	for ctx.Err() == nil {
		if !n.open {
			n.take(ctx)
		}
		if n.open {
			err := n.serve(ctx)
			n.open = false
			_ = n.sockets.Close()               // the keeper has its own
			if err == nil || ctx.Err() != nil { // pods have another network, or it is over
				continue
			}
			n.asked.Store(nil)
			n.trouble.About("the board stopped answering its pods' questions for names", err)
		}
		select {
		case <-ctx.Done():
		case <-n.moved:
		case <-time.After(namesRetry):
		}
	}
	return nil
}

// serve answers in one network, until pods have another.
func (n *names) serve(ctx context.Context) error {
	cidr, _ := n.b.given.CIDRs()
	zone, err := dns.NewZone(n.b.forwarding.loop.Heard(), n.b.File.Domain(), n.b.Name, n.at.Addr(), n.b.given.Prefixes()...)
	if err != nil {
		return err
	}
	cfg := dns.Config{Zone: zone, Pods: cidr, Stale: n.b.File.Names.GivesStale(), Resolvers: dns.Resolvers(n.resolvConf, n.at.Addr()),
		Counts: &n.b.asked}
	if n.b.File.Names.Walks() {
		cfg.Searches = n.b.agent.Searches
	}
	server := dns.New(cfg)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer cancel()
		zone.Heard(ctx, namesHeardWithin)
		return server.Serve(ctx, n.sockets)
	})
	g.Go(func() error {
		defer cancel()
		for {
			select {
			case <-ctx.Done():
				return nil
			case <-n.moved:
				return nil
			case <-time.After(namesLook):
				n.judge()
			}
		}
	})
	return g.Wait()
}

// resolvConf is the one that counts now: the one behind a stub may come later than this process.
func (n *names) resolvConf() string {
	return cmp.Or(n.b.File.ResolvConf, n.b.rims.Host.ResolvConf())
}
