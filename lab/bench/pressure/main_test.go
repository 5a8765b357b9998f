package main

import (
	"strings"
	"testing"

	"ledge/lab/vm/pressed"
)

func TestTable(t *testing.T) {
	got := table([]pressed.Board{{MemoryMiB: 256, Kernel: "6.1.0", Day: "2026-11-23", Hogs: []pressed.Result{
		{Hog: "leak5", Signal: "memory.available", Line: 22e6, Rate: 5e6, Noticed: 432, Condition: 1234, Evicted: 2500, Recovered: 9000,
			End: "Failed Evicted", Slowest: 700},
		{Hog: "crowd", Signal: "pid.available", Line: 17, Rate: 97, Noticed: -1, Condition: -1, Evicted: -1, Recovered: -1, Kills: 2, Hurt: 1},
	}}})
	for _, want := range []string{
		"256 MB: 2026-11-23, kernel 6.1.0.\n",
		"| 256 MB | leak5 | memory.available | 22.0 MB | 5.0 MB /s | 0.4 | 1.2 | 2.5 | 9.0 | Failed Evicted | 0 | 0 | 0.7 |\n",
		"| 256 MB | crowd | pid.available | 17 | 97 /s | - | - | - | - | left alone | 2 | 1 | 0.0 |\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no %q in\n%s", want, got)
		}
	}
}
