package podspec

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestSwapRules: every cell of the table of N-8.1 and N-8.3, with "" for what the generation refuses to start with.
func TestSwapRules(t *testing.T) {
	const none, part, all, both = "none", "part", "all", "part, critical too"
	names := map[swapKind]string{swapNone: none, swapShare: part, swapShareCritical: both, swapFree: all}
	for _, c := range []struct{ compat, behaviour, v1, v2 string }{
		{"", "", none, none},
		{"current", "NoSwap", none, none},
		{"current", "LimitedSwap", "", part}, // N-8.7
		{"current", "UnlimitedSwap", "", all},
		{"1.28", "", none, all},
		{"1.28", "NoSwap", none, none},
		{"1.28", "LimitedSwap", none, both},
		{"1.28", "UnlimitedSwap", none, all},
		{"1.24", "", none, none},
		{"1.24", "LimitedSwap", none, none}, // N-8.9
		{"1.24", "UnlimitedSwap", all, all},
		{"current", "Some", "", ""},
		{"1.30", "NoSwap", "", ""},
	} {
		for v2, want := range map[bool]string{false: c.v1, true: c.v2} {
			rule, err := NewSwapRule(c.behaviour, c.compat, v2)
			got := names[rule.kind]
			if err != nil {
				got = ""
			}
			if got != want {
				t.Errorf("%q of %q, cgroup v2 %v: %q %v, want %q", c.behaviour, c.compat, v2, got, err, want)
			}
		}
	}
}

// TestSwapShare: the formula of N-8.10, its example N-8.12, and the exceptions of N-8.11.
func TestSwapShare(t *testing.T) {
	critical := int32(SystemCritical)
	b, g, e := corev1.PodQOSBurstable, corev1.PodQOSGuaranteed, corev1.PodQOSBestEffort
	for _, c := range []struct {
		what     string
		qos      corev1.PodQOSClass
		req, lim string
		prio     *int32
		kind     swapKind
		want     int64
	}{
		{"the example", b, "512Mi", "-", nil, swapShare, 268435456},
		{"with a limit", b, "512Mi", "1Gi", nil, swapShare, 268435456},
		{"truncated", b, "1Mi", "-", nil, swapShare, 524288},
		{"all of it", b, "4Gi", "-", nil, swapShare, 2 << 30},
		{"opted out", b, "512Mi", "512Mi", nil, swapShare, 0},
		{"nothing asked for", b, "-", "-", nil, swapShare, 0},
		{"a limit of which nothing is requested", b, "0", "1Gi", nil, swapShare, 0},
		{"more than there is", b, "5Gi", "-", nil, swapShare, 0},
		{"guaranteed", g, "512Mi", "512Mi", nil, swapShare, 0},
		{"best effort", e, "-", "-", nil, swapShare, 0},
		{"critical", b, "512Mi", "-", &critical, swapShare, 0},
		{"critical before that was an exception", b, "512Mi", "-", &critical, swapShareCritical, 268435456},
		{"unlimited", e, "-", "-", nil, swapFree, -1},
		{"none", b, "512Mi", "-", nil, swapNone, 0},
	} {
		p := needy(c.qos, []corev1.ResourceRequirements{needs("-", "-", c.req, c.lim)})
		p.Spec.Priority = c.prio
		l := Limits{MemoryTotal: 4 << 30, SwapTotal: 2 << 30, ResourceConfig: ResourceConfig{Swap: SwapRule{c.kind}}}
		if got := l.Container(p, &p.Spec.Containers[0]).SwapBytes; got == nil || *got != c.want {
			t.Errorf("%s: %v, want %d", c.what, got, c.want)
		}
	}
}
