package main

import (
	"maps"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"ledge/api/board"
	"ledge/host"
)

func TestBookOfWrites(t *testing.T) {
	monday := time.Date(2026, 11, 23, 12, 0, 0, 0, time.Local)
	night, tuesday := monday.Add(11*time.Hour), monday.Add(24*time.Hour)
	counter := func(of string, since time.Time, n int64) map[string]host.Counter {
		return map[string]host.Counter{"brain": {Of: of, Since: since, Bytes: n}}
	}
	var k book
	for i, step := range []struct {
		now                    time.Time
		boot                   string
		counters               map[string]host.Counter
		wantToday, wantAllTold int64
	}{
		{monday, "1", counter("a", monday, 100), 100, 100},
		{monday, "1", counter("a", monday, 150), 150, 150},
		{monday, "1", nil, 150, 150},                        // it cannot be read for a moment
		{monday, "1", counter("b", monday, 30), 180, 180},   // restarted
		{night, "1", counter("b", monday, 20), 170, 170},    // it removed what had not come to the disk
		{tuesday, "1", counter("b", monday, 25), 5, 175},    // the day begins with what is new
		{tuesday, "1", counter("c", monday, 7), 5, 182},     // begun before midnight, seen after it
		{tuesday, "1", counter("c", monday, 9), 7, 184},     //
		{tuesday, "2", counter("d", tuesday, 4), 4, 4},      // another boot
		{tuesday, "3", counter("e", monday, 1000), 0, 1000}, // first seen the day after
		{monday, "3", counter("e", monday, 1001), 1, 1001},  // a clock that is put back
		{tuesday, "4", counter("f", tuesday, 50), 50, 50},   //
		{tuesday, "4", counter("f", tuesday, 0), 0, 0},      // never below nothing
		{tuesday, "4", counter("g", tuesday, 1<<40), 1 << 40, 1 << 40},
	} {
		k.note(step.now, step.boot, step.counters)
		if a := k.Accounts["brain"]; a.Today != step.wantToday || a.SinceBoot != step.wantAllTold {
			t.Errorf("step %d: %+v, want %d and %d", i, a, step.wantToday, step.wantAllTold)
		}
	}
}

// However a writer is restarted and looked at, within a day all is counted once.
func TestBookCountsOnce(t *testing.T) {
	now := time.Date(2026, 11, 23, 0, 0, 1, 0, time.Local)
	var k book
	sum, counters := int64(0), map[string]host.Counter{"x": {Of: "0", Since: now}}
	for i := range 1000 {
		if rand.IntN(20) == 0 {
			counters["x"] = host.Counter{Of: time.Duration(i).String(), Since: now}
		}
		n := rand.Int64N(1 << 30)
		c := counters["x"]
		c.Bytes += n
		counters["x"], sum = c, sum+n
		for range 1 + rand.IntN(2) {
			k.note(now.Add(time.Duration(i)*time.Minute), "b", maps.Clone(counters))
		}
		if a := k.Accounts["x"]; a.Today != sum || a.SinceBoot != sum {
			t.Fatalf("after %d: %+v, want %d", i, a, sum)
		}
	}
}

func TestPrintWrites(t *testing.T) {
	var out strings.Builder
	r := board.Writes{Disk: "mmcblk0", Wear: &board.Wear{UsedPercent: 30, Reserve: "normal"},
		Writers: []board.Writer{{Name: "brain", What: "store", Today: 1_500_000, SinceBoot: 20_000_000}, {Name: "disk", What: "all", Today: 2e6, SinceBoot: 3e7}}}
	r.Since(time.Date(2026, 3, 4, 5, 6, 7, 0, time.FixedZone("", 3600)), 24*time.Hour)
	must(t, printWrites(&out, r))
	want := `WRITER TODAY SINCE BOOT OF
brain 1.5 MB 20.0 MB store
disk 2.0 MB 30.0 MB all
today: since 2026-03-04 00:00 +0100; the boot: 2026-03-03 05:06 +0100
mmcblk0 has used up to 30 % of its life, its reserve of spare blocks is normal`
	if got := strings.Join(strings.Fields(out.String()), " "); got != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s\nwant\n%s", &out, want)
	}
	if r.Since(r.Boot.Add(time.Hour), time.Hour); r.Today != r.Boot {
		t.Errorf("booted at %v, and today is since %v", r.Boot, r.Today)
	}
	for want, r := range map[string]board.Writes{
		"the data directory is not on a disk of its own: what it wears cannot be told": {},
		"sda does not tell its wear":                                                                          {Disk: "sda"},
		"mmcblk0 does not tell its wear, its reserve of spare blocks is low":                                  {Disk: "mmcblk0", Wear: &board.Wear{Reserve: "low"}},
		"mmcblk0 has worn beyond the life it was made for: replace it, its reserve of spare blocks is urgent": {Disk: "mmcblk0", Wear: &board.Wear{UsedPercent: 100, Exceeded: true, Reserve: "urgent"}},
	} {
		if got := wearLine(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
