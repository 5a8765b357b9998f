package lease

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestZoneOf: N-3.35.
func TestZoneOf(t *testing.T) {
	for _, tt := range []struct {
		labels map[string]string
		want   string
	}{
		{nil, ""},
		{map[string]string{corev1.LabelTopologyZone: "z"}, ":\x00:z"},
		{map[string]string{corev1.LabelTopologyRegion: "r", corev1.LabelTopologyZone: "z"}, "r:\x00:z"},
		{map[string]string{corev1.LabelTopologyZone: "new", corev1.LabelFailureDomainBetaZone: "old"}, ":\x00:old"},
	} {
		if got := ZoneOf(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: tt.labels}}); got != tt.want {
			t.Errorf("%v: %q, want %q", tt.labels, got, tt.want)
		}
	}
}

// TestStateAndRate: N-3.37, N-3.38.
func TestStateAndRate(t *testing.T) {
	s := Settings{}.withDefaults()
	for _, tt := range []struct {
		ready, notReady int
		state           ZoneState
		rate            float64
	}{
		{1, 0, ZoneNormal, 0.1},
		{0, 1, ZoneFullDisruption, 0.1},
		{0, 60, ZoneFullDisruption, 0.1},
		{1, 2, ZoneNormal, 0.1},            // two are not many, whatever their share
		{2, 3, ZonePartialDisruption, 0},   // 0.6
		{3, 3, ZoneNormal, 0.1},            // 0.5
		{9, 11, ZonePartialDisruption, 0},  // exactly 0.55
		{20, 30, ZonePartialDisruption, 0}, // 50 is not more than 50
		{20, 31, ZonePartialDisruption, 0.01},
	} {
		state := StateOf(tt.ready, tt.notReady, s)
		if rate := EvictionRate(state, tt.ready+tt.notReady, s); state != tt.state || rate != tt.rate {
			t.Errorf("%d/%d: %s %v, want %s %v", tt.ready, tt.notReady, state, rate, tt.state, tt.rate)
		}
	}
	s = Settings{LargeZone: -1, UnhealthyThreshold: -1}.withDefaults() // no thresholds: three are many, and every zone is large
	for notReady, want := range map[int]float64{2: 0.1, 3: 0.01} {
		if rate := EvictionRate(StateOf(97, notReady, s), 100, s); rate != want {
			t.Errorf("%d of 100 without thresholds: %v, want %v", notReady, rate, want)
		}
	}
	if rate := EvictionRate(ZonePartialDisruption, 4, s); rate != 0.01 {
		t.Errorf("a zone of four is not large: %v", rate)
	}
}

// TestBucket: N-3.38 burst 1, N-3.40 a swap keeps a used token used.
func TestBucket(t *testing.T) {
	b := bucket{rate: 0.1, tokens: 1, at: epoch}
	at := func(sec float64) time.Time { return epoch.Add(time.Duration(sec * float64(time.Second))) }
	if !b.take(at(0)) || b.take(at(9.9)) || !b.take(at(10)) || !b.take(at(100)) || b.take(at(101)) {
		t.Error("not one per 10 s with a burst of 1")
	}
	if w, ok := b.wait(at(105)); !ok || w < 5*time.Second || w > 5*time.Second+time.Millisecond {
		t.Errorf("wait %s", w)
	}
	b.swap(0.01, at(105))
	if b.take(at(204)) || !b.take(at(205)) {
		t.Error("an empty bucket must start empty at its new rate")
	}
	b.swap(1, at(400))
	if !b.take(at(400)) {
		t.Error("a full bucket stays full")
	}
	b.swap(0, at(401))
	if b.take(at(999)) {
		t.Error("rate 0 lets nobody through")
	}
	if _, ok := b.wait(at(999)); ok {
		t.Error("rate 0 has nothing to wait for")
	}
}
