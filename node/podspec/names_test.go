package podspec

import (
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

func TestNames(t *testing.T) {
	long, yes, override := strings.Repeat("a", 62), true, "all.of.it"
	for _, c := range []struct {
		name string
		edit func(*corev1.PodSpec)
		want Names
		bad  bool
	}{
		{"web", func(*corev1.PodSpec) {}, Names{"web", "web", ""}, false},
		{"web", func(s *corev1.PodSpec) { s.Hostname = "other" }, Names{"other", "other", ""}, false},
		{long + "b", func(*corev1.PodSpec) {}, Names{long + "b", long + "b", ""}, false},
		{long + "bc", func(*corev1.PodSpec) {}, Names{long + "b", long + "b", ""}, false},
		{long + "-c", func(*corev1.PodSpec) {}, Names{long, long, ""}, false},
		{long[:61] + "..c", func(*corev1.PodSpec) {}, Names{long[:61], long[:61], ""}, false},
		{"web", func(s *corev1.PodSpec) { s.Subdomain = "sub" }, Names{"web", "web", "sub.default.svc.cluster.local"}, false},
		{"web", func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "sub", &yes },
			Names{"web.sub.default.svc.cluster.local", "web", "sub.default.svc.cluster.local"}, false},
		{"web", func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = &yes }, Names{"web", "web", ""}, false},
		{long, func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "sub", &yes }, Names{}, true},
		{"web", func(s *corev1.PodSpec) { s.Hostname, s.Subdomain, s.HostnameOverride = "h", "sub", &override }, Names{override, override, ""},
			false},
	} {
		p := aPod(c.name, func(p *corev1.Pod) { c.edit(&p.Spec) })
		got, err := namesOf(p, "cluster.local")
		if (err != nil) != c.bad || !c.bad && got != c.want {
			t.Errorf("%s %+v: %+v %v", c.name, c.want, got, err)
		}
	}
}

func TestParseResolv(t *testing.T) {
	got := parseResolv("# note\nnameserver 192.0.2.1\nsearch old\ndomain x\nnameserver 2001:db8::1\nsearch a.example. b .\noptions ndots:2 edns0\n")
	if !slices.Equal(got.servers, []string{"192.0.2.1", "2001:db8::1"}) || !slices.Equal(got.searches, []string{"a.example", "b", "."}) ||
		!slices.Equal(got.options, []string{"ndots:2", "edns0"}) {
		t.Errorf("%+v", got)
	}
	if got := parseResolv("search a\nsearch\n"); len(got.searches) > 0 {
		t.Errorf("an empty search line leaves %v", got.searches)
	}
}

func TestPodResolver(t *testing.T) {
	host := resolver{servers: []string{"192.0.2.1"}, searches: []string{"lan"}, options: []string{"edns0"}}
	cluster := clusterDNS{[]string{"10.96.0.10"}, "cluster.local"}
	five := "5"
	config := &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.1", "192.0.2.2"}, Searches: []string{"lan", "x.example"},
		Options: []corev1.PodDNSConfigOption{{Name: "ndots", Value: &five}, {Name: "edns0"}}}
	for _, c := range []struct {
		what   string
		policy corev1.DNSPolicy
		onHost bool
		config *corev1.PodDNSConfig
		dns    clusterDNS
		want   string
		notes  int
	}{
		{"default", corev1.DNSDefault, false, nil, cluster, "search lan\nnameserver 192.0.2.1\noptions edns0\n", 0},
		{"no cluster DNS", corev1.DNSClusterFirst, false, nil, clusterDNS{}, "search lan\nnameserver 192.0.2.1\noptions edns0\n", 0},
		{"cluster DNS", corev1.DNSClusterFirst, false, nil, cluster,
			"search default.svc.cluster.local svc.cluster.local cluster.local lan\nnameserver 10.96.0.10\noptions ndots:5\n", 0},
		{"on the host", corev1.DNSClusterFirst, true, nil, cluster, "search lan\nnameserver 192.0.2.1\noptions edns0\n", 0},
		{"on the host, asking for it", corev1.DNSClusterFirstWithHostNet, true, nil, cluster,
			"search default.svc.cluster.local svc.cluster.local cluster.local lan\nnameserver 10.96.0.10\noptions ndots:5\n", 0},
		{"none", corev1.DNSNone, false, config, cluster,
			"search lan x.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5 edns0\n", 0},
		{"merged", corev1.DNSDefault, false, config, cluster,
			"search lan x.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions edns0 ndots:5\n", 0},
		{"too many", corev1.DNSDefault, false, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.2", "192.0.2.3", "192.0.2.4"},
			Searches: strings.Fields(strings.Repeat("a ", 1) + "b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee ff")}, cluster,
			"search lan a b c d e f g h i j k l m n o p q r s t u v w x y z aa bb cc dd ee\n" +
				"nameserver 192.0.2.1\nnameserver 192.0.2.2\nnameserver 192.0.2.3\noptions edns0\n", 2},
		{"too long", corev1.DNSNone, false, &corev1.PodDNSConfig{Nameservers: []string{"192.0.2.2"},
			Searches: []string{strings.Repeat("x", 2000), strings.Repeat("y", 47), "z"}}, cluster,
			"search " + strings.Repeat("x", 2000) + " " + strings.Repeat("y", 47) + "\nnameserver 192.0.2.2\n", 1},
	} {
		p := aPod("web", func(p *corev1.Pod) { p.Spec.DNSPolicy, p.Spec.DNSConfig = c.policy, c.config })
		got, notes := podResolver(p, c.onHost, host, c.dns)
		if got.String() != c.want || len(notes) != c.notes {
			t.Errorf("%s: %q %q\nwant %q", c.what, got.String(), notes, c.want)
		}
	}
	if len(host.servers) != 1 || len(cluster.servers) != 1 {
		t.Error("the host's configuration was changed")
	}
}
