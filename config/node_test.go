package config

import (
	"fmt"
	"strings"
	"testing"
	"time"
)

// TestNodeFlags: what --register-with-taints, --node-labels and --node-ip take, and what they refuse (N-1.18, N-1.20,
// N-1.23, N-1.24, N-1.25).
func TestNodeFlags(t *testing.T) {
	taints := func(s string) (any, error) { return parseTaints(s) }
	labels := func(s string) (any, error) { return parseLabels(s) }
	ips := func(s string) (any, error) { return parseNodeIPs(s) }
	for _, c := range []struct {
		parse       func(string) (any, error)
		text, wrong string
		want        string
	}{
		{taints, "a=b:NoSchedule, c:NoExecute,d=:PreferNoSchedule", "",
			"[{a b NoSchedule <nil>} {c  NoExecute <nil>} {d  PreferNoSchedule <nil>}]"},
		{taints, "a=b", "has no effect", ""},
		{taints, "a=b:", "has no effect", ""},
		{taints, "a=b:Sometimes", "the effect must be", ""},
		{taints, "a=b:NoSchedule,a=c:NoSchedule", "given twice", ""},
		{taints, "a=b:NoSchedule,a=b:NoExecute", "", "[{a b NoSchedule <nil>} {a b NoExecute <nil>}]"},
		{taints, "-a=b:NoSchedule", "name part", ""},
		{taints, "a=b c:NoSchedule", "a valid label must be", ""},
		{labels, "tier=edge,example.com/x=", "", "map[example.com/x: tier:edge]"},
		{labels, "tier", "write key=value", ""},
		{labels, "t ier=x", "name part", ""},
		{labels, "tier=a b", "a valid label must be", ""},
		{labels, "kubernetes.io/hostname=h,topology.kubernetes.io/zone=z,failure-domain.beta.kubernetes.io/region=r,kubernetes.io/arch=a", "",
			"map[failure-domain.beta.kubernetes.io/region:r kubernetes.io/arch:a kubernetes.io/hostname:h topology.kubernetes.io/zone:z]"},
		{labels, "node.kubernetes.io/x=1,a.node.kubernetes.io/x=2,kubelet.kubernetes.io/x=3", "",
			"map[a.node.kubernetes.io/x:2 kubelet.kubernetes.io/x:3 node.kubernetes.io/x:1]"},
		{labels, "kubernetes.io/x=1", "reserved", ""},
		{labels, "a.k8s.io/x=1", "reserved", ""},
		{labels, "node-role.kubernetes.io/edge=", "reserved", ""},
		{labels, "xnode.kubernetes.io/x=1", "reserved", ""},
		{ips, "192.0.2.1", "", "[192.0.2.1]"},
		{ips, "192.0.2.1,2001:db8::1", "", "[192.0.2.1 2001:db8::1]"},
		{ips, "192.0.2.1,nonsense", "", "[192.0.2.1]"},
		{ips, "0.0.0.0", "", "[0.0.0.0]"},
		{ips, "01.2.3.004", "", "[1.2.3.4]"},
		{ips, "010.00.0.0,2001:db8::01", "", "[10.0.0.0 2001:db8::1]"},
		{ips, "1.2.3,1..2.3,1.2.3.0256", "", "[]"},
		{ips, "192.0.2.1,192.0.2.2", "must contain either a single IP or a dual-stack pair of IPs", ""},
		{ips, "192.0.2.1,2001:db8::1,2001:db8::2", "must contain either a single IP or a dual-stack pair of IPs", ""},
		{ips, "0.0.0.0,2001:db8::1", "cannot include '0.0.0.0' or '::'", ""},
		{ips, "192.0.2.1,::", "cannot include '0.0.0.0' or '::'", ""},
	} {
		got, err := c.parse(c.text)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %v, want %s", c.text, err, c.wrong)
			}
			continue
		}
		if text := fmt.Sprint(got); err != nil || text != c.want {
			t.Errorf("%s: %s %v, want %s", c.text, text, err, c.want)
		}
	}
}

// TestNodeName: the host's name, or what --hostname-override says instead (N-1.16, N-1.17).
func TestNodeName(t *testing.T) {
	for _, c := range []struct{ host, override, want, wrong string }{
		{" Shed-7 ", "", "shed-7", ""},
		{"shed", " Attic.Local ", "attic.local", ""},
		{"10.240.79.157", "", "10.240.79.157", ""},
		{"", "", "", "empty hostname is invalid"},
		{"shed", "  ", "", "empty hostname is invalid"},
		{"my_board", "", "", "--hostname-override"},
	} {
		got, err := NodeName(c.host, c.override)
		if c.wrong == "" && (err != nil || got != c.want) || c.wrong != "" && (err == nil || !strings.Contains(err.Error(), c.wrong)) {
			t.Errorf("%q %q: %q %v, want %q %q", c.host, c.override, got, err, c.want, c.wrong)
		}
	}
}

// TestStatusPeriods: a period of its own for looking is one for telling too (N-1.26).
// And --cloud-provider takes nothing but external (N-1.15).
func TestStatusPeriods(t *testing.T) {
	if s, err := resolved(t, "--cloud-provider=external"); err != nil || !s.Reg.External {
		t.Errorf("external: %v", err)
	}
	if _, err := resolved(t, "--cloud-provider=aws"); err == nil || !strings.Contains(err.Error(), "--cloud-provider") {
		t.Errorf("aws: %v", err)
	}
	for _, c := range []struct {
		text         string
		look, report time.Duration
	}{
		{"", 0, 0}, // the agent's own: 10 s and 5 min
		{"nodeStatusUpdateFrequency: 20s", 20 * time.Second, 20 * time.Second},
		{"nodeStatusUpdateFrequency: 20s\nnodeStatusReportFrequency: 2m", 20 * time.Second, 2 * time.Minute},
	} {
		f, err := Load(written(t, c.text), "")
		if err != nil {
			t.Fatal(err)
		}
		s, err := f.status()
		if err != nil || s.UpdateEvery != c.look || s.ReportEvery != c.report {
			t.Errorf("%q: %s %s %v", c.text, s.UpdateEvery, s.ReportEvery, err)
		}
	}
}
