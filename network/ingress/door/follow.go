package door

import (
	"context"
	"crypto/tls"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/api/networking"
	"ledge/network/ingress"
)

const (
	// gather is how long changes are collected, so that a burst of them is one new table.
	gather = 50 * time.Millisecond
	// lookEvery is how often it is looked what is wrong, beside each time that something changes.
	lookEvery = 10 * time.Second
	// faultAfter is how long something has to be wrong before it is told: what is applied together comes one by one.
	faultAfter = 10 * time.Second

	// A namespace has at most as many as are left for others.
	mostServices = 10000
	mostSlices   = 20000
)

// present is what counts now. It does not change.
type present struct {
	table *ingress.Table
	pools map[ingress.Backend]*pool
}

// pool is who is behind a backend, and how many requests it was sent.
type pool struct {
	ingress.Pool
	turn atomic.Uint64
}

// follower keeps what counts now.
type follower struct {
	client    api.Client
	events    recorder
	ingresses *api.View[*networkingv1.Ingress]
	classes   *api.View[*networkingv1.IngressClass]
	wake      chan struct{} // capacity 1: Services or slices are others
	present   atomic.Pointer[present]
	certs     certificates
	faults    faults

	mu       sync.Mutex
	services room[ingress.Service]
	slices   room[ingress.Slice]
	heard    struct{ services, slices bool }
}

type recorder interface {
	Event(object api.Object, eventType, reason, message string)
}

func newFollower(c api.Client, events recorder) *follower {
	d := &follower{client: c, events: events, wake: make(chan struct{}, 1), certs: certificates{client: c, wake: make(chan struct{}, 1)},
		ingresses: api.NewView[*networkingv1.Ingress](c, networking.Ingresses, api.Selection{}),
		classes:   api.NewView[*networkingv1.IngressClass](c, networking.IngressClasses, api.Selection{}),
		services:  newRoom[ingress.Service](mostServices), slices: newRoom[ingress.Slice](mostSlices)}
	d.ingresses.Tell(d.wake)
	d.classes.Tell(d.wake)
	return d
}

// Run follows until ctx ends.
func (d *follower) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return d.ingresses.Run(ctx) })
	g.Go(func() error { return d.classes.Run(ctx) })
	g.Go(func() error {
		return api.Follower{Client: d.client, Kind: api.Services, All: d.allServices, One: d.oneService}.Run(ctx)
	})
	g.Go(func() error {
		return api.Follower{Client: d.client, Kind: discovery.EndpointSlices, All: d.allSlices, One: d.oneSlice}.Run(ctx)
	})
	g.Go(func() error { return d.certs.Run(ctx) })
	g.Go(func() error { return d.loop(ctx) })
	return g.Wait()
}

func (d *follower) loop(ctx context.Context) error {
	for _, synced := range []<-chan struct{}{d.ingresses.Synced(), d.classes.Synced()} {
		select {
		case <-ctx.Done():
			return nil
		case <-synced:
		}
	}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	for {
		if d.known() {
			d.renew()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-d.wake:
			select {
			case <-ctx.Done():
				return nil
			case <-time.After(gather):
			}
		}
	}
}

// ready: everything was heard once, and counts.
func (d *follower) ready() bool { return d.present.Load() != nil && d.certs.whole.Load() }

func (d *follower) known() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.heard.services && d.heard.slices
}

// renew makes of what was heard what counts.
func (d *follower) renew() {
	ours := d.ours()
	table, faults := ingress.Build(ours)
	next := &present{table: table, pools: d.pools(table)}
	d.present.Store(next)
	d.certs.want(table.Secrets())
	faults = append(faults, d.lacking(ours, next)...)
	faults = append(faults, d.certs.lacking(ours)...)
	d.faults.tell(time.Now(), faults, d.events)
}

// ours are the Ingresses whose class names ledge's controller.
func (d *follower) ours() []*networkingv1.Ingress {
	classes := map[string]bool{}
	for _, c := range d.classes.List() {
		classes[c.Name] = c.Spec.Controller == networking.Controller
	}
	return slices.DeleteFunc(d.ingresses.List(), func(i *networkingv1.Ingress) bool {
		return i.DeletionTimestamp != nil || !classes[networking.ClassOf(i)]
	})
}

func (d *follower) pools(t *ingress.Table) map[ingress.Backend]*pool {
	d.mu.Lock()
	defer d.mu.Unlock()
	of := map[types.NamespacedName][]ingress.Slice{}
	for _, s := range d.slices.of {
		of[s.Service] = append(of[s.Service], s)
	}
	out := map[ingress.Backend]*pool{}
	for _, to := range t.Backends() {
		var service *ingress.Service
		if s, ok := d.services.of[to.Service]; ok {
			service = &s
		}
		p := &pool{Pool: ingress.Behind(to, service, of[to.Service])}
		p.turn.Store(uint64(rand.Uint32()))
		out[to] = p
	}
	return out
}

// lacking are the backends that cannot be what somebody meant. One without a ready endpoint waits, which is nobody's fault.
func (d *follower) lacking(all []*networkingv1.Ingress, p *present) (out []ingress.Fault) {
	for _, i := range all {
		for _, b := range networking.Backends(i) {
			if b.Service == nil {
				continue
			}
			to := ingress.BackendOf(i.Namespace, b.Service)
			if pool := p.pools[to]; pool != nil && pool.Wrong {
				out = append(out, ingress.Fault{Ingress: i, Reason: "NoBackend", Message: "Backend " + to.String() + ": " + pool.Lacks})
			}
		}
	}
	return out
}

func (d *follower) poke() {
	select {
	case d.wake <- struct{}{}:
	default:
	}
}

func (d *follower) allServices(all []api.Object) {
	d.all(all, &d.heard.services, d.services.keep, d.setService)
}

func (d *follower) oneService(e api.Event) { d.one(e, d.services.drop, d.setService) }

func (d *follower) allSlices(all []api.Object) {
	d.all(all, &d.heard.slices, d.slices.keep, d.setSlice)
}

func (d *follower) oneSlice(e api.Event) { d.one(e, d.slices.drop, d.setSlice) }

// all takes all that there is of a kind.
func (d *follower) all(all []api.Object, heard *bool, keep func([]api.Object), set func(api.Object)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	*heard = true
	keep(all)
	for _, o := range all {
		set(o)
	}
	d.poke()
}

// one takes one change.
func (d *follower) one(e api.Event, drop func(types.NamespacedName), set func(api.Object)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	switch e.Type {
	case api.Bookmark:
		return
	case api.Deleted:
		drop(api.Key(e.Object))
	default:
		set(e.Object)
	}
	d.poke()
}

func (d *follower) setService(o api.Object) {
	if s, ok := o.(*corev1.Service); ok {
		d.services.set(api.Key(o), ingress.TrimService(s))
	}
}

func (d *follower) setSlice(o api.Object) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	if slice, ok := ingress.TrimSlice(s); ok {
		d.slices.set(api.Key(o), slice)
	} else {
		d.slices.drop(api.Key(o))
	}
}

// certificate is the one for the name that a client asks for.
func (d *follower) certificate(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	p := d.present.Load()
	if p == nil {
		return nil, errNoCertificate
	}
	secret, ok := p.table.Certificate(hello.ServerName)
	if !ok {
		return nil, errNoCertificate
	}
	if cert := d.certs.of(secret); cert != nil {
		return cert, nil
	}
	return nil, errNoCertificate
}
