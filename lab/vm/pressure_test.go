package main

import (
	"path/filepath"
	"strings"
	"testing"

	"ledge/lab/vm/pressed"
)

// TestPressureReport: what the guest prints becomes the report, and a hog takes the place of the same one on a board of its size only.
func TestPressureReport(t *testing.T) {
	to := filepath.Join(t.TempDir(), "pressure.json")
	boot := func(memory int, lines ...string) *pressureBoot {
		b := &pressureBoot{Board: pressed.Board{MemoryMiB: memory}}
		for _, l := range lines {
			if b.line(l) {
				t.Errorf("%q is no end", l)
			}
		}
		if !b.line("@done ") {
			t.Error("no end")
		}
		if err := pressed.Add(to, b.Board); err != nil {
			t.Fatal(err)
		}
		return b
	}
	boot(512, "guest: 6.1.0", `@pressed {"hog":"cache","answers":1,"conditionMs":-1}`, `@pressed {"hog":"bomb","answers":9,"conditionMs":-1}`)
	b := boot(512, "guest: 6.1.0", "@memory 5 memfree:1", `@pressed {"hog":"cache","answers":7,"conditionMs":-1}`,
		`@pressed {"hog":"leak5","end":"Failed","answers":3,"kernelKills":1}`, "@fault the disk")
	if len(b.faults) != 3 || b.faults[2] != "the disk" || !strings.HasPrefix(b.faults[0], "leak5: ") {
		t.Errorf("%q", b.faults)
	}
	boot(256, "guest: 6.1.0", `@pressed {"hog":"cache","answers":2,"conditionMs":-1}`)
	all, err := pressed.Read(to)
	if err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].MemoryMiB != 256 || all[1].MemoryMiB != 512 || len(all[1].Hogs) != 3 || all[1].Hogs[1].Answers != 7 ||
		all[1].Hogs[2].Answers != 9 || len(all[1].Hogs[0].Wrong) == 0 || all[0].Kernel != "6.1.0" {
		t.Errorf("%+v", all)
	}
}
