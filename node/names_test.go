package node

import (
	"os"
	"path/filepath"
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
		want podNames
		bad  bool
	}{
		{"web", func(*corev1.PodSpec) {}, podNames{"web", "web", ""}, false},
		{"web", func(s *corev1.PodSpec) { s.Hostname = "other" }, podNames{"other", "other", ""}, false},
		{long + "b", func(*corev1.PodSpec) {}, podNames{long + "b", long + "b", ""}, false},
		{long + "bc", func(*corev1.PodSpec) {}, podNames{long + "b", long + "b", ""}, false},
		{long + "-c", func(*corev1.PodSpec) {}, podNames{long, long, ""}, false},
		{long[:61] + "..c", func(*corev1.PodSpec) {}, podNames{long[:61], long[:61], ""}, false},
		{"web", func(s *corev1.PodSpec) { s.Subdomain = "sub" }, podNames{"web", "web", "sub.default.svc.cluster.local"}, false},
		{"web", func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "sub", &yes },
			podNames{"web.sub.default.svc.cluster.local", "web", "sub.default.svc.cluster.local"}, false},
		{"web", func(s *corev1.PodSpec) { s.SetHostnameAsFQDN = &yes }, podNames{"web", "web", ""}, false},
		{long, func(s *corev1.PodSpec) { s.Subdomain, s.SetHostnameAsFQDN = "sub", &yes }, podNames{}, true},
		{"web", func(s *corev1.PodSpec) { s.Hostname, s.Subdomain, s.HostnameOverride = "h", "sub", &override }, podNames{override, override, ""}, false},
	} {
		p := aPod(c.name, func(p *corev1.Pod) { c.edit(&p.Spec) })
		got, err := names(p, "cluster.local")
		if (err != nil) != c.bad || !c.bad && got != c.want {
			t.Errorf("%s %+v: %+v %v", c.name, c.want, got, err)
		}
	}
}

// TestPodFiles: /etc/hosts, /etc/hostname and /etc/resolv.conf of a pod. They are written in place, since containers
// have them mounted.
func TestPodFiles(t *testing.T) {
	a, dir := bare(t)
	pod := aPod("web", func(p *corev1.Pod) {
		p.UID = "u1"
		p.Spec.DNSPolicy, p.Spec.Subdomain = corev1.DNSClusterFirst, "sub"
		p.Spec.HostAliases = []corev1.HostAlias{{IP: "192.0.2.9", Hostnames: []string{"foo", "bar.example"}}}
	})
	read := func(name string) string {
		t.Helper()
		data, err := os.ReadFile(filepath.Join(a.volumes.FilesOf("u1"), name))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	write := func(ips ...string) {
		t.Helper()
		if _, err := a.writePodFiles(pod, ips); err != nil {
			t.Fatal(err)
		}
	}
	write("10.0.0.2", "fd00::2") // the board has no resolv.conf
	want := "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n::1\tlocalhost ip6-localhost ip6-loopback\n" +
		"fe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\nfe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n" +
		"10.0.0.2\tweb.sub.default.svc.cluster.local\tweb\nfd00::2\tweb.sub.default.svc.cluster.local\tweb\n" +
		"\n# Entries added by HostAliases.\n192.0.2.9\tfoo\tbar.example\n"
	if got := read("hosts"); got != want {
		t.Errorf("hosts %q", got)
	}
	if got := read("hostname"); got != "web\n" || read("resolv.conf") != "" {
		t.Errorf("hostname %q, resolv.conf %q", got, read("resolv.conf"))
	}
	open, err := os.Open(filepath.Join(a.volumes.FilesOf("u1"), "hosts"))
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	for name, text := range map[string]string{"resolv.conf": "nameserver 192.0.2.1\n", "hosts": "192.0.2.7 board\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	pod.Spec.HostNetwork, pod.Spec.HostAliases = true, nil
	write()
	const onHost = "# Kubernetes-managed hosts file (host network).\n192.0.2.7 board\n"
	if read("resolv.conf") != "nameserver 192.0.2.1\n" || read("hosts") != onHost || read("hostname") != "n\n" {
		t.Errorf("resolv.conf %q hosts %q hostname %q", read("resolv.conf"), read("hosts"), read("hostname"))
	}
	mounted := make([]byte, 100)
	if n, err := open.Read(mounted); err != nil || string(mounted[:n]) != onHost {
		t.Errorf("a container with the file mounted reads %q %v", mounted[:n], err)
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
		{"none", corev1.DNSNone, false, config, cluster, "search lan x.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions ndots:5 edns0\n", 0},
		{"merged", corev1.DNSDefault, false, config, cluster, "search lan x.example\nnameserver 192.0.2.1\nnameserver 192.0.2.2\noptions edns0 ndots:5\n", 0},
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
