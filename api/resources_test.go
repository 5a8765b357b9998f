package api

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation/field"
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
		"nothing":                {pod(need(nil, nil)), corev1.PodQOSBestEffort},
		"zero counts as nothing": {pod(need(res("0", "0"), nil)), corev1.PodQOSBestEffort},
		"ephemeral storage is not": {pod(need(corev1.ResourceList{"ephemeral-storage": resource.MustParse("1Gi")}, nil)),
			corev1.PodQOSBestEffort},
		"all equal":           {pod(full, full), corev1.PodQOSGuaranteed},
		"one without":         {pod(full, need(nil, nil)), corev1.PodQOSBurstable},
		"request only":        {pod(need(res("1", ""), nil)), corev1.PodQOSBurstable},
		"cpu limit only":      {pod(need(res("1", ""), res("1", ""))), corev1.PodQOSBurstable},
		"request below limit": {pod(need(res("1", "1Gi"), res("2", "1Gi"))), corev1.PodQOSBurstable},
		"other spelling":      {pod(need(res("1000m", "1024Mi"), res("1", "1Gi"))), corev1.PodQOSGuaranteed},
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
		"sum": {main: []corev1.Container{need(res("1", ""), nil), need(res("2", ""), nil)}, want: "3"},
		"large init": {init: []corev1.Container{need(res("5", ""), nil), need(res("4", ""), nil)},
			main: []corev1.Container{need(res("1", ""), nil)}, want: "5"},
		"sidecar runs beside": {init: []corev1.Container{sidecar("1")}, main: []corev1.Container{need(res("2", ""), nil)}, want: "3"},
		"init after a sidecar": {init: []corev1.Container{sidecar("1"), need(res("5", ""), nil)},
			main: []corev1.Container{need(res("2", ""), nil)}, want: "6"},
		"init before the sidecar": {init: []corev1.Container{need(res("5", ""), nil), sidecar("1")},
			main: []corev1.Container{need(res("2", ""), nil)}, want: "5"},
		"overhead": {main: []corev1.Container{need(res("1", ""), nil)}, overhead: "250m", want: "1250m"},
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

// TestResizeOfWhole: a pod may be given resources as a whole and other amounts of them, and loses none.
func TestResizeOfWhole(t *testing.T) {
	sized := func(r *corev1.ResourceRequirements) *corev1.Pod {
		p := validPod()
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m")}
		p.Spec.Resources = r
		defaultPodResources(&p.Spec)
		p.Status.QOSClass = QOSClass(p)
		return p
	}
	cpu := func(request, limit string) *corev1.ResourceRequirements {
		r := &corev1.ResourceRequirements{Requests: corev1.ResourceList{"cpu": resource.MustParse(request)}}
		if limit != "" {
			r.Limits = corev1.ResourceList{"cpu": resource.MustParse(limit)}
		}
		return r
	}
	pages := cpu("200m", "1")
	pages.Limits["memory"], pages.Limits["hugepages-2Mi"] = resource.MustParse("1Gi"), resource.MustParse("2Mi")
	for _, c := range []struct {
		what     string
		was, now *corev1.ResourceRequirements
		want     string
	}{
		{"unchanged", cpu("200m", "1"), cpu("200m", "1"), ""},
		{"more", cpu("200m", "1"), cpu("300m", "2"), ""},
		{"for the first time", nil, cpu("200m", "1"), ""},
		{"all removed", cpu("200m", "1"), nil, "spec.resources: Forbidden: pod-level resources cannot be removed"},
		{"limit removed", cpu("200m", "1"), cpu("200m", ""), "spec.resources.limits: Forbidden: resource limits cannot be removed"},
		{"below the containers", cpu("200m", "1"), cpu("50m", "1"), "must be greater than or equal to aggregate container requests of 100m"},
		{"another class", cpu("200m", "1"), &corev1.ResourceRequirements{
			Limits: corev1.ResourceList{"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}, Requests: corev1.ResourceList{
				"cpu": resource.MustParse("1"), "memory": resource.MustParse("1Gi")}}, "Pod QOS Class may not change"},
		{"huge pages", cpu("200m", "1"), pages, "only cpu and memory resources are mutable"},
	} {
		errs := validatePodResize(sized(c.now), sized(c.was)).ToAggregate()
		if got := fmt.Sprint(errs); c.want == "" && errs != nil || !strings.Contains(got, c.want) && c.want != "" {
			t.Errorf("%s: %s, want %q", c.what, got, c.want)
		}
	}
}

// TestResizeOfInit: init containers that end can be resized too, in place only.
func TestResizeOfInit(t *testing.T) {
	old := validPod()
	old.Spec.InitContainers = []corev1.Container{*old.Spec.Containers[0].DeepCopy()}
	old.Spec.InitContainers[0].Name = "i"
	old.Spec.InitContainers[0].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("100m")}
	pod := old.DeepCopy()
	pod.Spec.InitContainers[0].Resources.Requests["cpu"] = resource.MustParse("200m")
	if errs := validatePodResize(pod, old); len(errs) > 0 {
		t.Errorf("resized: %v", errs)
	}
	old.Spec.InitContainers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "cpu", RestartPolicy: corev1.RestartContainer}}
	errs := validatePodSpec(&old.Spec, field.NewPath("spec"))
	if len(errs) != 1 || errs[0].Field != "spec.initContainers[0].resizePolicy[0].restartPolicy" {
		t.Errorf("an init container that would be restarted: %v", errs)
	}
}

// TestGrantedWhole: what a pod was given as a whole is read back from its status.
func TestGrantedWhole(t *testing.T) {
	list := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	p := validPod()
	p.Spec.Overhead = list("50m")
	p.Spec.Resources = &corev1.ResourceRequirements{Requests: list("2"), Limits: list("4")}
	if got := Granted(p)[WholePod]; got.Requests.Cpu().String() != "2" || got.Limits.Cpu().String() != "4" {
		t.Errorf("nothing told yet: %+v", got)
	}
	p.Status.AllocatedResources, p.Status.Resources = list("1050m"), &corev1.ResourceRequirements{Limits: list("3050m")}
	if got := Granted(p)[WholePod]; got.Requests.Cpu().String() != "1" || got.Limits.Cpu().String() != "3" {
		t.Errorf("told: %+v", got)
	}
	p.Spec.Resources = nil
	if _, ok := Granted(p)[WholePod]; ok {
		t.Error("given to a pod that asks for nothing as a whole")
	}
}

// TestPodLevelDefaults are Kubernetes' own (setting requests takes a limit; huge pages are limits first).
func TestPodLevelDefaults(t *testing.T) {
	list := func(pairs ...string) corev1.ResourceList {
		var out corev1.ResourceList
		for i := 0; i < len(pairs); i += 2 {
			if out == nil {
				out = corev1.ResourceList{}
			}
			out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
		}
		return out
	}
	own := corev1.ResourceRequirements{Requests: list("cpu", "100m", "hugepages-2Mi", "4Mi"), Limits: list("hugepages-2Mi", "4Mi")}
	for _, c := range []struct {
		what           string
		req, lim       corev1.ResourceList
		wantReq, wantL corev1.ResourceList
	}{
		{"a limit", nil, list("cpu", "1"), list("cpu", "100m", "hugepages-2Mi", "4Mi"), list("cpu", "1", "hugepages-2Mi", "4Mi")},
		{"a limit of what no container asks for", nil, list("memory", "1Gi"),
			list("cpu", "100m", "memory", "1Gi", "hugepages-2Mi", "4Mi"), list("memory", "1Gi", "hugepages-2Mi", "4Mi")},
		{"a request of pages without a limit", list("hugepages-2Mi", "4Mi"), nil, list("hugepages-2Mi", "4Mi"), nil},
	} {
		s := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Resources: own}},
			Resources: &corev1.ResourceRequirements{Requests: c.req, Limits: c.lim}}
		defaultPodResources(s)
		if !apiequality.Semantic.DeepEqual(s.Resources.Requests, c.wantReq) || !apiequality.Semantic.DeepEqual(s.Resources.Limits, c.wantL) {
			t.Errorf("%s: %+v", c.what, s.Resources)
		}
	}
	plain := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c",
		Resources: corev1.ResourceRequirements{Requests: list("memory", "1Mi")}}},
		Resources: &corev1.ResourceRequirements{Requests: list("cpu", "1")}}
	if defaultPodResources(plain); len(plain.Resources.Requests) != 1 {
		t.Errorf("without a limit nothing is added: %v", plain.Resources.Requests)
	}
}
