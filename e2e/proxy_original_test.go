package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/internal/testrun"
	"ledge/network"
	"ledge/network/netns"
	"ledge/network/proxy"
	"ledge/network/service"
)

// TestForwardingOfTheOriginal holds what network/proxy does with connections to what kube-proxy (nftables mode) does with them: two boards
// alike, the same generated Services and slices, each address tried from a pod, from the board and from two strangers.
func TestForwardingOfTheOriginal(t *testing.T) {
	if os.Getenv("LEDGE_ORIGINAL") == "" {
		t.Skip("make original: Kubernetes' own kube-proxy is built and asked")
	}
	seed, err := strconv.ParseUint(os.Getenv("LEDGE_SEED"), 10, 64)
	if err != nil {
		seed = rand.Uint64()
	}
	cases := proxyCases(rand.New(rand.NewPCG(seed, 1)), 120)
	ours, theirs := newLot(t, "o"), newLot(t, "k")
	ours.forward(cases)
	theirs.kubeProxy(cases)
	g := errgroup.Group{}
	g.SetLimit(16)
	for _, c := range cases {
		for _, q := range c.questions() {
			g.Go(func() error {
				if a, b := ours.ask(q), theirs.ask(q); !q.alike(a, b) {
					t.Errorf("seed %d: %s\n%s %s from the %s: %s, kube-proxy: %s", seed, c, q.protocol, q.to, q.who, a, b)
				}
				return nil
			})
		}
	}
	_ = g.Wait()
}

// proxyCase is a Service with what is behind it.
type proxyCase struct {
	what   string
	svc    *corev1.Service
	slices []*discoveryv1.EndpointSlice
}

func (c proxyCase) String() string { return c.svc.Name + ": " + c.what }

const (
	lotDoor  = "198.51.100.1" // the board's address on the side of strangers
	lotDoor6 = "fd51::1"
)

// proxyCases are generated: each draws one of everything that a Service can be.
func proxyCases(r *rand.Rand, n int) (out []proxyCase) {
	pick := func(of ...string) string { return of[r.IntN(len(of))] }
	for i := range n {
		kind := pick("ClusterIP", "NodePort", "LoadBalancer")
		protocol := corev1.Protocol(pick("TCP", "TCP", "UDP"))
		families := pick("4", "4", "6", "46")
		ends := pick("none", "own", "own own2", "far", "own far", "own far far2", "own- far", "own- far-", "own! far", "own!", "far-",
			"own2- own! far!")
		inside, outside := pick("Cluster", "Cluster", "Local"), pick("Cluster", "Local")
		sticky, ranges := pick("None", "None", "ClientIP"), pick("", "", "198.51.100.2/32", "10.42.0.0/16,198.51.100.200/32", "203.0.113.0/24")
		s := &corev1.Service{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Service"}}
		s.Namespace, s.Name, s.UID = "default", fmt.Sprint("s", i), "1"
		s.CreationTimestamp = metav1.Unix(int64(i)+1, 0)
		policy := corev1.ServiceInternalTrafficPolicy(inside)
		s.Spec = corev1.ServiceSpec{Type: corev1.ServiceType(kind), InternalTrafficPolicy: &policy,
			SessionAffinity: corev1.ServiceAffinity(sticky)}
		for k := range 2 {
			p := corev1.ServicePort{Name: fmt.Sprint("p", k), Protocol: protocol, Port: int32(80 + k), TargetPort: intstr.FromInt(8080 + k)}
			if kind != "ClusterIP" {
				p.NodePort = int32(30000 + 2*i + k)
			}
			if kind == "LoadBalancer" {
				p.Port = int32(10000 + 2*i + k)
			}
			s.Spec.Ports = append(s.Spec.Ports, p)
		}
		for _, f := range families {
			s.Spec.IPFamilies = append(s.Spec.IPFamilies, map[rune]corev1.IPFamily{'4': "IPv4", '6': "IPv6"}[f])
			s.Spec.ClusterIPs = append(s.Spec.ClusterIPs, map[rune]string{'4': fmt.Sprint("10.96.0.", i+1), '6': fmt.Sprintf("fd96::%x", i+1)}[f])
		}
		s.Spec.ClusterIP = s.Spec.ClusterIPs[0]
		if sticky != "None" {
			s.Spec.SessionAffinityConfig = &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(600))}}
		}
		what := []string{kind, string(protocol), "IPv" + families, "ends " + ends, "inside " + inside, "affinity " + sticky}
		if kind != "ClusterIP" {
			s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicy(outside)
			what = append(what, "outside "+outside)
		}
		if kind == "LoadBalancer" {
			vip := corev1.LoadBalancerIPModeVIP
			s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: lotDoor, IPMode: &vip}, {IP: lotDoor6, IPMode: &vip}}
			if ranges != "" && families == "4" {
				s.Spec.LoadBalancerSourceRanges = strings.Split(ranges, ",")
				what = append(what, "for "+ranges)
			}
			if outside == "Local" {
				s.Spec.HealthCheckNodePort = int32(32000 + i)
			}
		}
		c := proxyCase{what: strings.Join(what, ", "), svc: s}
		for _, f := range s.Spec.IPFamilies {
			c.slices = append(c.slices, lotSlice(s, f, strings.Fields(ends)))
		}
		out = append(out, c)
	}
	return out
}

var lotEnds = map[string]struct{ v4, v6, node string }{"own": {"10.42.0.2", "fd42::2", "here"}, "own2": {"10.42.0.3", "fd42::3", "here"},
	"far": {"10.42.1.2", "fd42:1::2", "there"}, "far2": {"10.42.1.3", "fd42:1::3", "there"}}

// lotSlice: "!" not ready, "-" ends and still serves.
func lotSlice(s *corev1.Service, f corev1.IPFamily, ends []string) *discoveryv1.EndpointSlice {
	out := &discoveryv1.EndpointSlice{AddressType: discoveryv1.AddressType(f)}
	out.APIVersion, out.Kind = "discovery.k8s.io/v1", "EndpointSlice"
	out.Namespace, out.Name, out.UID = s.Namespace, s.Name+"-"+strings.ToLower(string(f)), "1"
	out.Labels = map[string]string{discoveryv1.LabelServiceName: s.Name}
	for i, p := range s.Spec.Ports {
		out.Ports = append(out.Ports, discoveryv1.EndpointPort{Name: &p.Name, Protocol: &p.Protocol, Port: new(int32(8080 + i))})
	}
	for _, text := range ends {
		name := strings.TrimRight(text, "!-")
		at, is := lotEnds[name]
		if !is {
			continue
		}
		ready, ending := name == text, strings.HasSuffix(text, "-")
		e := discoveryv1.Endpoint{Addresses: []string{at.v4}, NodeName: &at.node, Conditions: discoveryv1.EndpointConditions{Ready: &ready,
			Serving: new(ready || ending), Terminating: &ending}}
		if f == corev1.IPv6Protocol {
			e.Addresses = []string{at.v6}
		}
		out.Endpoints = append(out.Endpoints, e)
	}
	return out
}

// question is one address asked by one client.
type question struct {
	who      string // pod, board, stranger, other
	protocol corev1.Protocol
	to       netip.AddrPort
	sticky   bool
}

// alike: the same, but for what is other on purpose. A pod that asks at a door of the board is seen with its own address, where kube-proxy
// shows the board's. What is refused is answered with a reset, where kube-proxy sends an ICMP message: over IPv6 a TCP client does not
// hear of that one.
func (q question) alike(a, b string) bool {
	if q.who == "pod" && (q.to.Addr().String() == lotDoor || q.to.Addr().String() == lotDoor6) {
		any := strings.NewReplacer("sees 10.42.0.2", "sees the board", "sees fd42::2", "sees the board")
		a, b = any.Replace(a), any.Replace(b)
	}
	return a == b || a == "refused" && b == "nothing" && q.to.Addr().Is6() && q.protocol == corev1.ProtocolTCP
}

func (c proxyCase) questions() (out []question) {
	add := func(addr string, port int32, who ...string) {
		for _, w := range who {
			out = append(out, question{w, c.svc.Spec.Ports[0].Protocol, netip.AddrPortFrom(netip.MustParseAddr(addr), uint16(port)),
				c.svc.Spec.SessionAffinity != corev1.ServiceAffinityNone})
		}
	}
	for i, f := range c.svc.Spec.IPFamilies {
		door := map[corev1.IPFamily]string{corev1.IPv4Protocol: lotDoor, corev1.IPv6Protocol: lotDoor6}[f]
		for _, p := range c.svc.Spec.Ports {
			add(c.svc.Spec.ClusterIPs[i], p.Port, "pod", "board")
			if p.NodePort != 0 {
				add(door, p.NodePort, "pod", "board", "stranger")
			}
			if c.svc.Spec.Type == corev1.ServiceTypeLoadBalancer {
				add(door, p.Port, "pod", "board", "stranger", "other")
			}
		}
		add(c.svc.Spec.ClusterIPs[i], 9999, "pod") // a port that it does not have
	}
	return out
}

// lot is a board with two pods, another board and strangers, in namespaces of their own. Pods have no network in common: what one
// sends another passes the board's rules.
type lot struct {
	t       *testing.T
	mark    string
	clients map[string]*lotClient
}

type lotClient struct {
	fd     int
	v4, v6 string // it asks from there
}

var lots = map[string]struct{ v4, v6 []string }{"p1": {[]string{"10.42.0.2"}, []string{"fd42::2"}},
	"p2": {[]string{"10.42.0.3"}, []string{"fd42::3"}}, "far": {[]string{"10.42.1.2", "10.42.1.3"}, []string{"fd42:1::2", "fd42:1::3"}}}

func newLot(t *testing.T, name string) *lot {
	onHost(t)
	l := &lot{t: t, mark: testrun.Mark() + name}
	board := l.ns("board")
	in := func(ns, line string) { ip(t, append([]string{"-n", l.mark + ns}, strings.Fields(line)...)...) }
	in("board", "link set lo up")
	in("board", "link add ledge0 type bridge")
	in("board", "link set ledge0 up")
	for _, a := range []string{"10.42.0.1/24", "fd42::1/64"} {
		in("board", "addr add "+a+" dev ledge0 nodad")
	}
	l.sysctl("net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1", "net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.ledge0.send_redirects=0",
		"net.ipv6.conf.all.accept_dad=0",
		"net.ipv4.icmp_ratelimit=0", "net.ipv4.icmp_ratemask=0", "net.ipv6.icmp.ratelimit=0")
	if _, err := os.Stat("/proc/sys/net/bridge"); err == nil { // else what is rewritten for the same port of the bridge is lost
		l.sysctl("net.bridge.bridge-nf-call-iptables=0", "net.bridge.bridge-nf-call-ip6tables=0")
	}
	fds := map[string]int{"board": board}
	for _, ns := range []string{"p1", "p2", "far", "out"} {
		fds[ns] = l.ns(ns)
		in(ns, "link set lo up")
		in(ns, "link add eth0 type veth peer name "+ns+" netns "+l.mark+"board")
		in(ns, "link set eth0 up")
		in("board", "link set "+ns+" up")
		addrs := lots[ns]
		switch ns {
		case "p1", "p2":
			in("board", "link set "+ns+" master ledge0")
			l.address(in, ns, "eth0", addrs.v4, addrs.v6, "32", "128")
			in(ns, "route add 10.42.0.1 dev eth0")
			in(ns, "route add default via 10.42.0.1")
			in(ns, "-6 route add fd42::1 dev eth0")
			in(ns, "-6 route add default via fd42::1")
		case "far":
			l.address(in, ns, "lo", addrs.v4, addrs.v6, "32", "128")
			l.link(in, ns, "192.0.2.1", "192.0.2.2", "fd02::1", "fd02::2")
			in("board", "route add 10.42.1.0/24 via 192.0.2.2")
			in("board", "-6 route add fd42:1::/64 via fd02::2")
		case "out":
			l.link(in, ns, lotDoor, "198.51.100.2", lotDoor6, "fd51::2")
			in(ns, "addr add 198.51.100.200/24 dev eth0")
			in(ns, "addr add fd51::200/64 dev eth0 nodad")
			in("board", "route add default via 198.51.100.2")
			in("board", "-6 route add default via fd51::2")
		}
	}
	l.clients = map[string]*lotClient{"pod": {fds["p1"], "10.42.0.2", "fd42::2"}, "board": {fds["board"], "", ""},
		"stranger": {fds["out"], "198.51.100.2", "fd51::2"}, "other": {fds["out"], "198.51.100.200", "fd51::200"}}
	for _, ns := range []string{"p1", "p2", "far"} {
		for _, a := range slices.Concat(lots[ns].v4, lots[ns].v6) {
			for _, port := range []string{"8080", "8081"} {
				l.serve(fds[ns], a, port)
			}
		}
	}
	return l
}

func (l *lot) ns(name string) int {
	ip(l.t, "netns", "add", l.mark+name)
	l.t.Cleanup(func() { ip(l.t, "netns", "del", l.mark+name) })
	fd, err := netns.Open("/run/netns/" + l.mark + name)
	must(l.t, err)
	l.t.Cleanup(func() { _ = syscall.Close(fd) })
	return fd
}

func (l *lot) sysctl(lines ...string) {
	out, err := exec.Command("ip", append([]string{"netns", "exec", l.mark + "board", "sysctl", "-qw"}, lines...)...).CombinedOutput()
	if err != nil {
		l.t.Fatalf("sysctl: %v %s", err, out)
	}
}

func (*lot) address(in func(ns, line string), ns, dev string, v4, v6 []string, bits4, bits6 string) {
	for _, a := range v4 {
		in(ns, "addr add "+a+"/"+bits4+" dev "+dev)
	}
	for _, a := range v6 {
		in(ns, "addr add "+a+"/"+bits6+" dev "+dev+" nodad")
	}
}

// link gives both ends of a veth addresses, and the far end its way back.
func (l *lot) link(in func(ns, line string), ns, near, far, near6, far6 string) {
	l.address(in, "board", ns, []string{near}, []string{near6}, "24", "64")
	l.address(in, ns, "eth0", []string{far}, []string{far6}, "24", "64")
	in(ns, "route add default via "+near)
	in(ns, "-6 route add default via "+near6)
}

// serve has an endpoint say which one it is and whom it sees.
func (l *lot) serve(fd int, addr, port string) {
	must(l.t, netns.Within(fd, func() error {
		tcp, err := net.Listen("tcp", net.JoinHostPort(addr, port))
		if err != nil {
			return err
		}
		udp, err := net.ListenPacket("udp", net.JoinHostPort(addr, port))
		if err != nil {
			return err
		}
		l.t.Cleanup(func() { _, _ = tcp.Close(), udp.Close() })
		go func() {
			for c, err := tcp.Accept(); err == nil; c, err = tcp.Accept() {
				_, _ = fmt.Fprint(c, lotAnswer(addr, port, c.RemoteAddr()))
				_ = c.Close()
			}
		}()
		go func() {
			buf := make([]byte, 100)
			for _, from, err := udp.ReadFrom(buf); err == nil; _, from, err = udp.ReadFrom(buf) {
				_, _ = udp.WriteTo([]byte(lotAnswer(addr, port, from)), from)
			}
		}()
		return nil
	}))
}

func lotAnswer(addr, port string, from net.Addr) string {
	who, _, _ := net.SplitHostPort(from.String())
	switch who {
	case "10.42.0.2", "fd42::2", "198.51.100.2", "198.51.100.200", "fd51::2", "fd51::200":
	default:
		who = "the board"
	}
	return fmt.Sprintf("%s:%s sees %s", addr, port, who)
}

// ask collects what is answered, until nothing new has come for a while: endpoints are drawn.
func (l *lot) ask(q question) string {
	seen, since, one := map[string]bool{}, 0, ""
	c := l.clients[q.who]
	_ = netns.Within(c.fd, func() error {
		for since < 25 {
			said := c.once(q)
			if q.sticky && strings.Contains(said, " sees ") { // which one is drawn
				if one == "" {
					one = said
				}
				said = map[bool]string{true: "one endpoint", false: "another endpoint"}[said == one]
			}
			if since++; !seen[said] {
				seen[said], since = true, 0
			}
			if said == "nothing" || said == "refused" {
				since += 23
			}
		}
		return nil
	})
	var out []string
	for said := range seen {
		out = append(out, said)
	}
	slices.Sort(out)
	return strings.Join(out, ", ")
}

func (c *lotClient) once(q question) string {
	from := c.v4
	if q.to.Addr().Is6() {
		from = c.v6
	}
	d := net.Dialer{Timeout: 300 * time.Millisecond}
	if from != "" {
		d.LocalAddr = &net.TCPAddr{IP: net.ParseIP(from)}
		if q.protocol == corev1.ProtocolUDP {
			d.LocalAddr = &net.UDPAddr{IP: net.ParseIP(from)}
		}
	}
	conn, err := d.Dial(strings.ToLower(string(q.protocol)), q.to.String())
	if err == nil {
		defer conn.Close()
		_ = conn.SetDeadline(time.Now().Add(300 * time.Millisecond))
		buf := make([]byte, 100)
		n := 0
		if q.protocol == corev1.ProtocolUDP {
			_, _ = conn.Write([]byte("x"))
		}
		if n, err = conn.Read(buf); err == nil {
			return string(buf[:n])
		}
	}
	if errors.Is(err, syscall.ECONNREFUSED) {
		return "refused"
	}
	if e, ok := errors.AsType[net.Error](err); ok && e.Timeout() {
		return "nothing"
	}
	return err.Error()
}

// forward has ours forward them. network/bridge has pods that reach themselves answer the board.
func (l *lot) forward(cases []proxyCase) {
	for family, addrs := range map[string][]string{"ip": {"10.42.0.2", "10.42.0.3"}, "ip6": {"fd42::2", "fd42::3"}} {
		var self string
		for _, a := range addrs {
			self += fmt.Sprintf("%s saddr %s %s daddr %s masquerade; ", family, a, family, a)
		}
		words := fmt.Sprintf("table %s self { chain post { type nat hook postrouting priority 90; %s }; }", family, self)
		if out, err := exec.Command("ip", "netns", "exec", l.mark+"board", "nft", words).CombinedOutput(); err != nil {
			l.t.Fatalf("nft: %v %s", err, out)
		}
	}
	board := service.Board{Name: "here", Pods: []netip.Prefix{netip.MustParsePrefix("10.42.0.0/24"), netip.MustParsePrefix("fd42::/64")}}
	var all []network.Service
	for _, c := range cases {
		var of []*service.Slice
		for _, s := range c.slices {
			if x := service.TrimSlice(s, "here"); x != nil {
				of = append(of, x)
			}
		}
		plan, _ := service.Plan(service.Trim(c.svc), of, board)
		all = append(all, plan)
	}
	must(l.t, proxy.New(proxy.Config{Bridge: "ledge0", NetNS: "/run/netns/" + l.mark + "board"}).Prune(l.t.Context(), all))
}

// kubeProxy has the original forward them, which reads them from an API that has nothing else.
func (l *lot) kubeProxy(cases []proxyCase) {
	t := l.t
	build, err := exec.Command("../lab/peer.sh", "kubeproxy").Output()
	must(t, err)
	node := &corev1.Node{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}}
	node.Name, node.UID, node.ResourceVersion = "here", "1", "1"
	node.Spec.PodCIDRs = []string{"10.42.0.0/24", "fd42::/64"}
	node.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: lotDoor},
		{Type: corev1.NodeInternalIP, Address: lotDoor6}}
	var services, endpoints []any
	for _, c := range cases {
		services = append(services, c.svc)
		for _, s := range c.slices {
			endpoints = append(endpoints, s)
		}
	}
	h := &lotAPI{lists: map[string][]any{"services": services, "endpointslices": endpoints, "nodes": {node}, "servicecidrs": nil}}
	var door net.Listener
	must(t, netns.Within(l.clients["board"].fd, func() (err error) {
		door, err = net.Listen("tcp", "127.0.0.1:0")
		return err
	}))
	server := &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
	go func() { _ = server.Serve(door) }()
	t.Cleanup(func() { _ = server.Close() })

	dir := t.TempDir()
	config := fmt.Sprintf(`apiVersion: kubeproxy.config.k8s.io/v1alpha1
kind: KubeProxyConfiguration
mode: nftables
hostnameOverride: here
detectLocalMode: BridgeInterface
detectLocal: {bridgeInterface: ledge0}
nodePortAddresses: ["0.0.0.0/0", "::/0"]
healthzBindAddress: ""
metricsBindAddress: ""
conntrack: {maxPerCore: 0, min: 0, tcpEstablishedTimeout: 0s, tcpCloseWaitTimeout: 0s}
nftables: {minSyncPeriod: 100ms}
clientConnection:
  kubeconfig: %s
  contentType: application/json
  acceptContentTypes: application/json
`, filepath.Join(dir, "kubeconfig"))
	must(t, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "kubeconfig"), []byte(fmt.Sprintf(`apiVersion: v1
kind: Config
clusters: [{name: x, cluster: {server: "http://%s"}}]
contexts: [{name: x, context: {cluster: x, user: x}}]
users: [{name: x, user: {}}]
current-context: x
`, door.Addr())), 0o600))
	var log lotLog
	ctx, cancel := context.WithCancel(context.Background())
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", l.mark+"board", strings.TrimSpace(string(build)), "--config",
		filepath.Join(dir, "config"))
	cmd.Stdout, cmd.Stderr = &log, &log
	must(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("kube-proxy: %s", log.tail())
		}
	})
	testrun.Succeeds(t, 30*time.Second, "kube-proxy has rules", func() error {
		out, _ := exec.Command("ip", "netns", "exec", l.mark+"board", "nft", "list", "ruleset").CombinedOutput()
		last := cases[len(cases)-1].svc.Spec.ClusterIP
		return errors.Join(contains(string(out), cases[0].svc.Spec.ClusterIP), contains(string(out), last))
	})
	time.Sleep(2 * time.Second) // the other family
}

// lotLog keeps what a program says.
type lotLog struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *lotLog) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *lotLog) tail() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := l.buf.Bytes()
	return string(b[max(0, len(b)-4000):])
}

// lotAPI answers lists, and watches that say nothing.
type lotAPI struct{ lists map[string][]any }

func (a *lotAPI) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	i := slices.IndexFunc(parts, func(p string) bool { _, is := a.lists[p]; return is })
	w.Header().Set("Content-Type", "application/json")
	switch q := r.URL.Query(); {
	case i < 0 || r.Method != http.MethodGet:
		w.WriteHeader(http.StatusNotFound)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"NotFound","code":404}`)
	case q.Get("sendInitialEvents") != "":
		w.WriteHeader(http.StatusUnprocessableEntity)
		_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Invalid","code":422}`)
	case q.Get("watch") != "":
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	case i+1 < len(parts):
		_ = json.NewEncoder(w).Encode(a.lists[parts[i]][0])
	default:
		kind := map[string]string{"services": "ServiceList", "nodes": "NodeList", "endpointslices": "EndpointSliceList",
			"servicecidrs": "ServiceCIDRList"}[parts[i]]
		version := map[bool]string{true: "v1", false: strings.Join(parts[1:min(i, 3)], "/")}[parts[0] == "api"]
		_ = json.NewEncoder(w).Encode(map[string]any{"kind": kind, "apiVersion": version, "metadata": map[string]string{"resourceVersion": "1"},
			"items": slices.Concat([]any{}, a.lists[parts[i]])})
	}
}
