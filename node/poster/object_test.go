package poster

import (
	"maps"
	"net/netip"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// TestObject is the Node as first posted (N-1.28, N-1.14).
func TestObject(t *testing.T) {
	taint := corev1.Taint{Key: "k", Value: "v", Effect: corev1.TaintEffectNoSchedule}
	f := someFacts(func(f *Facts) {
		f.Registration = Registration{Labels: map[string]string{"tier": "edge", corev1.LabelArchStable: "mine"}, Taints: []corev1.Taint{taint},
			External: true}
	})
	n := f.object()
	want := map[string]string{"kubernetes.io/hostname": "n", "kubernetes.io/os": "linux", "kubernetes.io/arch": "mine",
		"beta.kubernetes.io/os": "linux", "beta.kubernetes.io/arch": "arm64", "tier": "edge"}
	if n.Name != "n" || !maps.Equal(n.Labels, want) {
		t.Errorf("%s %v", n.Name, n.Labels)
	}
	if len(n.Spec.Taints) != 2 || n.Spec.Taints[0] != taint || n.Spec.Taints[1].Key != "node.cloudprovider.kubernetes.io/uninitialized" {
		t.Errorf("taints %v", n.Spec.Taints)
	}
	if len(n.Status.Conditions) != 4 || n.Status.NodeInfo.BootID != "boot-1" {
		t.Errorf("status %+v", n.Status)
	}
	if len(f.Registration.Taints) != 1 || len(f.Registration.Labels) != 2 {
		t.Error("the registration was changed")
	}
}

// TestReconcileLabels of N-1.31: a restart brings the default keys it has, and no other label.
func TestReconcileLabels(t *testing.T) {
	type labels = map[string]string
	for _, c := range []struct {
		what            string
		old, fresh, out labels
		changed         bool
	}{
		{"nothing to do", labels{"kubernetes.io/os": "linux", "x": "y"}, labels{"kubernetes.io/os": "linux"},
			labels{"kubernetes.io/os": "linux", "x": "y"}, false},
		{"missing", nil, labels{"kubernetes.io/os": "linux"}, labels{"kubernetes.io/os": "linux"}, true},
		{"wrong", labels{"kubernetes.io/arch": "amd64"}, labels{"kubernetes.io/arch": "arm64"}, labels{"kubernetes.io/arch": "arm64"}, true},
		{"a new zone", labels{"topology.kubernetes.io/zone": "a"}, labels{"topology.kubernetes.io/zone": "b"},
			labels{"topology.kubernetes.io/zone": "b"}, true},
		{"every default key", nil, labels{"kubernetes.io/hostname": "1", "topology.kubernetes.io/zone": "2", "topology.kubernetes.io/region": "3",
			"failure-domain.beta.kubernetes.io/zone": "4", "failure-domain.beta.kubernetes.io/region": "5", "beta.kubernetes.io/instance-type": "6",
			"node.kubernetes.io/instance-type": "7", "kubernetes.io/os": "8", "kubernetes.io/arch": "9", "beta.kubernetes.io/os": "10",
			"beta.kubernetes.io/arch": "11"},
			labels{"kubernetes.io/hostname": "1", "topology.kubernetes.io/zone": "2", "topology.kubernetes.io/region": "3",
				"failure-domain.beta.kubernetes.io/zone": "4", "failure-domain.beta.kubernetes.io/region": "5", "beta.kubernetes.io/instance-type": "6",
				"node.kubernetes.io/instance-type": "7", "kubernetes.io/os": "8", "kubernetes.io/arch": "9", "beta.kubernetes.io/os": "10",
				"beta.kubernetes.io/arch": "11"}, true},
		{"a label of one's own is not brought", labels{"x": "old"}, labels{"tier": "edge", "x": "new"}, labels{"x": "old"}, false},
		{"a key the fresh one has not stays", labels{"topology.kubernetes.io/zone": "a"}, labels{"kubernetes.io/os": "linux"},
			labels{"topology.kubernetes.io/zone": "a", "kubernetes.io/os": "linux"}, true},
		{"an empty value takes the key away", labels{"topology.kubernetes.io/zone": "a", "x": "y"}, labels{"topology.kubernetes.io/zone": ""},
			labels{"x": "y"}, true},
		{"an empty value where there is none", labels{"x": "y"}, labels{"topology.kubernetes.io/zone": ""}, labels{"x": "y"}, false},
	} {
		old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: maps.Clone(c.old)}}
		changed := reconcileLabels(old, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: c.fresh}})
		if changed != c.changed || !maps.Equal(old.Labels, c.out) {
			t.Errorf("%s: changed %v to %v, want %v %v", c.what, changed, old.Labels, c.changed, c.out)
		}
	}
}

func TestSameStatus(t *testing.T) {
	a := someFacts().object().Status
	for what, c := range map[string]struct {
		edit func(*corev1.NodeStatus)
		same bool
	}{
		"heartbeat":  {func(s *corev1.NodeStatus) { s.Conditions[0].LastHeartbeatTime = metav1.Now() }, true},
		"transition": {func(s *corev1.NodeStatus) { s.Conditions[0].LastTransitionTime = metav1.Now() }, false},
		"reason":     {func(s *corev1.NodeStatus) { s.Conditions[3].Reason = "x" }, false},
		"address":    {func(s *corev1.NodeStatus) { s.Addresses[0].Address = "192.0.2.9" }, false},
		"image":      {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{{}} }, false},
		"no images":  {func(s *corev1.NodeStatus) { s.Images = []corev1.ContainerImage{} }, true},
		"status":     {func(s *corev1.NodeStatus) { s.Conditions[0].Status = corev1.ConditionUnknown }, false},
		"message":    {func(s *corev1.NodeStatus) { s.Conditions[0].Message = "x" }, false},
		"one less":   {func(s *corev1.NodeStatus) { s.Conditions = s.Conditions[1:] }, false},
		"capacity":   {func(s *corev1.NodeStatus) { s.Capacity["cpu"] = resource.MustParse("5") }, false},
		"device":     {func(s *corev1.NodeStatus) { s.Allocatable["example.com/gpu"] = resource.MustParse("1") }, false},
		"kernel":     {func(s *corev1.NodeStatus) { s.NodeInfo.KernelVersion = "7" }, false},
		"port":       {func(s *corev1.NodeStatus) { s.DaemonEndpoints.KubeletEndpoint.Port++ }, false},
		"volumes":    {func(s *corev1.NodeStatus) { s.VolumesInUse = []corev1.UniqueVolumeName{"v"} }, false},
		"features":   {func(s *corev1.NodeStatus) { s.Features = nil }, false},
		"amount, written otherwise": {func(s *corev1.NodeStatus) {
			s.Capacity = amounts("cpu", "4000m", "memory", "4096Mi", "ephemeral-storage", "34359738368", "pods", "110")
		}, true},
	} {
		b := *a.DeepCopy()
		c.edit(&b)
		kept := b.DeepCopy()
		if got := sameStatus(&a, &b); got != c.same {
			t.Errorf("%s: same is %v", what, got)
		}
		if !b.Conditions[0].LastHeartbeatTime.Equal(&kept.Conditions[0].LastHeartbeatTime) {
			t.Errorf("%s: comparing changed it", what)
		}
	}
}

// TestOwn: a Node is filled without a mark on the one that is followed, which others read meanwhile.
func TestOwn(t *testing.T) {
	old := someFacts().object()
	old.Status.Images = []corev1.ContainerImage{{Names: []string{"old"}}}
	kept := old.DeepCopy()
	f := someFacts()
	f.Now, f.Faults, f.Pressure = f.Now.Add(time.Hour), []string{"x"}, map[corev1.NodeConditionType]bool{corev1.NodeDiskPressure: true}
	f.Sample.CPUs, f.Sample.Arch, f.Sample.HugePages = 64, "riscv64", map[string]int64{"2Mi": 1 << 30}
	f.Extra = []corev1.NodeCondition{{Type: "Own", Status: corev1.ConditionTrue}, {Type: corev1.NodePIDPressure}}
	f.Registration.External, f.Registration.NodeIPs = true, f.Sample.Addresses
	next := own(old)
	f.fill(next)
	reconcileLabels(next, f.object())
	f.tellIPs(next)
	if sameStatus(&old.Status, &next.Status) || next.Labels[corev1.LabelArchStable] != "riscv64" || next.Annotations[providedIPs] == "" {
		t.Errorf("not filled: %+v", next)
	}
	if !reflect.DeepEqual(old, kept) {
		t.Errorf("changed what is shared: %+v, was %+v", old, kept)
	}
}

// TestExternalAddresses: with a cloud's controller the addresses are its own, and it is told what the board was given
// (N-1.44); an ExternalIP of one's own comes after the InternalIP (N-1.45).
func TestExternalAddresses(t *testing.T) {
	ip := netip.MustParseAddr("192.0.2.10")
	external := func(ips ...netip.Addr) func(*Facts) {
		return func(f *Facts) { f.Registration = Registration{External: true, NodeIPs: ips} }
	}
	n := someFacts(external(ip)).object()
	if n.Annotations[providedIPs] != "192.0.2.10" || len(n.Status.Addresses) != 2 {
		t.Errorf("%v %v", n.Annotations, n.Status.Addresses)
	}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeExternalIP, Address: "198.51.100.1"}}
	f := someFacts(external(ip))
	if f.fill(n); len(n.Status.Addresses) != 1 || f.tellIPs(n) {
		t.Errorf("what the cloud wrote was touched: %v", n.Status.Addresses)
	}
	if n = someFacts(external()).object(); len(n.Status.Addresses) != 1 || n.Status.Addresses[0].Type != corev1.NodeHostName ||
		n.Annotations[providedIPs] != "" {
		t.Errorf("without --node-ip: %v %v", n.Annotations, n.Status.Addresses)
	}
	n.Annotations = map[string]string{providedIPs: "192.0.2.10"}
	if f = someFacts(); !f.tellIPs(n) || len(n.Annotations) > 0 {
		t.Errorf("the annotation outlives the cloud: %v", n.Annotations)
	}
	n = someFacts(func(f *Facts) { f.Registration.ExternalIP = netip.MustParseAddr("198.51.100.9") }).object()
	if a := n.Status.Addresses; len(a) != 3 || a[1].Type != corev1.NodeExternalIP || a[1].Address != "198.51.100.9" {
		t.Errorf("--node-external-ip: %v", a)
	}
}

// TestDiskLabels: the Node names the disks of the configuration and no others; labels of people stay.
func TestDiskLabels(t *testing.T) {
	old := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.DiskLabel + "old": "true", "mine": "1"}}}
	fresh := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{api.DiskLabel + "usb": "true"}}}
	if !reconcileDisks(old, fresh) || reconcileDisks(old, fresh) {
		t.Error("it is put right once")
	}
	if len(old.Labels) != 2 || old.Labels[api.DiskLabel+"usb"] != "true" || old.Labels["mine"] != "1" {
		t.Errorf("%v", old.Labels)
	}
	if bare := (&corev1.Node{}); !reconcileDisks(bare, fresh) || len(bare.Labels) != 1 {
		t.Errorf("a Node without labels: %v", bare.Labels)
	}
}
