package podstate

import (
	"testing"

	"ledge/runtime"
)

// TestOOMMessage: whoever sets limits is told how much it was (N-7.44), and what the container has said itself stays.
func TestOOMMessage(t *testing.T) {
	for want, c := range map[string]struct {
		exit runtime.Exit
		said string
	}{
		"The kernel killed it at its memory limit of 48Mi, and it had used up to 49100Ki": {runtime.Exit{MemoryLimit: 48 << 20,
			MemoryPeak: 49100 << 10}, ""},
		"The kernel killed it at its memory limit of 48Mi":                                {runtime.Exit{MemoryLimit: 48 << 20}, ""},
		"The board, or all pods together, ran out of memory, and it had used up to 300Mi": {runtime.Exit{MemoryPeak: 300 << 20}, ""},
		"no room for the third picture": {runtime.Exit{MemoryLimit: 48 << 20},
			"no room for the third picture"},
	} {
		c.exit.Code, c.exit.Signal, c.exit.OOMKilled = 137, 9, true
		d := facts{in: Input{Seen: Seen{Messages: map[string]string{"id": c.said}}}}
		got := d.terminated(&runtime.Status{ID: "id", Exit: &c.exit})
		if got.Reason != "OOMKilled" || got.Message != want {
			t.Errorf("%s %q, want %q", got.Reason, got.Message, want)
		}
	}
}
