package pressure

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Report is what a board is short of, for people and programs to read.
type Report struct {
	At         time.Time         `json:"at"`
	Conditions []ConditionReport `json:"conditions"`
	Signals    []SignalReport    `json:"signals"`
}

// ConditionReport is one condition of the Node.
type ConditionReport struct {
	Type   corev1.NodeConditionType `json:"type"`
	Status bool                     `json:"status"`
	Since  *time.Time               `json:"since,omitempty"` // while it holds
}

// SignalReport is one signal that can be read, or has a threshold.
type SignalReport struct {
	Signal     Signal            `json:"signal"`
	Available  *int64            `json:"available,omitempty"` // nil: it cannot be read
	Capacity   *int64            `json:"capacity,omitempty"`
	Thresholds []ThresholdReport `json:"thresholds,omitempty"`
}

// ThresholdReport is one threshold as an amount.
type ThresholdReport struct {
	Soft    bool       `json:"soft,omitempty"`
	Below   int64      `json:"below"`
	Reclaim int64      `json:"minimumReclaim,omitempty"`
	Grace   string     `json:"gracePeriod,omitempty"`
	Met     *time.Time `json:"metSince,omitempty"` // since when; nil: it is not
}

// Describe says what the last look has found. Signals that can neither be read nor have a threshold are left out.
func Describe(all []Threshold, s State, found Verdict, seen Readings, now time.Time) Report {
	out := Report{At: now}
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		out.Conditions = append(out.Conditions, ConditionReport{c, found.Conditions[c], moment(s.Since[c])})
	}
	for _, sig := range Signals {
		r, read := seen[sig]
		one := SignalReport{Signal: sig}
		if read {
			one.Available, one.Capacity = &r.Available, &r.Capacity
		}
		for _, t := range all {
			if t.Signal != sig {
				continue
			}
			x := ThresholdReport{Soft: t.Soft, Below: t.Below.Of(r.Capacity), Reclaim: t.Reclaim.Of(r.Capacity), Met: moment(s.MetSince(t))}
			if t.Soft {
				x.Grace = t.Grace.String()
			}
			one.Thresholds = append(one.Thresholds, x)
		}
		if read || len(one.Thresholds) > 0 {
			out.Signals = append(out.Signals, one)
		}
	}
	return out
}

func moment(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
