package main

import (
	"strings"
	"testing"
	"time"
)

// TestCompared: the other side's figures are multiples of ledge's, where there is another side.
func TestCompared(t *testing.T) {
	did := func(seconds ...float64) map[string][]cost {
		out := map[string][]cost{}
		for _, what := range []string{"create -> 1 available", "create -> 10 available", "create -> 50 available", "rollout of 10 pods"} {
			for _, s := range seconds {
				out[what] = append(out[what], cost{Seconds: s, WrittenKiB: 100 * s, CPU: s / 10})
			}
		}
		return out
	}
	sides := []*side{{name: "ledge", turns: did(9, 1, 2)}, {name: "other", turns: did(7)}}
	quiet, busy := []standing{{CPU: 0.5, PSS: 10}, {CPU: 5, PSS: 100}}, []standing{{CPU: 0.5, PSS: 20}, {CPU: 5, PSS: 200, WrittenKiB: 3}}
	b := &bench{watch: time.Minute}
	for _, want := range []string{"| create -> 10 available, s | 2.00 | 7.00 | 3.5 |", "| at rest, % of a core | 0.50 | 5.00 | 10.0 |",
		"| each Deployment with its pod, KiB of PSS | 102 | 1024 | 10.0 |", "| at rest with 100 Deployments, KiB written | 0 | 3 |  |"} {
		if got := b.compared(sides, quiet, busy); !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
	if got := b.compared(sides[:1], quiet[:1], busy[:1]); strings.Contains(got, "times ledge") || !strings.Contains(got, "| ledge |") {
		t.Errorf("one side:\n%s", got)
	}
}

// TestTrial: what starts the original may fail as in a test, and all that it began ends.
func TestTrial(t *testing.T) {
	ended := 0
	tr := &trial{}
	err := tr.try(func() {
		tr.Cleanup(func() { ended++ })
		tr.Fatalf("no %s", "port")
		t.Error("it goes on")
	})
	if err == nil || err.Error() != "no port" || tr.end() == nil || ended != 1 {
		t.Errorf("%v, and %d ended", err, ended)
	}
}
