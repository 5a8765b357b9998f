package ingress

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// ing is an Ingress as lines say: "name age=DAYS", then "HOST PATH KIND SERVICE" each, "default SERVICE", or "tls SECRET HOST...".
// "-" is any host; kinds are exact, prefix, free and none (no path type).
func ing(text string) *networkingv1.Ingress {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	head := strings.Fields(lines[0])
	i := &networkingv1.Ingress{ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: head[0], Annotations: map[string]string{}}}
	day := time.Date(2026, 1, 31, 0, 0, 0, 0, time.UTC)
	i.CreationTimestamp = metav1.NewTime(day)
	for _, w := range head[1:] {
		switch key, value, _ := strings.Cut(w, "="); key {
		case "age":
			var days int
			_, _ = fmt.Sscan(value, &days)
			i.CreationTimestamp = metav1.NewTime(day.AddDate(0, 0, -days))
		case "in":
			i.Namespace = value
		default:
			i.Annotations[key] = value
		}
	}
	service := func(name string) *networkingv1.IngressBackend {
		return &networkingv1.IngressBackend{Service: &networkingv1.IngressServiceBackend{Name: name,
			Port: networkingv1.ServiceBackendPort{Number: 80}}}
	}
	for _, l := range lines[1:] {
		f := strings.Fields(l)
		switch f[0] {
		case "default":
			i.Spec.DefaultBackend = service(f[1])
		case "tls":
			i.Spec.TLS = append(i.Spec.TLS, networkingv1.IngressTLS{SecretName: f[1], Hosts: f[2:]})
		default:
			kind := map[string]networkingv1.PathType{"exact": "Exact", "prefix": "Prefix", "free": "ImplementationSpecific"}[f[2]]
			p := networkingv1.HTTPIngressPath{Path: f[1], Backend: *service(f[3])}
			if kind != "" {
				p.PathType = &kind
			}
			i.Spec.Rules = append(i.Spec.Rules, networkingv1.IngressRule{Host: strings.TrimPrefix(f[0], "-"),
				IngressRuleValue: networkingv1.IngressRuleValue{HTTP: &networkingv1.HTTPIngressRuleValue{Paths: []networkingv1.HTTPIngressPath{p}}}})
		}
	}
	return i
}

// TestRoute holds the table to Kubernetes' examples of paths and hosts, and to what it leaves open (decision 114).
func TestRoute(t *testing.T) {
	for _, c := range []struct{ rules, ask, want string }{
		{"a.b / prefix s", "a.b /any/path", "s"},
		{"a.b /foo exact s", "a.b /foo", "s"},
		{"a.b /foo exact s", "a.b /bar", ""},
		{"a.b /foo exact s", "a.b /foo/", ""},
		{"a.b /foo/ exact s", "a.b /foo", ""},
		{"a.b /foo prefix s", "a.b /foo/", "s"},
		{"a.b /foo/ prefix s", "a.b /foo", "s"},
		{"a.b /aaa/bb prefix s", "a.b /aaa/bbb", ""},
		{"a.b /aaa/bbb prefix s", "a.b /aaa/bbb/ccc", "s"},
		{"a.b /aaa/bbb prefix s", "a.b /aaa/bbbxyz", ""},
		{"a.b / prefix s\na.b /aaa prefix u", "a.b /aaa/ccc", "u"},
		{"a.b / prefix s\na.b /aaa prefix u\na.b /aaa/bbb prefix v", "a.b /aaa/bbb", "v"},
		{"a.b / prefix s\na.b /aaa prefix u", "a.b /ccc", "s"},
		{"a.b /foo prefix s\na.b /foo exact u", "a.b /foo", "u"},
		{"a.b /foo/ prefix s\na.b /foo exact u", "a.b /foo", "u"},
		{"a.b /foo exact s\na.b /foo/bar prefix u", "a.b /foo/bar", "u"},
		{"a.b /foo free s", "a.b /foo/bar", "s"},
		{"a.b /* free s", "a.b /foo/bar", "s"},
		{"a.b /foo none s", "a.b /foo/bar", "s"},
		{"a.b /Foo prefix s", "a.b /foo", ""},

		{"a.b / prefix s", "A.B. /", "s"},
		{"a.b / prefix s", "c.b /", ""},
		{"*.foo.com / prefix s", "bar.foo.com /", "s"},
		{"*.foo.com / prefix s", "baz.bar.foo.com /", ""},
		{"*.foo.com / prefix s", "foo.com /", ""},
		{"*.foo.com / prefix s\nbar.foo.com / prefix u", "bar.foo.com /", "u"},
		{"*.foo.com /a prefix s\nbar.foo.com /b prefix u", "bar.foo.com /a", "s"},
		{"- / prefix s", "any.where /", "s"},
		{"- / prefix s", " /", "s"},
		{"- /a prefix s\na.b / prefix u", "a.b /a", "u"},
		{"- /a prefix s\na.b /b prefix u", "a.b /a", "s"},
		{"default s", "a.b /x", "s"},
		{"default s\na.b /x prefix u", "a.b /y", "s"},
		{"default s\na.b /x prefix u", "c.d /y", ""},
		{"default s\n- /x prefix u", "c.d /y", "s"},
		{"a.b / prefix s", " /", ""},
		{"*.b / prefix s", "* /", ""},

		// Steps upwards hide nothing.
		{"a.b /open prefix s\na.b /shut prefix u", "a.b /open/../shut", "u"},
		{"a.b /open prefix s\na.b /shut prefix u", "a.b //shut", "u"},
		{"a.b /open prefix s\na.b /shut prefix u", "a.b /open/./x/../../shut/.", "u"},
		{"a.b /shut exact u\na.b / prefix s", "a.b /../shut", "u"},
	} {
		table, faults := Build([]*networkingv1.Ingress{ing("i\n" + c.rules)})
		host, path, _ := strings.Cut(c.ask, " ")
		got := ""
		if r := table.Route(host, path); r != nil {
			got = r.Backend.Service.Name
		}
		if got != c.want || len(faults) > 0 {
			t.Errorf("%q: %s goes to %q, want %q (%v)", c.rules, c.ask, got, c.want, faults)
		}
	}
}

// TestTaken: of two that claim one thing the older has it, and the younger is told.
func TestTaken(t *testing.T) {
	table, faults := Build([]*networkingv1.Ingress{
		ing("young in=m\na.b /x prefix y\na.b /y exact y\na.b /z prefix y\ntls cert a.b\ndefault y"),
		ing("old age=3\na.b /x/ prefix o\na.b /y exact o\ntls cert a.b\ndefault o"),
	})
	for ask, want := range map[string]string{"/x": "n/o:80", "/y": "n/o:80", "/z": "m/y:80", "/": "n/o:80"} {
		if got := table.Route("a.b", ask).Backend.String(); got != want {
			t.Errorf("%s goes to %s, want %s", ask, got, want)
		}
	}
	if cert, ok := table.Certificate("a.b"); !ok || cert != (types.NamespacedName{Namespace: "n", Name: "cert"}) {
		t.Errorf("certificate %v", cert)
	}
	var said []string
	for _, f := range faults {
		if f.Ingress.Name != "young" || !strings.Contains(f.Message, "n/") {
			t.Errorf("%s: %s: %s", f.Ingress.Name, f.Reason, f.Message)
		}
		said = append(said, f.Reason)
	}
	slices.Sort(said)
	if got := strings.Join(said, " "); got != "BackendTaken BackendTaken BackendTaken CertificateTaken PathTaken PathTaken" {
		t.Errorf("faults: %s", got)
	}
	if _, faults := Build([]*networkingv1.Ingress{ing("i\na.b /x/(.*) free s")}); len(faults) != 1 || faults[0].Reason != "PathTakenLiterally" {
		t.Errorf("a pattern: %v", faults)
	}
}

func TestCertificate(t *testing.T) {
	table, _ := Build([]*networkingv1.Ingress{ing("i\ntls one a.b\ntls all *.b\ntls rest\ntls one c.d\ndefault s")})
	for name, want := range map[string]string{"a.b": "one", "A.b.": "one", "c.b": "all", "x.c.b": "rest", "": "rest", "c.d": "one"} {
		if got, _ := table.Certificate(name); got.Name != want {
			t.Errorf("%q: %s, want %s", name, got.Name, want)
		}
	}
	if got := len(table.Secrets()); got != 3 {
		t.Errorf("%d secrets", got)
	}
	if _, ok := new(Table).Certificate("a.b"); ok {
		t.Error("a certificate of nothing")
	}
}

// TestBounds: a table has an end, the oldest are in it, and a namespace that makes many leaves room for the others.
func TestBounds(t *testing.T) {
	var all []*networkingv1.Ingress
	for i := range mostRoutes + 10 {
		all = append(all, ing(fmt.Sprintf("i%d age=%d\nh%d.b / prefix s\ntls c%d h%d.b", i, i/100, i, i, i)))
	}
	all = append(all, ing("young in=m\nyoung.b / prefix s\ntls c young.b"))
	table, faults := Build(all)
	if got := len(table.Backends()); got != mostRoutes/2+1 {
		t.Errorf("%d routes", got)
	}
	if got := len(table.certs); got != mostCerts/2+1 {
		t.Errorf("%d certificates", got)
	}
	if _, ok := table.Certificate("young.b"); !ok || table.Route("young.b", "/") == nil {
		t.Error("another namespace finds no room")
	}
	if table.Route(fmt.Sprintf("h%d.b", mostRoutes+9), "/") == nil || table.Route("h0.b", "/") == nil && len(faults) == 0 {
		t.Error("the oldest is left out, or nobody was told")
	}
}

// TestRouteProperties: the order of Ingresses says nothing, and what a request gets no rule fits better.
func TestRouteProperties(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	pick := func(words ...string) string { return words[r.IntN(len(words))] }
	for range 2000 {
		var all []*networkingv1.Ingress
		for i := range 1 + r.IntN(5) {
			text := fmt.Sprintf("i%d age=%d", i, r.IntN(3))
			for j := range 1 + r.IntN(4) {
				text += fmt.Sprintf("\n%s %s %s s%d%d", pick("-", "a.b", "*.b", "c.d"), pick("/", "/x", "/x/", "/x/y", "/z"), pick("exact", "prefix", "free"), i, j)
			}
			all = append(all, ing(text))
		}
		table, _ := Build(all)
		mixed := slices.Clone(all)
		r.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
		again, _ := Build(mixed)
		host, path := pick("a.b", "q.b", "c.d", "e.f"), pick("/", "/x", "/x/", "/x/y", "/x/y/z", "/z")
		got, second := table.Route(host, path), again.Route(host, path)
		if (got == nil) != (second == nil) || got != nil && got.Backend != second.Backend {
			t.Fatalf("the order matters: %v and %v", got, second)
		}
		if want := slow(all, host, path); got == nil && want != "" || got != nil && got.Backend.Service.Name != want {
			t.Fatalf("%s %s goes to %v, want %s", host, path, got, want)
		}
	}
}

// slow finds the same by looking at all rules.
func slow(all []*networkingv1.Ingress, host, path string) (best string) {
	rank := ""
	for _, i := range all {
		for j, r := range i.Spec.Rules {
			p := r.HTTP.Paths[0]
			level := map[string]int{host: 3, "*." + strings.SplitN(host, ".", 2)[1]: 2, "": 1}[r.Host]
			rule, exact := strings.TrimRight(p.Path, "/"), 0
			fits := path == rule || strings.HasPrefix(path, rule+"/")
			if *p.PathType == networkingv1.PathTypeExact {
				fits, exact = path == p.Path, 1
			}
			// Exact before longer, since no longer prefix fits; then older, then by name, then earlier.
			key := fmt.Sprintf("%d %d %03d %012d %s %03d", level, exact, len(rule), 9e11-i.CreationTimestamp.Unix(), string('z'-i.Name[1]), 100-j)
			if level > 0 && fits && key > rank {
				rank, best = key, p.Backend.Service.Name
			}
		}
	}
	return best
}

// FuzzRoute: whatever a client asks for, the table has an answer, which does not depend on how the path is written.
func FuzzRoute(f *testing.F) {
	table, _ := Build([]*networkingv1.Ingress{ing("i\na.b / prefix s\na.b /x/y prefix u\n*.c /z exact v\n- /w prefix r\ndefault d")})
	f.Add("a.b", "/x/../x/y/")
	f.Add("*", "//..//")
	f.Add("[::1]", "")
	f.Fuzz(func(t *testing.T, host, path string) {
		r := table.Route(host, path)
		if again := table.Route(host, clean(path)); r != again {
			t.Errorf("%q %q: %v, and cleaned %v", host, path, r, again)
		}
		if c := clean(path); strings.Contains(c+"/", "/../") || strings.Contains(c, "//") || c[0] != '/' {
			t.Errorf("%q became %q", path, c)
		}
		_, _ = table.Certificate(host)
	})
}

func service(change func(*corev1.Service)) *Service {
	s := &corev1.Service{Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Name: "http", Port: 80}, {Name: "dns", Port: 53,
		Protocol: corev1.ProtocolUDP}}}}
	if change != nil {
		change(s)
	}
	out := TrimService(s)
	return &out
}

// slice is one as words say: an address, then r ready, n not, t terminating and serving.
func slice(port string, words ...string) Slice {
	n, s := int32(8080), &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressTypeIPv4,
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Labels: map[string]string{discoveryv1.LabelServiceName: "s"}}}
	s.Ports = []discoveryv1.EndpointPort{{Name: &port, Port: &n}, {Name: &port}}
	yes, no := true, false
	for _, w := range words {
		e := discoveryv1.Endpoint{Addresses: []string{w[1:]}}
		switch w[0] {
		case 'r':
			e.Conditions.Ready = &yes
		case 'n':
			e.Conditions.Ready = &no
		case 't':
			e.Conditions = discoveryv1.EndpointConditions{Ready: &no, Serving: &yes, Terminating: &yes}
		}
		if strings.Contains(w, ":") {
			s.AddressType = discoveryv1.AddressTypeIPv6
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	out, _ := TrimSlice(s)
	return out
}

func TestBehind(t *testing.T) {
	web := Backend{Service: types.NamespacedName{Namespace: "n", Name: "s"}, Port: 80}
	h2c := "kubernetes.io/h2c"
	for _, c := range []struct {
		what  string
		to    Backend
		of    *Service
		ends  []Slice
		want  string
		lacks string
	}{
		{"two", web, service(nil), []Slice{slice("http", "r10.0.0.2", "r10.0.0.1")}, "10.0.0.1:8080 10.0.0.2:8080", ""},
		{"in two slices", web, service(nil), []Slice{slice("http", "r10.0.0.1"), slice("http", "r10.0.0.1", "r10.0.0.3")}, "10.0.0.1:8080 10.0.0.3:8080", ""},
		{"by name", Backend{PortName: "http"}, service(nil), []Slice{slice("http", "r10.0.0.1")}, "10.0.0.1:8080", ""},
		{"ends", web, service(nil), []Slice{slice("http", "t10.0.0.1", "r10.0.0.2")}, "10.0.0.2:8080", ""},
		{"all end", web, service(nil), []Slice{slice("http", "t10.0.0.1", "n10.0.0.2")}, "10.0.0.1:8080", ""},
		{"none ready", web, service(nil), []Slice{slice("http", "n10.0.0.2")}, "", "no endpoint"},
		{"another port", web, service(nil), []Slice{slice("other", "r10.0.0.2")}, "", "no endpoint"},
		{"itself", web, service(nil), []Slice{slice("http", "r127.0.0.1", "r0.0.0.0", "r169.254.169.254")}, "", "no endpoint"},
		{"no service", web, nil, nil, "", "no such service"},
		{"no port", Backend{Port: 81}, service(nil), nil, "", "no such port"},
		{"of UDP", Backend{Port: 53}, service(nil), nil, "", "no such port"},
		{"a name", web, service(func(s *corev1.Service) { s.Spec.Type = corev1.ServiceTypeExternalName }), nil, "", "ExternalName"},
		{"both families", web, service(nil), []Slice{slice("http", "rfd00::1"), slice("http", "r10.0.0.1")}, "10.0.0.1:8080", ""},
		{"six only", web, service(nil), []Slice{slice("http", "rfd00::1")}, "[fd00::1]:8080", ""},
		{"six first", web, service(func(s *corev1.Service) { s.Spec.IPFamilies = []corev1.IPFamily{corev1.IPv6Protocol} }),
			[]Slice{slice("http", "rfd00::1"), slice("http", "r10.0.0.1")}, "[fd00::1]:8080", ""},
	} {
		p := Behind(c.to, c.of, c.ends)
		var got []string
		for _, e := range p.Ends {
			got = append(got, e.String())
		}
		if strings.Join(got, " ") != c.want || !strings.Contains(p.Lacks, c.lacks) || (p.Lacks == "") != (c.lacks == "") {
			t.Errorf("%s: %v %q, want %q %q", c.what, got, p.Lacks, c.want, c.lacks)
		}
	}
	if p := Behind(web, service(func(s *corev1.Service) { s.Spec.Ports[0].AppProtocol = &h2c }), nil); !p.H2C {
		t.Error("h2c is forgotten")
	}
}

// TestOrder: each in turn; who stays moves only when his endpoint goes.
func TestOrder(t *testing.T) {
	ends := func(n int) (out []netip.AddrPort) {
		for i := range n {
			out = append(out, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), 80))
		}
		return out
	}
	p := Pool{Ends: ends(3)}
	if p.Order(netip.Addr{}, 4)(0) != p.Ends[1] || p.Order(netip.Addr{}, 4)(2) != p.Ends[0] {
		t.Error("not in turn")
	}
	whole, less, moved := Pool{Ends: ends(8), Sticky: true}, Pool{Ends: ends(7), Sticky: true}, 0
	used := map[netip.AddrPort]bool{}
	for i := range 256 {
		client := netip.AddrFrom4([4]byte{192, 0, 2, byte(i)})
		at := whole.Order(client, uint64(i))(0)
		used[at] = true
		if again := less.Order(client, 7)(0); again != at {
			if moved++; at != whole.Ends[7] {
				t.Errorf("%s moved from %s to %s", client, at, again)
			}
		}
	}
	if len(used) != 8 || moved == 0 {
		t.Errorf("%d endpoints are used, %d clients moved", len(used), moved)
	}
}
