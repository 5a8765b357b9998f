package dns

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/network/service"
)

var gateway = netip.MustParseAddr("10.42.0.1")

func newZone(t testing.TB) *Zone {
	t.Helper()
	z, err := NewZone(service.NewHeard(), "cluster.local", "here", gateway, netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("10.3.0.0/16"))
	if err != nil {
		t.Fatal(err)
	}
	return z
}

func (z *Zone) SetService(s *corev1.Service) { z.heard.SetService(service.Trim(s)) }

func (z *Zone) SetSlice(s *discoveryv1.EndpointSlice) {
	z.heard.SetSlice(name{Namespace: s.Namespace, Name: s.Name}, service.TrimSlice(s, z.board))
}

func svc(namespace, name string, change func(*corev1.ServiceSpec)) *corev1.Service {
	s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name}}
	change(&s.Spec)
	return s
}

func withIPs(ips ...string) func(*corev1.ServiceSpec) {
	return func(s *corev1.ServiceSpec) {
		s.ClusterIP, s.ClusterIPs = ips[0], ips
		s.Ports = []corev1.ServicePort{{Name: "https", Port: 443, Protocol: corev1.ProtocolTCP}, {Name: "DNS", Port: 53, Protocol: corev1.ProtocolUDP},
			{Port: 80}}
	}
}

func headless(s *corev1.ServiceSpec) { withIPs(corev1.ClusterIPNone)(s) }

// eps makes a slice: endpoints are "ADDRESS", "ADDRESS/HOSTNAME", with a ! at the end if they are not ready.
func eps(namespace, service, name string, family discoveryv1.AddressType, endpoints ...string) *discoveryv1.EndpointSlice {
	tcp, https, number := corev1.ProtocolTCP, "https", int32(8443)
	s := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name,
		Labels: map[string]string{discoveryv1.LabelServiceName: service}}, AddressType: family,
		Ports: []discoveryv1.EndpointPort{{Name: &https, Protocol: &tcp, Port: &number}}}
	for _, text := range endpoints {
		text, unready := strings.CutSuffix(text, "!")
		addr, host, named := strings.Cut(text, "/")
		e := discoveryv1.Endpoint{Addresses: []string{addr}}
		if ready := !unready; unready {
			e.Conditions.Ready = &ready
		}
		if named {
			e.Hostname = &host
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// spec is the cluster of the specification's examples, and some more, all of which was heard.
func spec(t testing.TB) *Zone {
	z := newZone(t)
	z.heard.Told(service.OfServices)
	z.heard.Told(service.OfSlices)
	z.SetService(svc("default", "kubernetes", withIPs("10.3.0.1")))
	z.SetService(svc("default", "dual", withIPs("10.3.0.7", "fd00::7")))
	z.SetService(svc("default", "six", withIPs("fd00::6")))
	z.SetService(svc("default", "headless", headless))
	z.SetSlice(eps("default", "headless", "headless-a", discoveryv1.AddressTypeIPv4, "10.42.0.100/My-Pet", "10.42.1.2", "10.42.0.3!"))
	z.SetSlice(eps("default", "headless", "headless-b", discoveryv1.AddressTypeIPv4, "10.42.1.3/my-pet", "10.42.1.2"))
	z.SetSlice(eps("default", "headless", "headless-c", discoveryv1.AddressTypeIPv6, "fd00:42::5"))
	z.SetService(svc("default", "empty", headless))
	z.SetSlice(eps("default", "empty", "empty-a", discoveryv1.AddressTypeIPv4, "10.42.0.9!"))
	z.SetService(svc("default", "early", func(s *corev1.ServiceSpec) { headless(s); s.PublishNotReadyAddresses = true }))
	z.SetSlice(eps("default", "early", "early-a", discoveryv1.AddressTypeIPv4, "10.42.0.11/early-0!"))
	z.SetService(svc("default", "foo", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "www.Example.com"
	}))
	z.SetService(svc("other", "hop", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "kubernetes.default.svc.cluster.local."
	}))
	z.SetService(svc("other", "loop", func(s *corev1.ServiceSpec) {
		s.Type, s.ExternalName = corev1.ServiceTypeExternalName, "loop.other.svc.cluster.local"
	}))
	return z
}

func question(name, kind string) dnsmessage.Question {
	types := map[string]dnsmessage.Type{"A": dnsmessage.TypeA, "AAAA": dnsmessage.TypeAAAA, "SRV": dnsmessage.TypeSRV, "PTR": dnsmessage.TypePTR,
		"TXT": dnsmessage.TypeTXT, "CNAME": dnsmessage.TypeCNAME, "SOA": dnsmessage.TypeSOA, "NS": dnsmessage.TypeNS, "MX": dnsmessage.TypeMX}
	return dnsmessage.Question{Name: dnsmessage.MustNewName(name), Type: types[kind], Class: dnsmessage.ClassINET}
}

// said is an answer as a line: its records, sorted, or why there are none.
func said(a Answer) string {
	var out []string
	for _, r := range a.Records {
		switch b := r.Body.(type) {
		case *dnsmessage.AResource:
			out = append(out, netip.AddrFrom4(b.A).String())
		case *dnsmessage.AAAAResource:
			out = append(out, netip.AddrFrom16(b.AAAA).String())
		case *dnsmessage.CNAMEResource:
			out = append(out, "-> "+b.CNAME.String())
		case *dnsmessage.SRVResource:
			out = append(out, fmt.Sprintf("%s:%d", b.Target, b.Port))
		case *dnsmessage.PTRResource:
			out = append(out, b.PTR.String())
		case *dnsmessage.TXTResource:
			out = append(out, strings.Join(b.TXT, ""))
		case *dnsmessage.NSResource:
			out = append(out, b.NS.String())
		case *dnsmessage.SOAResource:
			out = append(out, "SOA "+b.NS.String())
		}
	}
	switch {
	case a.RCode == dnsmessage.RCodeNameError && len(out) == 0:
		return "no such name"
	case len(out) == 0 && a.RCode == dnsmessage.RCodeSuccess:
		return "nothing of it"
	case len(out) == 0:
		return a.RCode.String()
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// TestSpecification goes through Kubernetes' DNS specification, section by section, and what follows from it: a name is there if it
// has a record of any type, or a name below it has.
func TestSpecification(t *testing.T) {
	z := spec(t)
	const others = "others know"
	for _, c := range []struct{ name, kind, want string }{
		{"dns-version.cluster.local.", "TXT", "1.1.0"}, // 2.2
		{"dns-version.cluster.local.", "A", "nothing of it"},
		{"kubernetes.default.svc.cluster.local.", "A", "10.3.0.1"}, // 2.3.1
		{"KUBERNETES.Default.svc.Cluster.local.", "A", "10.3.0.1"},
		{"kubernetes.default.svc.cluster.local.", "AAAA", "nothing of it"},
		{"dual.default.svc.cluster.local.", "A", "10.3.0.7"},
		{"dual.default.svc.cluster.local.", "AAAA", "fd00::7"},
		{"six.default.svc.cluster.local.", "A", "nothing of it"},
		{"kubernetes.default.svc.cluster.local.", "MX", "nothing of it"},
		{"_https._tcp.kubernetes.default.svc.cluster.local.", "SRV", "kubernetes.default.svc.cluster.local.:443"}, // 2.3.2
		{"_dns._udp.kubernetes.default.svc.cluster.local.", "SRV", "kubernetes.default.svc.cluster.local.:53"},
		{"_dns._tcp.kubernetes.default.svc.cluster.local.", "SRV", "no such name"},
		{"_._tcp.kubernetes.default.svc.cluster.local.", "SRV", "no such name"},
		{"_https._tcp.kubernetes.default.svc.cluster.local.", "A", "nothing of it"},
		{"_tcp.kubernetes.default.svc.cluster.local.", "SRV", "nothing of it"},
		{"_sctp.kubernetes.default.svc.cluster.local.", "SRV", "no such name"},
		{"kubernetes.default.svc.cluster.local.", "SRV", "kubernetes.default.svc.cluster.local.:443 " +
			"kubernetes.default.svc.cluster.local.:53 kubernetes.default.svc.cluster.local.:80"},
		{"1.0.3.10.in-addr.arpa.", "PTR", "kubernetes.default.svc.cluster.local."}, // 2.3.3
		{"1.0.3.10.in-addr.arpa.", "A", "nothing of it"},
		{"7." + strings.Repeat("0.", 27) + "0.0.d.f.ip6.arpa.", "PTR", "dual.default.svc.cluster.local."},
		{"9.9.3.10.in-addr.arpa.", "PTR", "no such name"}, // of the cluster's range, and nobody has it
		{"1.2.0.192.in-addr.arpa.", "PTR", others},
		{"x.2.0.192.in-addr.arpa.", "PTR", others},
		{"g." + strings.Repeat("0.", 27) + "0.0.d.f.ip6.arpa.", "PTR", others},
		{"headless.default.svc.cluster.local.", "A", "10.42.0.100 10.42.1.2 10.42.1.3"}, // 2.4.1
		{"headless.default.svc.cluster.local.", "AAAA", "fd00:42::5"},
		{"empty.default.svc.cluster.local.", "A", "no such name"},
		{"_tcp.empty.default.svc.cluster.local.", "A", "no such name"},
		{"10-42-0-9.empty.default.svc.cluster.local.", "A", "no such name"},
		{"early.default.svc.cluster.local.", "A", "10.42.0.11"},
		{"early-0.early.default.svc.cluster.local.", "A", "10.42.0.11"},
		{"my-pet.headless.default.svc.cluster.local.", "A", "10.42.0.100 10.42.1.3"},
		{"10-42-1-2.headless.default.svc.cluster.local.", "A", "10.42.1.2"},
		{"fd00-42--5.headless.default.svc.cluster.local.", "AAAA", "fd00:42::5"},
		{"10-42-0-3.headless.default.svc.cluster.local.", "A", "no such name"}, // not ready
		{"my-pet.kubernetes.default.svc.cluster.local.", "A", "no such name"},
		{"_https._tcp.headless.default.svc.cluster.local.", "SRV", "10-42-1-2.headless.default.svc.cluster.local.:8443 " + // 2.4.2
			"fd00-42--5.headless.default.svc.cluster.local.:8443 my-pet.headless.default.svc.cluster.local.:8443"},
		{"_tcp.headless.default.svc.cluster.local.", "A", "nothing of it"},
		{"100.0.42.10.in-addr.arpa.", "PTR", "my-pet.headless.default.svc.cluster.local."}, // 2.4.3
		{"2.1.42.10.in-addr.arpa.", "PTR", "10-42-1-2.headless.default.svc.cluster.local."},
		{"3.0.42.10.in-addr.arpa.", "PTR", "no such name"},
		{"foo.default.svc.cluster.local.", "A", "-> www.example.com."}, // 2.5
		{"foo.default.svc.cluster.local.", "CNAME", "-> www.example.com."},
		{"x.foo.default.svc.cluster.local.", "A", "no such name"},
		{"10-42-0-77.default.pod.cluster.local.", "A", "10.42.0.77"}, // 2.6
		{"10-42-0-77.default.pod.cluster.local.", "AAAA", "nothing of it"},
		{"fd00-42--5.default.pod.cluster.local.", "AAAA", "fd00:42::5"},
		{"10-42-0-777.default.pod.cluster.local.", "A", "no such name"},
		{"web.default.pod.cluster.local.", "A", "no such name"},
		{"a.10-42-0-77.default.pod.cluster.local.", "A", "no such name"},
		// The zone itself.
		{"cluster.local.", "SOA", "SOA ns.dns.cluster.local."},
		{"cluster.local.", "NS", "ns.dns.cluster.local."},
		{"cluster.local.", "A", "nothing of it"},
		{"ns.dns.cluster.local.", "A", "10.42.0.1"},
		{"dns.cluster.local.", "A", "nothing of it"},
		{"svc.cluster.local.", "A", "nothing of it"},
		{"pod.cluster.local.", "A", "nothing of it"},
		{"default.svc.cluster.local.", "A", "nothing of it"},
		{"nobody.svc.cluster.local.", "A", "no such name"},
		{"web.default.svc.cluster.local.", "A", "no such name"},
		{"a.b.c.kubernetes.default.svc.cluster.local.", "A", "no such name"},
		{"x.cluster.local.", "A", "no such name"},
		{"xcluster.local.", "A", others},
		{"local.", "A", others},
		{"www.example.com.", "A", others},
		{".", "NS", others},
	} {
		a, mine := z.Answer(question(c.name, c.kind))
		got := others
		if mine {
			got = said(a)
		}
		if got != c.want {
			t.Errorf("%s %s: %s, want %s", c.name, c.kind, got, c.want)
		}
		if mine && (len(a.Records) == 0) != (len(a.Authority) == 1) || mine && !a.Authoritative {
			t.Errorf("%s %s: %+v", c.name, c.kind, a) // who hears of nothing has to hear for how long
		}
	}
}

// The addresses that an SRV answer leads to come with it.
func TestAddressesComeAlong(t *testing.T) {
	a, _ := spec(t).Answer(question("_https._tcp.headless.default.svc.cluster.local.", "SRV"))
	if got := said(Answer{Records: a.Extra}); got != "10.42.0.100 10.42.1.2 10.42.1.3 fd00:42::5" {
		t.Error(got)
	}
}

// After any changes a zone knows what one knows that was told the end alone, and no more.
func TestZoneForgets(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 2))
	z := newZone(t)
	services, sliced := map[string]*corev1.Service{}, map[string]*discoveryv1.EndpointSlice{}
	pick := func() (string, string) { return fmt.Sprint("n", r.IntN(3)), fmt.Sprint("s", r.IntN(5)) }
	for range 4000 {
		ns, n := pick()
		key := ns + "/" + n
		switch r.IntN(6) {
		case 0:
			services[key] = svc(ns, n, headless)
			z.SetService(services[key])
		case 1:
			services[key] = svc(ns, n, withIPs(fmt.Sprint("10.3.0.", r.IntN(200))))
			z.SetService(services[key])
		case 2:
			delete(services, key)
			z.heard.DeleteService(name{Namespace: ns, Name: n})
		case 3, 4:
			_, of := pick()
			sliced[key] = eps(ns, of, n, discoveryv1.AddressTypeIPv4, fmt.Sprint("10.42.0.", r.IntN(9)), fmt.Sprint("10.42.0.", r.IntN(9), "/h"))
			z.SetSlice(sliced[key])
		case 5:
			delete(sliced, key)
			z.heard.SetSlice(name{Namespace: ns, Name: n}, nil)
		}
	}
	fresh := newZone(t)
	for _, s := range services {
		fresh.SetService(s)
	}
	for _, s := range sliced {
		fresh.SetSlice(s)
	}
	for i := range 3 {
		for j := range 5 {
			for _, q := range []dnsmessage.Question{question(fmt.Sprintf("s%d.n%d.svc.cluster.local.", j, i), "A"),
				question(fmt.Sprintf("_https._tcp.s%d.n%d.svc.cluster.local.", j, i), "SRV"), question(fmt.Sprintf("n%d.svc.cluster.local.", i), "A"),
				question(fmt.Sprintf("%d.0.42.10.in-addr.arpa.", i+j), "PTR")} {
				a, _ := z.Answer(q)
				b, _ := fresh.Answer(q)
				if said(a) != said(b) {
					t.Errorf("seed %d: %s: %s, want %s", seed, q.Name, said(a), said(b))
				}
			}
		}
	}
}

// A domain that leaves no room for names is refused.
func TestZoneBounds(t *testing.T) {
	if _, err := NewZone(service.NewHeard(), strings.Repeat("abcdefg.", 31), "here", gateway); err == nil {
		t.Error("a domain without room for names was taken")
	}
}

// Boards whose pods have one and the same network: the name of another board's pod must not lead to one of this board.
func TestSharedPodNetwork(t *testing.T) {
	z := newZone(t)
	z.SetService(svc("default", "db", headless))
	s := eps("default", "db", "db-a", discoveryv1.AddressTypeIPv4, "10.42.0.2/db-0", "10.42.0.3/db-1", "10.42.1.4/db-2", "10.42.0.5/db-3")
	for i, node := range []string{"there", "here", "there"} { // the last was put there by hand
		s.Endpoints[i].NodeName = &node
	}
	z.SetSlice(s)
	for name, want := range map[string]string{"db": "10.42.0.3 10.42.0.5 10.42.1.4", "db-0.db": "no such name", "db-1.db": "10.42.0.3",
		"db-2.db": "10.42.1.4", "db-3.db": "10.42.0.5"} {
		if a, _ := z.Answer(question(name+".default.svc.cluster.local.", "A")); !sameWords(strings.Fields(said(a)), strings.Fields(want)) {
			t.Errorf("%s: %s, want %s", name, said(a), want)
		}
	}
}
