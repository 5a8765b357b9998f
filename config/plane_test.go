package config

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"ledge/api/local"
)

// TestPlaneFlags: the control plane's numbers reach it, under the names of N-3.1, N-3.2, N-3.29, N-3.30, N-3.37, N-3.38,
// N-3.43, N-3.46, N-4.5, N-4.10 and N-10.8.
func TestPlaneFlags(t *testing.T) {
	s, err := resolved(t)
	must(t, err)
	if c := s.Controllers(); c.Health.Grace != 40*time.Second || c.Health.EvictionRate != 0.1 || c.TerminatedPods != 100 ||
		c.Schedule.AgainstCapacity || c.OutOfService.Ignored || c.OutOfService.NoScheduleEvicts ||
		*s.Admission(local.Config{}).NotReadySeconds != 300 {
		t.Errorf("%+v", c)
	}
	s, err = resolved(t, "--node-monitor-period=2s", "--node-monitor-grace-period=50s", "--node-startup-grace-period=2m",
		"--node-eviction-rate=0",
		"--secondary-node-eviction-rate=0.5", "--large-cluster-size-threshold=7", "--unhealthy-zone-threshold=0.7", "--full-disruption-evictions",
		"--pod-eviction-timeout=90s", "--terminated-pod-gc-threshold=0", "--schedule-against=capacity", "--out-of-service-noschedule-evicts")
	must(t, err)
	s.File.FeatureGates = map[string]bool{gateOutOfService: false}
	c := s.Controllers()
	if h := c.Health; h.Period != 2*time.Second || h.Grace != 50*time.Second || h.StartupGrace != 2*time.Minute || h.EvictionRate >= 0 ||
		h.SecondaryEvictionRate != 0.5 || h.LargeZone != 7 || h.UnhealthyThreshold != 0.7 || !h.FullDisruptionEvictions {
		t.Errorf("%+v", h)
	}
	if c.TerminatedPods >= 0 || !c.Schedule.AgainstCapacity || !c.OutOfService.Ignored || !c.OutOfService.NoScheduleEvicts {
		t.Errorf("%+v", c)
	}
	if a := s.Admission(local.Config{}); *a.NotReadySeconds != 90 || *a.UnreachableSeconds != 90 {
		t.Errorf("%d %d", *a.NotReadySeconds, *a.UnreachableSeconds)
	}
	s, err = resolved(t, "--default-unreachable-toleration-seconds=7")
	must(t, err)
	if a := s.Admission(local.Config{}); *a.NotReadySeconds != 300 || *a.UnreachableSeconds != 7 {
		t.Errorf("%d %d", *a.NotReadySeconds, *a.UnreachableSeconds)
	}
	s, err = resolved(t, "--large-cluster-size-threshold=0", "--unhealthy-zone-threshold=0") // every zone is large, and three nodes are many
	must(t, err)
	if h := s.Controllers().Health; h.LargeZone >= 0 || h.UnhealthyThreshold >= 0 {
		t.Errorf("a threshold of 0 is taken for the default: %+v", h)
	}
	for _, bad := range []string{"--node-monitor-period=0s", "--node-eviction-rate=-1", "--node-eviction-rate=NaN",
		"--secondary-node-eviction-rate=Inf",
		"--unhealthy-zone-threshold=7", "--unhealthy-zone-threshold=-0.1", "--unhealthy-zone-threshold=NaN", "--large-cluster-size-threshold=-3",
		"--schedule-against=hope", "--default-not-ready-toleration-seconds=-1"} {
		if _, err := resolved(t, bad); err == nil || !strings.Contains(err.Error(), strings.Split(bad, "=")[0]) {
			t.Errorf("%s: %v", bad, err)
		}
	}
}

// TestCIDRFlags: N-3.52, N-3.53.
func TestCIDRFlags(t *testing.T) {
	for args, want := range map[string]string{
		"": "", "--allocate-node-cidrs --cluster-cidr=10.0.0.0/16": "[10.0.0.0/16] [24]",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=26":                                              "[10.0.0.0/16] [26]",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv4=25":                                         "[10.0.0.0/16] [25]",
		"--allocate-node-cidrs --cluster-cidr=fd00::/56":                                                                         "[fd00::/56] [64]",
		"--allocate-node-cidrs --cluster-cidr=fd00::/56,10.0.0.0/16 --node-cidr-mask-size-ipv4=20 --node-cidr-mask-size-ipv6=60": "[fd00::/56 10.0.0.0/16] [60 20]",
		"--allocate-node-cidrs":                                                                                   "!--cluster-cidr",
		"--cluster-cidr=10.0.0.0/16":                                                                              "!--allocate-node-cidrs",
		"--allocate-node-cidrs --cluster-cidr=10.0.0":                                                             "!is no network",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,10.1.0.0/16":                                            "!one of each family",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16,fd00::/56 --node-cidr-mask-size=24":                     "!--node-cidr-mask-size-ipv4",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size=24 --node-cidr-mask-size-ipv4=24": "!cannot be used together",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/16 --node-cidr-mask-size-ipv6=64":                          "!no network of that family",
		"--allocate-node-cidrs --cluster-cidr=10.0.0.0/25":                                                        "!shorter",
		"--allocate-node-cidrs --cluster-cidr=fd00::/40":                                                          "!the node CIDR size is too big",
	} {
		s, err := resolved(t, strings.Fields(args)...)
		if wrong, bad := strings.CutPrefix(want, "!"); bad {
			if err == nil || !strings.Contains(err.Error(), wrong) {
				t.Errorf("%s: %v, want %s", args, err, wrong)
			}
			continue
		}
		if got := fmt.Sprint(s.CIDRs.Clusters, " ", s.CIDRs.Bits); err != nil || want != "" && got != want || want == "" &&
			len(s.CIDRs.Clusters) > 0 {
			t.Errorf("%s: %s %v, want %s", args, got, err, want)
		}
	}
}

// A lister that is not there is refused with its flag.
func TestMachineListerFlag(t *testing.T) {
	_, err := resolved(t, "--machine-lister", filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "--machine-lister: ") {
		t.Error(err)
	}
}
