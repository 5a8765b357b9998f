package policy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/network"
)

// fenced interprets what is compiled, as the kernel does.
func fenced(f network.Fence, from, to netip.Addr, protocol string, port uint16) bool {
	if from == to {
		return true
	}
	through := func(chain string, other netip.Addr) bool {
		in := func(spans []network.Span) bool {
			return slices.ContainsFunc(spans, func(s network.Span) bool {
				return s.First.Is4() == other.Is4() && !other.Less(s.First) && !s.Last.Less(other)
			})
		}
		return chain == "" || slices.ContainsFunc(f.Chains[chain], func(p network.Pass) bool {
			switch {
			case p.Pods != "" && !in(f.Sets[p.Pods]), p.Nets != nil && !in(p.Nets):
				return false
			case p.Protocol != "" && p.Protocol != protocol:
				return false
			}
			return p.First == 0 && p.Last == 0 || port >= p.First && port <= p.Last
		})
	}
	return through(f.Out[from], to) && through(f.In[to], from)
}

// dice makes worlds in which what is drawn meets often.
type dice struct{ *rand.Rand }

func (d dice) of(list ...string) string { return list[d.IntN(len(list))] }

func (d dice) selector() *metav1.LabelSelector {
	s := &metav1.LabelSelector{}
	if d.IntN(3) > 0 {
		s.MatchLabels = map[string]string{"app": d.of("a", "b", "c")}
	}
	if d.IntN(4) == 0 {
		e := metav1.LabelSelectorRequirement{Key: d.of("app", "tier"), Operator: metav1.LabelSelectorOperator(d.of("In", "NotIn", "Exists", "DoesNotExist"))}
		if e.Operator == "In" || e.Operator == "NotIn" {
			e.Values = []string{d.of("a", "b"), d.of("c", "x")}
		}
		s.MatchExpressions = append(s.MatchExpressions, e)
	}
	return s
}

func (d dice) ports() (out []networkingv1.NetworkPolicyPort) {
	for range d.IntN(3) {
		protocol := corev1.Protocol(d.of("TCP", "UDP", "SCTP"))
		p := networkingv1.NetworkPolicyPort{Protocol: &protocol}
		switch d.IntN(4) {
		case 0:
			port := intstr.FromString(d.of("web", "dns"))
			p.Port = &port
		case 1:
			port, end := intstr.FromInt32(80+d.Int32N(3)), 82+d.Int32N(3)
			p.Port, p.EndPort = &port, &end
		case 2:
			port := intstr.FromInt32(80 + d.Int32N(4))
			p.Port = &port
		}
		out = append(out, p)
	}
	return out
}

func (d dice) peers() (out []networkingv1.NetworkPolicyPeer) {
	for range d.IntN(3) {
		x := networkingv1.NetworkPolicyPeer{}
		switch d.IntN(5) {
		case 0:
			x.IPBlock = &networkingv1.IPBlock{CIDR: d.of("10.0.0.0/29", "10.0.0.0/24", "0.0.0.0/0", "10.0.0.4/30")}
			for range d.IntN(3) {
				x.IPBlock.Except = append(x.IPBlock.Except, d.of("10.0.0.2/31", "10.0.0.4/32", "10.0.0.0/30", "10.0.0.255/32"))
			}
		case 1:
			x.IPBlock = &networkingv1.IPBlock{CIDR: d.of("fd00::/120", "::/0", "fd00::4/126"), Except: []string{d.of("fd00::4/127", "fd00::/125")}}
		case 2:
			x.PodSelector = d.selector()
		case 3:
			x.NamespaceSelector = d.selector()
		default:
			x.PodSelector, x.NamespaceSelector = d.selector(), d.selector()
		}
		out = append(out, x)
	}
	return out
}

func (d dice) policy(name string) *networkingv1.NetworkPolicy {
	p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: d.of("x", "y", "z")}}
	p.Spec.PodSelector = *d.selector()
	p.Spec.PolicyTypes = [][]networkingv1.PolicyType{{"Ingress"}, {"Egress"}, {"Ingress", "Egress"}}[d.IntN(3)]
	for range d.IntN(3) {
		p.Spec.Ingress = append(p.Spec.Ingress, networkingv1.NetworkPolicyIngressRule{Ports: d.ports(), From: d.peers()})
		p.Spec.Egress = append(p.Spec.Egress, networkingv1.NetworkPolicyEgressRule{Ports: d.ports(), To: d.peers()})
	}
	return p
}

func (d dice) world() World {
	w := World{Namespaces: map[string]map[string]string{"x": {"app": "a"}, "y": {"app": "b"}, "z": {}}}
	for i := range 9 {
		p := Pod{Namespace: []string{"x", "y", "z"}[i%3], Name: fmt.Sprint("p", i), Labels: map[string]string{"app": d.of("a", "b", "c")},
			Addrs: []netip.Addr{netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), netip.MustParseAddr(fmt.Sprintf("fd00::%x", i))}}
		if d.IntN(2) == 0 {
			p.Labels["tier"] = d.of("a", "x")
		}
		for range d.IntN(3) {
			p.Ports = append(p.Ports, Port{d.of("web", "dns"), d.of("TCP", "UDP"), uint16(80 + d.IntN(4))})
		}
		w.Pods = append(w.Pods, p)
	}
	for i := range d.IntN(6) {
		w.Policies = append(w.Policies, d.policy(fmt.Sprint("n", i)))
	}
	return w
}

// differs looks for a connection about which the compiled tables of two boards and the evaluator are not of one mind.
func differs(w World) string {
	own := [2][]Pod{w.Pods[:5], w.Pods[5:]}
	c := NewCompiler(w)
	boards := [2]network.Fence{c.Fence(own[0]), c.Fence(own[1])}
	var ends []End
	for i := range w.Pods {
		for _, a := range w.Pods[i].Addrs {
			ends = append(ends, End{&w.Pods[i], a})
		}
	}
	for _, a := range []string{"10.0.0.12", "10.0.0.255", "10.1.0.1", "fd00::c", "2001:db8::1"} {
		ends = append(ends, End{nil, netip.MustParseAddr(a)})
	}
	for _, from := range ends {
		for _, to := range ends {
			if from.Addr.Is4() != to.Addr.Is4() {
				continue
			}
			for _, protocol := range []string{"TCP", "UDP", "SCTP"} {
				for port := uint16(79); port < 85; port++ {
					want := w.Allowed(Connection{from, to, protocol, port})
					got := true // it passes the boards of both ends
					for _, f := range boards {
						got = got && fenced(f, from.Addr, to.Addr, protocol, port)
					}
					if got != want {
						return fmt.Sprintf("%s to %s %s/%d: %v, want %v", from.Addr, to.Addr, protocol, port, got, want)
					}
				}
			}
		}
	}
	return ""
}

// TestCompiledIsEvaluated: in random worlds, what is compiled lets through what the evaluator allows (N-14.1).
func TestCompiledIsEvaluated(t *testing.T) {
	for seed := range uint64(30) {
		w := dice{rand.New(rand.NewPCG(seed, 1))}.world()
		if d := differs(w); d != "" {
			t.Fatalf("seed %d: %s\n%+v", seed, d, w)
		}
	}
}

func FuzzCompiledIsEvaluated(f *testing.F) {
	f.Add(uint64(1), uint64(2))
	f.Fuzz(func(t *testing.T, a, b uint64) {
		if d := differs(dice{rand.New(rand.NewPCG(a, b))}.world()); d != "" {
			t.Fatal(d)
		}
	})
}

// TestBounds: policies as large as anybody likes are held to what the kernel is given, and what is beyond is shut.
func TestBounds(t *testing.T) {
	w := World{Namespaces: map[string]map[string]string{"x": nil}}
	for i := range 5000 {
		a := netip.AddrFrom4([4]byte{10, 1, byte(i >> 8), byte(i)})
		w.Pods = append(w.Pods, Pod{Namespace: "x", Name: fmt.Sprint(i), Addrs: []netip.Addr{a}})
	}
	for i := range 1000 {
		p := &networkingv1.NetworkPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint(i), Namespace: "x"}}
		p.Spec.PolicyTypes = []networkingv1.PolicyType{"Ingress"}
		r := networkingv1.NetworkPolicyIngressRule{From: []networkingv1.NetworkPolicyPeer{{PodSelector: &metav1.LabelSelector{
			MatchExpressions: []metav1.LabelSelectorRequirement{{Key: fmt.Sprint("k", i), Operator: "DoesNotExist"}}}}}}
		for n := range int32(10) {
			port := intstr.FromInt32(1000 + n)
			r.Ports = append(r.Ports, networkingv1.NetworkPolicyPort{Port: &port})
		}
		p.Spec.Ingress = append(p.Spec.Ingress, r)
		w.Policies = append(w.Policies, p)
	}
	c := NewCompiler(w)
	f := c.Fence(w.Pods[:3])
	n := 0
	for _, s := range f.Sets {
		n += len(s)
	}
	if !c.Short() || n > MostAddresses || len(f.Chains[f.In[w.Pods[0].Addrs[0]]]) != MostPasses {
		t.Errorf("short %v, %d addresses, %d passes", c.Short(), n, len(f.Chains[f.In[w.Pods[0].Addrs[0]]]))
	}
	closed := Closed(w.Pods[:1])
	if a := w.Pods[0].Addrs[0]; fenced(closed, w.Pods[1].Addrs[0], a, "TCP", 1) || fenced(closed, a, w.Pods[1].Addrs[0], "TCP", 1) {
		t.Error("a closed pod is open")
	}
}
