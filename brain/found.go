package brain

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/board"
	"ledge/host"
	"ledge/internal/grumble"
	"ledge/network/mdns"
)

// foundRetry is how long another program may take to let go of the port, or to be there again.
const foundRetry = 30 * time.Second

// found has this board found on its own networks (decision 128).
type found struct {
	b        *Brain
	changed  chan struct{} // capacity 1
	services *api.View[*corev1.Service]
	trouble  grumble.Once
	said     map[types.UID]string // why a Service has no name

	mu      sync.Mutex
	state   string // of the Node
	aliases []mdns.Alias
	told    board.Found
}

func openFound(b *Brain) *found {
	if !b.MDNS || b.rims.Found.Serve == nil {
		return nil
	}
	f := &found{b: b, changed: make(chan struct{}, 1), state: "Unknown", said: map[types.UID]string{}}
	if b.plane != nil { // of many boards of a fleet one answers for a Service: else each would take it for the others'
		f.services = api.NewView[*corev1.Service](b.client, api.Services, api.Selection{})
	}
	return f
}

// Run has the board found until ctx ends.
func (f *found) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		for ctx.Err() == nil {
			if err := host.WatchAddresses(ctx, f.poke); err != nil { // a name that leads to an old address for a while
				slog.Debug("changes of addresses are not heard of", "err", err)
				pauseFor(ctx, foundRetry)
			}
		}
		return nil
	})
	if f.services != nil {
		g.Go(func() error { return f.services.Run(ctx) })
		g.Go(func() error { return f.follow(ctx) })
	}
	g.Go(func() error {
		for ctx.Err() == nil {
			err := f.serve(ctx)
			if ctx.Err() != nil {
				return nil
			}
			f.trouble.About("the board is not found by name; trying again", err)
			f.mu.Lock()
			f.told.Names = nil
			if err != nil {
				f.told.Trouble = err.Error()
			}
			f.mu.Unlock()
			pauseFor(ctx, foundRetry)
		}
		return nil
	})
	return g.Wait()
}

func pauseFor(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}

// serve answers, or has the one announce the board who answers for this machine already.
func (f *found) serve(ctx context.Context) error {
	cfg := mdns.Config{Links: f.links, Wanted: f.wanted, Changed: f.changed, Told: f.tell}
	have := host.HoldersOfUDP(f.b.rims.Host, mdns.Port)
	other := ""
	for _, program := range []string{mdns.Resolved, mdns.Avahi} {
		if slices.Contains(have, program) {
			other = program
		}
	}
	f.mu.Lock()
	f.told = board.Found{By: other}
	f.mu.Unlock()
	if other != "" {
		return f.b.rims.Found.Beside(ctx, other, cfg)
	}
	err := f.b.rims.Found.Serve(ctx, cfg)
	if err != nil && len(have) > 0 {
		return fmt.Errorf("%w (it is held by %s)", err, strings.Join(have, ", "))
	}
	return err
}

// poke says that something may be other than before.
func (f *found) poke() {
	select {
	case f.changed <- struct{}{}:
	default:
	}
}

func (f *found) links() (out []mdns.Link, err error) {
	list, err := host.Outside(f.b.rims.Host)
	for _, i := range list {
		if i.Name != f.b.Bridge {
			out = append(out, mdns.Link{Index: i.Index, Addresses: i.Addresses})
		}
	}
	return out, err
}

// label is the board's name without a domain.
func (f *found) label() string {
	label, _, _ := strings.Cut(f.b.Name, ".")
	return label
}

func (f *found) wanted() mdns.Wanted {
	f.mu.Lock()
	defer f.mu.Unlock()
	return mdns.Wanted{Label: f.label(), Port: f.port(), Page: f.page(), Version: f.b.Build.Version, State: f.state, Aliases: f.aliases}
}

// port is where people reach the API; 0: nowhere, for it is on loopback, or on another board.
func (f *found) port() uint16 {
	if f.b.plane == nil || f.b.plane.listener == nil {
		return 0
	}
	at, ok := f.b.plane.listener.Addr().(*net.TCPAddr)
	if !ok || at.IP.IsLoopback() {
		return 0
	}
	return uint16(at.Port)
}

// page is the same of the page.
func (f *found) page() uint16 {
	if f.b.plane == nil {
		return 0
	}
	return f.b.plane.page.port()
}

// shown also looks at what the Node says of itself.
func (f *found) shown(next func(*corev1.Node) bool) func(*corev1.Node) bool {
	if f == nil {
		return next
	}
	return func(n *corev1.Node) bool {
		state := stateOf(n)
		f.mu.Lock()
		other := state != f.state
		f.state = state
		f.mu.Unlock()
		if other {
			f.poke()
		}
		return next != nil && next(n)
	}
}

// stateOf is what 'kubectl get nodes' shows.
func stateOf(n *corev1.Node) string {
	state := "NotReady"
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			state = "Ready"
		}
	}
	if n.Spec.Unschedulable {
		state += ",SchedulingDisabled"
	}
	return state
}

// follow gives Services the names that they ask for.
func (f *found) follow(ctx context.Context) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.services.Changed():
		}
		list, refused := mdns.Aliases(f.services.List(), f.label())
		now := map[types.UID]string{}
		for s, why := range refused {
			if now[s.UID] = why; f.said[s.UID] != why {
				ref := corev1.ObjectReference{APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID}
				f.b.events.EventOn(ref, corev1.EventTypeWarning, "NoName", "The annotation "+mdns.Annotation+" has no effect: "+why)
			}
		}
		f.said = now
		f.mu.Lock()
		f.aliases = list
		f.mu.Unlock()
		f.poke()
	}
}

// tell notes the names that the board has.
func (f *found) tell(labels []string) {
	var names []string
	for _, l := range labels {
		names = append(names, l+".local")
	}
	f.trouble.About("", nil)
	f.mu.Lock()
	was := f.told.Names
	f.told.Names, f.told.Trouble = names, ""
	if f.told.By == mdns.Resolved && len(f.aliases) > 0 {
		f.told.Trouble = "systemd-resolved has the port, and cannot announce the names of Services: set MulticastDNS=no for it (/etc/systemd/resolved.conf), and ledge does"
	}
	by := f.told.By
	f.mu.Unlock()
	if len(was) == 0 || was[0] != names[0] {
		slog.Info("the board is found by name", "name", names[0], "by", by)
	}
	wanted := f.wanted()
	if labels[0] != wanted.Label && (len(was) == 0 || was[0] != names[0]) {
		slog.Warn("another machine on this network has the board's name", "name", wanted.Label+".local", "instead", names[0])
	}
}

// report is how the board is found; nil: it is not meant to be.
func (f *found) report() *board.Found {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	out := f.told
	return &out
}
