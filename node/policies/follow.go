package policies

import (
	"context"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/networking"
	"ledge/network/policy"
)

const (
	// mostPolicies and mostPeers are what a board keeps. Where there are more policies their namespaces are shut; more pods are let nowhere.
	mostPolicies, mostPeers = 5_000, 20_000
	// mostScopes are the namespaces whose pods are followed one by one; where more are named, all are followed.
	mostScopes = 8
	// unknown is how long a control plane that has no such objects, or shows them to no board, is left alone.
	unknown = time.Minute
	// sureNo is how long a control plane has to say no until it is believed: one that starts says so, too.
	sureNo = 3 * time.Second
)

// Trim keeps of a pod what policies go by; false: it has no address of its own, or has ended.
func Trim(p *corev1.Pod) (policy.Pod, bool) {
	if p.Spec.HostNetwork || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		return policy.Pod{}, false
	}
	out := policy.Pod{Namespace: p.Namespace, Name: p.Name, Labels: p.Labels, Ports: portsOf(p)}
	for _, ip := range p.Status.PodIPs[:min(len(p.Status.PodIPs), 2)] {
		a, err := netip.ParseAddr(ip.IP)
		if err == nil && !a.Is4In6() && a.Zone() == "" && !a.IsUnspecified() && !a.IsLoopback() && !a.IsMulticast() {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out, len(out.Addrs) > 0
}

// peer is a pod of another board, and which.
type peer struct {
	policy.Pod
	node string
}

// placed leaves a pod of another board the addresses that are that board's to give: what a board says of its pods may be a lie.
func (l *Loop) placed(p peer) policy.Pod {
	if l.cfg.Where == nil {
		return p.Pod
	}
	where, told := l.cfg.Where(p.node)
	if !told {
		return p.Pod
	}
	out := p.Pod
	out.Addrs = nil
	for _, a := range p.Addrs {
		if slices.ContainsFunc(where, func(n netip.Prefix) bool { return n.Contains(a) }) {
			out.Addrs = append(out.Addrs, a)
		}
	}
	return out
}

func portsOf(p *corev1.Pod) (out []policy.Port) {
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for _, c := range list {
			for _, port := range c.Ports {
				if port.Name != "" && port.ContainerPort > 0 && port.ContainerPort <= 65535 {
					protocol := string(port.Protocol)
					if protocol == "" {
						protocol = string(corev1.ProtocolTCP)
					}
					out = append(out, policy.Port{Name: port.Name, Protocol: protocol, Number: uint16(port.ContainerPort)})
				}
			}
		}
	}
	return out
}

func (l *Loop) follow(ctx context.Context, kind *api.Kind, sel api.Selection, all func([]api.Object), one func(api.Event)) error {
	return api.Follower{Client: asked{l.cfg.Client, l}, Kind: kind, Selection: sel, All: all, Unknown: unknown, One: func(e api.Event) {
		if e.Type != api.Bookmark {
			one(e)
		}
	}}.Run(ctx)
}

// asked notices a control plane that has no policies for boards: another Kubernetes, whose own network holds them.
type asked struct {
	api.Client
	l *Loop
}

func (a asked) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	out, err := a.Client.List(ctx, kind, opts)
	if kind == networking.NetworkPolicies && a.l.notTold(err) || kind != networking.NetworkPolicies && apierrors.IsForbidden(err) {
		return out, apierrors.NewNotFound(kind.GR(), "") // asked again after unknown
	}
	return out, err
}

// notTold: the control plane has no policies, or has shown them to nobody here for a while. Then pods are connected as if there were none.
// What holds already stays.
func (l *Loop) notTold(err error) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case apierrors.IsNotFound(err):
	case !apierrors.IsForbidden(err):
		l.refused = time.Time{}
		return false
	case l.refused.IsZero():
		l.refused = time.Now()
		return false
	case time.Since(l.refused) < sureNo:
		return false
	}
	if !l.heard[heardPolicies] && !l.none {
		l.none = true
		once(l.known)
		slog.Warn("the control plane tells this board of no network policies: ledge holds none here", "err", err)
	}
	return true
}

func (l *Loop) replacePolicies(list []api.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.policies)
	clear(l.shut)
	for _, o := range list {
		l.put(o)
	}
	l.heard[heardPolicies], l.none = true, false
	once(l.known)
	l.poke()
}

func (l *Loop) applyPolicy(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Type == api.Deleted {
		delete(l.policies, api.Key(e.Object))
	} else {
		l.put(e.Object)
	}
	l.poke()
}

func (l *Loop) put(o api.Object) {
	p, ok := o.(*networkingv1.NetworkPolicy)
	if !ok {
		return
	}
	name := api.Key(o)
	if _, had := l.policies[name]; !had && len(l.policies) >= mostPolicies {
		if !l.shut[p.Namespace] {
			slog.Error("there are more network policies than a board keeps; pods of this namespace talk to nobody but their board",
				"most", mostPolicies, "namespace", p.Namespace)
		}
		l.shut[p.Namespace] = true
		return
	}
	l.policies[name] = &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name}, Spec: p.Spec}
}

func byName(ports []networkingv1.NetworkPolicyPort) bool {
	return slices.ContainsFunc(ports, func(x networkingv1.NetworkPolicyPort) bool { return x.Port != nil && x.Port.StrVal != "" })
}

// scopes are the namespaces whose pods the policies of this board's pods name; "" is all. spaces: they name namespaces by labels.
func (l *Loop) scopes(own []policy.Pod) (out map[string]bool, spaces bool) {
	out = map[string]bool{}
	add := func(p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, named bool) {
		if len(peers) == 0 && named { // a port by its name, of anybody
			peers = []networkingv1.NetworkPolicyPeer{{NamespaceSelector: &anybody}}
		}
		for _, x := range peers {
			switch {
			case x.IPBlock != nil:
			case x.NamespaceSelector == nil:
				out[p.Namespace] = true
			default:
				spaces = true
				sel, err := metav1.LabelSelectorAsSelector(x.NamespaceSelector)
				for name, of := range l.spaces {
					if err == nil && sel.Matches(labels.Set(of)) {
						out[name] = true
					}
				}
			}
		}
	}
	for _, p := range l.policies {
		sel, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector)
		selects := func(x policy.Pod) bool { return x.Namespace == p.Namespace && sel.Matches(labels.Set(x.Labels)) }
		if err != nil || !slices.ContainsFunc(own, selects) {
			continue
		}
		for _, r := range p.Spec.Ingress {
			add(p, r.From, false)
		}
		for _, r := range p.Spec.Egress {
			add(p, r.To, byName(r.Ports))
		}
	}
	if len(out) > mostScopes {
		out = map[string]bool{"": true}
	}
	return out, spaces
}

// followers follow namespaces, and the pods of some of them, as long as these are wanted.
type followers struct {
	l    *Loop
	wake chan struct{} // capacity 1

	mu     sync.Mutex
	wanted map[string]bool
	spaces bool
}

func newFollowers(l *Loop) *followers { return &followers{l: l, wake: make(chan struct{}, 1)} }

// want says what to follow from now on; true: all of it was heard. Until then what was wanted before is followed, too: the pods that it
// holds may be among those that are not heard of yet. The Loop is locked.
func (f *followers) want(scopes map[string]bool, spaces bool) bool {
	l := f.l
	complete := !spaces || l.heard[heardSpaces]
	for scope := range scopes {
		complete = complete && l.heard[scope]
	}
	follow, more := maps.Clone(scopes), 0
	for scope := range l.peers {
		if scopes[scope] {
			continue
		}
		if more++; complete || more > mostScopes {
			delete(l.peers, scope)
			delete(l.heard, scope)
		} else {
			follow[scope] = true
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if spaces && !f.spaces || !maps.Equal(follow, f.wanted) {
		f.wanted, f.spaces = follow, f.spaces || spaces
		select {
		case f.wake <- struct{}{}:
		default:
		}
	}
	return complete
}

func (f *followers) run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	running := map[string]context.CancelFunc{}
	spaces := false
	for {
		f.mu.Lock()
		wanted := f.wanted
		if f.spaces && !spaces {
			spaces = true
			g.Go(func() error {
				return f.l.follow(ctx, api.Namespaces, api.Selection{}, f.l.replaceSpaces, f.l.applySpace)
			})
		}
		f.mu.Unlock()
		for scope, stop := range running {
			if !wanted[scope] {
				stop()
				delete(running, scope)
			}
		}
		for scope := range wanted {
			if running[scope] != nil {
				continue
			}
			one, stop := context.WithCancel(ctx)
			running[scope] = stop
			g.Go(func() error { return f.l.followPods(one, scope) })
		}
		select {
		case <-ctx.Done():
			for _, stop := range running {
				stop()
			}
			return g.Wait()
		case <-f.wake:
		}
	}
}

// followPods follows the pods of a namespace, of all boards. A control plane shows a board no more of them than what it needs here.
func (l *Loop) followPods(ctx context.Context, scope string) error {
	sel := api.Selection{Namespace: scope, Fields: fields.OneTermEqualSelector("spec.hostNetwork", "false")}
	update := func(do func(of map[types.NamespacedName]peer)) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if ctx.Err() != nil { // nobody wants them any more
			return
		}
		if l.peers[scope] == nil {
			l.peers[scope] = map[types.NamespacedName]peer{}
		}
		do(l.peers[scope])
		l.poke()
	}
	put := func(of map[types.NamespacedName]peer, o api.Object) {
		p, ok := o.(*corev1.Pod)
		if !ok {
			return
		}
		kept, ok := Trim(p)
		if !ok || api.IsMirror(p) { // a board shows static pods as it likes, and those of this one are known
			delete(of, api.Key(o))
		} else if _, had := of[api.Key(o)]; had || len(of) < mostPeers {
			of[api.Key(o)] = peer{kept, p.Spec.NodeName}
		} else {
			l.room(true)
		}
	}
	return l.follow(ctx, api.Pods, sel, func(list []api.Object) {
		update(func(of map[types.NamespacedName]peer) {
			clear(of)
			for _, o := range list {
				put(of, o)
			}
			l.heard[scope] = true
		})
	}, func(e api.Event) {
		update(func(of map[types.NamespacedName]peer) {
			if e.Type == api.Deleted {
				delete(of, api.Key(e.Object))
			} else {
				put(of, e.Object)
			}
		})
	})
}

func (l *Loop) replaceSpaces(list []api.Object) {
	l.mu.Lock()
	defer l.mu.Unlock()
	clear(l.spaces)
	for _, o := range list {
		l.spaces[o.GetName()] = o.GetLabels()
	}
	l.heard[heardSpaces] = true
	l.poke()
}

func (l *Loop) applySpace(e api.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e.Type == api.Deleted {
		delete(l.spaces, e.Object.GetName())
	} else {
		l.spaces[e.Object.GetName()] = e.Object.GetLabels()
	}
	l.poke()
}
