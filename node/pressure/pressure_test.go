package pressure

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

func TestStep(t *testing.T) { // N-6.8, N-6.11, N-6.19
	now := time.Unix(1000, 0)
	mem := func(avail int64) Readings { return Readings{MemoryAvailable: {avail, 1 << 30}} }
	s, got := Step(State{}, DefaultHard(), mem(100<<20), now)
	if got[corev1.NodeMemoryPressure] {
		t.Fatal("equal to the threshold is not less")
	}
	s, got = Step(s, DefaultHard(), mem(100<<20-1), now)
	if !got[corev1.NodeMemoryPressure] || got[corev1.NodeDiskPressure] || got[corev1.NodePIDPressure] {
		t.Fatalf("%v", got)
	}
	s, got = Step(s, DefaultHard(), mem(1<<29), now.Add(Transition-time.Second))
	if !got[corev1.NodeMemoryPressure] {
		t.Fatal("cleared before the transition period was over")
	}
	_, got = Step(s, DefaultHard(), mem(1<<29), now.Add(Transition))
	if got[corev1.NodeMemoryPressure] {
		t.Fatal("still raised")
	}
}

func TestStepLeavesItsInputAlone(t *testing.T) {
	in := State{Last: map[corev1.NodeConditionType]time.Time{}}
	Step(in, DefaultHard(), Readings{PIDAvailable: {1, 1000}}, time.Unix(1, 0))
	if len(in.Last) != 0 {
		t.Fatal("Step changed the state it was given")
	}
}

func TestDiskAndPID(t *testing.T) {
	for sig, cond := range Conditions {
		_, got := Step(State{}, DefaultHard(), Readings{sig: {0, 1 << 40}}, time.Unix(1, 0))
		for c, on := range got {
			if on != (c == cond) {
				t.Errorf("%s: %s is %v", sig, c, on)
			}
		}
	}
}

func TestUnreadableSignalDecidesNothing(t *testing.T) { // N-6.7
	if _, got := Step(State{}, DefaultHard(), nil, time.Unix(1, 0)); got[corev1.NodeMemoryPressure] {
		t.Fatal("raised without a reading")
	}
}

func TestPercentKeepsKubernetesRounding(t *testing.T) { // N-1.59
	if got := (Threshold{Percent: 0.10}).Of(34359738368); got != 3435973888 {
		t.Fatalf("%d, want 3435973888", got)
	}
}
