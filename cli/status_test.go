package cli

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

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
