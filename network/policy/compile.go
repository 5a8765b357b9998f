package policy

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/network"
)

// What policies may have a board hold. What is beyond is not let through: all that is compiled lets something through.
const (
	// MostPasses of one pod and direction: each new connection is compared with them in turn.
	MostPasses = 4096
	// MostAddresses of all sets together, some 100 bytes each.
	MostAddresses = 200_000
)

// Shut is the chain that lets nothing through.
var Shut = nameOf("in", nil)

// Compiler turns what is known into what the kernel must know of some pods. It is for one World that does not change.
type Compiler struct {
	w         World
	of        map[string][]*selection // policies by namespace
	members   map[string][]*Pod       // by peer
	addresses int
	short     bool
}

// selection is a policy whose selectors are read.
type selection struct {
	policy  *networkingv1.NetworkPolicy
	selects labels.Selector
}

// NewCompiler reads the policies.
func NewCompiler(w World) *Compiler {
	c := &Compiler{w: w, of: map[string][]*selection{}, members: map[string][]*Pod{}}
	for _, p := range w.Policies {
		if s, err := metav1.LabelSelectorAsSelector(&p.Spec.PodSelector); err == nil {
			c.of[p.Namespace] = append(c.of[p.Namespace], &selection{p, s})
		}
	}
	return c
}

// Short says that there was more than the kernel is given.
func (c *Compiler) Short() bool { return c.short }

// Closed fences pods of which nothing is known: nobody but their board reaches them, and they reach nobody.
func Closed(pods []Pod) network.Fence {
	f := network.Fence{In: map[netip.Addr]string{}, Out: map[netip.Addr]string{}, Chains: map[string][]network.Pass{Shut: nil}}
	for _, p := range pods {
		for _, a := range p.Addrs {
			f.In[a], f.Out[a] = Shut, Shut
		}
	}
	return f
}

// Fence is what the kernel of a board must know of the pods that are there.
func (c *Compiler) Fence(own []Pod) network.Fence {
	f := network.Fence{In: map[netip.Addr]string{}, Out: map[netip.Addr]string{}, Chains: map[string][]network.Pass{},
		Sets: map[string][]network.Span{}}
	for i := range own {
		pod := &own[i]
		for _, d := range []struct {
			kind networkingv1.PolicyType
			word string
			to   map[netip.Addr]string
		}{{networkingv1.PolicyTypeIngress, "in", f.In}, {networkingv1.PolicyTypeEgress, "out", f.Out}} {
			passes, fenced := c.passes(&f, pod, d.kind)
			if !fenced {
				continue
			}
			name := nameOf(d.word, passes)
			f.Chains[name] = passes
			for _, a := range pod.Addrs {
				d.to[a] = name
			}
		}
	}
	return f
}

// passes of a pod and a direction; fenced: some policy selects it for that.
func (c *Compiler) passes(f *network.Fence, pod *Pod, kind networkingv1.PolicyType) (out []network.Pass, fenced bool) {
	for _, s := range c.of[pod.Namespace] {
		spec := &s.policy.Spec
		if !slices.Contains(spec.PolicyTypes, kind) || !s.selects.Matches(labels.Set(pod.Labels)) {
			continue
		}
		fenced = true
		if kind == networkingv1.PolicyTypeIngress {
			for _, r := range spec.Ingress {
				ports := portsOf(r.Ports, []*Pod{pod}) // it is the pod that is connected to
				out = append(out, c.rule(f, s.policy, r.From, ports, nil)...)
			}
			continue
		}
		for _, r := range spec.Egress {
			out = append(out, c.rule(f, s.policy, r.To, portsOf(r.Ports, nil), r.Ports)...)
		}
	}
	sort.Slice(out, func(i, j int) bool { return textOf(out[i]) < textOf(out[j]) })
	out = slices.CompactFunc(out, func(a, b network.Pass) bool { return textOf(a) == textOf(b) })
	if len(out) > MostPasses {
		out, c.short = out[:MostPasses], true
	}
	return out, fenced
}

// ports are what a rule is about.
type ports struct {
	protocol    string
	first, last uint16
}

// portsOf are those of a rule, and of its names those that these pods have. Of no list: any port.
func portsOf(list []networkingv1.NetworkPolicyPort, of []*Pod) (out []ports) {
	if len(list) == 0 {
		return []ports{{}}
	}
	for _, p := range list {
		protocol := protocolOf(p)
		switch {
		case p.Port == nil:
			out = append(out, ports{protocol: protocol})
		case p.Port.Type == intstr.String:
			for _, pod := range of {
				for _, n := range numbers(pod, p.Port.StrVal, protocol) {
					out = append(out, ports{protocol, n, n})
				}
			}
		default:
			last := p.Port.IntVal
			if p.EndPort != nil {
				last = *p.EndPort
			}
			if first := p.Port.IntVal; first > 0 && first <= last && last <= 65535 {
				out = append(out, ports{protocol, uint16(first), uint16(last)})
			}
		}
	}
	return out
}

func numbers(pod *Pod, name, protocol string) (out []uint16) {
	for _, p := range pod.Ports {
		if p.Name == name && p.Protocol == protocol {
			out = append(out, p.Number)
		}
	}
	return out
}

// rule compiles one of a policy. named are its ports by name, where these are the other end's.
func (c *Compiler) rule(f *network.Fence, p *networkingv1.NetworkPolicy, peers []networkingv1.NetworkPolicyPeer, on []ports,
	named []networkingv1.NetworkPolicyPort,
) (out []network.Pass) {
	add := func(pass network.Pass, at ports) {
		pass.Protocol, pass.First, pass.Last = at.protocol, at.first, at.last
		out = append(out, pass)
	}
	if len(peers) == 0 {
		for _, at := range on {
			add(network.Pass{}, at)
		}
		anybody := networkingv1.NetworkPolicyPeer{NamespaceSelector: &metav1.LabelSelector{}}
		c.byName(f, p, anybody, named, add)
		return out
	}
	var spans []network.Span
	for _, x := range peers {
		if x.IPBlock != nil {
			spans = append(spans, spansOf(x.IPBlock)...)
			continue
		}
		if len(on) > 0 {
			set := c.set(f, p.Namespace, x, "", c.peers(p.Namespace, x))
			for _, at := range on {
				add(network.Pass{Pods: set}, at)
			}
		}
		c.byName(f, p, x, named, add)
	}
	if spans = union(spans); len(spans) > 0 {
		for _, at := range on {
			add(network.Pass{Nets: spans}, at)
		}
	}
	return out
}

// byName lets through to those pods whose port of a name has one number, for each number.
func (c *Compiler) byName(f *network.Fence, p *networkingv1.NetworkPolicy, x networkingv1.NetworkPolicyPeer,
	named []networkingv1.NetworkPolicyPort, add func(network.Pass, ports),
) {
	for _, port := range named {
		if port.Port == nil || port.Port.Type != intstr.String {
			continue
		}
		with := map[uint16][]*Pod{}
		for _, pod := range c.peers(p.Namespace, x) {
			for _, n := range numbers(pod, port.Port.StrVal, protocolOf(port)) {
				with[n] = append(with[n], pod)
			}
		}
		for n, pods := range with {
			key := fmt.Sprint(port.Port.StrVal, "/", protocolOf(port), "/", n)
			add(network.Pass{Pods: c.set(f, p.Namespace, x, key, pods)}, ports{protocolOf(port), n, n})
		}
	}
}

// set is the name of what has the addresses of these pods.
func (c *Compiler) set(f *network.Fence, namespace string, x networkingv1.NetworkPolicyPeer, port string, pods []*Pod) string {
	name := "pods-" + hash(peerKey(namespace, x)+" "+port)
	if _, done := f.Sets[name]; done {
		return name
	}
	spans := []network.Span{}
	for _, pod := range pods {
		for _, a := range pod.Addrs {
			if c.addresses++; c.addresses > MostAddresses {
				c.short = true
				break
			}
			spans = append(spans, network.Span{First: a, Last: a})
		}
	}
	f.Sets[name] = spans
	return name
}

func peerKey(namespace string, x networkingv1.NetworkPolicyPeer) string {
	text, _ := json.Marshal(networkingv1.NetworkPolicyPeer{PodSelector: x.PodSelector, NamespaceSelector: x.NamespaceSelector})
	if x.NamespaceSelector == nil {
		return namespace + " " + string(text)
	}
	return string(text)
}

// peers are the pods that a policy of a namespace means.
func (c *Compiler) peers(namespace string, x networkingv1.NetworkPolicyPeer) []*Pod {
	key := peerKey(namespace, x)
	if known, ok := c.members[key]; ok {
		return known
	}
	in, of := labels.Everything(), labels.Everything()
	var err error
	if x.NamespaceSelector != nil {
		in, err = metav1.LabelSelectorAsSelector(x.NamespaceSelector)
	}
	if x.PodSelector != nil && err == nil {
		of, err = metav1.LabelSelectorAsSelector(x.PodSelector)
	}
	out := []*Pod{}
	inside := map[string]bool{}
	for name, labelled := range c.w.Namespaces {
		inside[name] = in.Matches(labels.Set(labelled))
	}
	for i := range c.w.Pods {
		pod := &c.w.Pods[i]
		here := x.NamespaceSelector == nil && pod.Namespace == namespace || x.NamespaceSelector != nil && inside[pod.Namespace]
		if err == nil && here && of.Matches(labels.Set(pod.Labels)) {
			out = append(out, pod)
		}
	}
	c.members[key] = out
	return out
}

// nameOf a chain says all that is in it.
func nameOf(word string, passes []network.Pass) string {
	if len(passes) == 0 {
		return "shut"
	}
	var b strings.Builder
	for _, p := range passes {
		b.WriteString(textOf(p))
		b.WriteByte('\n')
	}
	return word + "-" + hash(b.String())
}

func textOf(p network.Pass) string {
	return fmt.Sprint(p.Pods, " ", p.Nets, " ", p.Protocol, " ", p.First, "-", p.Last)
}

// hash: no two texts may come to one, whoever chooses them: the chain or set that is there would let in whom the other one does.
func hash(text string) string {
	sum := sha256.Sum256([]byte(text))
	return fmt.Sprintf("%x", sum[:16])
}
