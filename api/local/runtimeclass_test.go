package local

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

func resources(cpu, memory string) corev1.ResourceList {
	return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
}

// TestRuntimeClass: a pod gets what its class says, and is refused where the two do not fit, in Kubernetes' words.
func TestRuntimeClass(t *testing.T) {
	c := open(t, Config{})
	class := func(name string, change func(*nodev1.RuntimeClass)) {
		r := &nodev1.RuntimeClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Handler: "runc"}
		change(r)
		create(t, c, r)
	}
	class("plain", func(*nodev1.RuntimeClass) {})
	class("heavy", func(r *nodev1.RuntimeClass) { r.Overhead = &nodev1.Overhead{PodFixed: resources("10m", "1Mi")} })
	class("placed", func(r *nodev1.RuntimeClass) {
		r.Scheduling = &nodev1.Scheduling{NodeSelector: map[string]string{"kind": "vm"}, Tolerations: []corev1.Toleration{
			{Key: "vm", Operator: "Exists"}, {Key: "own", Operator: "Equal", Value: "x", Effect: "NoSchedule"}}}
	})
	pod := func(name, class string, change func(*corev1.PodSpec)) *corev1.Pod {
		p := newPod(name, "")
		p.Spec.RuntimeClassName = &class
		if change != nil {
			change(&p.Spec)
		}
		return p
	}
	for name, tc := range map[string]struct {
		class  string
		change func(*corev1.PodSpec)
		want   string
	}{
		"unknown": {"none", nil, `pods "p" is forbidden: pod rejected: RuntimeClass "none" not found`},
		"other overhead": {"heavy", func(s *corev1.PodSpec) { s.Overhead = resources("20m", "1Mi") },
			"pod rejected: Pod's Overhead doesn't match RuntimeClass's defined Overhead"},
		"own overhead": {"plain", func(s *corev1.PodSpec) { s.Overhead = resources("20m", "1Mi") },
			"pod rejected: Pod Overhead set without corresponding RuntimeClass defined Overhead"},
		"other place": {"placed", func(s *corev1.PodSpec) { s.NodeSelector = map[string]string{"kind": "metal"} },
			"conflict: runtimeClass.scheduling.nodeSelector[kind] = vm; pod.spec.nodeSelector[kind] = metal"},
	} {
		_, err := c.Create(t.Context(), api.Pods, pod("p", tc.class, tc.change), api.WriteOptions{})
		t.Log(name)
		wantCode(t, err, 403, tc.want)
	}
	if p := create(t, c, pod("plain", "plain", nil)); p.Spec.Overhead != nil || len(p.Spec.NodeSelector) != 0 {
		t.Errorf("plain: %+v", p.Spec)
	}
	p := create(t, c, pod("heavy", "heavy", func(s *corev1.PodSpec) { s.Containers[0].Resources.Requests = resources("100m", "16Mi") }))
	if !apiequality.Semantic.DeepEqual(p.Spec.Overhead, resources("10m", "1Mi")) ||
		!apiequality.Semantic.DeepEqual(api.Requests(p), resources("110m", "17Mi")) {
		t.Errorf("heavy: overhead %v, requests %v", p.Spec.Overhead, api.Requests(p))
	}
	create(t, c, pod("same", "heavy", func(s *corev1.PodSpec) { s.Overhead = resources("0.01", "1024Ki") }))
	p = create(t, c, pod("placed", "placed", func(s *corev1.PodSpec) {
		s.NodeSelector = map[string]string{"disk": "ssd"}
		s.Tolerations = []corev1.Toleration{{Key: "vm", Operator: "Equal", Value: "v", Effect: "NoExecute"}, {Key: "own", Operator: "Exists"}}
	}))
	if !apiequality.Semantic.DeepEqual(p.Spec.NodeSelector, map[string]string{"disk": "ssd", "kind": "vm"}) {
		t.Errorf("placed: %v", p.Spec.NodeSelector)
	}
	count := map[string]int{}
	for _, tol := range p.Spec.Tolerations {
		count[tol.Key+" "+string(tol.Operator)]++
	}
	if len(p.Spec.Tolerations) != 4 || count["vm Exists"] != 1 || count["own Exists"] != 1 { // and the two of N-3.29
		t.Errorf("placed: %v", p.Spec.Tolerations)
	}
	// Who replaces a pod by its manifest need not know what admission made of it.
	if _, err := c.Patch(t.Context(), api.Pods, "default", "heavy",
		api.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"overhead":null},"metadata":{"labels":{"a":"b"}}}`)},
		api.WriteOptions{}); err != nil {
		t.Error(err)
	}
}

func TestMergeTolerations(t *testing.T) {
	tol := func(key, op, value, effect string, seconds ...int64) corev1.Toleration {
		out := corev1.Toleration{Key: key, Operator: corev1.TolerationOperator(op), Value: value, Effect: corev1.TaintEffect(effect)}
		for _, s := range seconds {
			out.TolerationSeconds = &s
		}
		return out
	}
	all := tol("", "Exists", "", "")
	for name, tc := range map[string]struct{ wide, t corev1.Toleration }{
		"everything":     {all, tol("a", "Equal", "b", "NoSchedule")},
		"any value":      {tol("a", "Exists", "", ""), tol("a", "Equal", "b", "NoSchedule")},
		"any effect":     {tol("a", "Equal", "b", ""), tol("a", "Equal", "b", "NoSchedule")},
		"for ever":       {tol("a", "Exists", "", "NoExecute"), tol("a", "Exists", "", "NoExecute", 5)},
		"for longer":     {tol("a", "Exists", "", "NoExecute", 6), tol("a", "Exists", "", "NoExecute", 5)},
		"empty operator": {tol("a", "", "b", ""), tol("a", "Equal", "b", "NoSchedule")},
	} {
		for _, merged := range [][]corev1.Toleration{mergeTolerations([]corev1.Toleration{tc.t}, []corev1.Toleration{tc.wide}),
			mergeTolerations([]corev1.Toleration{tc.wide}, []corev1.Toleration{tc.t})} {
			if len(merged) != 1 || !apiequality.Semantic.DeepEqual(merged[0], tc.wide) {
				t.Errorf("%s: %v", name, merged)
			}
		}
	}
	apart := []corev1.Toleration{tol("a", "Equal", "b", ""), tol("a", "Equal", "c", ""), tol("b", "Exists", "", "NoSchedule"),
		tol("b", "Exists", "", "NoExecute")}
	if merged := mergeTolerations(apart, apart); len(merged) != 4 {
		t.Errorf("apart: %v", merged)
	}
}
