package podspec

import (
	"fmt"
	"math/rand/v2"
	"os"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/node/pressure"
	"ledge/runtime"
)

// needs is a container's resources: "request limit" of CPU and of memory, - for none.
func needs(cpuReq, cpuLim, memReq, memLim string) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, x := range []struct {
		list corev1.ResourceList
		name corev1.ResourceName
		text string
	}{{out.Requests, corev1.ResourceCPU, cpuReq}, {out.Limits, corev1.ResourceCPU, cpuLim},
		{out.Requests, corev1.ResourceMemory, memReq}, {out.Limits, corev1.ResourceMemory, memLim}} {
		if x.text != "-" {
			x.list[x.name] = resource.MustParse(x.text)
		}
	}
	return out
}

func needy(qos corev1.PodQOSClass, main []corev1.ResourceRequirements, init ...corev1.ResourceRequirements) *corev1.Pod {
	p := &corev1.Pod{Status: corev1.PodStatus{QOSClass: qos}}
	p.UID = "u1"
	for i, r := range main {
		p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: fmt.Sprint("c", i), Resources: r})
	}
	for i, r := range init {
		p.Spec.InitContainers = append(p.Spec.InitContainers, corev1.Container{Name: fmt.Sprint("i", i), Resources: r})
	}
	return p
}

// TestShares and quota of N-7.40.
func TestShares(t *testing.T) {
	for milli, want := range map[int64]uint64{0: 2, -1: 2, 1: 2, 2: 2, 3: 3, 10: 10, 100: 102, 250: 256, 1000: 1024, 1500: 1536,
		4000: 4096, 255999: 262142, 256000: 262144, 1 << 40: 262144} {
		if got := shares(milli); got != want {
			t.Errorf("%dm: %d shares, want %d", milli, got, want)
		}
	}
	for milli, want := range map[int64]int64{0: 0, 1: 1000, 9: 1000, 10: 1000, 11: 1100, 100: 10000, 1000: 100000, 2500: 250000} {
		var got runtime.Resources
		Limits{}.cpu(&got, 0, milli)
		if got.CPUQuotaUS != want || (got.CPUPeriodUS == 100_000) != (want > 0) {
			t.Errorf("%dm: %+v, want %d", milli, got, want)
		}
	}
	var got runtime.Resources
	Limits{ResourceConfig: ResourceConfig{CPUPeriod: 10 * time.Millisecond}}.cpu(&got, 1000, 2500)
	if got.CPUQuotaUS != 25_000 || got.CPUPeriodUS != 10_000 || got.CPUShares != 1024 || got.IOWeight != 39 {
		t.Errorf("a period of 10 ms: %+v", got)
	}
	got = runtime.Resources{}
	Limits{ResourceConfig: ResourceConfig{NoCPUQuota: true}}.cpu(&got, 0, 2500)
	if got.CPUQuotaUS != 0 || got.CPUShares != 2 || got.IOWeight != 1 {
		t.Errorf("no quotas: %+v", got)
	}
}

// TestPodCgroup of N-7.39.
func TestPodCgroup(t *testing.T) {
	for qos, want := range map[corev1.PodQOSClass]string{
		corev1.PodQOSGuaranteed: "kubepods/podu1", corev1.PodQOSBurstable: "kubepods/burstable/podu1",
		corev1.PodQOSBestEffort: "kubepods/besteffort/podu1", "": "kubepods/besteffort/podu1"} {
		if got := Cgroup(needy(qos, nil)); got != want {
			t.Errorf("%s: %s, want %s", qos, got, want)
		}
	}
}

// TestPodResources of N-7.42: a limit of the pod only if all of its containers have one.
func TestPodResources(t *testing.T) {
	type list = []corev1.ResourceRequirements
	for _, c := range []struct {
		what   string
		pod    *corev1.Pod
		shares uint64
		quota  int64
		memory int64
	}{
		{"guaranteed", needy(corev1.PodQOSGuaranteed, list{needs("1", "1", "1Gi", "1Gi"), needs("500m", "500m", "1Mi", "1Mi")}),
			1536, 150000, 1<<30 + 1<<20},
		{"burstable, all limited", needy(corev1.PodQOSBurstable, list{needs("100m", "1", "1Mi", "8Mi"), needs("200m", "500m", "-", "2Mi")}),
			307, 150000, 10 << 20},
		{"burstable, CPU of one unlimited", needy(corev1.PodQOSBurstable,
			list{needs("100m", "1", "1Mi", "8Mi"), needs("200m", "-", "1Mi", "2Mi")}),
			307, 0, 10 << 20},
		{"burstable, memory of one unlimited",
			needy(corev1.PodQOSBurstable, list{needs("100m", "1", "1Mi", "8Mi"), needs("200m", "1", "1Mi", "-")}),
			307, 200000, 0},
		{"burstable, nothing limited", needy(corev1.PodQOSBurstable, list{needs("100m", "-", "-", "-")}), 102, 0, 0},
		{"a limit counts as a request", needy(corev1.PodQOSBurstable, list{needs("-", "1", "-", "-")}), 1024, 100000, 0},
		{"best effort", needy(corev1.PodQOSBestEffort, list{needs("-", "-", "-", "-")}), 2, 0, 0},
		{"a large init container", needy(corev1.PodQOSBurstable, list{needs("100m", "200m", "-", "1Mi")}, needs("2", "3", "-", "9Mi"),
			needs("1", "1", "-", "1Mi")),
			2048, 300000, 9 << 20},
		{"a small init container", needy(corev1.PodQOSBurstable, list{needs("1", "2", "-", "4Mi")}, needs("10m", "10m", "-", "1Mi")), 1024,
			200000, 4 << 20},
		{"an unlimited init container", needy(corev1.PodQOSBurstable, list{needs("1", "1", "-", "4Mi")}, needs("-", "-", "-", "-")), 1024, 0, 0},
	} {
		api.Pods.Default(c.pod) // requests are what Limits are, unless they are given
		got := Limits{}.Pod(c.pod)
		if got.CPUShares != c.shares || got.CPUQuotaUS != c.quota || got.MemoryBytes != c.memory || (got.CPUPeriodUS == 100000) != (c.quota > 0) {
			t.Errorf("%s: %+v, want shares %d quota %d memory %d", c.what, got, c.shares, c.quota, c.memory)
		}
	}
}

// TestContainerResources of N-7.44.
func TestContainerResources(t *testing.T) {
	for _, c := range []struct {
		r      corev1.ResourceRequirements
		shares uint64
		quota  int64
		memory int64
	}{
		{needs("-", "-", "-", "-"), 2, 0, 0},
		{needs("250m", "1", "1Mi", "64Mi"), 256, 100000, 64 << 20},
		{needs("-", "500m", "-", "-"), 512, 50000, 0},
		{needs("1m", "1m", "-", "-"), 2, 1000, 0},
		{needs("100m", "-", "5Mi", "-"), 102, 0, 0},
	} {
		p := needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{c.r})
		got := Limits{MemoryTotal: 4 << 30}.Container(p, &p.Spec.Containers[0])
		if got.CPUShares != c.shares || got.CPUQuotaUS != c.quota || (got.CPUPeriodUS == 100000) != (c.quota > 0) || got.MemoryBytes != c.memory {
			t.Errorf("%+v: %+v", c.r, got)
		}
		if !got.KillAllOnOOM || got.OOMScoreAdj == nil {
			t.Errorf("%+v: %+v", c.r, got)
		}
		if got.SwapBytes == nil || *got.SwapBytes != 0 { // N-8.2: no swap
			t.Errorf("%+v: swap %v", c.r, got.SwapBytes)
		}
	}
	p := needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{needs("-", "-", "-", "-")})
	if got := (Limits{ResourceConfig: ResourceConfig{OneByOne: true}}).Container(p, &p.Spec.Containers[0]); got.KillAllOnOOM {
		t.Error("singleProcessOOMKill, and all die")
	}
}

// TestOOMScore of N-7.38.
func TestOOMScore(t *testing.T) {
	critical, user := int32(2_000_001_000), int32(1000)
	const ram = 4 << 30
	for _, c := range []struct {
		what  string
		qos   corev1.PodQOSClass
		mem   string
		class string
		prio  *int32
		ram   int64
		want  int
	}{
		{"guaranteed", corev1.PodQOSGuaranteed, "1Gi", "", nil, ram, -997},
		{"best effort", corev1.PodQOSBestEffort, "-", "", nil, ram, 1000},
		{"node critical", corev1.PodQOSBestEffort, "-", "system-node-critical", &critical, ram, -997},
		{"cluster critical is not", corev1.PodQOSBestEffort, "-", "system-cluster-critical", &critical, ram, 1000},
		{"the name alone is not", corev1.PodQOSBestEffort, "-", "system-node-critical", &user, ram, 1000},
		{"the name without a priority is not", corev1.PodQOSBestEffort, "-", "system-node-critical", nil, ram, 1000},
		{"half of the memory", corev1.PodQOSBurstable, "2Gi", "", nil, ram, 500},
		{"a quarter", corev1.PodQOSBurstable, "1Gi", "", nil, ram, 750},
		{"rounded down before it is taken off", corev1.PodQOSBurstable, "5Mi", "", nil, ram, 999},
		{"no request", corev1.PodQOSBurstable, "-", "", nil, ram, 999},
		{"all of it", corev1.PodQOSBurstable, "4Gi", "", nil, ram, 3},
		{"nearly all of it", corev1.PodQOSBurstable, "4090Mi", "", nil, ram, 3},
		{"more than there is", corev1.PodQOSBurstable, "8Gi", "", nil, ram, 3},
		{"memory not known", corev1.PodQOSBurstable, "1Gi", "", nil, 0, 999},
	} {
		p := needy(c.qos, []corev1.ResourceRequirements{needs("-", "-", c.mem, "-")})
		p.Spec.PriorityClassName, p.Spec.Priority = c.class, c.prio
		if got := oomScoreAdj(p, &p.Spec.Containers[0], c.ram); got != c.want {
			t.Errorf("%s: %d, want %d", c.what, got, c.want)
		}
	}
}

// TestOOMScoreOfSidecars and of pods with a request of their own, N-7.38.
func TestOOMScoreOfSidecars(t *testing.T) {
	always := corev1.ContainerRestartPolicyAlways
	p := needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{needs("-", "-", "2Gi", "-"), needs("-", "-", "1Gi", "-")},
		needs("-", "-", "1Mi", "-"), needs("-", "-", "3Gi", "-"), needs("-", "-", "1Mi", "-"))
	p.Spec.InitContainers[0].RestartPolicy, p.Spec.InitContainers[1].RestartPolicy = &always, &always
	for i, want := range []int{750, 250, 999} { // no more than c1's; its own, which is less; no sidecar
		if got := oomScoreAdj(p, &p.Spec.InitContainers[i], 4<<30); got != want {
			t.Errorf("i%d: %d, want %d", i, got, want)
		}
	}
	p = needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{needs("-", "-", "1Gi", "-"), needs("-", "-", "-", "-")})
	whole := needs("-", "-", "3Gi", "-")
	p.Spec.Resources = &whole
	for i, want := range []int{500, 750} { // of the 2Gi left each has one
		if got := oomScoreAdj(p, &p.Spec.Containers[i], 4<<30); got != want {
			t.Errorf("c%d: %d, want %d", i, got, want)
		}
	}
}

// TestPodLevelResources: what the pod has of its own decides (N-7.37, N-7.42).
func TestPodLevelResources(t *testing.T) {
	p := needy("", []corev1.ResourceRequirements{needs("100m", "-", "-", "-"), needs("-", "-", "-", "-")})
	whole := needs("500m", "1", "256Mi", "512Mi")
	p.Spec.Resources = &whole
	p.Status.QOSClass = api.QOSClass(p)
	got := Limits{ResourceConfig: ResourceConfig{PodPids: 77}}.Pod(p)
	if p.Status.QOSClass != corev1.PodQOSBurstable || got.CPUShares != 512 || got.CPUQuotaUS != 100_000 || got.MemoryBytes != 512<<20 ||
		got.PidsLimit != 77 {
		t.Errorf("%s: %+v", p.Status.QOSClass, got)
	}
	if c := (Limits{}).Container(p, &p.Spec.Containers[1]); c.CPUShares != 1024 || c.MemoryBytes != 512<<20 || c.CPUQuotaUS != 100_000 {
		t.Errorf("a container that asks for nothing has the pod's limits: %+v", c)
	}
	whole.Limits["hugepages-2Mi"] = resource.MustParse("4Mi")
	p.Spec.Containers[0].Resources = needs("100m", "500m", "-", "-")
	if c := (Limits{}).Container(p, &p.Spec.Containers[0]); c.CPUShares != 102 || c.MemoryBytes != 512<<20 || c.CPUQuotaUS != 50_000 ||
		c.HugePages[2<<20] != 4<<20 {
		t.Errorf("a container with a limit of its own: %+v", c)
	}
	if len(p.Spec.Containers[0].Resources.Limits) != 1 {
		t.Errorf("the pod was changed: %v", p.Spec.Containers[0].Resources.Limits)
	}
}

// TestMemoryQoS of N-7.45.
func TestMemoryQoS(t *testing.T) {
	on := Limits{CgroupV2: true, Allocatable: 1000 << 20, ResourceConfig: ResourceConfig{MemoryQoS: MemoryQoS{On: true, Protected: true}}}
	page := int64(os.Getpagesize())
	down := func(n float64) string { return fmt.Sprint(int64(n) / page * page) }
	for _, c := range []struct {
		what           string
		l              Limits
		qos            corev1.PodQOSClass
		req, lim       string
		high, low, min string
	}{
		{"limit above request", on, corev1.PodQOSBurstable, "100Mi", "200Mi", down(190 << 20), fmt.Sprint(100 << 20), ""},
		{"no limit", on, corev1.PodQOSBurstable, "100Mi", "-", down(910 << 20), fmt.Sprint(100 << 20), ""},
		{"guaranteed", on, corev1.PodQOSGuaranteed, "100Mi", "100Mi", "", "", fmt.Sprint(100 << 20)},
		{"nothing asked for", on, corev1.PodQOSBurstable, "-", "100Mi", down(90 << 20), "", ""},
		{"off", Limits{CgroupV2: true, Allocatable: 1 << 30}, corev1.PodQOSBurstable, "100Mi", "200Mi", "", "", ""},
		{"v1", Limits{Allocatable: 1 << 30, ResourceConfig: on.ResourceConfig}, corev1.PodQOSBurstable, "100Mi", "200Mi", "", "", ""},
	} {
		p := needy(c.qos, []corev1.ResourceRequirements{needs("-", "-", c.req, c.lim)})
		got := c.l.Container(p, &p.Spec.Containers[0]).Unified
		if got["memory.high"] != c.high || got["memory.low"] != c.low || got["memory.min"] != c.min {
			t.Errorf("%s: %v, want high %q low %q min %q", c.what, got, c.high, c.low, c.min)
		}
	}
}

// TestGroups of N-7.43 and N-1.61.
func TestGroups(t *testing.T) {
	pods := []*corev1.Pod{
		needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{needs("500m", "-", "1Gi", "-"), needs("250m", "-", "-", "-")}),
		needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{needs("250m", "-", "-", "-")}),
		needy(corev1.PodQOSGuaranteed, []corev1.ResourceRequirements{needs("2", "2", "2Gi", "2Gi")}),
		needy(corev1.PodQOSBestEffort, []corev1.ResourceRequirements{needs("-", "-", "-", "-")}),
	}
	forPods := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{"cpu": resource.MustParse(cpu), "memory": resource.MustParse(memory)}
	}
	l := Limits{CgroupV2: true, ForPods: forPods("3", "3Gi"), PIDMax: 32768, PIDReserved: 1000}
	got := l.Groups(pods)
	want := []Group{
		{"kubepods", runtime.Resources{CPUShares: 3072, MemoryBytes: 3 << 30, PidsLimit: 31768}},
		{"kubepods/burstable", runtime.Resources{CPUShares: 1024, IOWeight: 39}},
		{"kubepods/besteffort", runtime.Resources{CPUShares: 2, IOWeight: 1}},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%+v, want %+v", got, want)
	}
	l.Unenforced, l.ForPods = true, forPods("4", "4Gi")
	if all := l.Groups(pods)[0].Want; all.MemoryBytes != 4<<30 || all.CPUShares != 4096 || all.PidsLimit != 0 {
		t.Errorf("not enforced: %+v", all)
	}
	l.MemoryQoS = MemoryQoS{On: true, Protected: true}
	if g := l.Groups(pods); g[0].Want.Unified["memory.min"] != fmt.Sprint(int64(2<<30)) ||
		g[1].Want.Unified["memory.low"] != fmt.Sprint(1<<30) {
		t.Errorf("protected: %+v", g)
	}
}

// TestTasksOfPods: pods cannot take what the board needs to start something, and are short of processes before they could.
func TestTasksOfPods(t *testing.T) { // reliability: at the PID limit
	for name, c := range map[string]struct {
		l    Limits
		want int64
	}{
		"nothing known":          {Limits{PIDMax: 32768}, 0},
		"reserved":               {Limits{PIDMax: 32768, PIDReserved: 1000}, 31768},
		"measured":               {Limits{PIDMax: 500, OwnTasks: 120, SpareTasks: 12}, 368},
		"more reserved":          {Limits{PIDMax: 500, OwnTasks: 120, SpareTasks: 12, PIDReserved: 200}, 300},
		"less reserved":          {Limits{PIDMax: 500, OwnTasks: 120, SpareTasks: 12, PIDReserved: 50}, 368},
		"the board takes it all": {Limits{PIDMax: 500, OwnTasks: 600, SpareTasks: 12}, 1},
		"no limit known":         {Limits{OwnTasks: 120}, 0},
		"not enforced":           {Limits{PIDMax: 500, OwnTasks: 120, SpareTasks: 12, ResourceConfig: ResourceConfig{Unenforced: true}}, 0},
	} {
		if got := c.l.tasks(); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 79))
		most := 200 + rnd.Int64N(100_000)
		p := pressure.Default()
		if rnd.IntN(2) == 0 {
			p.Thresholds = []pressure.Threshold{{Signal: pressure.PIDAvailable, Below: pressure.Limit{Amount: 4 + rnd.Int64N(most/4)}}}
		}
		l := Limits{PIDMax: most, OwnTasks: 1 + rnd.Int64N(most/2), SpareTasks: SpareTasks(p, most)}
		own := l.OwnTasks + rnd.Int64N(l.SpareTasks/4*2+1) - l.SpareTasks/4 // since it was measured last
		left := most - own - l.tasks()
		if line := p.Hard(pressure.PIDAvailable).Of(most); left <= 0 || left >= line {
			t.Fatalf("seed %d: %d left of %d when pods have all theirs, the line is %d", seed, left, most, line)
		}
	}
}

// TestHugePages: a pod gets what it asks for, of the sizes it asks for.
func TestHugePages(t *testing.T) {
	p := needy(corev1.PodQOSBurstable, []corev1.ResourceRequirements{needs("1", "-", "-", "-"), needs("-", "-", "-", "-")})
	for i, n := range []string{"4Mi", "6Mi"} {
		for _, list := range []corev1.ResourceList{p.Spec.Containers[i].Resources.Requests, p.Spec.Containers[i].Resources.Limits} {
			list["hugepages-2Mi"] = resource.MustParse(n)
		}
	}
	if got := (Limits{}).Pod(p).HugePages; len(got) != 1 || got[2<<20] != 10<<20 {
		t.Errorf("the pod: %v", got)
	}
	if got := (Limits{}).Container(p, &p.Spec.Containers[1]).HugePages; len(got) != 1 || got[2<<20] != 6<<20 {
		t.Errorf("the container: %v", got)
	}
	none := needy(corev1.PodQOSBestEffort, []corev1.ResourceRequirements{needs("-", "-", "-", "-")})
	if got := (Limits{}).Pod(none).HugePages; got == nil || len(got) > 0 {
		t.Errorf("nothing asked for: %v; nil would leave huge pages unbounded", got)
	}
}
