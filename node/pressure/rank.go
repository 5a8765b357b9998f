package pressure

import (
	"cmp"
	"fmt"
	"sort"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
)

// Candidate is a pod that may have to go.
type Candidate struct {
	Pod  *corev1.Pod
	Used *Usage // nil: it could not be measured
}

// Usage is what a pod takes of the board.
type Usage struct {
	Memory    int64 // its working set (N-6.2)
	Processes int64
	// Rootfs is what its containers have written, Volumes its scratch space on disk. Memory-backed volumes are memory, and
	// files made of objects are in memory too.
	Rootfs, Logs, Volumes Files
	Containers            []ContainerUsage
}

// Files is what files take.
type Files struct{ Bytes, Inodes int64 }

// Plus is the sum.
func (f Files) Plus(o Files) Files { return Files{f.Bytes + o.Bytes, f.Inodes + o.Inodes} }

// ContainerUsage is the part of one container, for the message.
type ContainerUsage struct {
	Name    string
	Memory  int64
	Storage int64 // written and logged
}

// of is what a pod uses of what a signal is about (N-6.26).
func (u *Usage) of(s Signal, layout Layout) int64 {
	switch s.Resource() {
	case Memory:
		return u.Memory
	case PIDs:
		return u.Processes
	}
	f := u.Rootfs.Plus(u.Logs).Plus(u.Volumes)
	if layout == ImageDisk {
		if f = u.Rootfs; s == NodeFSAvailable || s == NodeFSInodesFree {
			f = u.Logs.Plus(u.Volumes)
		}
	}
	if s.Resource() == Inodes {
		return f.Inodes
	}
	return f.Bytes
}

// request is the pod's effective one (N-6.29). There is none for inodes.
func request(pod *corev1.Pod, s Signal) int64 {
	list := api.Requests(pod)
	switch s.Resource() {
	case Memory:
		return list.Memory().Value()
	case Storage:
		return list.StorageEphemeral().Value()
	}
	return 0
}

// Rank sorts pods: the first is evicted first. The QoS class plays no part: a pod without a request exceeds it with
// any use (N-6.25 to N-6.28).
func Rank(s Signal, layout Layout, pods []Candidate) []Candidate {
	type entry struct {
		Candidate
		above    int64
		priority int32
	}
	list := make([]entry, 0, len(pods))
	for _, c := range pods {
		e := entry{Candidate: c}
		if c.Pod.Spec.Priority != nil {
			e.priority = *c.Pod.Spec.Priority
		}
		if c.Used != nil {
			e.above = c.Used.of(s, layout)
			if s.Resource() != PIDs {
				e.above -= request(c.Pod, s)
			}
		}
		list = append(list, e)
	}
	sort.SliceStable(list, func(i, j int) bool {
		a, b := list[i], list[j]
		measured := first(a.Used == nil, b.Used == nil)
		priority, above := cmp.Compare(a.priority, b.priority), cmp.Compare(b.above, a.above)
		if s.Resource() == PIDs {
			return cmp.Or(priority, measured, above, younger(a.Pod, b.Pod)) < 0
		}
		return cmp.Or(measured, first(a.above > 0, b.above > 0), priority, above, younger(a.Pod, b.Pod)) < 0
	})
	out := make([]Candidate, len(list))
	for i, e := range list {
		out[i] = e.Candidate
	}
	return out
}

// Fattest is the pod that uses most memory beyond its request, and how much that is; false: none does, or what is short is
// not memory.
func Fattest(s Signal, pods []Candidate) (fattest Candidate, above int64, ok bool) {
	if s.Resource() != Memory {
		return Candidate{}, 0, false
	}
	for _, c := range pods {
		if c.Used == nil {
			continue
		}
		if n := c.Used.Memory - request(c.Pod, s); n > above {
			fattest, above = c, n
		}
	}
	return fattest, above, above > 0
}

// first puts before what is so.
func first(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

// younger decides between equals: less is lost with the one that came last.
func younger(a, b *corev1.Pod) int {
	return cmp.Or(b.CreationTimestamp.Compare(a.CreationTimestamp.Time), cmp.Compare(a.UID, b.UID))
}

// Offence is a container that used more than it requested.
type Offence struct{ Container, Usage string }

// Message says why a pod was evicted, in Kubernetes' words (N-6.33), and which containers have their part in it.
func Message(t Threshold, r Reading, c Candidate) (string, []Offence) {
	what := t.Signal.Resource()
	format := resource.BinarySI
	if what == Inodes || what == PIDs {
		format = resource.DecimalSI
	}
	var b strings.Builder
	fmt.Fprintf(&b, "The node was low on resource: %s. Threshold quantity: %s, available: %s. ", what,
		t.Below.quantity(r.Capacity), resource.NewQuantity(r.Available, format))
	if c.Used == nil || what == Inodes || what == PIDs {
		return b.String(), nil
	}
	var offences []Offence
	for _, k := range c.Used.Containers {
		used := k.Memory
		if what == Storage {
			used = k.Storage
		}
		asked, known := containerRequest(c.Pod, k.Name, what)
		if !known || used <= asked.Value() {
			continue
		}
		usage := resource.NewQuantity(used, resource.BinarySI).String()
		fmt.Fprintf(&b, "Container %s was using %s, request is %s, has larger consumption of %s. ", k.Name, usage, asked.String(), what)
		offences = append(offences, Offence{k.Name, usage})
	}
	return b.String(), offences
}

// containerRequest is what one container asks for; an ephemeral one cannot ask.
func containerRequest(pod *corev1.Pod, name string, what corev1.ResourceName) (resource.Quantity, bool) {
	for _, list := range [][]corev1.Container{pod.Spec.Containers, pod.Spec.InitContainers} {
		for i := range list {
			if list[i].Name == name {
				return list[i].Resources.Requests[what], true
			}
		}
	}
	for i := range pod.Spec.EphemeralContainers {
		if pod.Spec.EphemeralContainers[i].Name == name {
			return resource.Quantity{}, true
		}
	}
	return resource.Quantity{}, false
}

// Admit asks whether a board with these conditions takes one more pod; if not it says why (N-6.35). Critical pods need not
// ask.
func Admit(pod *corev1.Pod, conditions map[corev1.NodeConditionType]bool) (refusal string) {
	var holds []corev1.NodeConditionType
	for _, c := range []corev1.NodeConditionType{corev1.NodeMemoryPressure, corev1.NodeDiskPressure, corev1.NodePIDPressure} {
		if conditions[c] {
			holds = append(holds, c)
		}
	}
	if len(holds) == 0 {
		return ""
	}
	if len(holds) == 1 && holds[0] == corev1.NodeMemoryPressure {
		taint := corev1.Taint{Key: corev1.TaintNodeMemoryPressure, Effect: corev1.TaintEffectNoSchedule}
		if c := api.QOSClass(pod); c != corev1.PodQOSBestEffort || api.Tolerated(pod.Spec.Tolerations, &taint) != nil {
			return ""
		}
	}
	return fmt.Sprintf("The node had condition: %v. ", holds)
}
