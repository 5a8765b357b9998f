package libct

import (
	"maps"
	"reflect"
	"slices"
	"testing"

	"ledge/runtime"
)

// What a kernel cannot hold is left out, and nothing else; who asked keeps what was asked for.
func TestWithout(t *testing.T) {
	swap := int64(0)
	asked := func() runtime.Resources {
		return runtime.Resources{CPUShares: 2, CPUQuotaUS: 3, CPUPeriodUS: 4, MemoryBytes: 5, SwapBytes: &swap, KillAllOnOOM: true, PidsLimit: 6,
			CPUSet: "0", IOWeight: 7, HugePages: map[int64]int64{1: 2},
			Unified: map[string]string{"memory.high": "8", "cpu.idle": "1", "cpuset.mems": "0", "pids.max": "9"}}
	}
	for _, c := range []struct {
		lacks []string
		drop  func(r *runtime.Resources)
	}{
		{nil, func(*runtime.Resources) {}},
		{[]string{"memory"}, func(r *runtime.Resources) {
			r.MemoryBytes, r.SwapBytes, r.KillAllOnOOM = 0, nil, false
			delete(r.Unified, "memory.high")
		}},
		{[]string{"cpu", "pids"}, func(r *runtime.Resources) {
			r.CPUShares, r.CPUQuotaUS, r.CPUPeriodUS, r.PidsLimit = 0, 0, 0, 0
			maps.DeleteFunc(r.Unified, func(file, _ string) bool { return slices.Contains([]string{"cpu.idle", "pids.max"}, file) })
		}},
	} {
		lacks := map[string]bool{}
		for _, l := range c.lacks {
			lacks[l] = true
		}
		in, want := asked(), asked()
		c.drop(&want)
		if got := without(in, lacks); !reflect.DeepEqual(got, want) {
			t.Errorf("without %v: %+v, want %+v", c.lacks, got, want)
		}
		if !reflect.DeepEqual(in, asked()) {
			t.Errorf("without %v changed what was asked for: %+v", c.lacks, in)
		}
	}
}
