package api

import (
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

func res(cpu, mem string) corev1.ResourceList {
	out := corev1.ResourceList{}
	if cpu != "" {
		out["cpu"] = resource.MustParse(cpu)
	}
	if mem != "" {
		out["memory"] = resource.MustParse(mem)
	}
	return out
}

func need(requests, limits corev1.ResourceList) corev1.Container {
	return corev1.Container{Resources: corev1.ResourceRequirements{Requests: requests, Limits: limits}}
}

func pod(main ...corev1.Container) *corev1.Pod {
	return &corev1.Pod{Spec: corev1.PodSpec{Containers: main}}
}

func TestQOSClass(t *testing.T) { // N-7.37
	full := need(res("1", "1Gi"), res("1", "1Gi"))
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want corev1.PodQOSClass
	}{
		"nothing":                  {pod(need(nil, nil)), corev1.PodQOSBestEffort},
		"zero counts as nothing":   {pod(need(res("0", "0"), nil)), corev1.PodQOSBestEffort},
		"ephemeral storage is not": {pod(need(corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")}, nil)), corev1.PodQOSBestEffort},
		"all equal":                {pod(full, full), corev1.PodQOSGuaranteed},
		"one without":              {pod(full, need(nil, nil)), corev1.PodQOSBurstable},
		"request only":             {pod(need(res("1", ""), nil)), corev1.PodQOSBurstable},
		"cpu limit only":           {pod(need(res("1", ""), res("1", ""))), corev1.PodQOSBurstable},
		"request below limit":      {pod(need(res("1", "1Gi"), res("2", "1Gi"))), corev1.PodQOSBurstable},
		"other spelling":           {pod(need(res("1000m", "1024Mi"), res("1", "1Gi"))), corev1.PodQOSGuaranteed},
		"init container without": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{full},
			InitContainers: []corev1.Container{need(nil, nil)}}}, corev1.PodQOSBurstable},
		"pod level": {&corev1.Pod{Spec: corev1.PodSpec{Containers: []corev1.Container{need(nil, nil)},
			Resources: &full.Resources}}, corev1.PodQOSGuaranteed},
	} {
		if got := QOSClass(tc.pod); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestRequests(t *testing.T) { // N-10.9
	always := corev1.ContainerRestartPolicyAlways
	sidecar := func(cpu string) corev1.Container {
		c := need(res(cpu, ""), nil)
		c.RestartPolicy = &always
		return c
	}
	for name, tc := range map[string]struct {
		init, main []corev1.Container
		overhead   string
		want       string
	}{
		"sum":                     {main: []corev1.Container{need(res("1", ""), nil), need(res("2", ""), nil)}, want: "3"},
		"large init":              {init: []corev1.Container{need(res("5", ""), nil), need(res("4", ""), nil)}, main: []corev1.Container{need(res("1", ""), nil)}, want: "5"},
		"sidecar runs beside":     {init: []corev1.Container{sidecar("1")}, main: []corev1.Container{need(res("2", ""), nil)}, want: "3"},
		"init after a sidecar":    {init: []corev1.Container{sidecar("1"), need(res("5", ""), nil)}, main: []corev1.Container{need(res("2", ""), nil)}, want: "6"},
		"init before the sidecar": {init: []corev1.Container{need(res("5", ""), nil), sidecar("1")}, main: []corev1.Container{need(res("2", ""), nil)}, want: "5"},
		"overhead":                {main: []corev1.Container{need(res("1", ""), nil)}, overhead: "250m", want: "1250m"},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{InitContainers: tc.init, Containers: tc.main}}
		if tc.overhead != "" {
			p.Spec.Overhead = res(tc.overhead, "")
		}
		list := Requests(p)
		if got := list.Cpu().String(); got != tc.want {
			t.Errorf("%s: got %s, want %s", name, got, tc.want)
		}
	}
}

func TestLimits(t *testing.T) { // N-7.42
	p := pod(need(nil, res("1", "1Gi")), need(nil, res("", "1Gi")))
	got := Limits(p)
	if _, ok := got["cpu"]; ok || got.Memory().String() != "2Gi" {
		t.Errorf("got %v", got)
	}
	p.Spec.Resources = &corev1.ResourceRequirements{Limits: res("3", "")}
	if got := Limits(p); got.Cpu().String() != "3" || got.Memory().String() != "2Gi" {
		t.Errorf("with pod level: got %v", got)
	}
}

// Whatever a pod asks: its request covers every single container and all main containers together, never more
// than everything together; it changes nothing of the pod; and the class follows from sums alone.
func TestRequestsProperties(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	always := corev1.ContainerRestartPolicyAlways
	random := func() corev1.Container {
		c := corev1.Container{}
		if r.IntN(4) > 0 {
			q := *resource.NewMilliQuantity(r.Int64N(4000), resource.DecimalSI)
			c.Resources.Requests = corev1.ResourceList{"cpu": q}
			if r.IntN(2) == 0 {
				c.Resources.Limits = corev1.ResourceList{"cpu": q.DeepCopy()}
			}
		}
		return c
	}
	for range 2000 {
		p := &corev1.Pod{}
		for range 1 + r.IntN(3) {
			p.Spec.Containers = append(p.Spec.Containers, random())
		}
		for range r.IntN(4) {
			c := random()
			if r.IntN(2) == 0 {
				c.RestartPolicy = &always
			}
			p.Spec.InitContainers = append(p.Spec.InitContainers, c)
		}
		before := p.DeepCopy()
		list := Requests(p)
		got := list.Cpu().MilliValue()
		var main, all, largest int64
		for _, c := range p.Spec.Containers {
			main += c.Resources.Requests.Cpu().MilliValue()
		}
		all = main
		for _, c := range p.Spec.InitContainers {
			all += c.Resources.Requests.Cpu().MilliValue()
			largest = max(largest, c.Resources.Requests.Cpu().MilliValue())
		}
		if got < main || got < largest || got > all {
			t.Fatalf("request %d, main %d, largest init %d, all %d: %+v", got, main, largest, all, p.Spec)
		}
		if (QOSClass(p) == corev1.PodQOSBestEffort) != (all == 0) {
			t.Fatalf("class %s with %d requested: %+v", QOSClass(p), all, p.Spec)
		}
		if QOSClass(p) == corev1.PodQOSGuaranteed {
			t.Fatalf("guaranteed without memory: %+v", p.Spec)
		}
		if before.String() != p.String() {
			t.Fatal("the pod was changed")
		}
	}
}

// TestResizeOfWhole: it is refused for what it is, and nothing else is said.
func TestResizeOfWhole(t *testing.T) {
	old := validPod()
	old.Spec.Resources = &corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}
	pod := old.DeepCopy()
	pod.Spec.Resources.Limits[corev1.ResourceCPU] = resource.MustParse("2")
	errs := validatePodResize(pod, old)
	if len(errs) != 1 || errs[0].Field != "spec.resources" || !strings.Contains(errs[0].Detail, "a resize of the whole pod's resources is not supported by ledge") {
		t.Errorf("%v", errs)
	}
	if errs := validatePodResize(old.DeepCopy(), old); len(errs) > 0 {
		t.Errorf("unchanged: %v", errs)
	}
}
