package pressure

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func candidate(name string, priority int32, requests corev1.ResourceList, used *Usage) Candidate {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
	p.Spec.Priority = &priority
	p.Spec.Containers = []corev1.Container{{Name: "c", Resources: corev1.ResourceRequirements{Requests: requests}}}
	return Candidate{p, used}
}

func order(list []Candidate) string {
	var out []string
	for _, c := range list {
		out = append(out, c.Pod.Name)
	}
	return strings.Join(out, " ")
}

const mi = 1 << 20

func TestRank(t *testing.T) {
	disk := func(root, logs, volumes int64) *Usage {
		return &Usage{Rootfs: Files{root, root / mi}, Logs: Files{logs, logs / mi}, Volumes: Files{volumes, volumes / mi}}
	}
	ram := func(n int64) *Usage { return &Usage{Memory: n * mi} }
	tasks := func(n int64) *Usage { return &Usage{Processes: n} }
	for _, c := range []struct {
		what   string
		signal Signal
		layout Layout
		pods   []Candidate
		want   string
	}{
		{"memory: above the request before within it, whatever the priority; N-6.25", MemoryAvailable, OneDisk, []Candidate{
			candidate("within", -5, amounts("memory", "500Mi"), ram(500)), candidate("above", 100, amounts("memory", "10Mi"), ram(11))},
			"above within"},
		{"memory: then lower priority; N-6.25", MemoryAvailable, OneDisk, []Candidate{
			candidate("high", 10, nil, ram(500)), candidate("low", 1, amounts("memory", "1Mi"), ram(2))}, "low high"},
		{"memory: then the most above its request; the class is no key; N-6.25", AllocatableMemory, OneDisk, []Candidate{
			candidate("besteffort", 0, nil, ram(90)), candidate("burstable", 0, amounts("memory", "100Mi"), ram(200))}, "burstable besteffort"},
		{"memory: among those within, the one that has least left; N-6.25", MemoryAvailable, OneDisk, []Candidate{
			candidate("roomy", 0, amounts("memory", "100Mi"), ram(10)), candidate("tight", 0, amounts("memory", "100Mi"), ram(90))}, "tight roomy"},
		{"memory: not measured first; N-6.28", MemoryAvailable, OneDisk, []Candidate{
			candidate("known", 0, nil, ram(900)), candidate("unknown", 100, amounts("memory", "1Gi"), nil)}, "unknown known"},
		{"disk, one: all that it has written; N-6.26", NodeFSAvailable, OneDisk, []Candidate{
			candidate("logs", 0, nil, disk(0, 90*mi, 0)), candidate("sum", 0, nil, disk(40*mi, 30*mi, 30*mi))}, "sum logs"},
		{"disk, one: within its request last; N-6.26", ImageFSAvailable, OneDisk, []Candidate{
			candidate("within", -1, amounts("ephemeral-storage", "1Gi"), disk(900*mi, 0, 0)), candidate("above", 5, nil, disk(1, 0, 0))},
			"above within"},
		{"disk, two: logs and volumes on the node's; N-6.26", NodeFSAvailable, ImageDisk, []Candidate{
			candidate("root", 0, nil, disk(90*mi, 0, 0)), candidate("volumes", 0, nil, disk(0, 1*mi, 1*mi))}, "volumes root"},
		{"disk, two: writable layers on the images'; N-6.26", ImageFSAvailable, ImageDisk, []Candidate{
			candidate("volumes", 0, nil, disk(0, 90*mi, 90*mi)), candidate("root", 0, nil, disk(mi, 0, 0))}, "root volumes"},
		{"disk, two: the same of containers'; N-6.26", ContainerFSAvailable, ImageDisk, []Candidate{
			candidate("volumes", 0, nil, disk(0, 90*mi, 90*mi)), candidate("root", 0, nil, disk(mi, 0, 0))}, "root volumes"},
		{"inodes: nobody has asked for any; N-6.26", NodeFSInodesFree, OneDisk, []Candidate{
			candidate("asks", 0, amounts("ephemeral-storage", "1Gi"), disk(3*mi, 3*mi, 3*mi)), candidate("few", 0, nil, disk(mi, 0, 0))},
			"asks few"},
		{"processes: lower priority before more of them; N-6.27", PIDAvailable, OneDisk, []Candidate{
			candidate("bomb", 1, amounts("memory", "1Gi"), tasks(1000)), candidate("low", 0, nil, tasks(1))}, "low bomb"},
		{"processes: then more of them; N-6.27", PIDAvailable, OneDisk, []Candidate{
			candidate("few", 0, nil, tasks(3)), candidate("bomb", 0, amounts("memory", "1Gi"), tasks(1000))}, "bomb few"},
		{"processes: not measured first among equals; N-6.28", PIDAvailable, OneDisk, []Candidate{
			candidate("known", 0, nil, tasks(3)), candidate("unknown", 0, nil, nil), candidate("low", -1, nil, tasks(1))}, "low unknown known"},
	} {
		if got := order(Rank(c.signal, c.layout, c.pods)); got != c.want {
			t.Errorf("%s: got %s, want %s", c.what, got, c.want)
		}
	}
}

// TestRankProperties: for memory and disk nobody within its request goes before one above it; the order does not depend on
// the order in which pods are given, and everybody who was given is in it once (N-6.25 to N-6.29).
func TestRankProperties(t *testing.T) {
	for seed := range uint64(500) {
		rnd := rand.New(rand.NewPCG(seed, 25))
		var pods []Candidate
		for i := range rnd.IntN(12) {
			var used *Usage
			if rnd.IntN(6) > 0 {
				files := func() Files { return Files{rnd.Int64N(3) * mi, rnd.Int64N(3)} }
				used = &Usage{Memory: rnd.Int64N(4) * mi, Processes: rnd.Int64N(4), Rootfs: files(), Logs: files(), Volumes: files()}
			}
			pods = append(pods, candidate(fmt.Sprint("p", i), rnd.Int32N(3),
				amounts("memory", fmt.Sprint(rnd.IntN(4), "Mi"), "ephemeral-storage", fmt.Sprint(rnd.IntN(4), "Mi")), used))
		}
		for _, s := range Signals {
			layout := Layout(rnd.IntN(2))
			got := Rank(s, layout, pods)
			shuffled := slices.Clone(pods)
			rnd.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
			if again := order(Rank(s, layout, shuffled)); again != order(got) {
				t.Fatalf("seed %d: %s: %s, and shuffled %s", seed, s, order(got), again)
			}
			for _, p := range pods {
				if strings.Count(" "+order(got)+" ", " "+p.Pod.Name+" ") != 1 {
					t.Fatalf("seed %d: %s: %s is not there once: %s", seed, s, p.Pod.Name, order(got))
				}
			}
			for i := 1; i < len(got); i++ {
				a, b := got[i-1], got[i]
				above := func(c Candidate) bool { return c.Used != nil && c.Used.of(s, layout) > request(c.Pod, s) }
				if s.Resource() != PIDs && a.Used != nil && b.Used != nil && !above(a) && above(b) {
					t.Fatalf("seed %d: %s: %s is within its request and goes before %s", seed, s, a.Pod.Name, b.Pod.Name)
				}
				if s.Resource() == PIDs && *a.Pod.Spec.Priority > *b.Pod.Spec.Priority {
					t.Fatalf("seed %d: %s goes before %s of a lower priority", seed, a.Pod.Name, b.Pod.Name)
				}
			}
		}
	}
}

func TestMessage(t *testing.T) { // N-6.33
	pod := candidate("p", 0, amounts("memory", "16Mi", "ephemeral-storage", "1Mi"),
		&Usage{Containers: []ContainerUsage{{"c", 40 * mi, 1 * mi}, {"side", 100, 200}, {"debug", 5, 0}, {"gone", 9 * mi, 9 * mi}}})
	pod.Pod.Spec.InitContainers = []corev1.Container{{Name: "side",
		Resources: corev1.ResourceRequirements{Requests: amounts("memory", "1Mi")}}}
	pod.Pod.Spec.EphemeralContainers = []corev1.EphemeralContainer{{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "debug"}}}
	for _, c := range []struct {
		t         Threshold
		r         Reading
		want      string
		offenders string
	}{
		{Threshold{Signal: MemoryAvailable, Below: Limit{Amount: 100 * mi, Format: resource.BinarySI}},
			Reading{Available: 90 * mi, Capacity: 1 << 30},
			"The node was low on resource: memory. Threshold quantity: 100Mi, available: 90Mi. Container c was using 40Mi, request is 16Mi, has larger consumption of memory. " +
				"Container debug was using 5, request is 0, has larger consumption of memory. ", "[{c 40Mi} {debug 5}]"},
		{Threshold{Signal: NodeFSAvailable, Below: Limit{Percent: 0.25}}, Reading{Available: 1000, Capacity: 8 << 30},
			"The node was low on resource: ephemeral-storage. Threshold quantity: 2Gi, available: 1k. Container side was using 200, request is 0, has larger consumption of ephemeral-storage. ", "[{side 200}]"},
		{Threshold{Signal: ImageFSInodesFree, Below: Limit{Amount: 5000, Format: resource.DecimalSI}}, Reading{Available: 7, Capacity: 1 << 20},
			"The node was low on resource: inodes. Threshold quantity: 5k, available: 7. ", "[]"},
		{Threshold{Signal: PIDAvailable, Below: Limit{Percent: 0.5}}, Reading{Available: 100, Capacity: 1 << 15},
			"The node was low on resource: pids. Threshold quantity: 16Ki, available: 100. ", "[]"},
	} {
		got, offenders := Message(c.t, c.r, pod)
		if got != c.want || fmt.Sprint(offenders) != c.offenders {
			t.Errorf("got  %q %v\nwant %q %s", got, offenders, c.want, c.offenders)
		}
	}
	if got, _ := Message(Threshold{Signal: MemoryAvailable, Below: Limit{Amount: mi}}, Reading{Capacity: 1},
		candidate("p", 0, nil, nil)); got != "The node was low on resource: memory. Threshold quantity: 1Mi, available: 0. " {
		t.Errorf("without a measurement: %q", got)
	}
}

func TestAdmit(t *testing.T) { // N-6.35
	tolerates := candidate("p", 0, nil, nil).Pod
	tolerates.Spec.Tolerations = []corev1.Toleration{{Key: corev1.TaintNodeMemoryPressure, Operator: corev1.TolerationOpExists,
		Effect: corev1.TaintEffectNoSchedule}}
	pods := map[string]*corev1.Pod{"besteffort": candidate("p", 0, nil, nil).Pod,
		"burstable": candidate("p", 0, amounts("memory", "1Mi"), nil).Pod, "tolerates": tolerates}
	const m, d, p = corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure
	type conditions = map[corev1.NodeConditionType]bool
	for _, c := range []struct {
		pod  string
		have conditions
		want string
	}{
		{"besteffort", nil, ""},
		{"besteffort", conditions{m: false}, ""},
		{"besteffort", conditions{m: true}, "The node had condition: [MemoryPressure]. "},
		{"tolerates", conditions{m: true}, ""},
		{"burstable", conditions{m: true}, ""},
		{"burstable", conditions{d: true}, "The node had condition: [DiskPressure]. "},
		{"tolerates", conditions{m: true, p: true}, "The node had condition: [MemoryPressure PIDPressure]. "},
		{"burstable", conditions{p: true}, "The node had condition: [PIDPressure]. "},
	} {
		if got := Admit(pods[c.pod], c.have); got != c.want {
			t.Errorf("%s with %v: %q, want %q", c.pod, c.have, got, c.want)
		}
	}
}

func TestFattest(t *testing.T) { // beyond N-6.23
	ram := func(n int64) *Usage { return &Usage{Memory: n * mi} }
	pods := []Candidate{candidate("within", 0, amounts("memory", "900Mi"), ram(800)), candidate("unknown", 0, nil, nil),
		candidate("above", 0, amounts("memory", "10Mi"), ram(60)), candidate("little", -5, nil, ram(20))}
	if c, n, ok := Fattest(AllocatableMemory, pods); !ok || c.Pod.Name != "above" || n != 50*mi {
		t.Errorf("%v %d", c.Pod, n)
	}
	if _, _, ok := Fattest(MemoryAvailable, pods[:2]); ok {
		t.Error("one within its request has nothing to give")
	}
	if _, _, ok := Fattest(PIDAvailable, pods); ok {
		t.Error("memory is not what is short")
	}
}
