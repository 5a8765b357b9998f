package main

import (
	"slices"
	"testing"

	"ledge/lab/vm/flash"
)

// TestShare: however many disks, together they do the whole of it, and none much more than another.
func TestShare(t *testing.T) {
	for disks := 1; disks <= 5; disks++ {
		whole := powerFlags{disks: disks, cuts: 102, ends: []string{"button", "reboot", "poweroff"}, lie: true, early: true, seed: 7}
		cuts, lies := 0, 0
		var ends []string
		for i := range disks {
			f := whole.share(i)
			cuts += f.cuts
			ends = append(ends, f.ends...)
			if f.lie {
				lies++
			}
			if f.cuts < 102/disks || f.cuts > 102/disks+1 || len(f.ends) > 3/disks+1 || !f.early || f.seed != 7 {
				t.Errorf("disk %d of %d: %+v", i, disks, f)
			}
		}
		slices.Sort(ends)
		if cuts != 102 || lies != 1 || !slices.Equal(ends, []string{"button", "poweroff", "reboot"}) {
			t.Errorf("%d disks: %d cuts, %d lies, %q", disks, cuts, lies, ends)
		}
	}
}

func TestSumOfDisks(t *testing.T) {
	cut := func(disk, pending, lost int, do string) bootReport {
		return bootReport{Disk: disk, Do: do, Loss: &flash.Loss{Pending: pending, Lost: lost}}
	}
	found := true
	var sum powerReport
	sum.add(powerReport{Cuts: 2, Acknowledged: 10, Wrong: 1, Lost: 1,
		Boots: []bootReport{{Disk: 1, Do: "order button"}, cut(1, 9, 3, "busy"), cut(1, 0, 0, "boot")}})
	sum.add(powerReport{Cuts: 1, Acknowledged: 5, LieFound: &found, Boots: []bootReport{cut(2, 70, 70, "busy"), {Disk: 2, Do: "look"}}})
	sum.count()
	if sum.Cuts != 3 || sum.Acknowledged != 15 || sum.Wrong != 1 || sum.Lost != 1 || sum.LieFound == nil || len(sum.Boots) != 5 ||
		sum.Early != 1 || sum.Sectors != (sectors{Median: 9, Most: 70, Lost: 73}) {
		t.Errorf("%+v", sum)
	}
}
