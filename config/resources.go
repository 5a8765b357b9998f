package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/host"
	"ledge/node/podspec"
)

// resourceKeys are the keys of the configuration file that bound pods.
type resourceKeys struct {
	EnforceNodeAllocatable *[]string        `json:"enforceNodeAllocatable,omitempty"`
	PodPidsLimit           *int64           `json:"podPidsLimit,omitempty"`
	SingleProcessOOMKill   *bool            `json:"singleProcessOOMKill,omitempty"`
	CPUCFSQuota            *bool            `json:"cpuCFSQuota,omitempty"`
	CPUCFSQuotaPeriod      *metav1.Duration `json:"cpuCFSQuotaPeriod,omitempty"`

	FailSwapOn *bool `json:"failSwapOn,omitempty"`
	MemorySwap struct {
		SwapBehavior string `json:"swapBehavior,omitempty"`
	} `json:"memorySwap,omitempty"`

	MemoryThrottlingFactor  *float64        `json:"memoryThrottlingFactor,omitempty"`
	MemoryReservationPolicy string          `json:"memoryReservationPolicy,omitempty"`
	FeatureGates            map[string]bool `json:"featureGates,omitempty"`

	AllowedUnsafeSysctls []string `json:"allowedUnsafeSysctls,omitempty"`
}

func (k resourceKeys) check() error {
	if list := k.EnforceNodeAllocatable; list != nil {
		for _, key := range *list {
			if key != "pods" && (key != "none" || len(*list) > 1) {
				return fmt.Errorf("enforceNodeAllocatable: %q is not supported by ledge: only pods, or none alone", key)
			}
		}
	}
	for gate := range k.FeatureGates {
		if known := []string{"MemoryQoS", "NodeSwap", gateOutOfService, gateShutdown, gatePriority}; !slices.Contains(known, gate) {
			return fmt.Errorf("featureGates: %q is not a gate of ledge; it has %s", gate, strings.Join(known, ", "))
		}
	}
	if on, set := k.FeatureGates["NodeSwap"]; set && !on && k.MemorySwap.SwapBehavior != "" { // N-8.6
		return errors.New("memorySwap.swapBehavior cannot be set when NodeSwap feature flag is disabled")
	}
	if n := k.PodPidsLimit; n != nil && (*n < -1 || *n == 0) {
		return fmt.Errorf("podPidsLimit: %d is neither -1, for no limit, nor above 0", *n)
	}
	if f := k.MemoryThrottlingFactor; f != nil && (*f <= 0 || *f > 1) {
		return fmt.Errorf("memoryThrottlingFactor: %v is not above 0 and at most 1", *f)
	}
	if !slices.Contains([]string{"", "None", "TieredReservation"}, k.MemoryReservationPolicy) {
		return fmt.Errorf("memoryReservationPolicy: %q is neither None nor TieredReservation", k.MemoryReservationPolicy)
	}
	if p := k.CPUCFSQuotaPeriod; p != nil && (p.Duration < time.Millisecond || p.Duration > time.Second) {
		return fmt.Errorf("cpuCFSQuotaPeriod: %s must be between 1ms and 1s", p.Duration)
	}
	if _, err := podspec.NewSysctls(k.AllowedUnsafeSysctls); err != nil {
		return fmt.Errorf("allowedUnsafeSysctls: %w", err)
	}
	_, err := podspec.NewSwapRule(k.MemorySwap.SwapBehavior, "", true)
	return err
}

// resources resolves the keys for a machine; compat is --swap-compat.
func (k resourceKeys) resources(compat string, mode host.CgroupMode) (podspec.ResourceConfig, error) {
	v2 := mode == host.Unified
	out := podspec.ResourceConfig{NoCPUQuota: k.CPUCFSQuota != nil && !*k.CPUCFSQuota,
		OneByOne:  k.SingleProcessOOMKill != nil && *k.SingleProcessOOMKill,
		MemoryQoS: podspec.MemoryQoS{On: k.FeatureGates["MemoryQoS"], Protected: k.MemoryReservationPolicy == "TieredReservation"}}
	if !v2 && k.SingleProcessOOMKill != nil && !*k.SingleProcessOOMKill {
		return out, errors.New("singleProcessOOMKill: invalid value: false: cgroup v1 cannot kill a container as a whole")
	}
	if k.PodPidsLimit != nil && *k.PodPidsLimit > 0 {
		out.PodPids = *k.PodPidsLimit
	}
	if k.CPUCFSQuotaPeriod != nil {
		out.CPUPeriod = k.CPUCFSQuotaPeriod.Duration
	}
	if k.MemoryThrottlingFactor != nil {
		out.MemoryQoS.Throttle = *k.MemoryThrottlingFactor
	}
	if list := k.EnforceNodeAllocatable; list != nil {
		out.Unenforced = !slices.Contains(*list, "pods")
	}
	var err error
	out.Swap, err = podspec.NewSwapRule(k.MemorySwap.SwapBehavior, compat, v2)
	return out, err
}
