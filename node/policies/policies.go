// Package policies has a board hold the network policies of its cluster: it follows them, and of the pods of other boards those that
// policies of its own pods name, and tells a network.Fencer what is other than before.
//
//	a pod is to be connected -> Guard: its policies are in the kernel, or it is not connected
//	something has changed    -> all pods of this board are fenced anew; what is right already is not written
//
// What holds stays in the kernel when this process ends, and while the control plane cannot be asked: nothing is taken back before
// everything has been heard. Where there is no policy, nothing is followed, and there is no table.
package policies

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/networking"
	"ledge/internal/grumble"
	"ledge/network"
	"ledge/network/policy"
)

// Config is what a Loop needs.
type Config struct {
	Client api.Client
	Fencer network.Fencer
	// Pods are those of this board, with what is known of them now.
	Pods func() []*corev1.Pod
	// Where are the networks of the pods of a board; false: nobody has said where any board's are. nil: nobody ever does.
	Where func(node string) ([]netip.Prefix, bool)
}

// Loop is the one of a board.
type Loop struct {
	cfg    Config
	wake   chan struct{} // capacity 1
	around *followers

	mu       sync.Mutex
	none     bool      // it is known that there is no policy
	handed   bool      // all pods of this board are known
	late     bool      // policies were not heard by now, and are not waited for
	partial  time.Time // since when something that is wanted is not heard
	refused  time.Time // since when the control plane has said no, and nothing else
	policies map[types.NamespacedName]*networkingv1.NetworkPolicy
	shut     map[string]bool              // namespaces with more policies than are kept
	spaces   map[string]map[string]string // labels of namespaces
	peers    map[string]map[types.NamespacedName]peer
	addrs    map[types.UID][]netip.Addr // of pods that were connected by this process
	heard    map[string]bool            // whole, once: see the words below
	known    chan struct{}              // closed when pods may be connected
	full     bool                       // told that there is too much
	trouble  error                      // of the last try
}

// The words of heard, beside the namespaces whose pods are followed.
const heardPolicies, heardSpaces = " policies", " namespaces"

// New prepares a Loop; Run works.
func New(cfg Config) *Loop {
	l := &Loop{cfg: cfg, wake: make(chan struct{}, 1), known: make(chan struct{}),
		policies: map[types.NamespacedName]*networkingv1.NetworkPolicy{}, shut: map[string]bool{}, spaces: map[string]map[string]string{},
		peers: map[string]map[types.NamespacedName]peer{}, addrs: map[types.UID][]netip.Addr{}, heard: map[string]bool{}}
	l.around = newFollowers(l)
	return l
}

func (l *Loop) poke() {
	select {
	case l.wake <- struct{}{}:
	default:
	}
}

// Moved says that the networks of boards are others than before.
func (l *Loop) Moved() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.none {
		l.poke()
	}
}

// Handed says that all pods of this board are known, or that some of them have changed.
func (l *Loop) Handed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.handed = true
	if !l.none {
		l.poke()
	}
}

const (
	// silence is how long pods wait to be told of policies by a control plane that says nothing. Then they are connected, and shut. So
	// long, too, policies wait for the pods that they name.
	silence = 30 * time.Second
	// pause between transactions: what changes meanwhile comes together in the next.
	pause = 50 * time.Millisecond
)

// Run works until ctx ends. Where it is known that there is no policy it waits for the first, and costs nothing.
func (l *Loop) Run(ctx context.Context) error {
	if !l.awaitFirst(ctx) {
		return nil
	}
	defer time.AfterFunc(silence, l.giveUp).Stop()
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		return l.follow(ctx, networking.NetworkPolicies, api.Selection{}, l.replacePolicies, l.applyPolicy)
	})
	g.Go(func() error { return l.around.run(ctx) })
	g.Go(func() error { return l.hold(ctx) })
	return g.Wait()
}

// awaitFirst removes what an earlier run may have left, when there are no policies (any more), and waits for one.
func (l *Loop) awaitFirst(ctx context.Context) bool {
	sparse, ok := l.cfg.Client.(api.Sparse)
	if !ok {
		return true
	}
	begin := make(chan struct{})
	l.mu.Lock()
	l.none = true
	l.mu.Unlock()
	some := !sparse.WhenAny(networking.NetworkPolicies, func() {
		l.mu.Lock()
		l.none = false
		l.mu.Unlock()
		close(begin)
	})
	if some {
		l.mu.Lock()
		l.none = false
		l.mu.Unlock()
		return true
	}
	if err := l.cfg.Fencer.Delete(ctx); err != nil && ctx.Err() == nil {
		slog.Warn("cannot remove the rules of network policies that are gone", "err", err)
	}
	l.mu.Lock()
	once(l.known)
	l.mu.Unlock()
	select {
	case <-ctx.Done():
		return false
	case <-begin:
		return true
	}
}

// Known waits until pods may be connected: policies were heard, or nobody has said anything for as long as silence.
func (l *Loop) Known(ctx context.Context) error {
	for {
		l.mu.Lock()
		ready := l.none || l.heard[heardPolicies] || l.late
		known := l.known
		l.mu.Unlock()
		if ready {
			return nil
		}
		select {
		case <-known:
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second): // the first policy came meanwhile
		}
	}
}

// giveUp connects pods whose policies did not arrive: shut for all but their board.
func (l *Loop) giveUp() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.heard[heardPolicies] || l.none {
		return
	}
	l.late = true
	slog.Warn("the control plane has not told what network policies there are; until it does, pods that start now talk to nobody but this board",
		"after", silence)
	once(l.known)
}

// Guard implements what network.Guarded asks: the policies of a pod hold when it returns nil.
func (l *Loop) Guard(ctx context.Context, pod network.Pod, addrs []netip.Addr) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	uid := types.UID(pod.UID)
	l.addrs[uid] = addrs
	if l.none {
		return nil
	}
	l.poke()
	own, is := policy.Pod{Namespace: pod.Namespace, Name: pod.Name, Addrs: addrs}, false
	for _, p := range l.cfg.Pods() {
		if p.UID == uid {
			own.Labels, own.Ports, is = p.Labels, portsOf(p), true
		}
	}
	var fence network.Fence
	if is && l.heard[heardPolicies] && !l.shut[pod.Namespace] {
		fence = policy.NewCompiler(l.world(l.own())).Fence([]policy.Pod{own})
	} else {
		fence = policy.Closed([]policy.Pod{own})
	}
	return l.cfg.Fencer.Add(ctx, addrs, fence)
}

// own are the pods of this board that have addresses of their own. What is connected tells more surely than what was reported.
func (l *Loop) own() (out []policy.Pod) {
	here := map[types.UID]bool{}
	for _, p := range l.cfg.Pods() {
		here[p.UID] = true
		kept, ok := Trim(p)
		if a := l.addrs[p.UID]; len(a) > 0 && !p.Spec.HostNetwork {
			kept.Addrs, ok = a, true
		}
		if ok {
			out = append(out, kept)
		}
	}
	maps.DeleteFunc(l.addrs, func(uid types.UID, _ []netip.Addr) bool { return l.handed && !here[uid] })
	return out
}

// world is all that is known.
func (l *Loop) world(own []policy.Pod) policy.World {
	w := policy.World{Namespaces: l.spaces, Pods: own}
	for _, p := range l.policies {
		w.Policies = append(w.Policies, p)
	}
	mine := map[types.NamespacedName]bool{}
	for _, p := range own {
		mine[types.NamespacedName{Namespace: p.Namespace, Name: p.Name}] = true
	}
	for _, of := range l.peers {
		for name, p := range of {
			if known := l.placed(p); !mine[name] && len(known.Addrs) > 0 {
				w.Pods = append(w.Pods, known)
			}
		}
	}
	return w
}

// hold has the kernel follow what is heard.
func (l *Loop) hold(ctx context.Context) error {
	return grumble.Keep(ctx, l.wake, pause, "cannot hold network policies; trying again",
		func(ctx context.Context, _ bool) error { return l.sync(ctx) })
}

// sync fences the pods of this board. Until everything was heard it takes nothing from those that are let in: what holds may be more than
// is known. It waits a while for that, and then adds what it knows, such as a new pod of this board.
func (l *Loop) sync(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.handed || !l.heard[heardPolicies] {
		return nil
	}
	own := l.own()
	complete := l.around.want(l.scopes(own))
	switch {
	case complete:
		l.partial = time.Time{}
	case l.partial.IsZero():
		l.partial = time.Now()
		time.AfterFunc(silence, l.poke)
		return nil
	case time.Since(l.partial) < silence:
		return nil
	}
	var open, closed []policy.Pod
	for _, p := range own {
		if l.shut[p.Namespace] {
			closed = append(closed, p)
		} else {
			open = append(open, p)
		}
	}
	c := policy.NewCompiler(l.world(own))
	fence := c.Fence(open)
	if len(closed) > 0 {
		more := policy.Closed(closed)
		maps.Copy(fence.In, more.In)
		maps.Copy(fence.Out, more.Out)
		maps.Copy(fence.Chains, more.Chains)
	}
	l.room(c.Short())
	if complete {
		l.trouble = l.cfg.Fencer.Prune(ctx, fence)
	} else {
		l.trouble = l.cfg.Fencer.Merge(ctx, l.sure(own), fence)
	}
	return l.trouble
}

// sure are the addresses of this board's pods; true: what leads from it is known although pods of other boards are not. What a port's name
// means only these tell.
func (l *Loop) sure(own []policy.Pod) map[netip.Addr]bool {
	out := map[netip.Addr]bool{}
	for _, p := range own {
		named := false
		for _, of := range l.policies {
			sel, err := metav1.LabelSelectorAsSelector(&of.Spec.PodSelector)
			named = named || err == nil && of.Namespace == p.Namespace && sel.Matches(labels.Set(p.Labels)) &&
				slices.ContainsFunc(of.Spec.Egress, func(r networkingv1.NetworkPolicyEgressRule) bool { return byName(r.Ports) })
		}
		for _, a := range p.Addrs {
			out[a] = !named
		}
	}
	return out
}

// room says once that there is more than a board holds.
func (l *Loop) room(short bool) {
	if short && !l.full {
		l.full = true
		slog.Warn("network policies name more pods, addresses or ports than a board holds; connections of the rest are dropped")
	}
}

// Held is the condition NetworkPolicyTrouble of the Node; without trouble there is none.
func (l *Loop) Held() corev1.NodeCondition {
	c := corev1.NodeCondition{Type: "NetworkPolicyTrouble"}
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case l.trouble != nil && !errors.Is(l.trouble, context.Canceled):
		c.Status, c.Reason = corev1.ConditionTrue, "NotInTheKernel"
		c.Message = fmt.Sprintf("network policies may not hold: %v; 'ledge doctor' tries what the kernel needs for them", l.trouble)
	case l.late && !l.none && !l.heard[heardPolicies]:
		c.Status, c.Reason = corev1.ConditionTrue, "NotHeard"
		c.Message = "the control plane has not told what network policies there are: pods that started since talk to nobody but this board"
	}
	return c
}

// once closes a channel that may be closed.
func once(ch chan struct{}) {
	select {
	case <-ch:
	default:
		close(ch)
	}
}

var anybody = metav1.LabelSelector{}
