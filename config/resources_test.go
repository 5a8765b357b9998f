package config

import (
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/yaml"

	"ledge/host"
	"ledge/node/podspec"
)

// TestResourceKeys: each key of the file does what it says, or is refused with its name.
func TestResourceKeys(t *testing.T) {
	v2 := func(change func(*podspec.ResourceConfig)) podspec.ResourceConfig {
		out := podspec.ResourceConfig{}
		change(&out)
		return out
	}
	rule := func(behaviour string) podspec.SwapRule {
		r, err := podspec.NewSwapRule(behaviour, "", true)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	for text, want := range map[string]podspec.ResourceConfig{
		"{}":                                      {},
		FirstFile:                                 {},
		"podPidsLimit: 100":                       v2(func(c *podspec.ResourceConfig) { c.PodPids = 100 }),
		"podPidsLimit: -1":                        {},
		"singleProcessOOMKill: true":              v2(func(c *podspec.ResourceConfig) { c.OneByOne = true }),
		"cpuCFSQuota: false":                      v2(func(c *podspec.ResourceConfig) { c.NoCPUQuota = true }),
		"cpuCFSQuotaPeriod: 10ms":                 v2(func(c *podspec.ResourceConfig) { c.CPUPeriod = 10 * time.Millisecond }),
		"enforceNodeAllocatable: []":              v2(func(c *podspec.ResourceConfig) { c.Unenforced = true }),
		"enforceNodeAllocatable: [none]":          v2(func(c *podspec.ResourceConfig) { c.Unenforced = true }),
		"enforceNodeAllocatable: [pods]":          {},
		"memorySwap: {swapBehavior: LimitedSwap}": v2(func(c *podspec.ResourceConfig) { c.Swap = rule("LimitedSwap") }),
		"featureGates: {MemoryQoS: true}\nmemoryThrottlingFactor: 0.8\nmemoryReservationPolicy: TieredReservation": v2(func(c *podspec.ResourceConfig) {
			c.MemoryQoS = podspec.MemoryQoS{On: true, Throttle: 0.8, Protected: true}
		}),
	} {
		var f File
		if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := f.check(); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if got, err := f.resources("", host.Unified); err != nil || got != want {
			t.Errorf("%s: %+v %v, want %+v", text, got, err, want)
		}
	}
	for text, key := range map[string]string{
		"podPidsLimit: 0":                                                     "podPidsLimit",
		"enforceNodeAllocatable: [kube-reserved]":                             "enforceNodeAllocatable",
		"enforceNodeAllocatable: [none, pods]":                                "enforceNodeAllocatable",
		"featureGates: {Other: true}":                                         "featureGates",
		"memoryThrottlingFactor: 2":                                           "memoryThrottlingFactor",
		"memoryReservationPolicy: All":                                        "memoryReservationPolicy",
		"cpuCFSQuotaPeriod: 2s":                                               "cpuCFSQuotaPeriod",
		"memorySwap: {swapBehavior: Some}":                                    `must be one of: "", "LimitedSwap"`,
		"kubeReserved: {hugepages-2Mi: 1Gi}":                                  "kubeReserved",
		"featureGates: {NodeSwap: false}\nmemorySwap: {swapBehavior: NoSwap}": "swapBehavior",
	} {
		var f File
		if err := yaml.UnmarshalStrict([]byte(text), &f); err != nil {
			t.Errorf("%s: %v", text, err)
			continue
		}
		if err := f.check(); err == nil || !strings.Contains(err.Error(), key) {
			t.Errorf("%s: %v", text, err)
		}
	}
	off := false
	for text, k := range map[string]resourceKeys{"singleProcessOOMKill": {SingleProcessOOMKill: &off}} {
		if _, err := k.resources("", host.Hybrid); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("on cgroup v1: %v", err)
		}
	}
	k := resourceKeys{}
	k.MemorySwap.SwapBehavior = "LimitedSwap"
	// N-8.7
	if _, err := k.resources("", host.Hybrid); err == nil ||
		err.Error() != "swap feature is enabled and LimitedSwap but it is only supported with cgroupv2" {
		t.Errorf("LimitedSwap on cgroup v1: %v", err)
	}
}
