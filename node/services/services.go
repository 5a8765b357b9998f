// Package services has a board forward what the Services of its cluster say: it follows them and their EndpointSlices, keeps of both
// what network/service needs, and tells a network.Forwarder what is other than before. A burst of changes is one transaction.
//
// What is forwarded stays in the kernel when this process ends, and while the control plane cannot be asked: nothing is taken back
// before everything has been heard.
package services

import (
	"cmp"
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/internal/grumble"
	"ledge/network"
	"ledge/network/service"
)

// Config is what a Loop needs.
type Config struct {
	Client    api.Client
	Forwarder network.Forwarder
	Node      string // whose endpoints are local
	// Pods are the networks of the board's pods now. Another one counts within a minute.
	Pods func() []netip.Prefix
}

// Loop is the one of a board.
type Loop struct {
	cfg    Config
	wake   chan struct{} // capacity 1
	needed chan struct{} // closed when some Service forwards: until then nobody follows slices
	known  chan struct{} // closed when pods may be told what Services there are (Of)
	doors  doors
	failed grumble.Once

	mu       sync.Mutex
	zone     string
	services map[types.NamespacedName]service.Service
	slices   map[types.NamespacedName]map[string]service.Slice // by Service and name
	owner    map[types.NamespacedName]types.NamespacedName     // of slices
	dirty    map[types.NamespacedName]bool                     // Services to plan again
	all      bool                                              // plan all of them
	heard    struct{ services, slices bool }                   // whole, once
	full     bool                                              // told that there are too many
	hidden   bool                                              // told that pods of other boards cannot be reached
}

// New prepares a Loop; Run works.
func New(cfg Config) *Loop {
	return &Loop{cfg: cfg, wake: make(chan struct{}, 1), needed: make(chan struct{}), known: make(chan struct{}), all: true,
		services: map[types.NamespacedName]service.Service{}, slices: map[types.NamespacedName]map[string]service.Slice{},
		owner: map[types.NamespacedName]types.NamespacedName{}, dirty: map[types.NamespacedName]bool{}}
}

// Saw takes note of the board's zone, which hints of EndpointSlices name.
func (l *Loop) Saw(n *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if zone := n.Labels[corev1.LabelTopologyZone]; zone != l.zone {
		l.zone, l.all = zone, true
		l.poke()
	}
}

func (l *Loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Run works until ctx ends. Where it is known that there is no Service, it waits for the first, and costs nothing.
func (l *Loop) Run(ctx context.Context) error {
	if !l.awaitFirst(ctx) {
		return nil
	}
	defer time.AfterFunc(silence, l.giveUp).Stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return l.follow(ctx, api.Services, l.replaceServices, l.applyService)
	})
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-l.needed:
		}
		return l.follow(ctx, discovery.EndpointSlices, l.replaceSlices, l.applySlice)
	})
	g.Go(func() error { return l.forward(ctx, g) })
	return g.Wait()
}

// unknown is how long a control plane that has no such objects is left alone.
const unknown = time.Minute

func (l *Loop) follow(ctx context.Context, kind *api.Kind, all func([]api.Object), one func(api.Event)) error {
	return api.Follower{Client: l.cfg.Client, Kind: kind, All: all, Unknown: unknown, One: func(e api.Event) {
		if e.Type != api.Bookmark {
			one(e)
		}
	}}.Run(ctx)
}

// awaitFirst removes what an earlier run may have left, when there are no Services (any more), and waits for one.
func (l *Loop) awaitFirst(ctx context.Context) bool {
	sparse, ok := l.cfg.Client.(api.Sparse)
	if !ok {
		return true
	}
	begin := make(chan struct{})
	if !sparse.WhenAny(api.Services, func() { close(begin) }) {
		return true
	}
	once(l.known) // nobody else closes it yet
	if err := l.cfg.Forwarder.Delete(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("cannot remove the rules of Services that are gone", "err", err)
	}
	select {
	case <-ctx.Done():
		return false
	case <-begin:
		return true
	}
}

const (
	// pause between transactions: what changes meanwhile comes together in the next.
	pause = 100 * time.Millisecond
	// look is how often the kernel is asked whether others changed our rules: a firewall that starts anew removes them all.
	look = time.Minute
	// firstRetry and lastRetry after a transaction that failed.
	firstRetry, lastRetry = time.Second, time.Minute
)

// forward has the kernel follow what is heard.
func (l *Loop) forward(ctx context.Context, g *errgroup.Group) error {
	defer l.doors.closeAll()
	timer := time.NewTimer(look)
	defer timer.Stop()
	for wait := firstRetry; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-l.wake:
		case <-timer.C:
			l.again()
		}
		next := look
		err := l.sync(ctx, g)
		if ctx.Err() != nil {
			return nil
		}
		l.failed.About("cannot forward Services; trying again", err)
		if err == nil {
			wait = firstRetry
		} else {
			next, wait = wait, min(2*wait, lastRetry)
		}
		timer.Reset(next)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
	}
}

// again has the next sync look at everything.
func (l *Loop) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
}

// sync tells the Forwarder what changed. Until everything was heard once it does nothing.
func (l *Loop) sync(ctx context.Context, g *errgroup.Group) error {
	plans, health, all, ready := l.take()
	if !ready {
		return nil
	}
	var err error
	switch {
	case all:
		err = l.cfg.Forwarder.Prune(ctx, plans)
	case len(plans) > 0:
		err = l.cfg.Forwarder.Update(ctx, plans)
	}
	if err != nil {
		l.again()
	}
	return cmp.Or(err, l.doors.set(g, health, err == nil, all))
}

// take plans what changed since the last call.
func (l *Loop) take() (plans []network.Service, health map[string]service.Health, all, ready bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.heard.services || len(l.services) > 0 && !l.heard.slices {
		return nil, nil, false, false
	}
	all, l.all = l.all, false
	changed := l.dirty
	l.dirty = map[types.NamespacedName]bool{}
	health = map[string]service.Health{}
	for name := range changed {
		if s, ok := l.services[name]; ok && !all {
			plan, h := l.plan(name, s)
			plans = append(plans, plan)
			health[plan.Name] = h
		} else if !all {
			gone := network.Service{Name: name.String()}
			plans, health[gone.Name] = append(plans, gone), service.Health{}
		}
	}
	if all {
		for name, s := range l.services {
			plan, h := l.plan(name, s)
			plans, health[plan.Name] = append(plans, plan), h
		}
	}
	return plans, health, all, true
}

func (l *Loop) plan(name types.NamespacedName, s service.Service) (network.Service, service.Health) {
	b := service.Board{Name: l.cfg.Node, Zone: l.zone}
	if l.cfg.Pods != nil {
		b.Pods = l.cfg.Pods()
	}
	var of []service.Slice
	for _, x := range l.slices[name] {
		of = append(of, x)
		if !l.hidden && slices.ContainsFunc(x.Endpoints, b.Hides) {
			l.hidden = true
			slog.Warn("pods of another board have addresses of this board's own pods, so Services do not lead there from here; "+
				"give every board a network: ledge serve --allocate-node-cidrs --cluster-cidr 10.44.0.0/16", "service", name)
		}
	}
	return service.Plan(s, of, b)
}

func (l *Loop) replaceServices(list []api.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.services)
	for _, o := range list {
		l.put(o)
	}
	l.heard.services, l.all = true, true
	once(l.known)
	l.poke()
}

func (l *Loop) applyService(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if name := api.Key(e.Object); e.Type == api.Deleted {
		delete(l.services, name)
		l.dirty[name] = true
	} else {
		l.put(e.Object)
	}
	l.poke()
}

// mostServices and mostSlices are what a board keeps; the network takes fewer.
const mostServices, mostSlices = 10_000, 20_000

func (l *Loop) put(o api.Object) {
	v, ok := o.(*corev1.Service)
	if !ok {
		return
	}
	name := api.Key(o)
	l.dirty[name] = true
	s, forwards := service.Trim(v)
	if !forwards || !l.room(len(l.services), mostServices) {
		delete(l.services, name)
		return
	}
	l.services[name] = s
	once(l.needed)
}

// room says once that there is none.
func (l *Loop) room(n, most int) bool {
	if n >= most && !l.full {
		l.full = true
		slog.Warn("there are more Services than a board forwards; some go without", "most", most)
	}
	return n < most
}

func (l *Loop) replaceSlices(list []api.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.slices)
	clear(l.owner)
	for _, o := range list {
		l.putSlice(o, false)
	}
	l.heard.slices, l.all = true, true
	l.poke()
}

func (l *Loop) applySlice(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.putSlice(e.Object, e.Type == api.Deleted)
	l.poke()
}

// putSlice takes note of a slice; it may have passed to another Service.
func (l *Loop) putSlice(o api.Object, deleted bool) {
	v, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	name := api.Key(o)
	if of, had := l.owner[name]; had {
		delete(l.slices[of], name.Name)
		if len(l.slices[of]) == 0 {
			delete(l.slices, of)
		}
		delete(l.owner, name)
		l.dirty[of] = true
	}
	s, used := service.TrimSlice(v)
	if deleted || !used || !l.room(len(l.owner), mostSlices) {
		return
	}
	of := types.NamespacedName{Namespace: v.Namespace, Name: v.Labels[discoveryv1.LabelServiceName]}
	if l.slices[of] == nil {
		l.slices[of] = map[string]service.Slice{}
	}
	l.slices[of][name.Name], l.owner[name], l.dirty[of] = s, of, true
}
