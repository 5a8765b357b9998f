package service

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/network"
)

var here = Board{Name: "here", Zone: "z1"}

// ep writes an endpoint as "2@here": address 10.42.0.2 on that node, then flags: n not ready, s serving, t terminating, z=zone, h=node.
func ep(text string) Endpoint {
	fields := strings.Fields(text)
	at, node, _ := strings.Cut(fields[0], "@")
	e := Endpoint{Addr: netip.MustParseAddr("10.42.0." + at), Node: node, Ready: true, Serving: true}
	hints := func() *Hints {
		if e.Hints == nil {
			e.Hints = &Hints{}
		}
		return e.Hints
	}
	for _, f := range fields[1:] {
		switch k, v, _ := strings.Cut(f, "="); k {
		case "n":
			e.Ready, e.Serving = false, false
		case "t":
			e.Ready, e.Terminating = false, true
		case "z":
			hints().Zones = append(hints().Zones, v)
		case "h":
			hints().Nodes = append(hints().Nodes, v)
		}
	}
	return e
}

func last(ends []netip.AddrPort) string {
	var out []string
	for _, e := range ends {
		out = append(out, fmt.Sprint(e.Addr().As4()[3]))
	}
	return strings.Join(out, ",")
}

// TestEndpoints holds who is used to what kube-proxy uses: ready ones, by hints, else those that end but serve; this board's for Local.
func TestEndpoints(t *testing.T) {
	for _, c := range []struct {
		what           string
		ends           []string
		cluster, local string
	}{
		{"none", nil, "", ""},
		{"ready", []string{"3@here", "2@there"}, "2,3", "3"},
		{"not ready", []string{"2@here n", "3@there"}, "3", ""},
		{"nobody ready", []string{"2@here n"}, "", ""},
		{"terminating beside ready", []string{"2@here t", "3@there"}, "3", "2"},
		{"terminating only", []string{"2@here t", "3@there t"}, "2,3", "2"},
		{"terminating and not serving", []string{"2@here n t"}, "", ""},
		{"zone", []string{"2@there z=z1", "3@there z=z2"}, "2", ""},
		{"zone, Local keeps its own", []string{"2@there z=z1", "3@here z=z2"}, "2", "3"},
		{"zone, one without", []string{"2@there z=z1", "3@there"}, "2,3", ""},
		{"zone, none for us", []string{"2@there z=z2", "3@there z=z3"}, "2,3", ""},
		{"zone, those that are not ready do not count", []string{"2@there z=z1", "3@there n"}, "2", ""},
		{"node", []string{"2@here h=here", "3@there h=there"}, "2", "2"},
		{"node, none for us", []string{"2@there h=there"}, "2", ""},
		{"node before zone", []string{"2@here z=z1 h=here", "3@there z=z1 h=there"}, "2", "2"},
		{"node, none for us, by zone", []string{"2@x z=z1 h=x", "3@y z=z2 h=y"}, "2", ""},
		{"hints, nobody ready", []string{"2@here t z=z2", "3@there t z=z1"}, "2,3", "2"},
		{"an address in two slices", []string{"2@here t", "2@here"}, "2", "2"},
		{"the same, the other way", []string{"2@here", "2@here t"}, "2", "2"},
	} {
		s := Slice{Ports: []Port{{Name: "http", Protocol: "TCP", Port: 80}}}
		for _, text := range c.ends {
			s.Endpoints = append(s.Endpoints, ep(strings.ReplaceAll(text, "n t", "t n")))
		}
		got := here.choose(here.collect([]*Slice{&s}, Port{Name: "http", Protocol: "TCP"}, true))
		if last(got.cluster) != c.cluster || last(got.local) != c.local || got.any != (c.cluster != "") {
			t.Errorf("%s: cluster %s local %s any %v, want %s and %s", c.what, last(got.cluster), last(got.local), got.any, c.cluster, c.local)
		}
	}
}

// TestSharedPodNetwork: boards whose pods have one and the same network do not take another board's pod for their own.
func TestSharedPodNetwork(t *testing.T) {
	for _, c := range []struct{ what, pods, ends, cluster, local string }{
		{"the board's own", "10.42.0.0/24", "2@here", "2", "2"},
		{"another board's", "10.42.0.0/24", "2@there", "", ""},
		{"both under one address", "10.42.0.0/24", "2@there,2@here", "2", "2"},
		{"each board has one", "10.42.0.0/24", "2@there,3@here", "3", "3"},
		{"put there by hand", "10.42.0.0/24", "2@", "2", ""},
		{"networks of their own", "10.42.1.0/24", "2@there", "2", ""},
		{"no network of pods", "", "2@there", "2", ""},
	} {
		b := here
		if c.pods != "" {
			b.Pods = []netip.Prefix{netip.MustParsePrefix("fd42::/64"), netip.MustParsePrefix(c.pods)}
		}
		s := Slice{Ports: []Port{{Name: "http", Protocol: "TCP", Port: 80}}}
		for text := range strings.SplitSeq(c.ends, ",") {
			s.Endpoints = append(s.Endpoints, ep(text))
		}
		got := b.choose(b.collect([]*Slice{&s}, Port{Name: "http", Protocol: "TCP"}, true))
		if last(got.cluster) != c.cluster || last(got.local) != c.local || got.any != (c.cluster != "") {
			t.Errorf("%s: cluster %s local %s any %v, want %s and %s", c.what, last(got.cluster), last(got.local), got.any, c.cluster, c.local)
		}
	}
}

// TestForwards: what each kind of Service makes of one endpoint here and one elsewhere.
func TestForwards(t *testing.T) {
	service := func(change func(*corev1.Service)) *corev1.Service {
		s := &corev1.Service{}
		s.Namespace, s.Name = "default", "web"
		s.Spec.Type, s.Spec.ClusterIPs = corev1.ServiceTypeClusterIP, []string{"10.96.0.1"}
		s.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: corev1.ProtocolTCP, Port: 80}}
		change(s)
		return s
	}
	nodePort := func(s *corev1.Service) {
		s.Spec.Type = corev1.ServiceTypeNodePort
		s.Spec.Ports[0].NodePort = 30080
	}
	local := corev1.ServiceInternalTrafficPolicyLocal
	for _, c := range []struct {
		what string
		ends []string
		make func(*corev1.Service)
		want []string
	}{
		{"ClusterIP", []string{"2@here", "3@there"}, func(*corev1.Service) {}, []string{"10.96.0.1:80 near 2,3"}},
		{"none", nil, func(*corev1.Service) {}, []string{"10.96.0.1:80 near  refuse"}},
		{"internal Local", []string{"2@here", "3@there"}, func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local },
			[]string{"10.96.0.1:80 near 2"}},
		{"internal Local, none here", []string{"3@there"}, func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local },
			[]string{"10.96.0.1:80 near  drop"}},
		{"internal Local, none anywhere", nil, func(s *corev1.Service) { s.Spec.InternalTrafficPolicy = &local },
			[]string{"10.96.0.1:80 near  refuse"}},
		{"NodePort", []string{"2@here", "3@there"}, nodePort, []string{"10.96.0.1:80 near 2,3", "0.0.0.0:30080 near 2,3 far 2,3 mask"}},
		{"NodePort Local", []string{"2@here", "3@there"}, func(s *corev1.Service) {
			nodePort(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, []string{"10.96.0.1:80 near 2,3", "0.0.0.0:30080 near 2,3 far 2"}},
		{"NodePort Local, none here", []string{"3@there"}, func(s *corev1.Service) {
			nodePort(s)
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
		}, []string{"10.96.0.1:80 near 3", "0.0.0.0:30080 near 3 far  drop"}},
		{"LoadBalancer", []string{"2@here"}, func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			proxied := corev1.LoadBalancerIPModeProxy
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "192.0.2.2", IPMode: &proxied}, {IP: "fd00::1"},
				{Hostname: "x"}, {IP: "127.0.0.1"}, {IP: "0.0.0.0"}}
			s.Spec.LoadBalancerSourceRanges = []string{" 198.51.100.0/24 ", "fd00::/8"}
		}, []string{"10.96.0.1:80 near 2", "192.0.2.1:80 near 2 far 2 mask from 198.51.100.0/24"}},
		{"LoadBalancer for all", []string{"2@here"}, func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			s.Spec.LoadBalancerSourceRanges = []string{"198.51.100.0/24", "0.0.0.0/0"}
		}, []string{"10.96.0.1:80 near 2", "192.0.2.1:80 near 2 far 2 mask"}},
		{"ranges that nobody understands let nobody in", []string{"2@here"}, func(s *corev1.Service) {
			s.Spec.Type = corev1.ServiceTypeLoadBalancer
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
			s.Spec.LoadBalancerSourceRanges = []string{"everybody"}
		}, []string{"10.96.0.1:80 near 2", "192.0.2.1:80 near 2 far 2 mask from 192.0.2.1/32"}},
		{"sticky", []string{"2@here"}, func(s *corev1.Service) { s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP },
			[]string{"10.96.0.1:80 near 2 for 3h0m0s"}},
		{"both families", []string{"2@here"}, func(s *corev1.Service) {
			nodePort(s)
			s.Spec.ClusterIPs = []string{"10.96.0.1", "fd96::1"}
		}, []string{"10.96.0.1:80 near 2", "0.0.0.0:30080 near 2 far 2 mask", "[fd96::1]:80 near  refuse", "[::]:30080 near  far  mask refuse"}},
	} {
		spec := Trim(service(c.make))
		slice := &Slice{Service: "default/web", Ports: []Port{{Name: "http", Protocol: "TCP", Port: 8080}, {Name: "other", Protocol: "TCP", Port: 9}}}
		for _, text := range c.ends {
			slice.Endpoints = append(slice.Endpoints, ep(text))
		}
		plan, _ := Plan(spec, []*Slice{slice}, here)
		var got []string
		for _, f := range plan.Forwards {
			got = append(got, forwardText(f))
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%s:\n got %q\nwant %q", c.what, got, c.want)
		}
	}
}

func forwardText(f network.Forward) string {
	out := f.To.String() + " near " + last(f.Near)
	if f.Outside {
		out += " far " + last(f.Far)
	}
	if f.Masquerade {
		out += " mask"
	}
	if len(f.Near) == 0 || f.Outside && len(f.Far) == 0 {
		out += map[bool]string{true: " drop", false: " refuse"}[f.Drop]
	}
	if f.Sticky > 0 {
		out += " for " + f.Sticky.String()
	}
	for _, p := range f.Sources {
		out += " from " + p.String()
	}
	return out
}

// TestNothingToForward: these make no rules.
func TestNothingToForward(t *testing.T) {
	for what, change := range map[string]func(*corev1.Service){
		"headless":         func(s *corev1.Service) { s.Spec.ClusterIPs, s.Spec.ClusterIP = []string{"None"}, "None" },
		"no address yet":   func(s *corev1.Service) { s.Spec.ClusterIPs = nil },
		"ExternalName":     func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName },
		"another's":        func(s *corev1.Service) { s.Labels = map[string]string{proxyNameLabel: "cilium"} },
		"every address":    func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"0.0.0.0"} },
		"the loopback":     func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"127.0.0.1"} },
		"a mapped address": func(s *corev1.Service) { s.Spec.ClusterIPs = []string{"::ffff:10.96.0.1"} },
	} {
		s := &corev1.Service{}
		s.Spec.ClusterIPs = []string{"10.96.0.1"}
		change(s)
		if got := Trim(s); got.Forwards() {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

func TestTrimSlice(t *testing.T) {
	slice := func(change func(*discoveryv1.EndpointSlice)) *discoveryv1.EndpointSlice {
		port, name, node := int32(8080), "http", "here"
		s := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4, ObjectMeta: metav1.ObjectMeta{Namespace: "default",
			Name: "web-x", Labels: map[string]string{discoveryv1.LabelServiceName: "web"}},
			Ports:     []discoveryv1.EndpointPort{{Name: &name, Port: &port}},
			Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.42.0.2", "10.42.0.9"}, NodeName: &node}}}
		change(s)
		return s
	}
	want := &Slice{Service: "default/web", Ports: []Port{{Name: "http", Protocol: "TCP", Port: 8080}}, ByHand: true,
		Endpoints: []Endpoint{{Addr: netip.MustParseAddr("10.42.0.2"), Node: "here", Ready: true, Serving: true, Host: "web-0", Pod: "web-7"}}}
	full := slice(func(s *discoveryv1.EndpointSlice) {
		host := "Web-0"
		s.Endpoints[0].Hostname, s.Endpoints[0].TargetRef = &host, &corev1.ObjectReference{Kind: "Pod", Name: "web-7"}
	})
	if got := TrimSlice(full, "here"); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	want.Endpoints[0].Pod = ""
	if got := TrimSlice(full, "there"); !reflect.DeepEqual(got, want) {
		t.Errorf("on another board: %+v", got)
	}
	for what, change := range map[string]func(*discoveryv1.EndpointSlice){
		"no service":       func(s *discoveryv1.EndpointSlice) { s.Labels = nil },
		"headless":         func(s *discoveryv1.EndpointSlice) { s.Labels[corev1.IsHeadlessService] = "" },
		"names":            func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeFQDN },
		"all ports":        func(s *discoveryv1.EndpointSlice) { s.Ports[0].Port = nil },
		"another family":   func(s *discoveryv1.EndpointSlice) { s.AddressType = discoveryv1.AddressTypeIPv6 },
		"the loopback":     func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"127.0.0.1"} },
		"no address":       func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = nil },
		"an unclear one":   func(s *discoveryv1.EndpointSlice) { s.Endpoints[0].Addresses = []string{"x"} },
		"no endpoints":     func(s *discoveryv1.EndpointSlice) { s.Endpoints = nil },
		"a port too large": func(s *discoveryv1.EndpointSlice) { *s.Ports[0].Port = 65536 },
	} {
		got := TrimSlice(slice(change), "here")
		if got == nil {
			continue
		}
		if ends := here.collect([]*Slice{got}, Port{Name: "http", Protocol: "TCP"}, true); len(ends) > 0 {
			t.Errorf("%s: %+v", what, got)
		}
	}
}

func TestHealth(t *testing.T) {
	s := &Service{Name: "default/web", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, HealthPort: 32000}
	ends := []Endpoint{ep("2@here"), ep("3@here"), ep("4@there"), ep("5@here t")}
	slices := []*Slice{{Ports: []Port{{Name: "a", Protocol: "TCP", Port: 1}}, Endpoints: ends},
		{Ports: []Port{{Name: "b", Protocol: "TCP", Port: 2}}, Endpoints: ends}}
	if _, h := Plan(s, slices, here); h != (Health{Port: 32000, Local: 2}) {
		t.Errorf("%+v", h)
	}
}

// TestOthersAddresses: where boards are the load balancer, a board forwards what reaches it at its own addresses. What another one says to
// be an address of its own is not caught on the way there.
func TestOthersAddresses(t *testing.T) {
	for class, want := range map[string]int{"": 1, "example.com/balancer": 2} {
		s := &corev1.Service{}
		s.Spec.Type, s.Spec.ClusterIP, s.Spec.Ports = corev1.ServiceTypeLoadBalancer, "10.96.0.1", []corev1.ServicePort{{Port: 80}}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}, {IP: "8.8.8.8"}}
		if class != "" {
			s.Spec.LoadBalancerClass = &class
		}
		spec := Trim(s)
		plan, _ := Plan(spec, nil, Board{Name: "here", Own: []netip.Addr{netip.MustParseAddr("192.0.2.1")}})
		n := 0
		for _, f := range plan.Forwards {
			if f.Outside {
				n++
			}
		}
		if n != want {
			t.Errorf("class %q: %d of 2 addresses are forwarded, want %d", class, n, want)
		}
	}
}

// TestPlanProperties: whatever the endpoints, they are used by rule.
func TestPlanProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	flags := []string{"", " n", " t", " z=z1", " z=z2", " h=here", " h=there", " t n"}
	for range 3000 {
		s := Slice{Ports: []Port{{Protocol: "TCP", Port: 80}}}
		for range r.IntN(6) {
			s.Endpoints = append(s.Endpoints, ep(fmt.Sprintf("%d@%s%s", r.IntN(9), []string{"here", "there"}[r.IntN(2)], flags[r.IntN(len(flags))])))
		}
		spec := &Service{Name: "a/b", ClusterIPs: []netip.Addr{netip.MustParseAddr("10.96.0.1")}, Ports: []Port{{Protocol: "TCP", Port: 80, Node: 30080}},
			InternalLocal: r.IntN(2) == 0, ExternalLocal: r.IntN(2) == 0}
		plan, _ := Plan(spec, []*Slice{&s}, here)
		mixed := Slice{Ports: s.Ports, Endpoints: slices.Clone(s.Endpoints)}
		r.Shuffle(len(mixed.Endpoints), func(i, j int) { mixed.Endpoints[i], mixed.Endpoints[j] = mixed.Endpoints[j], mixed.Endpoints[i] })
		if again, _ := Plan(spec, []*Slice{&mixed}, here); !distinct(s) && !reflect.DeepEqual(plan, again) {
			continue // two endpoints of one address that say different things
		} else if distinct(s) && !reflect.DeepEqual(plan, again) {
			t.Fatalf("the order of endpoints matters: %+v", s)
		}
		cluster, outside := plan.Forwards[0], plan.Forwards[1]
		usable := func(e Endpoint) bool { return e.Ready || e.Serving && e.Terminating }
		for _, f := range plan.Forwards {
			for _, list := range [][]netip.AddrPort{f.Near, f.Far} {
				for _, at := range list {
					if !slices.ContainsFunc(s.Endpoints, func(e Endpoint) bool { return e.Addr == at.Addr() && usable(e) }) {
						t.Fatalf("%v is used, and unusable: %+v", at, s)
					}
				}
			}
		}
		some := slices.ContainsFunc(s.Endpoints, usable)
		if !spec.InternalLocal && distinct(s) && some != (len(cluster.Near) > 0) || spec.ExternalLocal == outside.Masquerade {
			t.Fatalf("%+v of %+v", plan, s)
		}
		if distinct(s) && len(outside.Near) == 0 && outside.Drop {
			t.Fatal("nobody is there, and clients wait")
		}
	}
}

func distinct(s Slice) bool {
	seen := map[netip.Addr]bool{}
	for _, e := range s.Endpoints {
		if seen[e.Addr] {
			return false
		}
		seen[e.Addr] = true
	}
	return true
}

// TestBounds: one object cannot make a board hold more than it is meant to.
func TestBounds(t *testing.T) {
	s := &corev1.Service{}
	s.Spec.ClusterIPs = []string{"10.96.0.1"}
	s.Spec.Type = corev1.ServiceTypeLoadBalancer
	forever := int32(1 << 30)
	s.Spec.SessionAffinity = corev1.ServiceAffinityClientIP
	s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: &forever}}
	for i := range 5000 {
		s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Port: int32(i + 1)})
		s.Status.LoadBalancer.Ingress = append(s.Status.LoadBalancer.Ingress, corev1.LoadBalancerIngress{IP: fmt.Sprintf("192.0.%d.%d", i/250, i%250)})
		s.Spec.LoadBalancerSourceRanges = append(s.Spec.LoadBalancerSourceRanges, "192.0.2.0/24")
	}
	spec := Trim(s)
	if len(spec.Ports) > mostPorts || len(spec.Balanced) > mostAddresses || len(spec.Sources) > mostSources || spec.Sticky > 24*time.Hour {
		t.Errorf("%d ports, %d addresses, %d sources, %v", len(spec.Ports), len(spec.Balanced), len(spec.Sources), spec.Sticky)
	}
	big := Slice{Ports: []Port{{Protocol: "TCP", Port: 80}}}
	for i := range 3000 {
		big.Endpoints = append(big.Endpoints, Endpoint{Addr: netip.AddrFrom4([4]byte{10, 42, byte(i >> 8), byte(i)}), Ready: true})
	}
	spec.Ports = []Port{{Protocol: "TCP", Port: 80}}
	if plan, _ := Plan(spec, []*Slice{&big}, here); len(plan.Forwards[0].Near) != MostEndpoints {
		t.Error(len(plan.Forwards[0].Near), "endpoints")
	}
}

func FuzzTrim(f *testing.F) {
	f.Add("10.96.0.1", "192.0.2.1", "0.0.0.0/0", "10.42.0.2", int32(80), int32(30080))
	f.Fuzz(func(t *testing.T, cluster, lb, source, end string, port, node int32) {
		s := &corev1.Service{}
		s.Spec.Type = corev1.ServiceTypeLoadBalancer
		s.Spec.ClusterIP, s.Spec.LoadBalancerSourceRanges = cluster, []string{source}
		s.Spec.Ports = []corev1.ServicePort{{Port: port, NodePort: node}}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lb}}
		spec := Trim(s)
		x := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{end}}},
			Ports: []discoveryv1.EndpointPort{{Port: &port}}, AddressType: discoveryv1.AddressTypeIPv4}
		x.Labels = map[string]string{discoveryv1.LabelServiceName: "x"}
		var of []*Slice
		if slice := TrimSlice(x, "here"); slice != nil {
			of = append(of, slice)
		}
		plan, _ := Plan(spec, of, here)
		for _, f := range plan.Forwards {
			own := f.To.Addr().IsUnspecified() && int32(f.To.Port()) == node
			if f.To.Port() == 0 || f.To.Addr().IsUnspecified() && !own || f.To.Addr().IsLoopback() || f.To.Addr().Zone() != "" {
				t.Errorf("forwards %v", f.To)
			}
			for _, e := range f.Near {
				if e.Addr().Is4() != f.To.Addr().Is4() || e.Port() == 0 {
					t.Errorf("%v leads to %v", f.To, e)
				}
			}
		}
	})
}
