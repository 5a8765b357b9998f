package allocate

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
)

// cluster is a Source of small ranges, which knows nothing but what is taken.
type cluster struct {
	ranges []Range
	ports  Ports
	ips    map[netip.Addr]bool
	used   map[int32]bool
	rng    *rand.Rand
}

func newCluster(seed uint64, ranges ...string) *cluster {
	c := &cluster{ports: Ports{30000, 30031}, ips: map[netip.Addr]bool{}, used: map[int32]bool{}, rng: rand.New(rand.NewPCG(seed, 1))}
	for _, r := range ranges {
		c.ranges = append(c.ranges, NewRange(netip.MustParsePrefix(r)))
	}
	return c
}

func (c *cluster) Families() (out []corev1.IPFamily, err error) {
	for _, r := range c.ranges {
		out = append(out, api.FamilyOf(r.First().String()))
	}
	return out, nil
}

func (c *cluster) Take(ip netip.Addr) error {
	if !slices.ContainsFunc(c.ranges, func(r Range) bool { return r.Has(ip) }) {
		return ErrRange
	}
	if c.ips[ip] {
		return ErrTaken
	}
	c.ips[ip] = true
	return nil
}

func (c *cluster) Next(f corev1.IPFamily) (ip netip.Addr, err error) {
	for _, r := range c.ranges {
		if api.FamilyOf(r.First().String()) == f {
			ip, err = r.Next(c.rng.Uint64N, func(ip netip.Addr) (bool, error) { return !c.ips[ip], nil })
		}
	}
	if err == nil {
		c.ips[ip] = true
	}
	return ip, err
}

func (c *cluster) TakePort(n int32) error {
	if err := c.ports.Check(n); err != nil {
		return err
	}
	if c.used[n] {
		return ErrPort
	}
	c.used[n] = true
	return nil
}

func (c *cluster) NextPort() (int32, error) {
	n, err := c.ports.Next(c.rng.Uint64N, func(n int32) bool { return !c.used[n] })
	if err == nil {
		c.used[n] = true
	}
	return n, err
}

// any is a service as somebody may write it. Much of it is refused.
func anyService(rng *rand.Rand) *corev1.Service {
	s := &corev1.Service{}
	s.Name = "s"
	s.Spec.Type = []corev1.ServiceType{"", "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}[rng.IntN(5)]
	if s.Spec.Type == corev1.ServiceTypeExternalName {
		s.Spec.ExternalName = "example.com"
	}
	for i := range 1 + rng.IntN(3) {
		p := corev1.ServicePort{Name: fmt.Sprint("p", i), Port: int32(80 + rng.IntN(2)),
			Protocol: []corev1.Protocol{"TCP", "UDP", "SCTP"}[rng.IntN(3)]}
		if rng.IntN(4) == 0 {
			p.NodePort = 29999 + int32(rng.IntN(34))
		}
		s.Spec.Ports = append(s.Spec.Ports, p)
	}
	switch rng.IntN(6) {
	case 0:
		s.Spec.ClusterIP = corev1.ClusterIPNone
	case 1:
		s.Spec.ClusterIP = fmt.Sprint("10.0.0.", rng.IntN(34))
	case 2:
		s.Spec.ClusterIP = fmt.Sprint("fd00::", rng.IntN(34))
	}
	if rng.IntN(3) == 0 {
		p := []corev1.IPFamilyPolicy{"SingleStack", "PreferDualStack", "RequireDualStack"}[rng.IntN(3)]
		s.Spec.IPFamilyPolicy = &p
	}
	if rng.IntN(4) == 0 {
		s.Spec.ExternalTrafficPolicy = corev1.ServiceExternalTrafficPolicyLocal
	}
	if rng.IntN(2) == 0 {
		s.Spec.Selector = map[string]string{"app": "web"}
	}
	return s
}

// TestNoneTwice makes, changes and deletes services at random: no two ever have the same address or port, what is taken is what they
// have, and at the end all is free again.
func TestNoneTwice(t *testing.T) {
	for seed := range uint64(40) {
		for _, ranges := range [][]string{{"10.0.0.0/27"}, {"10.0.0.0/28", "fd00::/124"}, {"fd00::/123", "10.0.0.0/27"}} {
			c := newCluster(seed, ranges...)
			rng, all, done := rand.New(rand.NewPCG(seed, 2)), map[int]*corev1.Service{}, 0
			for range 300 {
				i := rng.IntN(24)
				switch old := all[i]; {
				case old == nil:
					s := anyService(rng)
					done += c.try(all, i, s, nil)
				case rng.IntN(3) == 0:
					c.free(nil, old)
					delete(all, i)
				default:
					done += c.try(all, i, anyService(rng), old)
				}
				c.check(t, all)
			}
			if done < 40 {
				t.Fatalf("seed %d %v: only %d were accepted", seed, ranges, done)
			}
			for _, s := range all {
				c.free(nil, s)
			}
			if len(c.ips)+len(c.used) > 0 {
				t.Fatalf("seed %d %v: still taken: %v %v", seed, ranges, c.ips, c.used)
			}
		}
	}
}

// try admits a service as the store does, which takes everything back where one step fails.
func (c *cluster) try(all map[int]*corev1.Service, i int, s, old *corev1.Service) int {
	before := *c
	before.ips, before.used = map[netip.Addr]bool{}, map[int32]bool{}
	for ip := range c.ips {
		before.ips[ip] = true
	}
	for n := range c.used {
		before.used[n] = true
	}
	kind := api.Services
	err := error(nil)
	if old != nil {
		kind.Keep(s, old, "")
	}
	kind.Default(s)
	if err = Service(s, old, c); err == nil {
		s.Namespace = "a"
		if err = kind.Validate(s); err == nil && old != nil {
			s.ResourceVersion, s.UID = old.ResourceVersion, old.UID
			if s.ResourceVersion == "" {
				s.ResourceVersion, old.ResourceVersion = "1", "1"
			}
			err = kind.ValidateUpdate(s, old, "")
		}
	}
	if err != nil {
		*c = before
		return 0
	}
	c.free(s, old)
	all[i] = s
	return 1
}

func (c *cluster) free(s, old *corev1.Service) {
	for _, ip := range Freed(s, old) {
		delete(c.ips, netip.MustParseAddr(ip))
	}
	has := PortsOf(s)
	for _, n := range PortsOf(old) {
		if !slices.Contains(has, n) {
			delete(c.used, n)
		}
	}
}

func (c *cluster) check(t *testing.T, all map[int]*corev1.Service) {
	t.Helper()
	ips, ports := map[string]int{}, map[int32]int{}
	for i, s := range all {
		if api.HasClusterIP(s) && len(s.Spec.ClusterIPs) != len(s.Spec.IPFamilies) {
			t.Fatalf("%v of %v", s.Spec.ClusterIPs, s.Spec.IPFamilies)
		}
		for _, ip := range Addresses(s) {
			if j, twice := ips[ip]; twice {
				t.Fatalf("%s is that of %d and %d", ip, i, j)
			}
			if ips[ip] = i; !c.ips[netip.MustParseAddr(ip)] {
				t.Fatalf("%s is not taken", ip)
			}
		}
		for _, n := range PortsOf(s) {
			if j, twice := ports[n]; twice && j != i {
				t.Fatalf("port %d is that of %d and %d", n, i, j)
			}
			if ports[n] = i; !c.used[n] {
				t.Fatalf("port %d is not taken", n)
			}
		}
	}
	if len(ips) != len(c.ips) || len(ports) != len(c.used) {
		t.Fatalf("taken are %d addresses and %d ports, services have %d and %d", len(c.ips), len(c.used), len(ips), len(ports))
	}
}

func service(change func(*corev1.Service)) *corev1.Service {
	s := &corev1.Service{}
	s.Name, s.Namespace = "web", "a"
	s.Spec.Ports = []corev1.ServicePort{{Port: 80}}
	change(s)
	api.Services.Default(s)
	return s
}

func TestFamilies(t *testing.T) {
	policy := func(p corev1.IPFamilyPolicy, ips ...string) func(*corev1.Service) {
		return func(s *corev1.Service) {
			s.Spec.Selector = map[string]string{"a": "b"}
			if p != "" {
				s.Spec.IPFamilyPolicy = &p
			}
			if s.Spec.ClusterIPs = ips; len(ips) > 0 {
				s.Spec.ClusterIP = ips[0]
			}
		}
	}
	dual := []string{"10.0.0.0/28", "fd00::/124"}
	for name, c := range map[string]struct {
		ranges []string
		of     func(*corev1.Service)
		want   string // policy, families
	}{
		"nothing said":          {dual, policy(""), "SingleStack [IPv4]"},
		"the other one first":   {[]string{dual[1], dual[0]}, policy(""), "SingleStack [IPv6]"},
		"prefers two":           {dual, policy("PreferDualStack"), "PreferDualStack [IPv4 IPv6]"},
		"prefers two, one is":   {dual[:1], policy("PreferDualStack"), "PreferDualStack [IPv4]"},
		"needs two":             {dual, policy("RequireDualStack"), "RequireDualStack [IPv4 IPv6]"},
		"needs two, one is":     {dual[:1], policy("RequireDualStack"), "not configured for dual-stack"},
		"by its address":        {dual, policy("", "fd00::3"), "SingleStack [IPv6]"},
		"of no family there":    {dual[:1], policy("", "fd00::3"), "IPv6 is not configured on this cluster"},
		"two addresses, one":    {dual, policy("SingleStack", "10.0.0.3", "fd00::3"), "when multiple cluster IPs are specified"},
		"headless":              {dual, policy("", "None"), "SingleStack [IPv4]"},
		"headless, prefers two": {dual, policy("PreferDualStack", "None"), "PreferDualStack [IPv4 IPv6]"},
		"headless, of nobody": {dual[:1], func(s *corev1.Service) { s.Spec.ClusterIP = "None" },
			"RequireDualStack [IPv4 IPv6]"},
		"a name": {dual, func(s *corev1.Service) { s.Spec.Type, s.Spec.ExternalName = "ExternalName", "x" }, " []"},
	} {
		s := service(c.of)
		got := ""
		if err := Service(s, nil, newCluster(1, c.ranges...)); err != nil {
			got = err.Error()
		} else if p := s.Spec.IPFamilyPolicy; p != nil {
			got = fmt.Sprint(*p, " ", s.Spec.IPFamilies)
		} else {
			got = fmt.Sprint(" ", s.Spec.IPFamilies)
		}
		if !strings.Contains(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestFullAndTaken(t *testing.T) {
	c := newCluster(1, "10.0.0.0/30") // two
	for range 2 {
		if err := Service(service(func(*corev1.Service) {}), nil, c); err != nil {
			t.Fatal(err)
		}
	}
	refused := func(want string, change func(*corev1.Service)) {
		t.Helper()
		if err := Service(service(change), nil, c); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	refused(`failed to allocate a serviceIP for Service "web": range is full`, func(*corev1.Service) {})
	refused("failed to allocate IP 10.0.0.1: provided IP is already allocated", func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.1" })
	refused("does not match the current range", func(s *corev1.Service) { s.Spec.ClusterIP = "10.0.0.3" }) // the last is no address
	refused("does not match the current range", func(s *corev1.Service) { s.Spec.ClusterIP = "10.9.0.1" })

	c = newCluster(1, "10.0.0.0/24")
	named := func(n int32) func(*corev1.Service) {
		return func(s *corev1.Service) { s.Spec.Type, s.Spec.Ports[0].NodePort = corev1.ServiceTypeNodePort, n }
	}
	for range 32 {
		if err := Service(service(named(0)), nil, c); err != nil {
			t.Fatal(err)
		}
	}
	refused("failed to allocate a nodePort: range is full", named(0))
	refused("provided port is already allocated", named(30005))
	refused("provided port is not in the valid range. The range of valid ports is 30000-30031", named(80))
}

// TestStaticBandIsLast: who asks for a low number by name is likely to get it.
func TestStaticBandIsLast(t *testing.T) {
	for _, c := range []struct {
		n, part, most, want uint64
	}{{16, 16, 256, 0}, {32, 16, 256, 16}, {256, 16, 256, 16}, {65536, 16, 256, 256}, {1024, 16, 256, 64},
		{2768, 32, 128, 86}, {16, 32, 128, 0}} {
		if got := static(c.n, c.part, c.most); got != c.want {
			t.Errorf("of %d: %d, want %d", c.n, got, c.want)
		}
	}
	c := newCluster(3, "10.0.0.0/24")
	for i := range 254 {
		ip, err := c.Next(corev1.IPv4Protocol)
		if err != nil {
			t.Fatal(err)
		}
		if low := ip.As4()[3] < 16; low != (i >= 254-15) {
			t.Fatalf("%s was the %dth", ip, i)
		}
	}
}

// TestHugeRange: a /64 is walked no further than what is taken in it.
func TestHugeRange(t *testing.T) {
	r := NewRange(netip.MustParsePrefix("fd00::/64"))
	asked := 0
	ip, err := r.Next(func(uint64) uint64 { return 0 }, func(netip.Addr) (bool, error) { asked++; return asked > 3, nil })
	if err != nil || asked != 4 || ip != netip.MustParseAddr("fd00::103") || r.First() != netip.MustParseAddr("fd00::1") {
		t.Errorf("%s after %d, %v", ip, asked, err)
	}
}

func TestParsePorts(t *testing.T) {
	for text, want := range map[string]string{"30000-32767": "30000-32767", "1-1": "1-1", "": "", "5": "", "9-5": "", "0-5": "",
		"5-70000": "", "a-b": ""} {
		p, err := ParsePorts(text)
		if (err == nil) != (want != "") || err == nil && p.String() != want {
			t.Errorf("%q: %v %v", text, p, err)
		}
	}
}
