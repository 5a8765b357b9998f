package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestJudge: whatever breaks a promise is said, and nothing else.
func TestJudge(t *testing.T) {
	good := pressed{Hog: "leak5", Condition: 10, Evicted: 20, Eased: 30, Recovered: 40, End: "Failed Evicted", Answers: 5}
	quiet := pressed{Hog: "cache", Condition: -1, Evicted: -1, Eased: -1, Recovered: -1, Answers: 5}
	full := quiet
	full.Hog, full.AtTheLimit = "full95", 3
	for name, c := range map[string]struct {
		from pressed
		edit func(*pressed)
		want string
	}{
		"as promised":         {good, func(*pressed) {}, ""},
		"left alone":          {quiet, func(*pressed) {}, ""},
		"at 95 %":             {full, func(*pressed) {}, ""},
		"lost":                {good, func(p *pressed) { p.Lost = 2 }, "2 acknowledged objects are lost"},
		"hurt":                {quiet, func(p *pressed) { p.Hurt = 1 }, "1 innocents were hurt"},
		"no answer":           {full, func(p *pressed) { p.Refused = 4 }, "did not answer 4 times"},
		"nobody asked":        {good, func(p *pressed) { p.Answers = 0 }, "nothing was asked"},
		"killed":              {good, func(p *pressed) { p.Kills = 1 }, "the kernel has killed 1"},
		"not evicted":         {good, func(p *pressed) { p.End = "Failed" }, `not evicted but "Failed"`},
		"no condition":        {good, func(p *pressed) { p.Condition = -1 }, "no condition"},
		"a condition stays":   {good, func(p *pressed) { p.Recovered = -1 }, "no condition"},
		"evicted for nothing": {quiet, func(p *pressed) { p.End = "Failed Evicted" }, "to be left alone: Failed Evicted"},
		"short for nothing":   {full, func(p *pressed) { p.Condition = 7 }, "condition after 7 ms"},
		"never at 95 %":       {full, func(p *pressed) { p.AtTheLimit = 0 }, "never so little"},
	} {
		p := c.from
		c.edit(&p)
		p.judge()
		if got := strings.Join(p.Wrong, "; "); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// TestPressureReport: what the guest prints becomes the report, and a hog takes the place of the same one on a board of its size only.
func TestPressureReport(t *testing.T) {
	to := filepath.Join(t.TempDir(), "pressure.json")
	boot := func(memory int, lines ...string) *pressureBoot {
		b := &pressureBoot{pressureReport: pressureReport{MemoryMiB: memory}}
		for _, l := range lines {
			if b.line(l) {
				t.Errorf("%q is no end", l)
			}
		}
		if !b.line("@done ") {
			t.Error("no end")
		}
		if err := b.write(to); err != nil {
			t.Fatal(err)
		}
		return b
	}
	boot(512, "guest: 6.1.0", `@pressed {"hog":"cache","answers":1,"conditionMs":-1}`, `@pressed {"hog":"bomb","answers":9,"conditionMs":-1}`)
	b := boot(512, "guest: 6.1.0", "@memory 5 memfree:1", `@pressed {"hog":"cache","answers":7,"conditionMs":-1}`, `@pressed {"hog":"leak5","end":"Failed","answers":3,"kernelKills":1}`, "@fault the disk")
	if len(b.faults) != 3 || b.faults[2] != "the disk" || !strings.HasPrefix(b.faults[0], "leak5: ") {
		t.Errorf("%q", b.faults)
	}
	boot(256, "guest: 6.1.0", `@pressed {"hog":"cache","answers":2,"conditionMs":-1}`)
	text, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	var all []pressureReport
	if err := json.Unmarshal(text, &all); err != nil {
		t.Fatal(err)
	}
	if len(all) != 2 || all[0].MemoryMiB != 256 || all[1].MemoryMiB != 512 || len(all[1].Hogs) != 3 || all[1].Hogs[1].Answers != 7 || all[1].Hogs[2].Answers != 9 || len(all[1].Hogs[0].Wrong) == 0 || all[0].Kernel != "6.1.0" {
		t.Errorf("%s", text)
	}
}
