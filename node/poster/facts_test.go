package poster

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/images"
	"ledge/node/machine"
	"ledge/node/machine/fake"
	"ledge/node/pressure"
)

// dual is a board with two addresses.
func dual() machine.Sample {
	s := fake.Board("n")
	s.MachineID, s.SystemUUID, s.KernelVersion, s.OSImage = "m1", "s1", "6.12", "Board OS"
	s.Addresses = append(s.Addresses, netip.MustParseAddr("2001:db8::10"))
	return s
}

func someFacts(edit ...func(*Facts)) Facts {
	f := Facts{Name: "n", Sample: dual(), Engine: "libcontainer://v1", Version: "v1.2.3", Now: time.Unix(1e9, 5e8),
		Config: StatusConfig{MaxPods: 110, Eviction: pressure.Default()}}
	for _, e := range edit {
		e(&f)
	}
	return f
}

func amounts(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func wantAmounts(t *testing.T, what string, got corev1.ResourceList, pairs ...string) {
	t.Helper()
	want := amounts(pairs...)
	for name, q := range want {
		if g, ok := got[name]; !ok || g.Cmp(q) != 0 {
			t.Errorf("%s: %s is %s, want %s", what, name, g.String(), q.String())
		}
	}
	if len(got) != len(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// TestExtendedResources: what somebody has added to the Node stays and can be had; what is no longer there goes.
func TestExtendedResources(t *testing.T) {
	f := someFacts()
	var n corev1.Node
	n.Status.Capacity = amounts("example.com/radio", "2", "cpu", "64", "hugepages-1Gi", "1Gi", "kubernetes.io/own", "1")
	n.Status.Allocatable = amounts("example.com/radio", "1", "example.com/gone", "1")
	f.fill(&n)
	wantAmounts(t, "capacity", n.Status.Capacity, "cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110", "example.com/radio",
		"2")
	if q := n.Status.Allocatable["example.com/radio"]; q.String() != "2" || len(n.Status.Allocatable) != 5 {
		t.Errorf("allocatable: %v", n.Status.Allocatable)
	}
}

// TestWorkedExample of N-1.59, to the byte.
func TestWorkedExample(t *testing.T) {
	f := someFacts(func(f *Facts) {
		f.Config.KubeReserved, f.Config.SysReserved = amounts("cpu", "100m", "memory", "200Mi"), amounts("memory", "100Mi")
	})
	var n corev1.Node
	f.fill(&n)
	wantAmounts(t, "capacity", n.Status.Capacity, "cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110")
	wantAmounts(t, "allocatable", n.Status.Allocatable, "cpu", "3900m", "memory", "3696Mi", "ephemeral-storage", "30923764480", "pods", "110")
	for name, text := range map[corev1.ResourceName]string{"cpu": "3900m", "memory": "3696Mi", "pods": "110"} { // as people read it
		if q := n.Status.Allocatable[name]; q.String() != text {
			t.Errorf("allocatable %s reads %s, want %s", name, q.String(), text)
		}
	}
}

// TestAllocatable of N-1.55 to N-1.58.
func TestAllocatable(t *testing.T) {
	for _, c := range []struct {
		what        string
		edit        func(*Facts)
		capacity    []string
		allocatable []string
	}{
		{"defaults", func(*Facts) {}, []string{"cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110"},
			[]string{"cpu", "4", "memory", "3996Mi", "ephemeral-storage", "30923764480", "pods", "110"}},
		{"pods per core", func(f *Facts) { f.Config.PodsPerCore = 5 },
			[]string{"cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "20"},
			[]string{"cpu", "4", "memory", "3996Mi", "ephemeral-storage", "30923764480", "pods", "20"}},
		{"many pods per core", func(f *Facts) { f.Config.PodsPerCore = 50 },
			[]string{"cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110"},
			[]string{"cpu", "4", "memory", "3996Mi", "ephemeral-storage", "30923764480", "pods", "110"}},
		{"own thresholds", func(f *Facts) {
			f.Config.Eviction = pressure.Policy{Thresholds: []pressure.Threshold{{Signal: pressure.MemoryAvailable,
				Below: pressure.Limit{Percent: 0.25}},
				{Signal: pressure.ImageFSAvailable, Below: pressure.Limit{Percent: 0.5}},
				{Signal: pressure.PIDAvailable, Below: pressure.Limit{Amount: 5}}}}
		}, []string{"cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110"},
			[]string{"cpu", "4", "memory", "3Gi", "ephemeral-storage", "32Gi", "pods", "110"}}, // N-1.57: imagefs and pid do not count
		{"never below nought", func(f *Facts) {
			f.Config.SysReserved = amounts("cpu", "5", "memory", "5Gi", "ephemeral-storage", "1Ti", "pid", "10")
		},
			[]string{"cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110"},
			[]string{"cpu", "0", "memory", "0", "ephemeral-storage", "0", "pods", "110"}},
		{"huge pages", func(f *Facts) { f.Sample.HugePages = map[string]int64{"2Mi": 64 << 20, "1Gi": 0} },
			[]string{"cpu", "4", "memory", "4Gi", "ephemeral-storage", "32Gi", "pods", "110", "hugepages-2Mi", "64Mi", "hugepages-1Gi", "0"},
			[]string{"cpu", "4", "memory", "3932Mi", "ephemeral-storage", "30923764480", "pods", "110", "hugepages-2Mi", "64Mi", "hugepages-1Gi",
				"0"}},
	} {
		f := someFacts(c.edit)
		wantAmounts(t, c.what+": capacity", f.Config.Capacity(f.Sample), c.capacity...)
		wantAmounts(t, c.what+": allocatable", f.Config.Allocatable(f.Sample), c.allocatable...)
	}
}

// TestConditions: order, words and times (N-1.46 to N-1.48).
// A board that is shutting down says so in the message (N-1.49).
func TestConditions(t *testing.T) {
	var n corev1.Node
	f := someFacts()
	f.fill(&n)
	var got []string
	for _, c := range n.Status.Conditions {
		got = append(got, fmt.Sprintf("%s=%s %s: %s", c.Type, c.Status, c.Reason, c.Message))
		if !c.LastHeartbeatTime.Equal(&c.LastTransitionTime) || c.LastHeartbeatTime.Unix() != 1e9 || c.LastHeartbeatTime.Nanosecond() != 0 {
			t.Errorf("%s: times %v %v", c.Type, c.LastHeartbeatTime, c.LastTransitionTime)
		}
	}
	want := []string{"MemoryPressure=False KubeletHasSufficientMemory: kubelet has sufficient memory available",
		"DiskPressure=False KubeletHasNoDiskPressure: kubelet has no disk pressure",
		"PIDPressure=False KubeletHasSufficientPID: kubelet has sufficient PID available",
		"Ready=True KubeletReady: kubelet is posting ready status"}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}

	n.Status.Conditions = append([]corev1.NodeCondition{{Type: corev1.NodeNetworkUnavailable, Status: "False", Reason: "RouteCreated"}},
		n.Status.Conditions...)
	for _, c := range []struct {
		what string
		edit func(*Facts)
		of   corev1.NodeConditionType
		want string
	}{
		{"short of memory", func(f *Facts) { f.Pressure[corev1.NodeMemoryPressure] = true }, corev1.NodeMemoryPressure,
			"True KubeletHasInsufficientMemory: kubelet has insufficient memory available"},
		{"short of disk", func(f *Facts) { f.Pressure[corev1.NodeDiskPressure] = true }, corev1.NodeDiskPressure,
			"True KubeletHasDiskPressure: kubelet has disk pressure"},
		{"short of PIDs", func(f *Facts) { f.Pressure[corev1.NodePIDPressure] = true }, corev1.NodePIDPressure,
			"True KubeletHasInsufficientPID: kubelet has insufficient PID available"},
		{"one fault", func(f *Facts) { f.Faults = []string{"node is shutting down"} }, corev1.NodeReady,
			"False KubeletNotReady: node is shutting down"},
		{"two faults", func(f *Facts) { f.Faults = []string{"a", "b"} }, corev1.NodeReady, "False KubeletNotReady: [a, b]"},
		{"no capacity", func(f *Facts) { f.Sample.MemoryTotal, f.Sample.NodeFS.Capacity = 0, 0 }, corev1.NodeReady,
			"False KubeletNotReady: missing node capacity for resources: memory, ephemeral-storage"},
		{"no capacity and a fault", func(f *Facts) { f.Faults, f.Sample.CPUs = []string{"a"}, 0 }, corev1.NodeReady,
			"False KubeletNotReady: [a, missing node capacity for resources: cpu]"},
	} {
		m := n.DeepCopy()
		f := someFacts(func(f *Facts) { f.Pressure, f.Now = map[corev1.NodeConditionType]bool{}, f.Now.Add(time.Hour) }, c.edit)
		f.fill(m)
		for _, have := range m.Status.Conditions {
			moved := have.LastTransitionTime.Unix() != 1e9 && have.Type != corev1.NodeNetworkUnavailable
			if moved != (have.Type == c.of) {
				t.Errorf("%s: %s moved: %v", c.what, have.Type, moved)
			}
			if have.Type == corev1.NodeNetworkUnavailable {
				continue // N-1.54: the network's
			}
			if have.LastHeartbeatTime.Unix() != 1e9+3600 {
				t.Errorf("%s: %s has no new heartbeat", c.what, have.Type)
			}
			if text := fmt.Sprintf("%s %s: %s", have.Status, have.Reason, have.Message); have.Type == c.of && text != c.want {
				t.Errorf("%s: %s, want %s", c.what, text, c.want)
			}
		}
		if m.Status.Conditions[0].Reason != "RouteCreated" || len(m.Status.Conditions) != 5 {
			t.Errorf("%s: %v", c.what, m.Status.Conditions)
		}
	}
}

// TestExtraConditions: others' conditions come after Ready; one is taken away only when that is said.
func TestExtraConditions(t *testing.T) {
	var n corev1.Node
	show := func(extra ...corev1.NodeCondition) string {
		f := someFacts(func(f *Facts) { f.Extra = extra })
		f.fill(&n)
		var got []string
		for _, c := range n.Status.Conditions[4:] {
			got = append(got, fmt.Sprintf("%s=%s %s", c.Type, c.Status, c.Message))
		}
		return strings.Join(got, ", ")
	}
	a := corev1.NodeCondition{Type: "A", Status: "True", Message: "a"}
	b := corev1.NodeCondition{Type: "B", Status: "False", Message: "b"}
	for _, step := range []struct {
		extra []corev1.NodeCondition
		want  string
	}{
		{nil, ""}, {[]corev1.NodeCondition{a, b}, "A=True a, B=False b"}, {nil, "A=True a, B=False b"},
		{[]corev1.NodeCondition{{Type: "A"}, b}, "B=False b"}, {[]corev1.NodeCondition{{Type: "A"}}, "B=False b"},
	} {
		if got := show(step.extra...); got != step.want {
			t.Errorf("%v: %s, want %s", step.extra, got, step.want)
		}
	}
}

// TestLongMessage: what others have written makes no large Node.
func TestLongMessage(t *testing.T) {
	for n, want := range map[int]int{mostMessage: mostMessage, mostMessage + 1: mostMessage + 3, 1 << 20: mostMessage + 3} {
		var node corev1.Node
		someFacts(func(f *Facts) {
			f.Extra = []corev1.NodeCondition{{Type: "Own", Status: corev1.ConditionTrue, Message: strings.Repeat("x", n)}}
		}).fill(&node)
		c := node.Status.Conditions[len(node.Status.Conditions)-1]
		if c.Type != "Own" || len(c.Message) != want {
			t.Errorf("%d bytes: %s has %d, want %d", n, c.Type, len(c.Message), want)
		}
	}
}

// TestNodeInfo of N-1.63.
// No kube-proxy is reported (N-1.64).
func TestNodeInfo(t *testing.T) {
	var n corev1.Node
	f := someFacts()
	f.fill(&n)
	want := corev1.NodeSystemInfo{MachineID: "m1", SystemUUID: "s1", BootID: "boot-1", KernelVersion: "6.12", OSImage: "Board OS",
		ContainerRuntimeVersion: "libcontainer://v1", KubeletVersion: "v1.2.3", OperatingSystem: "linux", Architecture: "arm64"}
	if n.Status.NodeInfo != want {
		t.Errorf("%+v, want %+v", n.Status.NodeInfo, want)
	}
	f = someFacts(func(f *Facts) { f.Sample.SwapTotal = 1 << 20 })
	f.fill(&n)
	if s := n.Status.NodeInfo.Swap; s == nil || *s.Capacity != 1<<20 {
		t.Errorf("swap %+v", s)
	}
}

// TestDaemonEndpoints of N-1.66: the Node names the port where the control plane reaches this board, or none.
func TestDaemonEndpoints(t *testing.T) {
	var n corev1.Node
	for _, port := range []uint16{10250, 0} {
		f := someFacts(func(f *Facts) { f.Config.Port = port })
		f.fill(&n)
		if got := n.Status.DaemonEndpoints.KubeletEndpoint.Port; got != int32(port) {
			t.Errorf("port %d, want %d", got, port)
		}
	}
}

// TestAddresses of N-1.42, N-1.20 to N-1.22.
func TestAddresses(t *testing.T) {
	addrs := func(text ...string) (out []netip.Addr) {
		for _, s := range text {
			out = append(out, netip.MustParseAddr(s))
		}
		return out
	}
	before := []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: "192.0.2.99"}, {Type: corev1.NodeHostName, Address: "n"}}
	for _, c := range []struct {
		what       string
		have, want []netip.Addr
		external   string
		out        string
	}{
		{"IPv4 first", addrs("2001:db8::10", "192.0.2.10", "192.0.2.11"), nil, "", "InternalIP=192.0.2.10 Hostname=n"},
		{"IPv6 if there is no other", addrs("2001:db8::10"), nil, "", "InternalIP=2001:db8::10 Hostname=n"},
		{"0.0.0.0", addrs("2001:db8::10", "192.0.2.10"), addrs("0.0.0.0"), "", "InternalIP=192.0.2.10 Hostname=n"},
		{"::", addrs("192.0.2.10", "2001:db8::10"), addrs("::"), "", "InternalIP=2001:db8::10 Hostname=n"},
		{":: without any", addrs("192.0.2.10"), addrs("::"), "", "InternalIP=192.0.2.10 Hostname=n"},
		{"asked for", addrs("192.0.2.10", "192.0.2.11"), addrs("192.0.2.11"), "", "InternalIP=192.0.2.11 Hostname=n"},
		{"both families, in the order asked for", addrs("192.0.2.10", "2001:db8::10"), addrs("2001:db8::10", "192.0.2.10"), "",
			"InternalIP=2001:db8::10 InternalIP=192.0.2.10 Hostname=n"},
		{"external", addrs("192.0.2.10"), nil, "198.51.100.1", "InternalIP=192.0.2.10 ExternalIP=198.51.100.1 Hostname=n"},
		{"asked for one that is not here", addrs("192.0.2.10"), addrs("192.0.2.77"), "", "InternalIP=192.0.2.99 Hostname=n"},
		{"asked for two, one is not here", addrs("192.0.2.10"), addrs("192.0.2.10", "2001:db8::77"), "", "InternalIP=192.0.2.99 Hostname=n"},
		{"none", nil, nil, "", "InternalIP=192.0.2.99 Hostname=n"},
	} {
		f := someFacts(func(f *Facts) {
			f.Sample.Addresses, f.Registration.NodeIPs = c.have, c.want
			if c.external != "" {
				f.Registration.ExternalIP = netip.MustParseAddr(c.external)
			}
		})
		n := corev1.Node{Status: corev1.NodeStatus{Addresses: slices.Clone(before)}}
		f.fill(&n)
		var got []string
		for _, a := range n.Status.Addresses {
			got = append(got, string(a.Type)+"="+a.Address)
		}
		if strings.Join(got, " ") != c.out {
			t.Errorf("%s: %q, want %q", c.what, got, c.out)
		}
	}
	f := someFacts(func(f *Facts) { f.Sample.Addresses = nil })
	if n := f.object(); len(n.Status.Addresses) != 1 || n.Status.Addresses[0].Type != corev1.NodeHostName {
		t.Errorf("a first registration without an address: %v", n.Status.Addresses)
	}
}

// TestNodeImages of N-1.65: the 50 largest, five names of each, digests first.
func TestNodeImages(t *testing.T) {
	var list []images.Image
	for i := range 60 {
		list = append(list, images.Image{ID: fmt.Sprintf("id%02d", i), Size: int64(i / 2), Names: []string{"a:1", "b:1", "c:1", "d:1"},
			Digests: []string{"a@x", "b@x"}})
	}
	kept := slices.Clone(list)
	got := imageList(list)
	if len(got) != 50 || got[0].SizeBytes != 29 || got[49].SizeBytes != 5 {
		t.Fatalf("%d images from %d to %d", len(got), got[0].SizeBytes, got[len(got)-1].SizeBytes)
	}
	if !slices.Equal(got[0].Names, []string{"a@x", "b@x", "a:1", "b:1", "c:1"}) {
		t.Errorf("names %q", got[0].Names)
	}
	for i := range list {
		if list[i].ID != kept[i].ID {
			t.Fatal("the list was changed")
		}
	}
	if imageList(nil) != nil {
		t.Error("images out of nothing")
	}
}

// TestOverReserved of N-1.60.
func TestOverReserved(t *testing.T) {
	f := Facts{Sample: dual(), Config: StatusConfig{MaxPods: 110, KubeReserved: corev1.ResourceList{"memory": resource.MustParse("3Gi")},
		SysReserved: corev1.ResourceList{"memory": resource.MustParse("1Gi")}}}
	if err := f.overReserved(); err != nil {
		t.Error(err)
	}
	f.Config.SysReserved["memory"] = resource.MustParse("2Gi")
	if err := f.overReserved(); err == nil ||
		!strings.HasPrefix(err.Error(), `Resource "memory" has a reservation of 5Gi but capacity of 4Gi`) {
		t.Error(err)
	}
}
