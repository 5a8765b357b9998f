package plugins

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"ledge/internal/durable"
	"ledge/internal/grumble"
	"ledge/node/devices"
	"ledge/node/grpc"
)

// Config is what Plugins need.
type Config struct {
	Dir   string // where plugins look for kubelet.sock, and have their own sockets; empty: none is served
	File  string // who has what, for the next start
	Agent string // what ledge calls itself
	// Judge says why a device of these numbers is handed out to nobody. May be nil.
	Judge func(major, minor uint32) error
}

// Rim joins Plugins with who gives their devices to pods.
type Rim struct {
	Changed func()                // devices have come or gone
	Lives   func(pod string) bool // by UID
	Boot    func() string         // names the run of the kernel
}

// How long a plugin may take. A kubelet waits for Allocate for ever.
const (
	handshakeWithin = 10 * time.Second
	allocateWithin  = time.Minute
	preStartWithin  = 30 * time.Second

	pace = 200 * time.Millisecond // between two lists of one plugin
)

// mostPlugins is how many resources a board counts by plugins.
const mostPlugins = 32

// endpoint is a plugin that has registered.
type endpoint struct {
	options
	client *grpc.Client
	stop   context.CancelFunc
}

// Plugins are the device plugins of a board. A nil one has none.
type Plugins struct {
	cfg   Config
	rim   Rim
	began time.Time
	tasks sync.WaitGroup

	mu      sync.Mutex
	book    Book
	ends    map[string]*endpoint // by resource
	ended   bool
	unsaved bool            // the book as it is does not outlive a power cut yet
	noted   map[string]bool // resources whose plugin hands out annotations
	serving grumble.Once
}

// kept is the file.
type kept struct {
	Resources []string `json:"resources"`
	Gifts     []Gift   `json:"gifts"`
}

// New reads what was given before. Resources that it finds have no plugin yet.
func New(cfg Config) *Plugins {
	p := &Plugins{cfg: cfg, began: time.Now(), ends: map[string]*endpoint{}, noted: map[string]bool{},
		book: Book{Sources: map[string]Source{}},
		rim:  Rim{Changed: func() {}, Lives: func(string) bool { return true }, Boot: func() string { return "" }}}
	var k kept
	data, err := os.ReadFile(cfg.File)
	if err == nil {
		err = json.Unmarshal(data, &k)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		slog.Warn("what device plugins gave to pods cannot be read; they are asked anew", "file", cfg.File, "err", err)
		k = kept{}
	}
	for _, name := range k.Resources {
		p.book.Sources[name] = Source{Gone: p.began}
	}
	p.book.Gifts = k.Gifts
	return p
}

// Serve joins them with who gives their devices. Before Run.
func (p *Plugins) Serve(r Rim) {
	if p != nil {
		p.rim = r
	}
}

// young is how long plugins may take to register anew after a start.
const young = time.Minute

// Young says whether plugins may be about to register that were there before.
func (p *Plugins) Young() bool { return p != nil && time.Since(p.began) < young }

// Counts are what the Node says, by resource.
func (p *Plugins) Counts() map[string]devices.Count {
	if p == nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.book.Counts(time.Now())
}

// save is called with the lock.
func (p *Plugins) save() error {
	data, err := json.Marshal(kept{slices.Sorted(maps.Keys(p.book.Sources)), p.book.Gifts})
	if err == nil {
		err = durable.Replace(p.cfg.File, data, 0o600)
	}
	if p.unsaved = err != nil; err != nil {
		return fmt.Errorf("what device plugins give cannot be kept for the next start: %w", err)
	}
	return nil
}

// Give gives a container what it asks for, by resource. Resources without a plugin, now or before, are not among the gifts: they are only
// counted. A container that begins again, in the same run of the kernel, has what it had, also when the plugin has gone meanwhile.
func (p *Plugins) Give(ctx context.Context, a Ask, want map[string]int) (list []Gift, err error) {
	if p == nil {
		return nil, nil
	}
	for _, resource := range slices.Sorted(maps.Keys(want)) {
		g, known, err := p.give(ctx, a, resource, want[resource])
		switch {
		case err != nil:
			return nil, err
		case known:
			list = append(list, g)
		}
	}
	return list, nil
}

func (p *Plugins) give(ctx context.Context, a Ask, resource string, n int) (g Gift, known bool, err error) {
	preferred := p.prefers(ctx, a, resource, n)
	g, e, known, err := p.reserve(a, resource, n, preferred)
	if err != nil || !known {
		return g, known, err
	}
	if g.Boot == "" || g.Boot != p.rim.Boot() {
		answer, err := p.allocate(ctx, e, g)
		if g, err = p.settle(g, e, answer, err); err != nil {
			return g, true, err
		}
	}
	if !g.PreStart {
		return g, true, nil
	}
	if e == nil {
		return g, true, fmt.Errorf("it waits for the device plugin of %s, which is to prepare its devices and is not there", resource)
	}
	ctx, cancel := context.WithTimeout(ctx, preStartWithin)
	defer cancel()
	if _, err := e.client.Call(ctx, plugin+"PreStartContainer", idsMessage(g.IDs)); err != nil {
		return g, true, fmt.Errorf("PreStartContainer of the device plugin of %s: %w", resource, err)
	}
	return g, true, nil
}

// prefers asks the plugin which devices it would give, if it wants to be asked. Its word is no more than that.
func (p *Plugins) prefers(ctx context.Context, a Ask, resource string, n int) []string {
	p.mu.Lock()
	e := p.ends[resource]
	book := p.book.Prune(p.rim.Lives)
	p.mu.Unlock()
	if e == nil || !e.preferred || book.find(a, resource) >= 0 {
		return nil
	}
	free, first := book.free(a, resource)
	if len(free) <= n {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, handshakeWithin)
	defer cancel()
	answer, err := e.client.Call(ctx, plugin+"GetPreferredAllocation", preferredRequest(free, first[:min(n, len(first))], n))
	if err == nil {
		var ids []string
		if ids, err = parsePreferred(answer); err == nil {
			return ids
		}
	}
	slog.Warn("a device plugin does not say which devices it prefers; any are given", "resource", resource, "err", err)
	return nil
}

// reserve has nobody else get what a container is about to get.
func (p *Plugins) reserve(a Ask, resource string, n int, preferred []string) (g Gift, e *endpoint, known bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, known = p.book.Sources[resource]; !known {
		return g, nil, false, nil
	}
	p.book, e = p.book.Prune(p.rim.Lives), p.ends[resource]
	i := p.book.find(a, resource)
	if i < 0 {
		if g, err = p.book.Give(a, resource, n, preferred); err == nil {
			p.book.Gifts = append(p.book.Gifts, g)
		}
		return g, e, true, err
	}
	g = p.book.Gifts[i]
	switch {
	case len(g.IDs) != n:
		err = fmt.Errorf("container %q changed request for resource %q from %d to %d", a.Container, resource, len(g.IDs), n)
	case g.Boot == "" || g.Boot != p.rim.Boot():
		err = p.book.Again(g)
	case p.unsaved:
		err = p.save()
	}
	return g, e, true, err
}

func (p *Plugins) allocate(ctx context.Context, e *endpoint, g Gift) (Answer, error) {
	if e == nil {
		return Answer{}, fmt.Errorf("the device plugin of %s has just gone", g.Resource)
	}
	ctx, cancel := context.WithTimeout(ctx, allocateWithin)
	defer cancel()
	b, err := e.client.Call(ctx, plugin+"Allocate", allocateRequest(g.IDs))
	if err != nil {
		return Answer{}, fmt.Errorf("ask the device plugin of %s to allocate: %w", g.Resource, err)
	}
	answer, noted, err := parseAnswer(b)
	if err != nil {
		return Answer{}, fmt.Errorf("the device plugin of %s: %w", g.Resource, err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if noted && !p.noted[g.Resource] {
		p.noted[g.Resource] = true
		slog.Warn("a device plugin hands out annotations for the hooks of a container runtime, of which ledge has none", "resource", g.Resource)
	}
	return answer, nil
}

// settle writes down what a plugin has answered, or that it has not.
func (p *Plugins) settle(g Gift, e *endpoint, answer Answer, err error) (Gift, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	i := p.book.find(Ask{Pod: g.Pod, Container: g.Container}, g.Resource)
	switch {
	case i < 0 && err == nil:
		return g, errors.New("its pod has gone")
	case i < 0:
		return g, err
	case err != nil && g.Boot == "":
		p.book.Gifts = slices.Delete(slices.Clone(p.book.Gifts), i, i+1)
		return g, err
	case err != nil:
		return g, err
	}
	g.Answer, g.Boot, g.PreStart = answer, p.rim.Boot(), e.preStart
	p.book.Gifts = slices.Clone(p.book.Gifts)
	p.book.Gifts[i] = g
	return g, p.save()
}

// update takes in what a plugin has; false: another has taken its place.
func (p *Plugins) update(resource string, e *endpoint, list map[string]bool) bool {
	p.mu.Lock()
	ours := p.ends[resource] == e
	same := maps.Equal(list, p.book.Sources[resource].Devices)
	if ours {
		p.setSource(resource, Source{Devices: list})
	}
	p.mu.Unlock()
	if ours && !same {
		p.rim.Changed()
	}
	return ours
}

// setSource leaves copies of the book as they are. It is called with the lock.
func (p *Plugins) setSource(resource string, s Source) {
	p.book.Sources = maps.Clone(p.book.Sources)
	p.book.Sources[resource] = s
}

// unhealthy is a list with no healthy device in it.
func unhealthy(list map[string]bool) map[string]bool {
	out := make(map[string]bool, len(list))
	for id := range list {
		out[id] = false
	}
	return out
}

// gone has a plugin's devices be given to nobody any more.
func (p *Plugins) gone(resource string, e *endpoint, err error) {
	p.mu.Lock()
	ours := p.ends[resource] == e
	if ours {
		delete(p.ends, resource)
		p.setSource(resource, Source{Devices: unhealthy(p.book.Sources[resource].Devices), Gone: time.Now()})
	}
	p.mu.Unlock()
	if ours {
		slog.Warn("a device plugin has gone", "resource", resource, "err", err)
		p.rim.Changed()
	}
}

// add takes a plugin in place of the one that the resource had.
func (p *Plugins) add(ctx context.Context, resource string, e *endpoint) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, known := p.book.Sources[resource]
	if !known && len(p.book.Sources) >= mostPlugins && !p.forget() {
		return grpc.Error{Code: grpc.ResourceExhausted, Message: fmt.Sprintf("%d resources have plugins here, no more are counted", mostPlugins)}
	}
	if p.ended {
		return errors.New("ledge is about to end")
	}
	if old := p.ends[resource]; old != nil {
		old.stop()
	}
	ctx, e.stop = context.WithCancel(ctx)
	p.ends[resource] = e
	p.setSource(resource, Source{Devices: unhealthy(p.book.Sources[resource].Devices)})
	if !known {
		if err := p.save(); err != nil {
			slog.Warn(err.Error(), "file", p.cfg.File) // tried again with the first gift
		}
	}
	p.tasks.Go(func() {
		defer e.client.Close()
		defer e.stop()
		p.gone(resource, e, p.watch(ctx, resource, e))
	})
	return nil
}

// forget makes room for another resource: one without plugin and without pods goes. It is called with the lock.
func (p *Plugins) forget() bool {
	p.book = p.book.Prune(p.rim.Lives)
	for name, s := range p.book.Sources {
		if !s.Gone.IsZero() && !slices.ContainsFunc(p.book.Gifts, func(g Gift) bool { return g.Resource == name }) {
			p.book.Sources = maps.Clone(p.book.Sources)
			delete(p.book.Sources, name)
			return true
		}
	}
	return false
}

// watch follows a plugin's list until the plugin or ctx ends. Lists that come faster than they are of use wait in its socket.
func (p *Plugins) watch(ctx context.Context, resource string, e *endpoint) error {
	err := e.client.Watch(ctx, plugin+"ListAndWatch", nil, func(m []byte) error {
		list, err := parseDevices(m)
		switch {
		case err != nil:
			return fmt.Errorf("its list of devices: %w", err)
		case !p.update(resource, e, list):
			return errors.New("another has taken its place")
		}
		select {
		case <-ctx.Done():
		case <-time.After(pace):
		}
		return nil
	})
	if err == nil {
		err = errors.New("it has ended its list of devices")
	}
	return err
}
