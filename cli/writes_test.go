package cli

import (
	"strings"
	"testing"
	"time"

	"ledge/api/board"
)

func TestPrintWrites(t *testing.T) {
	var out strings.Builder
	r := board.Writes{Disk: "mmcblk0", Wear: &board.Wear{UsedPercent: 30, Reserve: "normal"},
		Writers: []board.Writer{{Name: "brain", What: "store", Today: 1_500_000, SinceBoot: 20_000_000},
			{Name: "disk", What: "all", Today: 2e6, SinceBoot: 3e7}}}
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
		"sda does not tell its wear": {Disk: "sda"},
		"mmcblk0 does not tell its wear, its reserve of spare blocks is low": {Disk: "mmcblk0",
			Wear: &board.Wear{Reserve: "low"}},
		"mmcblk0 has worn beyond the life it was made for: replace it, its reserve of spare blocks is urgent": {Disk: "mmcblk0",
			Wear: &board.Wear{UsedPercent: 100, Exceeded: true, Reserve: "urgent"}},
	} {
		if got := wearLine(r); got != want {
			t.Errorf("%+v: %q, want %q", r, got, want)
		}
	}
}
