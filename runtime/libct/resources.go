package libct

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/opencontainers/cgroups"

	"ledge/runtime"
)

// resources maps limits to cgroup settings (N-7.40, N-7.41, N-7.44, N-8.8, N-8.9).
func (t *tree) resources(in runtime.Resources) (*cgroups.Resources, error) {
	in = without(in, t.lacks)
	out := &cgroups.Resources{
		CpuQuota:   in.CPUQuotaUS,
		CpuPeriod:  in.CPUPeriodUS,
		CpusetCpus: in.CPUSet,
		Memory:     in.MemoryBytes,
	}
	if in.PidsLimit != 0 {
		out.PidsLimit = &in.PidsLimit
	}
	var err error
	if out.HugetlbLimit, err = t.hugePages(in.HugePages); err != nil {
		return nil, err
	}
	if !t.unified {
		return out, t.resourcesV1(in, out)
	}
	out.CpuWeight = weight(in.CPUShares)
	out.Unified = in.Unified
	set := func(file, value string) {
		if out.Unified == nil {
			out.Unified = map[string]string{}
		}
		if _, ok := out.Unified[file]; !ok {
			out.Unified[file] = value
		}
	}
	if in.SwapBytes != nil && t.swapController() {
		set("memory.swap.max", maxOr(*in.SwapBytes))
	}
	if in.KillAllOnOOM {
		set("memory.oom.group", "1")
	}
	if in.IOWeight != 0 && t.ioWeight() {
		set("io.weight", strconv.FormatUint(in.IOWeight, 10))
	}
	return out, nil
}

// without leaves out what no controller of this machine could hold. Enter has said so.
func without(in runtime.Resources, lacks map[string]bool) runtime.Resources {
	if lacks["cpu"] {
		in.CPUShares, in.CPUQuotaUS, in.CPUPeriodUS = 0, 0, 0
	}
	if lacks["memory"] {
		in.MemoryBytes, in.SwapBytes, in.KillAllOnOOM = 0, nil, false
	}
	if lacks["pids"] {
		in.PidsLimit = 0
	}
	in.Unified = maps.Clone(in.Unified)
	maps.DeleteFunc(in.Unified, func(file, _ string) bool {
		controller, _, _ := strings.Cut(file, ".")
		return lacks[controller]
	})
	return in
}

func (t *tree) resourcesV1(in runtime.Resources, out *cgroups.Resources) error {
	if len(in.Unified) > 0 {
		return fmt.Errorf("unified resources %v need cgroup v2, this machine has v1", slices.Sorted(maps.Keys(in.Unified)))
	}
	out.CpuShares = in.CPUShares
	if in.SwapBytes == nil || !t.swapController() {
		return nil
	}
	// v1 has only memory+swap: without a memory limit there is nothing to set it to (N-8.9).
	switch {
	case *in.SwapBytes < 0:
		out.MemorySwap = -1
	case in.MemoryBytes > 0:
		out.MemorySwap = in.MemoryBytes + *in.SwapBytes
	}
	return nil
}

// maxOr writes a limit as v2 does, where -1 was none.
func maxOr(n int64) string {
	if n < 0 {
		return "max"
	}
	return strconv.FormatInt(n, 10)
}

// hugePages bounds every page size of this machine; those that are not asked for get nothing.
func (t *tree) hugePages(in map[int64]int64) ([]*cgroups.HugepageLimit, error) {
	if in == nil {
		return nil, nil
	}
	var out []*cgroups.HugepageLimit
	left := maps.Clone(in)
	for _, name := range t.hugeSizes() {
		size := pageSize(name)
		out = append(out, &cgroups.HugepageLimit{Pagesize: name, Limit: uint64(max(0, in[size]))})
		delete(left, size)
	}
	for size, n := range left {
		if n > 0 {
			return nil, fmt.Errorf("huge pages of %d bytes: this machine has none, or its cgroups cannot count them", size)
		}
	}
	return out, nil
}

// hugeSizes are the page sizes that cgroups can bound here, as the kernel names them: 2MB.
func (t *tree) hugeSizes() []string {
	if t.unified && !t.hasController("hugetlb") {
		return nil
	}
	if _, err := cgroups.FindCgroupMountpoint("", "hugetlb"); !t.unified && err != nil {
		return nil
	}
	return cgroups.HugePageSizes()
}

func pageSize(name string) int64 {
	for unit, n := range map[string]int64{"KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30} {
		if digits, ok := strings.CutSuffix(name, unit); ok {
			count, _ := strconv.ParseInt(digits, 10, 64)
			return count * n
		}
	}
	return 0
}

// ioWeight asks whether the kernel can share out I/O by weight (it needs iocost).
func (t *tree) ioWeight() bool {
	_, err := os.Stat(filepath.Join(cgroupMount, t.root, podsName, "io.weight"))
	return err == nil
}

// weight is the v2 form of CPU shares, linear everywhere (N-7.41). 0 stays "not set".
func weight(shares uint64) uint64 {
	if shares == 0 {
		return 0
	}
	shares = min(max(shares, 2), 262144)
	return 1 + ((shares-2)*9999)/262142
}
