package pressure

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// Settings are a policy as KubeletConfiguration spells it.
type Settings struct {
	Hard, Soft, SoftGrace, MinReclaim map[string]string
	// Bare is mergeDefaultEvictionSettings: false: Hard replaces all defaults, also those of signals it does not name.
	Bare        bool
	Transition  time.Duration // 0 is the default here, as in that file; see AtOnce
	AtOnce      bool          // no Transition: a condition falls with its cause
	MaxPodGrace int64         // seconds
}

// Parse checks settings and makes a policy of them (N-6.9 to N-6.14). ignored are signals that are derived and may not be
// set: the caller says so (N-6.16).
func Parse(s Settings) (p Policy, ignored []string, err error) {
	p = Policy{Thresholds: []Threshold{}, Transition: s.Transition, MaxPodGrace: time.Duration(max(s.MaxPodGrace, 0)) * time.Second}
	if s.Transition < 0 {
		return p, nil, fmt.Errorf("evictionPressureTransitionPeriod: %v is negative", s.Transition)
	}
	hard, skipped, err := limits("evictionHard", s.Hard)
	if err != nil {
		return p, nil, err
	}
	soft, skippedToo, err := limits("evictionSoft", s.Soft)
	if err != nil {
		return p, nil, err
	}
	grace, err := graces(s.SoftGrace)
	if err != nil {
		return p, nil, err
	}
	reclaim, err := reclaims(s.MinReclaim)
	if err != nil {
		return p, nil, err
	}
	for _, d := range Default().Thresholds {
		if _, named := hard[d.Signal]; !named && (s.Hard == nil || !s.Bare) {
			hard[d.Signal] = d.Below
		}
	}
	for _, sig := range Signals {
		if l := hard[sig]; l != (Limit{}) {
			p.Thresholds = append(p.Thresholds, Threshold{Signal: sig, Below: l, Reclaim: reclaim[sig]})
		}
		l, named := soft[sig]
		if !named {
			continue
		}
		g, given := grace[sig]
		if !given {
			return p, nil, fmt.Errorf("evictionSoft: grace period must be specified for the soft eviction threshold %s", sig)
		}
		if l != (Limit{}) {
			p.Thresholds = append(p.Thresholds, Threshold{Signal: sig, Below: l, Reclaim: reclaim[sig], Soft: true, Grace: g})
		}
	}
	if p.Transition = p.WithDefaults().Transition; s.AtOnce {
		p.Transition = -1
	}
	return p, append(skipped, skippedToo...), nil
}

// Statements reads the value of a flag such as --eviction-hard: memory.available<100Mi,nodefs.available<10%.
func Statements(text, operator string) (map[string]string, error) {
	out := map[string]string{}
	for item := range strings.SplitSeq(text, ",") {
		if item = strings.TrimSpace(item); item == "" {
			continue
		}
		name, value, ok := strings.Cut(item, operator)
		if !ok {
			return nil, fmt.Errorf("%q: write signal%svalue, separated by commas", item, operator)
		}
		if name = strings.TrimSpace(name); out[name] != "" {
			return nil, fmt.Errorf("%q is given twice", name)
		}
		out[name] = strings.TrimSpace(value)
	}
	return out, nil
}

// settable are the signals that people may name; the rest is derived.
func settable(s Signal) bool {
	return s != AllocatableMemory && s != ContainerFSAvailable && s != ContainerFSInodesFree
}

func signal(where, name string) (Signal, error) {
	s := Signal(name)
	if _, ok := Conditions[s]; !ok || s == AllocatableMemory {
		return "", fmt.Errorf("%s: unknown signal %q", where, name)
	}
	return s, nil
}

// limits reads thresholds. The zero Limit stands for a signal that is to have none.
func limits(where string, in map[string]string) (out map[Signal]Limit, ignored []string, err error) {
	out = map[Signal]Limit{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		s, err := signal(where, name)
		if err != nil {
			return nil, nil, err
		}
		l, err := parseLimit(in[name])
		if err != nil {
			return nil, nil, fmt.Errorf("%s: %s: %w", where, name, err)
		}
		if !settable(s) {
			ignored = append(ignored, where+": "+name)
			continue
		}
		out[s] = l
	}
	return out, ignored, nil
}

// percentage reads a share in percent. It must be a plain number: NaN and hexadecimal floats are nobody's wish.
func percentage(text string) (f float64, is bool, err error) {
	p, ok := strings.CutSuffix(text, "%")
	if !ok {
		return 0, false, nil
	}
	f, err = strconv.ParseFloat(p, 32)
	if err != nil || !(f >= 0 && f <= 100) || strings.ContainsAny(p, "xX_+-") {
		return 0, true, fmt.Errorf("%q is not a percentage between 0%% and 100%%", text)
	}
	return f, true, nil
}

func parseLimit(text string) (Limit, error) {
	f, share, err := percentage(text)
	switch {
	case err != nil:
		return Limit{}, err
	case share && (f == 0 || f == 100): // both mean: no threshold for this signal
		return Limit{}, nil
	case share:
		return Limit{Percent: float32(f) / 100}, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() <= 0 {
		return Limit{}, fmt.Errorf("%q is not a positive quantity", text)
	}
	return Limit{Amount: q.Value(), Format: q.Format}, nil
}

func graces(in map[string]string) (map[Signal]time.Duration, error) {
	out := map[Signal]time.Duration{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		s, err := signal("evictionSoftGracePeriod", name)
		if err != nil {
			return nil, err
		}
		d, err := time.ParseDuration(in[name])
		if err != nil || d < 0 {
			return nil, fmt.Errorf("evictionSoftGracePeriod: %s: %q is not a duration of 0s or more, such as 1m30s", name, in[name])
		}
		out[s] = d
	}
	return out, nil
}

func reclaims(in map[string]string) (map[Signal]Limit, error) {
	out := map[Signal]Limit{}
	for _, name := range slices.Sorted(maps.Keys(in)) {
		s, err := signal("evictionMinimumReclaim", name)
		if err != nil {
			return nil, err
		}
		f, share, err := percentage(in[name])
		switch {
		case err != nil:
			return nil, fmt.Errorf("evictionMinimumReclaim: %s: %w", name, err)
		case share && f == 0:
			return nil, fmt.Errorf("evictionMinimumReclaim: %s: %q is not a percentage above 0%%", name, in[name])
		case share:
			out[s] = Limit{Percent: float32(f) / 100}
			continue
		}
		q, err := resource.ParseQuantity(in[name])
		if err != nil || q.Sign() < 0 {
			return nil, fmt.Errorf("evictionMinimumReclaim: %s: %q is not a quantity of 0 or more", name, in[name])
		}
		out[s] = Limit{Amount: q.Value(), Format: q.Format}
	}
	return out, nil
}
