package autoscale

import (
	"math"
	"time"

	autoscalingv2 "k8s.io/api/autoscaling/v2"
)

const (
	// downWindow is how long the most that was wanted counts, before fewer pods are enough.
	downWindow = 5 * time.Minute
	// Without policies of its own an autoscaler may double the pods, or have so many.
	upFactor, upLeast = 2, 4
	// remembered is how long anything is: the longest window and period that an autoscaler may have.
	remembered = time.Hour
)

// Memory is what is remembered of one autoscaler: what it wanted, without limits, and what it changed. It begins with what there is, so
// that a control plane that has just started takes no pod away before it has looked for a window. Only Every's pace fills it: it has a
// bound.
type Memory struct {
	wanted []wish
	ups    []change
	downs  []change
}

type wish struct {
	at time.Time
	n  int32
}

type change struct {
	at time.Time
	by int32
}

func (m *Memory) begin(n int32, now time.Time) {
	old := now.Add(-remembered)
	m.wanted = since(m.wanted, old, func(w wish) time.Time { return w.at })
	m.ups = since(m.ups, old, func(c change) time.Time { return c.at })
	m.downs = since(m.downs, old, func(c change) time.Time { return c.at })
	if len(m.wanted) == 0 {
		m.wanted = []wish{{now, n}}
	}
}

// entries is how many of each sort are kept, whatever wakes the loop.
const entries = 1024

// since are the newest of sorted entries.
func since[T any](list []T, old time.Time, at func(T) time.Time) []T {
	first := max(0, len(list)-entries)
	for first < len(list) && at(list[first]).Before(old) {
		first++
	}
	return append([]T(nil), list[first:]...)
}

// Scaled notes a change that was made.
func (m *Memory) Scaled(from, to int32, now time.Time) {
	if to > from {
		m.ups = append(m.ups, change{now, to - from})
	} else {
		m.downs = append(m.downs, change{now, from - to})
	}
}

// normalize makes of what metrics want what is done: steady, not too fast, and within bounds.
func (l *look) normalize(is, want, least int32, m *Memory) int32 {
	rise, fall := rules(l.h)
	steady := m.steady(is, want, rise, fall, l.h.Spec.Behavior != nil, l.now)
	m.wanted = append(m.wanted, wish{l.now, want})
	switch {
	case steady == want:
		l.set(autoscalingv2.AbleToScale, true, "ReadyForNewScale", "recommended size matches current size")
	case want >= is && l.h.Spec.Behavior != nil:
		l.set(autoscalingv2.AbleToScale, true, "ScaleUpStabilized",
			"recent recommendations were lower than current one, applying the lowest recent recommendation")
	default:
		l.set(autoscalingv2.AbleToScale, true, "ScaleDownStabilized",
			"recent recommendations were higher than current one, applying the highest recent recommendation")
	}
	n, reason, text := limit(is, steady, least, l.h.Spec.MaxReplicas, rise, fall, m, l.now)
	l.set(autoscalingv2.ScalingLimited, n != steady, reason, text)
	return n
}

// rules are an autoscaler's, or what stands for them where it has none; a nil rule has no policy of its own.
func rules(h *autoscalingv2.HorizontalPodAutoscaler) (rise, fall *autoscalingv2.HPAScalingRules) {
	if h.Spec.Behavior == nil {
		return nil, nil
	}
	return h.Spec.Behavior.ScaleUp, h.Spec.Behavior.ScaleDown
}

func window(r *autoscalingv2.HPAScalingRules, otherwise time.Duration) time.Duration {
	if r == nil || r.StabilizationWindowSeconds == nil {
		return otherwise
	}
	return time.Duration(*r.StabilizationWindowSeconds) * time.Second
}

// steady is what was wanted all the time of a window: for more pods the least of it, for fewer the most. An autoscaler without a
// behaviour of its own has no window for more, and where it wanted more lately than there is, gets it.
func (m *Memory) steady(is, want int32, rise, fall *autoscalingv2.HPAScalingRules, own bool, now time.Time) int32 {
	lowest, highest := want, want
	upFrom, downFrom := now.Add(-window(rise, 0)), now.Add(-window(fall, downWindow))
	for _, w := range m.wanted {
		if w.at.After(upFrom) {
			lowest = min(lowest, w.n)
		}
		if w.at.After(downFrom) {
			highest = max(highest, w.n)
		}
	}
	if !own {
		return highest
	}
	return min(max(is, lowest), highest)
}

const inRange = "the desired count is within the acceptable range"

// limit keeps a number within what policies and bounds allow, and says which of them did.
func limit(is, want, least, most int32, rise, fall *autoscalingv2.HPAScalingRules, m *Memory, now time.Time) (n int32, reason,
	text string) {
	switch {
	case want > is:
		top, why, text := most, "TooManyReplicas", "the desired replica count is more than the maximum replica count"
		if fast := max(m.ceiling(is, rise, now), is); fast < most {
			top, why, text = fast, "ScaleUpLimit", "the desired replica count is increasing faster than the maximum scale rate"
		}
		if want > top {
			return top, why, text
		}
	case want < is:
		bottom, why, text := least, "TooFewReplicas", "the desired replica count is less than the minimum replica count"
		if fast := min(m.floor(is, fall, now), is); fast > least {
			bottom, why, text = fast, "ScaleDownLimit", "the desired replica count is decreasing faster than the maximum scale rate"
		}
		if want < bottom {
			return bottom, why, text
		}
	}
	return want, "DesiredWithinRange", inRange
}

// ceiling is how many pods there may be now by the policies for more.
func (m *Memory) ceiling(is int32, r *autoscalingv2.HPAScalingRules, now time.Time) int32 {
	if r == nil {
		return clamp(max(upFactor*float64(is), upLeast))
	}
	return m.policies(is, r, now, func(start float64, p autoscalingv2.HPAScalingPolicy) float64 {
		if p.Type == autoscalingv2.PodsScalingPolicy {
			return start + float64(p.Value)
		}
		return math.Ceil(start * (1 + float64(p.Value)/100))
	}, func(a, b float64) bool { return a > b })
}

// floor is how few pods there may be now by the policies for fewer.
func (m *Memory) floor(is int32, r *autoscalingv2.HPAScalingRules, now time.Time) int32 {
	if r == nil {
		return 0
	}
	return m.policies(is, r, now, func(start float64, p autoscalingv2.HPAScalingPolicy) float64 {
		if p.Type == autoscalingv2.PodsScalingPolicy {
			return start - float64(p.Value)
		}
		return math.Trunc(start * (1 - float64(p.Value)/100))
	}, func(a, b float64) bool { return a < b })
}

// policies is the number that rules allow: what the one policy does that changes most, or least. Each counts from how many pods there were
// when its period began.
func (m *Memory) policies(is int32, r *autoscalingv2.HPAScalingRules, now time.Time,
	allows func(float64, autoscalingv2.HPAScalingPolicy) float64,
	further func(a, b float64) bool) int32 {
	how := autoscalingv2.MaxChangePolicySelect
	if r.SelectPolicy != nil {
		how = *r.SelectPolicy
	}
	if how == autoscalingv2.DisabledPolicySelect || len(r.Policies) == 0 {
		return is
	}
	best := math.NaN()
	for _, p := range r.Policies {
		from := now.Add(-time.Duration(p.PeriodSeconds) * time.Second)
		n := allows(float64(is)-changed(m.ups, from)+changed(m.downs, from), p)
		if math.IsNaN(best) || further(n, best) == (how == autoscalingv2.MaxChangePolicySelect) {
			best = n
		}
	}
	return clamp(max(best, 0))
}

func changed(list []change, from time.Time) (by float64) {
	for _, c := range list {
		if c.at.After(from) {
			by += float64(c.by)
		}
	}
	return by
}
