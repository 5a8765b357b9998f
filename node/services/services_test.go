package services

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/internal/grumble"
	"ledge/network"
	"ledge/network/fake"
)

// plane is a control plane that has Services and EndpointSlices.
type plane struct {
	api.Client
	mu      sync.Mutex
	objects map[*api.Kind]map[string]api.Object
	lists   map[*api.Kind]int
	watches map[*api.Kind][]*watch
	said    map[*api.Kind][]api.Event // all that happened: a watch goes on from what a list had
	away    bool
}

func newPlane() *plane {
	return &plane{objects: map[*api.Kind]map[string]api.Object{api.Services: {}, discovery.EndpointSlices: {}}, lists: map[*api.Kind]int{},
		watches: map[*api.Kind][]*watch{}, said: map[*api.Kind][]api.Event{}}
}

type watch struct {
	events chan api.Event
	closed chan struct{}
	once   sync.Once
}

func (w *watch) Next() (api.Event, error) {
	select {
	case e := <-w.events:
		return e, nil
	case <-w.closed:
		return api.Event{}, errors.New("the watch broke")
	}
}

func (w *watch) Close() { w.once.Do(func() { close(w.closed) }) }

func (p *plane) List(_ context.Context, kind *api.Kind, _ api.ListOptions) (api.List, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.away {
		return api.List{}, errors.New("nobody answers")
	}
	p.lists[kind]++
	out := api.List{Revision: strconv.Itoa(len(p.said[kind]))}
	for _, o := range p.objects[kind] {
		out.Items = append(out.Items, o)
	}
	return out, nil
}

func (p *plane) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	from, err := strconv.Atoi(opts.Revision)
	if err != nil {
		return nil, err
	}
	w := &watch{events: make(chan api.Event, 10_000), closed: make(chan struct{})}
	for _, e := range p.said[kind][from:] {
		w.events <- e
	}
	context.AfterFunc(ctx, w.Close)
	p.watches[kind] = append(p.watches[kind], w)
	return w, nil
}

// put makes or changes an object; remove deletes it.
func (p *plane) put(kind *api.Kind, o api.Object)    { p.tell(kind, o, api.Modified) }
func (p *plane) remove(kind *api.Kind, o api.Object) { p.tell(kind, o, api.Deleted) }

func (p *plane) tell(kind *api.Kind, o api.Object, what api.EventType) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.objects[kind][api.Key(o).String()] = o; what == api.Deleted {
		delete(p.objects[kind], api.Key(o).String())
	}
	p.said[kind] = append(p.said[kind], api.Event{Type: what, Object: o})
	for _, w := range p.watches[kind] {
		select {
		case w.events <- api.Event{Type: what, Object: o}:
		case <-w.closed: // nobody reads it any more
		}
	}
}

// cut breaks all watches; while away nobody answers.
func (p *plane) cut(away bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.away = away
	for _, list := range p.watches {
		for _, w := range list {
			w.Close()
		}
	}
	clear(p.watches)
}

func svc(name, ip string) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}}
	s.Spec.ClusterIPs, s.Spec.Ports = []string{ip}, []corev1.ServicePort{{Protocol: corev1.ProtocolTCP, Port: 80}}
	return s
}

func slice(name, of string, addrs ...string) *discoveryv1.EndpointSlice {
	port := int32(8080)
	s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Port: &port}},
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: of}}}
	for _, a := range addrs {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{Addresses: []string{a}})
	}
	return s
}

// counted counts what a Forwarder is asked, and fails while it is told to.
type counted struct {
	network.Forwarder
	mu                      sync.Mutex
	updates, prunes, purges int
	broken                  error
}

func (c *counted) count(n *int) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	*n++
	return c.broken
}

func (c *counted) Update(ctx context.Context, s []network.Service) error {
	if err := c.count(&c.updates); err != nil {
		return err
	}
	return c.Forwarder.Update(ctx, s)
}

func (c *counted) Prune(ctx context.Context, s []network.Service) error {
	if err := c.count(&c.prunes); err != nil {
		return err
	}
	return c.Forwarder.Prune(ctx, s)
}

func (c *counted) Delete(ctx context.Context) error {
	if err := c.count(&c.purges); err != nil {
		return err
	}
	return c.Forwarder.Delete(ctx)
}

func (c *counted) counts() [3]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return [3]int{c.updates, c.prunes, c.purges}
}

// rig runs a Loop in a bubble.
func rig(t *testing.T, client api.Client, f func(l *Loop, k *fake.Kernel, c *counted), here ...func() []*corev1.Pod) {
	synctest.Test(t, func(t *testing.T) {
		k := &fake.Kernel{}
		c := &counted{Forwarder: fake.NewForwarder(k)}
		cfg := Config{Client: client, Forwarder: c, Node: "here"}
		if len(here) > 0 {
			cfg.Here = here[0]
		}
		l := New(cfg)
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error)
		go func() { done <- l.Run(ctx) }()
		synctest.Wait()
		f(l, k, c)
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// forwards writes what a kernel forwards: service=endpoints.
func forwards(k *fake.Kernel) (out []string) {
	for _, s := range k.Services() {
		text := s.Name + "="
		for _, e := range s.Forwards[0].Near {
			text += e.Addr().String() + ","
		}
		out = append(out, text)
	}
	return out
}

func expect(t *testing.T, what string, k *fake.Kernel, want ...string) {
	t.Helper()
	synctest.Wait()
	time.Sleep(2 * pause)
	synctest.Wait()
	if got := forwards(k); !slices.Equal(got, want) {
		t.Errorf("%s: %q, want %q", what, got, want)
	}
}

// TestYields: where a kube-proxy runs on the board nobody else forwards, until it has gone.
func TestYields(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	p.put(discovery.EndpointSlices, slice("web-1", "web", "10.42.0.2"))
	var here atomic.Pointer[[]*corev1.Pod]
	here.Store(&[]*corev1.Pod{})
	rig(t, p, func(_ *Loop, k *fake.Kernel, _ *counted) {
		expect(t, "alone", k, "default/web=10.42.0.2,")
		proxy := &corev1.Pod{Spec: corev1.PodSpec{HostNetwork: true}, Status: corev1.PodStatus{Phase: corev1.PodRunning}}
		proxy.Namespace, proxy.Name, proxy.Labels = "kube-system", "kube-proxy-x", map[string]string{"k8s-app": "kube-proxy"}
		other := proxy.DeepCopy()
		other.Namespace = "default" // whoever may make pods there is not the cluster
		here.Store(&[]*corev1.Pod{other})
		time.Sleep(2 * grumble.Look)
		expect(t, "a pod that looks like it", k, "default/web=10.42.0.2,")
		here.Store(&[]*corev1.Pod{other, proxy})
		time.Sleep(2 * grumble.Look)
		expect(t, "kube-proxy runs", k)
		p.put(api.Services, svc("two", "10.96.0.2"))
		expect(t, "a Service comes", k)
		here.Store(&[]*corev1.Pod{other})
		time.Sleep(2 * grumble.Look)
		expect(t, "it has gone", k, "default/two=", "default/web=10.42.0.2,")
	}, func() []*corev1.Pod { return *here.Load() })
}

func TestFollows(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	p.put(discovery.EndpointSlices, slice("web-a", "web", "10.42.0.2"))
	p.put(discovery.EndpointSlices, slice("web-b", "web", "10.42.0.3"))
	rig(t, p, func(_ *Loop, k *fake.Kernel, c *counted) {
		expect(t, "what there was", k, "default/web=10.42.0.2,10.42.0.3,")
		if got := c.counts(); got != [3]int{0, 1, 0} {
			t.Errorf("updates, prunes, deletes: %v", got)
		}
		p.put(discovery.EndpointSlices, slice("web-b", "web"))
		expect(t, "an endpoint goes", k, "default/web=10.42.0.2,")
		p.put(api.Services, svc("other", "10.96.0.2"))
		expect(t, "a service comes", k, "default/other=", "default/web=10.42.0.2,")
		p.put(discovery.EndpointSlices, slice("web-a", "other", "10.42.0.2"))
		expect(t, "a slice passes to another", k, "default/other=10.42.0.2,", "default/web=")
		p.remove(discovery.EndpointSlices, slice("web-a", "other", "10.42.0.2"))
		expect(t, "a slice goes", k, "default/other=", "default/web=")
		headless := svc("web", "None")
		p.put(api.Services, headless)
		expect(t, "a service becomes headless", k, "default/other=")
		p.remove(api.Services, svc("other", "10.96.0.2"))
		expect(t, "the last goes", k)
		if got := c.counts(); got[1] != 1 {
			t.Errorf("%d prunes, each change is an update", got[1])
		}
	})
}

// TestOutage: while the control plane cannot be asked everything stays; then what changed meanwhile is done.
func TestOutage(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	p.put(discovery.EndpointSlices, slice("web-a", "web", "10.42.0.2"))
	rig(t, p, func(_ *Loop, k *fake.Kernel, _ *counted) {
		expect(t, "before", k, "default/web=10.42.0.2,")
		p.cut(true)
		time.Sleep(time.Hour)
		expect(t, "an hour later", k, "default/web=10.42.0.2,")
		p.put(discovery.EndpointSlices, slice("web-a", "web", "10.42.0.9"))
		p.remove(api.Services, svc("none", "10.96.0.7"))
		p.cut(false)
		time.Sleep(time.Minute)
		expect(t, "after", k, "default/web=10.42.0.9,")
	})
}

// TestStartWithoutControlPlane: what an earlier run left in the kernel stays until everything was heard.
func TestStartWithoutControlPlane(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	p.away = true
	rig(t, p, func(_ *Loop, k *fake.Kernel, c *counted) {
		time.Sleep(time.Hour)
		if got := c.counts(); got != [3]int{} {
			t.Errorf("updates, prunes, deletes before anything was heard: %v", got)
		}
		p.cut(false)
		time.Sleep(time.Minute)
		expect(t, "heard", k, "default/web=")
	})
}

// TestBurst: 200 changes a second are ten transactions a second, and the last one counts.
func TestBurst(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	rig(t, p, func(_ *Loop, k *fake.Kernel, c *counted) {
		expect(t, "before", k, "default/web=")
		for i := range 2000 {
			p.put(discovery.EndpointSlices, slice("web-a", "web", fmt.Sprintf("10.42.%d.%d", i/250, i%250)))
			time.Sleep(5 * time.Millisecond)
		}
		expect(t, "after", k, "default/web=10.42.7.249,")
		if got := c.counts()[0]; got < 50 || got > 110 {
			t.Errorf("%d transactions for 2,000 changes in 10 s", got)
		}
	})
}

// TestRetries: a failure is tried again with everything, less and less often.
func TestRetries(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	rig(t, p, func(_ *Loop, k *fake.Kernel, c *counted) {
		expect(t, "before", k, "default/web=")
		c.mu.Lock()
		c.broken = errors.New("no such device")
		c.mu.Unlock()
		p.put(api.Services, svc("web", "10.96.0.9"))
		time.Sleep(10 * time.Minute)
		if got := c.counts()[1]; got > 20 || got < 10 {
			t.Errorf("%d tries in ten minutes", got)
		}
		c.mu.Lock()
		c.broken = nil
		c.mu.Unlock()
		time.Sleep(time.Minute)
		expect(t, "after", k, "default/web=")
		if got := k.Services()[0].ClusterIPs[0].String(); got != "10.96.0.9" {
			t.Error("the change that failed is lost:", got)
		}
		before := c.counts()[1]
		time.Sleep(10 * grumble.Look)
		if got := c.counts()[1] - before; got != 10 {
			t.Errorf("%d looks at the kernel in ten minutes", got)
		}
	})
}

// TestZone: hints count by the zone that the board's Node is labelled with.
func TestZone(t *testing.T) {
	p := newPlane()
	p.put(api.Services, svc("web", "10.96.0.1"))
	s := slice("web-a", "web", "10.42.0.2", "10.42.0.3")
	for i, zone := range []string{"a", "b"} {
		s.Endpoints[i].Hints = &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: zone}}}
	}
	p.put(discovery.EndpointSlices, s)
	rig(t, p, func(l *Loop, k *fake.Kernel, _ *counted) {
		expect(t, "no zone", k, "default/web=10.42.0.2,10.42.0.3,")
		n := &corev1.Node{}
		n.Labels = map[string]string{corev1.LabelTopologyZone: "b"}
		l.Saw(n)
		expect(t, "zone b", k, "default/web=10.42.0.3,")
	})
}

// sparse has no objects until somebody says so.
type sparse struct {
	*plane
	begin func()
}

func (s *sparse) WhenAny(_ *api.Kind, do func()) bool {
	s.begin = do
	return true
}

// TestNoServices: a board without Services removes what is left of earlier ones, and asks nobody for anything.
func TestNoServices(t *testing.T) {
	p := &sparse{plane: newPlane()}
	rig(t, p, func(_ *Loop, k *fake.Kernel, c *counted) {
		time.Sleep(time.Hour)
		if got := c.counts(); got != [3]int{0, 0, 1} || len(p.lists) > 0 {
			t.Errorf("updates, prunes, deletes: %v, lists: %v", got, p.lists)
		}
		out := svc("web", "")
		out.Spec.Type, out.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.com"
		p.put(api.Services, out)
		p.begin()
		synctest.Wait()
		if p.lists[discovery.EndpointSlices] > 0 {
			t.Error("slices are followed though no Service has any")
		}
		p.put(api.Services, svc("web", "10.96.0.1"))
		expect(t, "the first", k, "default/web=")
	})
}

// Where another board's pods have addresses of this board's, nobody is led to them from here; once the board has a network of its own
// they are reached.
func TestSharedPodNetwork(t *testing.T) {
	p, far := newPlane(), "there"
	s := slice("web-a", "web", "10.42.0.2", "10.42.0.3")
	s.Endpoints[0].NodeName = &far
	rig(t, p, func(l *Loop, k *fake.Kernel, _ *counted) {
		pods := netip.MustParsePrefix("10.42.0.0/24")
		l.mu.Lock() // plans are made under it
		l.cfg.Pods = func() []netip.Prefix { return []netip.Prefix{pods} }
		l.mu.Unlock()
		p.put(api.Services, svc("web", "10.96.0.1"))
		p.put(discovery.EndpointSlices, s)
		expect(t, "one network for all boards", k, "default/web=10.42.0.3,")
		l.mu.Lock()
		pods = netip.MustParsePrefix("10.42.1.0/24")
		l.mu.Unlock()
		time.Sleep(grumble.Look)
		expect(t, "networks of their own", k, "default/web=10.42.0.2,10.42.0.3,")
	})
}
