package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/board"
	"ledge/node/pressure"
)

func TestPrintPressure(t *testing.T) {
	now := time.Unix(1000, 0)
	since := now.Add(-90 * time.Second)
	have, all, tasks, most := int64(40<<20+5), int64(1<<30), int64(30000), int64(32768)
	r := pressure.Report{Conditions: []pressure.ConditionReport{{Type: corev1.NodeMemoryPressure, Status: true, Since: &since},
		{Type: corev1.NodeDiskPressure}},
		Signals: []pressure.SignalReport{
			{Signal: pressure.MemoryAvailable, Available: &have, Capacity: &all,
				Thresholds: []pressure.ThresholdReport{{Below: 100 << 20, Met: &since}, {Soft: true, Below: 200 << 20, Grace: "1m0s"}}},
			{Signal: pressure.AllocatableMemory, Thresholds: []pressure.ThresholdReport{{Below: 100 << 20}}},
			{Signal: pressure.PIDAvailable, Available: &tasks, Capacity: &most}}}
	var out strings.Builder
	must(t, printPressure(&out, r, now))
	want := `MemoryPressure for 1m30s
SIGNAL                        AVAILABLE   OF      THRESHOLD                    MET
memory.available              40Mi        1Gi     <100Mi, <200Mi for 1m0s      for 1m30s
allocatableMemory.available   unknown             <100Mi                       
pid.available                 30000       32768                                
`
	if got := out.String(); strings.Join(strings.Fields(got), " ") != strings.Join(strings.Fields(want), " ") {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestPrintClaims: what is counted, and what the disk does not count.
func TestPrintClaims(t *testing.T) {
	used, written := int64(60<<20), int64(3<<30)
	var out strings.Builder
	err := printClaims(&out, []board.Claim{{Namespace: "a", Name: "db", Volume: "pvc-1", Size: 64 << 20, Used: &used, Files: 7, Written: &written},
		{Namespace: "a", Name: "old", Volume: "pvc-2", Size: 1 << 30}})
	want := "CLAIM   SIZE   USED          FILES   WRITTEN       VOLUME\n" +
		"a/db    64Mi   60Mi (93%)    7       3221.2 MB     pvc-1\n" +
		"a/old   1Gi    not counted           not counted   pvc-2\n" +
		"written: since the boot, by the pods that had the claim, to its disk: into it or beside it\n"
	if err != nil || out.String() != want {
		t.Errorf("%v\n%s", err, out.String())
	}
}
