package podspec

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
)

// SwapRule is what swap a container may use, made from a behaviour and a generation of Kubernetes by NewSwapRule.
type SwapRule struct{ kind swapKind }

type swapKind int

const (
	swapNone swapKind = iota
	swapShare
	swapShareCritical // critical pods too
	swapFree
)

// NewSwapRule reads memorySwap.swapBehavior in the words of a generation: "1.24", "1.28" or "" and "current" (N-8.1 to
// N-8.3). It refuses what this board's cgroups cannot do where that generation refused to start (N-8.7).
func NewSwapRule(behaviour, compat string, v2 bool) (SwapRule, error) {
	unset, ok := map[string]string{"": "NoSwap", "current": "NoSwap", "1.24": "LimitedSwap", "1.28": "UnlimitedSwap"}[compat]
	if !ok {
		return SwapRule{}, fmt.Errorf("--swap-compat: %q must be one of: %q, %q or %q", compat, "1.24", "1.28", "current")
	}
	if behaviour == "" {
		behaviour = unset
	}
	old := compat == "1.24" || compat == "1.28"
	switch behaviour {
	case "NoSwap":
		return SwapRule{swapNone}, nil
	case "LimitedSwap":
		switch {
		case compat == "1.24": // memory and swap together up to the memory limit: none on v2, and N-8.9 on v1
			return SwapRule{swapNone}, nil
		case v2 && old:
			return SwapRule{swapShareCritical}, nil
		case v2:
			return SwapRule{swapShare}, nil
		case old:
			return SwapRule{swapNone}, nil
		}
		return SwapRule{}, errors.New("swap feature is enabled and LimitedSwap but it is only supported with cgroupv2")
	case "UnlimitedSwap":
		switch {
		case v2 || compat == "1.24":
			return SwapRule{swapFree}, nil
		case old:
			return SwapRule{swapNone}, nil
		}
		return SwapRule{}, errors.New("swap feature is enabled and UnlimitedSwap but it is only supported with cgroupv2")
	}
	return SwapRule{}, fmt.Errorf("memorySwap.swapBehavior %q must be one of: %q, %q, %q or %q", behaviour, "", "LimitedSwap",
		"NoSwap", "UnlimitedSwap")
}

// Any says whether any container may swap.
func (r SwapRule) Any() bool { return r.kind != swapNone }

// swapOf is the swap a container may use on top of its memory (N-8.9 to N-8.13).
func (l Limits) swapOf(pod *corev1.Pod, c *corev1.Container) *int64 {
	n := int64(0)
	switch l.Swap.kind {
	case swapFree:
		n = -1
	case swapShare, swapShareCritical:
		n = l.swapShare(pod, c)
	}
	return &n
}

// swapShare is the part of the board's swap that is the container's part of its memory (N-8.10, N-8.11).
func (l Limits) swapShare(pod *corev1.Pod, c *corev1.Container) int64 {
	request, limit := c.Resources.Requests.Memory().Value(), c.Resources.Limits.Memory().Value()
	switch {
	case pod.Status.QOSClass != corev1.PodQOSBurstable,
		request == 0, // with no limit either, or by choice: its part is nothing
		request == limit,
		l.Swap.kind == swapShare && l.Statics.Critical(pod),
		l.MemoryTotal <= 0 || request > l.MemoryTotal:
		return 0
	}
	return int64(float64(request) / float64(l.MemoryTotal) * float64(l.SwapTotal))
}
