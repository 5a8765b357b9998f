package node

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
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
		if got := quota(milli); got != want {
			t.Errorf("%dm: quota %d, want %d", milli, got, want)
		}
	}
}

// TestPodCgroup of N-7.39.
func TestPodCgroup(t *testing.T) {
	for qos, want := range map[corev1.PodQOSClass]string{
		corev1.PodQOSGuaranteed: "kubepods/podu1", corev1.PodQOSBurstable: "kubepods/burstable/podu1",
		corev1.PodQOSBestEffort: "kubepods/besteffort/podu1", "": "kubepods/besteffort/podu1"} {
		if got := podCgroup(needy(qos, nil)); got != want {
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
		{"burstable, CPU of one unlimited", needy(corev1.PodQOSBurstable, list{needs("100m", "1", "1Mi", "8Mi"), needs("200m", "-", "1Mi", "2Mi")}),
			307, 0, 10 << 20},
		{"burstable, memory of one unlimited", needy(corev1.PodQOSBurstable, list{needs("100m", "1", "1Mi", "8Mi"), needs("200m", "1", "1Mi", "-")}),
			307, 200000, 0},
		{"burstable, nothing limited", needy(corev1.PodQOSBurstable, list{needs("100m", "-", "-", "-")}), 102, 0, 0},
		{"a limit counts as a request", needy(corev1.PodQOSBurstable, list{needs("-", "1", "-", "-")}), 1024, 100000, 0},
		{"best effort", needy(corev1.PodQOSBestEffort, list{needs("-", "-", "-", "-")}), 2, 0, 0},
		{"a large init container", needy(corev1.PodQOSBurstable, list{needs("100m", "200m", "-", "1Mi")}, needs("2", "3", "-", "9Mi"), needs("1", "1", "-", "1Mi")),
			2048, 300000, 9 << 20},
		{"a small init container", needy(corev1.PodQOSBurstable, list{needs("1", "2", "-", "4Mi")}, needs("10m", "10m", "-", "1Mi")), 1024, 200000, 4 << 20},
		{"an unlimited init container", needy(corev1.PodQOSBurstable, list{needs("1", "1", "-", "4Mi")}, needs("-", "-", "-", "-")), 1024, 0, 0},
	} {
		got := podResources(c.pod)
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
		got := containerResources(p, &p.Spec.Containers[0], 4<<30)
		if got.CPUShares != c.shares || got.CPUQuotaUS != c.quota || (got.CPUPeriodUS == 100000) != (c.quota > 0) || got.MemoryBytes != c.memory {
			t.Errorf("%+v: %+v", c.r, got)
		}
		if !got.KillAllOnOOM || got.OOMScoreAdj == nil {
			t.Errorf("%+v: %+v", c.r, got)
		}
		if (got.SwapBytes != nil) != (c.memory > 0) || got.SwapBytes != nil && *got.SwapBytes != 0 { // N-8.2: no swap
			t.Errorf("%+v: swap %v", c.r, got.SwapBytes)
		}
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
