// Package services has a board forward what the Services of its cluster say: it follows them and their EndpointSlices, keeps of both
// what network/service needs, and tells a network.Forwarder what is other than before. A burst of changes is one transaction. Whoever
// answers for the names of Services reads the same copy.
//
// What is forwarded stays in the kernel when this process ends, and while the control plane cannot be asked: nothing is taken back
// before everything has been heard.
package services

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"maps"
	"net/netip"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
	Forwarder network.Forwarder // nil: nobody forwards, Services are heard for their names
	Node      string            // whose endpoints are local
	// Pods are the networks of the board's pods now. Another one counts within a minute.
	Pods func() []netip.Prefix
	// Memory is where what was heard outlives this process and a reboot. Nil: the control plane is on this board.
	Memory Memory
	// Here are the pods of this board, with the addresses that they have now. It counts while the control plane cannot be asked: what was
	// remembered of them may be from before a reboot.
	Here func() []*corev1.Pod
	// Addresses are those of the machine now. Others count within a minute.
	Addresses func() ([]netip.Addr, error)
	// Listeners are the sockets on which processes of the machine wait for others now. Nil: nobody looks.
	Listeners func() ([]Listener, error)
	// Events are for users to read. Nil: nobody reads them.
	Events Recorder
}

// Recorder takes events for users to read. It never blocks.
type Recorder interface {
	EventOn(ref corev1.ObjectReference, eventType, reason, message string)
}

// Loop is the one of a board.
type Loop struct {
	cfg    Config
	heard  *service.Heard
	wake   chan struct{} // capacity 1
	needed chan struct{} // closed when some Service has endpoints: until then nobody follows slices
	known  chan struct{} // closed when pods may be told what Services there are (Of)
	doors  doors
	half   grumble.Once
	other  string // the pod that forwards Services here, so that nobody else does; ""
	state  state  // of the last try

	crossed crossings
	unseen  grumble.Once
	short   teller // those that do not get all they ask for
	out     leftOut

	memory memory
	got    [2]bool // all Services, all slices, once, from the control plane or from memory; under memory.order
	fresh  [2]bool // from the control plane

	mu     sync.Mutex
	zone   string
	own    []netip.Addr                  // of this machine, when they were last to be had
	dirty  map[types.NamespacedName]bool // Services to plan again
	all    bool                          // plan all of them
	lacks  map[string]string             // what is left out of a Service, of those where something is
	hidden map[string]bool               // those with endpoints that cannot be reached from here
	list   [2]func()                     // has the Services, or the slices, listed anew
}

// New prepares a Loop; Run works.
func New(cfg Config) *Loop {
	l := &Loop{cfg: cfg, heard: service.NewHeard(), wake: make(chan struct{}, 1), needed: make(chan struct{}), known: make(chan struct{}),
		all: true, dirty: map[types.NamespacedName]bool{}, lacks: map[string]string{}, hidden: map[string]bool{},
		memory: memory{away: make(chan struct{}, 1), stir: make(chan struct{}, 1)}}
	l.doors.tell, l.crossed.tell = l.warn("FailedToStartServiceHealthcheck"), l.warn("PortInUse") // the first is kube-proxy's word
	l.short.tell = l.warn("NotForwarded")
	return l
}

// Heard is what the Loop hears.
func (l *Loop) Heard() *service.Heard { return l.heard }

// Saw takes note of the board's zone, which hints of EndpointSlices name.
func (l *Loop) Saw(n *corev1.Node) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if zone := n.Labels[corev1.LabelTopologyZone]; zone != l.zone {
		l.zone, l.all = zone, true
		poke(l.wake)
	}
}

func poke(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
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
	if l.cfg.Memory != nil {
		l.load()
		g.Go(func() error { return l.remember(ctx) })
	}
	g.Go(func() error { return l.follow(ctx, service.OfServices, api.Services) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-l.needed:
		}
		return l.follow(ctx, service.OfSlices, discovery.EndpointSlices)
	})
	if l.cfg.Forwarder != nil {
		g.Go(func() error { return l.forward(ctx, g) })
	}
	return g.Wait()
}

// readmitAfter is how long those wait who had no room, once there is some.
const readmitAfter = 10 * time.Second

// unknown is how long a control plane that has no such objects is left alone.
const unknown = time.Minute

func (l *Loop) follow(ctx context.Context, what int, kind *api.Kind) error {
	f := api.Follower{Client: attentive{l.cfg.Client, l.failing}, Kind: kind, Unknown: unknown,
		All: func(list []api.Object) { l.replace(what, list) },
		One: func(e api.Event) {
			if e.Type != api.Bookmark {
				l.apply(what, e)
			}
		}}
	for ctx.Err() == nil {
		round, end := context.WithCancel(ctx)
		l.mu.Lock()
		l.list[what] = end
		l.mu.Unlock()
		err := f.Run(round)
		end()
		if err != nil {
			return err
		}
	}
	return nil
}

// readmit lists anew those of whom some had no room, once there is some: they are not kept, so nobody else knows them. What else goes
// meanwhile makes room for the same list.
func (l *Loop) readmit(what int) {
	if !l.out.waits(what, func(namespace string) bool { return l.heard.Room(what, namespace) }) {
		return
	}
	time.AfterFunc(readmitAfter, func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.list[what]()
	})
}

// attentive tells of lists that fail.
type attentive struct {
	api.Client
	failed func(error)
}

func (a attentive) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	out, err := a.Client.List(ctx, kind, opts)
	if err != nil && ctx.Err() == nil {
		a.failed(err)
	}
	return out, err
}

// failing: a control plane that has no such objects, as an older one, has no Services; of one that does not answer what was remembered
// counts.
func (l *Loop) failing(err error) {
	if apierrors.IsNotFound(err) {
		l.mu.Lock()
		defer l.mu.Unlock()
		once(l.known)
		return
	}
	poke(l.memory.away)
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
	l.heard.Told(service.OfServices)
	l.heard.Told(service.OfSlices)
	if l.cfg.Forwarder == nil {
		return l.await(ctx, begin)
	}
	if err := l.cfg.Forwarder.Delete(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("cannot remove the rules of Services that are gone", "err", err)
	}
	return l.await(ctx, begin)
}

func (*Loop) await(ctx context.Context, begin <-chan struct{}) bool {
	select {
	case <-ctx.Done():
		return false
	case <-begin:
		return true
	}
}

// pause between transactions: what changes meanwhile comes together in the next.
const pause = 100 * time.Millisecond

// forward has the kernel follow what is heard. Others may have changed our rules: a firewall that starts anew removes them all.
func (l *Loop) forward(ctx context.Context, g *errgroup.Group) error {
	defer l.doors.closeAll()
	return grumble.Keep(ctx, l.wake, pause, "cannot forward Services; trying again", func(ctx context.Context, everything bool) error {
		if everything {
			l.again()
		}
		return l.sync(ctx, g)
	})
}

// again has the next sync look at everything.
func (l *Loop) again() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
}

// sync tells the Forwarder what changed. Until everything was heard once it does nothing.
func (l *Loop) sync(ctx context.Context, g *errgroup.Group) error {
	if others, err := l.yield(ctx); others || err != nil {
		return err
	}
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
	if all || len(plans) > 0 { // else the kernel was asked nothing, and what was is so still
		err = l.heed(err)
	}
	l.short.say(l.out.join(l.cfg.Forwarder.Short(), l.left()))
	if l.cfg.Listeners != nil {
		l.unseen.About("cannot see on which ports processes of this board listen", l.crossed.look(plans, all, l.addresses(), l.cfg.Listeners))
	}
	return cmp.Or(err, l.doors.set(g, health, err == nil, all))
}

// yield takes every rule away while a pod of this board forwards Services: both would lead the same connections, each to an endpoint of
// its own choice.
func (l *Loop) yield(ctx context.Context) (others bool, err error) {
	who := l.proxyHere()
	if who != "" {
		l.passOver()
	}
	switch {
	case who == l.other:
	case who == "":
		slog.Info("the pod that forwarded Services on this board has gone; forwarding them again", "pod", l.other)
	default:
		if err := l.cfg.Forwarder.Delete(ctx); err != nil {
			return true, err
		}
		l.doors.closeAll()
		l.short.say(nil)
		l.state.set(nil)
		slog.Info("a pod of this board forwards Services; leaving them to it", "pod", who)
	}
	l.other = who
	return who != "", nil
}

// passOver forgets what changed: whoever forwards next looks at all.
func (l *Loop) passOver() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = true
	clear(l.dirty)
	clear(l.lacks)
	clear(l.hidden)
	l.state.hide(false)
}

// proxyHere is the kube-proxy of this board, as clusters run it: a DaemonSet on the host's network.
func (l *Loop) proxyHere() string {
	if l.cfg.Here == nil {
		return ""
	}
	for _, p := range l.cfg.Here() {
		if p.Labels["k8s-app"] == kubeProxy && p.Namespace == metav1.NamespaceSystem && p.Spec.HostNetwork && p.Status.Phase == corev1.PodRunning {
			return p.Namespace + "/" + p.Name
		}
	}
	return ""
}

const kubeProxy = "kube-proxy"

// heed says how it went. What was done by half is no error: the next look at everything tries again.
func (l *Loop) heed(err error) error {
	l.state.set(err)
	var half error
	if _, ok := errors.AsType[*network.HalfForwarded](err); ok {
		half, err = err, nil
	}
	l.half.About("cannot forward all of Services; trying again every minute", half)
	if err != nil {
		l.again()
	}
	return err
}

// addresses are those of the machine, as of the last look.
func (l *Loop) addresses() []netip.Addr {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.own
}

// take plans what changed since the last call.
func (l *Loop) take() (plans []network.Service, health map[string]service.Health, all, ready bool) {
	l.memory.order.Lock()
	ready = l.got[service.OfServices] && (l.got[service.OfSlices] || !l.needs())
	l.memory.order.Unlock()
	if !ready {
		return nil, nil, false, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.heard.RLock()
	defer l.heard.RUnlock()
	all, l.all = l.all, false
	if all {
		clear(l.lacks)
		clear(l.hidden)
	}
	changed := l.dirty
	l.dirty = map[types.NamespacedName]bool{}
	health = map[string]service.Health{}
	b := l.board()
	add := func(name types.NamespacedName, s *service.Service) {
		plan, h := network.Service{Name: name.String()}, service.Health{} // it is gone
		if s != nil {
			plan, h = l.plan(name, s, b)
		} else {
			delete(l.lacks, plan.Name)
			delete(l.hidden, plan.Name)
		}
		plans, health[plan.Name] = append(plans, plan), h
	}
	if !all {
		for name := range changed {
			add(name, l.heard.Service(name))
		}
		return plans, health, all, true
	}
	for name, s := range l.heard.Services() {
		if s.Forwards() {
			add(name, s)
		}
	}
	return plans, health, all, true
}

func (l *Loop) board() service.Board {
	b := service.Board{Name: l.cfg.Node, Zone: l.zone}
	if l.cfg.Pods != nil {
		b.Pods = l.cfg.Pods()
	}
	if l.cfg.Addresses != nil {
		if own, err := l.cfg.Addresses(); err == nil {
			l.own = own
		}
		b.Own = l.own
	}
	return b
}

func (l *Loop) plan(name types.NamespacedName, s *service.Service, b service.Board) (network.Service, service.Health) {
	of := l.heard.Behind(name)
	delete(l.lacks, s.Name)
	if why := service.Lacks(s, of, b); why != "" {
		l.lacks[s.Name] = why
	}
	delete(l.hidden, s.Name)
	if b.Hidden(s, of) {
		l.hidden[s.Name] = true
	}
	return service.Plan(s, of, b)
}

// left is what was left out of Services when they were planned last.
func (l *Loop) left() map[string]string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.hide(len(l.hidden) > 0)
	return maps.Clone(l.lacks)
}

// replace takes all that there is of a kind.
func (l *Loop) replace(what int, list []api.Object) {
	l.memory.order.Lock()
	defer l.memory.order.Unlock()
	there := make(map[types.NamespacedName]bool, len(list))
	for _, o := range list {
		there[api.Key(o)] = true
	}
	l.heard.Keep(what, there)
	l.out.keep(what, there)
	for _, o := range list {
		l.put(o)
	}
	l.got[what], l.fresh[what] = true, true
	l.heard.Told(what)
	if what == service.OfServices && !l.needs() { // nobody follows slices
		l.heard.Told(service.OfSlices)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if what == service.OfServices {
		once(l.known)
	}
	l.all = true
	poke(l.wake)
	l.note()
}

// needs says whether slices are followed.
func (l *Loop) needs() bool {
	select {
	case <-l.needed:
		return true
	default:
		return false
	}
}

// apply takes one change.
func (l *Loop) apply(what int, e api.Event) {
	l.memory.order.Lock()
	defer l.memory.order.Unlock()
	if e.Type == api.Deleted {
		l.out.room(what, api.Key(e.Object), lacking{}, true)
	}
	kept := l.heard.Has(what, api.Key(e.Object))
	switch {
	case e.Type != api.Deleted:
		l.put(e.Object)
	case what == service.OfServices:
		l.heard.DeleteService(api.Key(e.Object))
		l.touch(api.Key(e.Object))
	default:
		changed, _ := l.heard.SetSlice(api.Key(e.Object), nil)
		l.touch(changed...)
	}
	if kept && !l.heard.Has(what, api.Key(e.Object)) { // it was deleted, or is a slice without endpoints now
		l.readmit(what)
	}
	poke(l.wake)
	l.note()
}

func (l *Loop) put(o api.Object) {
	if v, ok := o.(*corev1.Service); ok {
		s := service.Trim(v)
		l.out.room(service.OfServices, api.Key(o), lacking{api.Key(o), v.UID}, l.heard.SetService(s))
		l.touch(api.Key(o))
		l.need(s)
	}
	if v, ok := o.(*discoveryv1.EndpointSlice); ok {
		changed, room := l.heard.SetSlice(api.Key(o), service.TrimSlice(v, l.cfg.Node))
		of := types.NamespacedName{Namespace: v.Namespace, Name: v.Labels[discoveryv1.LabelServiceName]}
		l.out.room(service.OfSlices, api.Key(o), lacking{of: of}, room)
		l.touch(changed...)
	}
}

// need has slices followed once a Service has some.
func (l *Loop) need(s *service.Service) {
	if s.Target == "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		once(l.needed)
	}
}

// touch has Services planned again.
func (l *Loop) touch(names ...types.NamespacedName) {
	if l.cfg.Forwarder == nil { // nobody plans
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, n := range names {
		l.dirty[n] = true
	}
}
