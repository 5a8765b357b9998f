package bridge

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/nftables"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/fence"
	"ledge/network/nft"
	"ledge/network/policy"
)

// fenced is a board with nine pods in three namespaces, and somebody outside.
type fenced struct {
	*lab
	setup *Setup
	fence *fence.Fencer
	pods  []testPod
	world policy.World
}

func newFenced(t *testing.T, cidr string) *fenced {
	t.Helper()
	l := newLab(t)
	f := &fenced{lab: l, setup: l.node("ledge0", cidr), fence: fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host})}
	t.Cleanup(func() {
		if err := f.fence.Delete(context.Background()); err != nil {
			t.Error("delete:", err)
		}
	})
	f.world.Namespaces = map[string]map[string]string{"x": {"ns": "x"}, "y": {"ns": "y"}, "z": {"ns": "z"}}
	for i := range 9 {
		ns, name := []string{"x", "y", "z"}[i/3], []string{"a", "b", "c"}[i%3]
		p := l.pod(f.setup, ns+name)
		f.pods = append(f.pods, p)
		kept := policy.Pod{Namespace: ns, Name: name, Labels: map[string]string{"pod": name}, Addrs: []netip.Addr{netip.MustParseAddr(p.ip)},
			Ports: []policy.Port{{Name: "web", Protocol: "TCP", Number: 80}, {Name: "dns", Protocol: "UDP", Number: 81}}}
		if p.ip6 != "" {
			kept.Addrs = append(kept.Addrs, netip.MustParseAddr(p.ip6))
		}
		f.world.Pods = append(f.world.Pods, kept)
		for _, port := range []string{"80", "81"} {
			for _, proto := range []string{"tcp", "udp"} {
				l.serve(p.NetNS, p.UID, proto, "0.0.0.0:"+port)
				if p.ip6 != "" {
					l.serve(p.NetNS, p.UID, proto, "[::]:"+port)
				}
			}
		}
	}
	return f
}

// apply has the kernel hold these policies.
func (f *fenced) apply(policies ...*networkingv1.NetworkPolicy) {
	f.t.Helper()
	f.world.Policies = policies
	f.must(f.fence.Prune(f.t.Context(), policy.NewCompiler(f.world).Fence(f.world.Pods)))
}

// check tries every pair of pods, at every port of both protocols, and compares with the evaluator.
func (f *fenced) check(what string, v6 bool) {
	f.t.Helper()
	type end struct {
		ns string
		policy.End
	}
	var ends []end
	for i, p := range f.pods {
		addr := f.world.Pods[i].Addrs[0]
		if v6 {
			addr = f.world.Pods[i].Addrs[1]
		}
		ends = append(ends, end{p.NetNS, policy.End{Pod: &f.world.Pods[i], Addr: addr}})
	}
	var wait sync.WaitGroup
	places := make(chan bool, 60)
	for _, from := range ends {
		for _, to := range ends {
			for _, proto := range []string{"tcp", "udp"} {
				for _, port := range []uint16{80, 81} {
					want := f.world.Allowed(policy.Connection{From: from.End, To: to.End, Protocol: strings.ToUpper(proto), Port: port})
					places <- true
					wait.Go(func() {
						defer func() { <-places }()
						f.try1(what, from.ns, proto, netip.AddrPortFrom(to.Addr, port).String(), to.Pod.Namespace+to.Pod.Name, want)
					})
				}
			}
		}
	}
	wait.Wait()
}

// try1 connects: what is allowed has time, on a busy machine.
func (f *fenced) try1(what, from, proto, to, who string, want bool) {
	for range 5 {
		got := f.ask(from, proto, to)
		if answered := strings.HasPrefix(got, who+" "); answered == want {
			return
		} else if answered {
			break
		}
	}
	f.t.Errorf("%s: from %s to %s %s (%s): want %v", what, from, proto, to, who, want)
}

func policyOf(namespace string, spec networkingv1.NetworkPolicySpec) *networkingv1.NetworkPolicy {
	return &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "p"}, Spec: spec}
}

func labelled(key, value string) *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchLabels: map[string]string{key: value}}
}

func portOf(protocol corev1.Protocol, port intstr.IntOrString, end ...int32) networkingv1.NetworkPolicyPort {
	p := networkingv1.NetworkPolicyPort{Protocol: &protocol, Port: &port}
	if len(end) > 0 {
		p.EndPort = &end[0]
	}
	return p
}

// matrices are sets of policies that are tried against every pair.
func matrices(cidr string) map[string][]*networkingv1.NetworkPolicy {
	ingress, egress := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
	type (
		spec = networkingv1.NetworkPolicySpec
		from = networkingv1.NetworkPolicyIngressRule
		to   = networkingv1.NetworkPolicyEgressRule
		peer = networkingv1.NetworkPolicyPeer
	)
	return map[string][]*networkingv1.NetworkPolicy{
		"none":           nil,
		"deny in":        {policyOf("x", spec{PolicyTypes: []networkingv1.PolicyType{ingress}})},
		"deny both ways": {policyOf("x", spec{PolicyTypes: []networkingv1.PolicyType{ingress, egress}})},
		"from a pod": {policyOf("x", spec{PodSelector: *labelled("pod", "a"), PolicyTypes: []networkingv1.PolicyType{ingress},
			Ingress: []from{{From: []peer{{PodSelector: labelled("pod", "b")}}}}})},
		"from namespaces": {policyOf("y", spec{PolicyTypes: []networkingv1.PolicyType{ingress}, Ingress: []from{{From: []peer{
			{NamespaceSelector: labelled("ns", "z")}, {NamespaceSelector: labelled("ns", "x"), PodSelector: labelled("pod", "c")}}}}})},
		"ports": {policyOf("x", spec{PolicyTypes: []networkingv1.PolicyType{ingress}, Ingress: []from{
			{Ports: []networkingv1.NetworkPolicyPort{portOf("TCP", intstr.FromString("web")), portOf("UDP", intstr.FromInt32(81), 90)}}}}),
			policyOf("z", spec{PodSelector: *labelled("pod", "a"), PolicyTypes: []networkingv1.PolicyType{egress}, Egress: []to{
				{To: []peer{{NamespaceSelector: labelled("ns", "y")}},
					Ports: []networkingv1.NetworkPolicyPort{portOf("UDP", intstr.FromString("dns"))}}}})},
		"block": {policyOf("y", spec{PolicyTypes: []networkingv1.PolicyType{ingress, egress},
			Ingress: []from{{From: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr}}}}},
			Egress:  []to{{To: []peer{{IPBlock: &networkingv1.IPBlock{CIDR: cidr, Except: except(cidr)}}}}}})},
	}
}

// except is the second quarter of what the first sixteen addresses of a network are.
func except(cidr string) []string {
	a := netip.MustParsePrefix(cidr).Addr().AsSlice()
	a[len(a)-1] = 4
	first, _ := netip.AddrFromSlice(a)
	return []string{netip.PrefixFrom(first, first.BitLen()-2).String()}
}

// TestPoliciesMatrix: every pair of nine pods in three namespaces, by TCP and UDP, has what the evaluator says, in the kernel (N-14.1).
func TestPoliciesMatrix(t *testing.T) {
	testrun.OnHost(t) // in the guest TestPoliciesHold and the others ask its kernel
	if testing.Short() {
		t.Skip("long")
	}
	f := newFenced(t, dualCIDR)
	bridgeNetfilter(f.lab, "0")
	f.must(f.setup.Ready(t.Context()))
	for _, v6 := range []bool{false, true} {
		cidr := map[bool]string{false: "10.77.0.0/24", true: "fd77::/64"}[v6]
		for name, policies := range matrices(cidr) {
			if v6 && name != "ports" && name != "block" {
				continue // rules are compiled alike
			}
			f.apply(policies...)
			f.check(fmt.Sprint(name, ", IPv6 ", v6), v6)
		}
	}
}

// TestPoliciesHold: what a table holds holds for all who may come: the board reaches its pods, pods themselves, answers go through, and a
// Service or a host port hides nobody; with br_netfilter and without (N-14.2).
func TestPoliciesHold(t *testing.T) {
	for _, nf := range []string{"0", "1"} {
		t.Run("br_netfilter="+nf, func(t *testing.T) {
			l := newLab(t)
			bridgeNetfilter(l, nf)
			s := l.node("ledge0", "10.77.0.0/24")
			a, b := l.pod(s, "a", tcp(8080, 80)), l.pod(s, "b")
			c := l.pod(s, "c")
			for _, p := range []testPod{a, b, c} {
				l.serve(p.NetNS, p.UID, "tcp", ":80")
			}
			l.serve(l.outside, "outside", "tcp", ":80")
			f := fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host})
			defer func() { l.must(f.Delete(context.Background())) }()
			var pods []policy.Pod
			for _, p := range []testPod{a, b, c} {
				pods = append(pods, policy.Pod{Namespace: "x", Name: p.UID, Labels: map[string]string{"pod": p.UID},
					Addrs: []netip.Addr{netip.MustParseAddr(p.ip)}})
			}
			ingress, egress := networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress
			w := policy.World{Pods: pods, Policies: []*networkingv1.NetworkPolicy{
				policyOf("x", networkingv1.NetworkPolicySpec{PodSelector: *labelled("pod", "a"), PolicyTypes: []networkingv1.PolicyType{ingress, egress},
					Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("pod", "b")}}}},
					Egress:  []networkingv1.NetworkPolicyEgressRule{{To: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("pod", "c")}}}}})}}
			proxy := l.forwarder("ledge0")
			l.must(proxy.Update(t.Context(), []network.Service{inside("x/a", clusterIP, "TCP", at(a.ip, 80)),
				inside("x/b", "10.96.0.11", "TCP", at(b.ip, 80)), inside("x/c", "10.96.0.12", "TCP", at(c.ip, 80))}))
			l.must(f.Prune(t.Context(), policy.NewCompiler(w).Fence(pods)))
			for _, x := range []struct{ what, from, to, want string }{
				{"who may", b.NetNS, a.ip + ":80", "a " + b.ip},
				{"by a Service", b.NetNS, clusterIP + ":80", "a " + b.ip},
				{"by a host port", b.NetNS, hostIP + ":8080", "a " + b.ip},
				{"the board", l.host, a.ip + ":80", "a " + gateway},
				{"the board by a Service", l.host, clusterIP + ":80", "a " + gateway},
				{"itself", a.NetNS, a.ip + ":80", "a " + a.ip},
				{"itself by a Service", a.NetNS, clusterIP + ":80", "a " + gateway},
				{"where it may go", a.NetNS, c.ip + ":80", "c " + a.ip},
				{"where it may go, by a Service", a.NetNS, "10.96.0.12:80", "c " + a.ip},
				{"others", c.NetNS, b.ip + ":80", "b " + c.ip},
			} {
				l.expect(x.what, l.ask(x.from, "tcp", x.to), x.want)
			}
			for _, x := range []struct{ what, from, to string }{
				{"who may not", c.NetNS, a.ip + ":80"}, {"by a Service", c.NetNS, clusterIP + ":80"}, {"by a host port", c.NetNS, hostIP + ":8080"},
				{"from outside by a host port", l.outside, hostIP + ":8080"}, {"where it may not go", a.NetNS, b.ip + ":80"},
				{"where it may not go, by a Service", a.NetNS, "10.96.0.11:80"}, {"outside", a.NetNS, outsideIP + ":80"},
			} {
				l.fails(x.what, l.ask(x.from, "tcp", x.to))
			}
		})
	}
}

// TestPoliciesAreMended: what others change in the table is put right at the next look, an unchanged one is not written, a pod is an
// element, and without fenced pods there is nothing.
func TestPoliciesAreMended(t *testing.T) {
	testrun.OnHost(t)
	l := newLab(t)
	s := l.node("ledge0", dualCIDR)
	a, b := l.pod(s, "a"), l.pod(s, "b")
	l.serve(a.NetNS, "a", "tcp", ":80")
	pods := []policy.Pod{}
	for _, p := range []testPod{a, b} {
		pods = append(pods, policy.Pod{Namespace: "x", Name: p.UID, Labels: map[string]string{"pod": p.UID},
			Addrs: []netip.Addr{netip.MustParseAddr(p.ip), netip.MustParseAddr(p.ip6)}})
	}
	w := policy.World{Pods: pods, Policies: []*networkingv1.NetworkPolicy{policyOf("x", networkingv1.NetworkPolicySpec{
		PodSelector: *labelled("pod", "a"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("pod", "c")},
			{IPBlock: &networkingv1.IPBlock{CIDR: "255.255.255.0/24", Except: []string{"255.255.255.7/32"}}}}}}})}}
	want := policy.NewCompiler(w).Fence(pods)
	f := fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host})
	prune := func() { l.must(f.Prune(t.Context(), want)) }
	generation := func() (gen uint32) {
		l.in(l.host, func() (err error) { gen, err = generationOf(); return err })
		return gen
	}
	prune()
	l.fails("denied", l.ask(b.NetNS, "tcp", a.ip+":80"))
	before := generation()
	prune()
	f = fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host}) // the next process
	prune()
	if now := generation(); now != before {
		t.Errorf("wrote what was right already: generation %d, then %d", before, now)
	}
	for name, harm := range map[string]func(c *nftables.Conn, table *nftables.Table){
		"no chain": func(c *nftables.Conn, table *nftables.Table) {
			c.FlushChain(&nftables.Chain{Name: "forward", Table: table})
		},
		"no table":   func(c *nftables.Conn, table *nftables.Table) { c.DelTable(table) },
		"no element": func(c *nftables.Conn, table *nftables.Table) { c.FlushSet(&nftables.Set{Name: "in", Table: table}) },
		"open chain": func(c *nftables.Conn, table *nftables.Table) {
			for chain := range want.Chains {
				c.FlushChain(&nftables.Chain{Name: chain, Table: table})
			}
		},
	} {
		l.in(l.host, func() error {
			c, err := nftables.New()
			if err != nil {
				return err
			}
			harm(c, &nftables.Table{Name: "ledgenp_ledge0", Family: nftables.TableFamilyIPv4})
			return c.Flush()
		})
		l.expect(name, l.ask(b.NetNS, "tcp", a.ip+":80"), "a "+b.ip)
		prune()
		l.fails(name+", mended", l.ask(b.NetNS, "tcp", a.ip+":80"))
	}
	// A pod that may comes: one element.
	w.Pods[1].Labels = map[string]string{"pod": "c"}
	want = policy.NewCompiler(w).Fence(pods)
	before = generation()
	prune()
	if now := generation(); now != before+1 {
		t.Errorf("a pod that came took %d transactions", now-before)
	}
	l.expect("the pod that may", l.ask(b.NetNS, "tcp", a.ip+":80"), "a "+b.ip)
	// Add is about its addresses only.
	l.must(f.Add(t.Context(), pods[1].Addrs, policy.Closed(pods[1:])))
	l.fails("closed", l.ask(b.NetNS, "tcp", a.ip+":80"))
	l.must(f.Add(t.Context(), pods[1].Addrs, network.Fence{}))
	l.expect("open again", l.ask(b.NetNS, "tcp", a.ip+":80"), "a "+b.ip)
	want = network.Fence{}
	prune()
	if left := l.left(); slices.ContainsFunc(left, func(s string) bool { return strings.HasPrefix(s, "table ledgenp") }) {
		t.Errorf("left: %v", left)
	}
}

// TestPoliciesAreMerged: who is let in stays so while not all are known who may be, but for pods of this board (N-14.4).
func TestPoliciesAreMerged(t *testing.T) {
	testrun.OnHost(t)
	if testing.Short() {
		t.Skip("takes seconds")
	}
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	a, b, c := l.pod(s, "a"), l.pod(s, "b"), l.pod(s, "c")
	l.serve(a.NetNS, "a", "tcp", ":80")
	at := func(p testPod) netip.Addr { return netip.MustParseAddr(p.ip) }
	fenceOf := func(friends ...testPod) network.Fence {
		own := policy.Pod{Namespace: "x", Name: "a", Labels: map[string]string{"pod": "a"}, Addrs: []netip.Addr{at(a)}}
		w := policy.World{Pods: []policy.Pod{own}, Policies: []*networkingv1.NetworkPolicy{policyOf("x", networkingv1.NetworkPolicySpec{
			PodSelector: *labelled("pod", "a"), PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
			Ingress: []networkingv1.NetworkPolicyIngressRule{{From: []networkingv1.NetworkPolicyPeer{{PodSelector: labelled("is", "friend")}}}}})}}
		for _, p := range friends {
			w.Pods = append(w.Pods, policy.Pod{Namespace: "x", Name: p.UID, Labels: map[string]string{"is": "friend"}, Addrs: []netip.Addr{at(p)}})
		}
		return policy.NewCompiler(w).Fence([]policy.Pod{own})
	}
	let := func(what string, friends ...testPod) {
		t.Helper()
		pods, got := []testPod{b, c}, make([]string, 2)
		var wait sync.WaitGroup
		for i, p := range pods {
			wait.Go(func() { got[i] = l.ask(p.NetNS, "tcp", a.ip+":80") })
		}
		wait.Wait()
		for i, p := range pods {
			if slices.ContainsFunc(friends, func(f testPod) bool { return f.UID == p.UID }) {
				l.expect(what+": "+p.UID, got[i], "a "+p.ip)
			} else {
				l.fails(what+": "+p.UID, got[i])
			}
		}
	}
	first := fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host})
	defer func() { l.must(first.Delete(context.Background())) }()
	l.must(first.Prune(t.Context(), fenceOf(b)))
	let("at first", b)
	f := fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host}) // the next process
	others := map[netip.Addr]bool{at(a): true}
	l.must(f.Merge(t.Context(), others, fenceOf()))
	let("unheard of", b)
	l.must(f.Merge(t.Context(), others, fenceOf(c)))
	let("one more", b, c)
	l.in(l.host, func() error {
		conn, err := nftables.New()
		if err != nil {
			return err
		}
		conn.FlushChain(&nftables.Chain{Name: "forward", Table: &nftables.Table{Name: "ledgenp_ledge0", Family: nftables.TableFamilyIPv4}})
		return conn.Flush()
	})
	l.must(f.Merge(t.Context(), map[netip.Addr]bool{at(a): true, at(c): true}, fenceOf()))
	let("of this board, in a table that somebody has changed", b)
	l.must(f.Merge(t.Context(), map[netip.Addr]bool{at(a): false}, policy.Closed([]policy.Pod{{Addrs: []netip.Addr{at(a)}}})))
	let("known in part", b)
	l.must(f.Merge(t.Context(), others, policy.Closed([]policy.Pod{{Addrs: []netip.Addr{at(a)}}})))
	let("closed")
	l.must(f.Merge(t.Context(), others, fenceOf()))
	let("the set has stayed", b)
	l.must(f.Prune(t.Context(), fenceOf()))
	let("all is known")
	l.must(f.Merge(t.Context(), others, network.Fence{}))
	let("no policy", b, c)
}

// TestPoliciesInTime: a pod that a policy selects has not one packet before the policy holds, whoever hurries (N-14.3).
func TestPoliciesInTime(t *testing.T) {
	l := newLab(t)
	s := l.node("ledge0", "10.77.0.0/24")
	f := fence.New(fence.Config{Bridge: "ledge0", NetNS: l.host})
	defer func() { l.must(f.Delete(context.Background())) }()
	other := l.pod(s, "other")
	s.Guard(func(ctx context.Context, pod network.Pod, addrs []netip.Addr) error {
		time.Sleep(50 * time.Millisecond) // a slow kernel
		return f.Add(ctx, addrs, policy.Closed([]policy.Pod{{Addrs: addrs}}))
	})
	next := netip.MustParseAddr(other.ip).Next()
	var wait sync.WaitGroup
	stop := make(chan bool)
	for range 4 {
		wait.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if got := l.ask(other.NetNS, "tcp", next.String()+":80"); !strings.Contains(got, "error") || strings.Contains(got, "refused") {
					t.Errorf("a packet came through: %s", got)
					return
				}
			}
		})
	}
	p := l.pod(s, "late")
	l.serve(p.NetNS, "late", "tcp", ":80")
	time.Sleep(testrun.Patience(300 * time.Millisecond))
	close(stop)
	wait.Wait()
	l.expect("the board reaches it", l.ask(l.host, "tcp", p.ip+":80"), "late "+gateway)
	s.Guard(func(context.Context, network.Pod, []netip.Addr) error { return fmt.Errorf("no") })
	q := network.Pod{UID: "refused", NetNS: l.netns("refused")}
	if _, err := s.Attach(t.Context(), q); err == nil || !strings.Contains(err.Error(), "no") {
		t.Error("attached all the same:", err)
	}
}

func generationOf() (uint32, error) { return nft.Generation() }
