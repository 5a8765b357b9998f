package api

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestApplyJSONPatch(t *testing.T) { // N-11.33, RFC 6902
	for _, tc := range []struct{ patch, want string }{
		{`[]`, `{"a":"1","b":"2"}`},
		{`[{"op":"add","path":"/data/c","value":"3"}]`, `{"a":"1","b":"2","c":"3"}`},
		{`[{"op":"replace","path":"/data/a","value":"3"}]`, `{"a":"3","b":"2"}`},
		{`[{"op":"remove","path":"/data/a"}]`, `{"b":"2"}`},
		{`[{"op":"move","from":"/data/a","path":"/data/c"}]`, `{"b":"2","c":"1"}`},
		{`[{"op":"copy","from":"/data/a","path":"/data/c"}]`, `{"a":"1","b":"2","c":"1"}`},
		{`[{"op":"test","path":"/data/a","value":"1"},{"op":"remove","path":"/data/b"}]`, `{"a":"1"}`},
		{`[{"op":"add","path":"/data/x~1y~0z","value":"3"},{"op":"move","from":"/data/x~1y~0z","path":"/data/q"}]`, `{"a":"1","b":"2","q":"3"}`},
		{`[{"op":"add","path":"/data","value":null}]`, `null`},
		{`[{"op":"test","path":"/data/a","value":"2"}]`, "422"},
		{`[{"op":"remove","path":"/data/x"}]`, "422"},
		{`[{"op":"replace","path":"/data/x","value":"1"}]`, "422"},
		{`[{"op":"add","path":"/nowhere/x","value":"1"}]`, "422"},
		{`[{"op":"add","path":"data","value":"1"}]`, "422"},
		{`[{"op":"add","path":"/data/c"}]`, "422"},
		{`[{"op":"move","path":"/data/c"}]`, "422"},
		{`[{"op":"move","from":"/data","path":"/data/c"}]`, "422"},
		{`[{"op":"spin","path":"/data/c"}]`, "422"},
		{`[{"op":"add"}]`, "422"},
		{`[{"op":"add","path":"/data/c","value":{"not":"a string"}}]`, "422"},
		{`[{"op":"replace","path":"","value":7}]`, "422"},
		{`{}`, "400"},
		{`[`, "400"},
		{`[{"op":1}]`, "400"},
	} {
		check(t, types.JSONPatchType, tc.patch, tc.want)
	}
}

func TestApplyMergePatch(t *testing.T) { // RFC 7386
	for _, tc := range []struct{ patch, want string }{
		{`{}`, `{"a":"1","b":"2"}`},
		{`{"data":{"a":null,"c":"3"}}`, `{"b":"2","c":"3"}`},
		{`{"data":null}`, `null`},
		{`{"data":{"c":1}}`, "422"},
		{`[]`, "400"},
		{`null`, "400"},
		{`{`, "400"},
	} {
		check(t, types.MergePatchType, tc.patch, tc.want)
	}
	check(t, "application/apply-patch+yaml", `{}`, "415")
}

func check(t *testing.T, typ types.PatchType, patch, want string) {
	t.Helper()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Data: map[string]string{"a": "1", "b": "2"}}
	before := cm.DeepCopy()
	obj, _, err := ApplyPatch(ConfigMaps, cm, Patch{Type: typ, Data: []byte(patch)})
	if !apiequality.Semantic.DeepEqual(cm, before) {
		t.Errorf("%s changed its input", patch)
	}
	var got string
	if err != nil {
		got = "not a status"
		if status, ok := err.(apierrors.APIStatus); ok {
			got = fmt.Sprint(status.Status().Code)
		}
	} else {
		data, _ := json.Marshal(obj.(*corev1.ConfigMap).Data)
		got = string(data)
	}
	if got != want {
		t.Errorf("%s: got %s, want %s (%v)", patch, got, want, err)
	}
}

func TestApplyJSONPatchToLists(t *testing.T) {
	for patch, want := range map[string]string{
		`[{"op":"add","path":"/spec/taints/0","value":{"key":"x"}}]`:                 "x a b",
		`[{"op":"add","path":"/spec/taints/-","value":{"key":"x"}}]`:                 "a b x",
		`[{"op":"add","path":"/spec/taints/2","value":{"key":"x"}}]`:                 "a b x",
		`[{"op":"add","path":"/spec/taints/-1","value":{"key":"x"}}]`:                "a b x",
		`[{"op":"remove","path":"/spec/taints/0"}]`:                                  "b",
		`[{"op":"remove","path":"/spec/taints/-1"}]`:                                 "a",
		`[{"op":"replace","path":"/spec/taints/1","value":{"key":"x"}}]`:             "a x",
		`[{"op":"move","from":"/spec/taints/0","path":"/spec/taints/1"}]`:            "b a",
		`[{"op":"test","path":"/spec/taints/0/key","value":"a"}]`:                    "a b",
		`[{"op":"add","path":"/spec/taints/3","value":{"key":"x"}}]`:                 "error",
		`[{"op":"add","path":"/spec/taints/x","value":{"key":"x"}}]`:                 "error",
		`[{"op":"remove","path":"/spec/taints/2"}]`:                                  "error",
		`[{"op":"remove","path":"/spec/taints/-3"}]`:                                 "error",
		`[{"op":"replace","path":"/spec/taints/99999999999999999999","value":null}]`: "error",
	} {
		node := &corev1.Node{Spec: corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a"}, {Key: "b"}}}}
		obj, _, err := ApplyPatch(Nodes, node, Patch{Type: types.JSONPatchType, Data: []byte(patch)})
		got := "error"
		if err == nil {
			var keys []string
			for _, t := range obj.(*corev1.Node).Spec.Taints {
				keys = append(keys, t.Key)
			}
			got = strings.Join(keys, " ")
		}
		if got != want {
			t.Errorf("%s: got %q, want %q (%v)", patch, got, want, err)
		}
	}
}

func TestApplyStrategicPatch(t *testing.T) { // N-11.34
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "n", Finalizers: []string{"a/b"}},
		Spec:       corev1.NodeSpec{Taints: []corev1.Taint{{Key: "a", Effect: "NoSchedule"}}},
		Status: corev1.NodeStatus{
			Conditions: []corev1.NodeCondition{{Type: "Ready", Status: "True"}, {Type: "DiskPressure", Status: "False"}},
			Addresses:  []corev1.NodeAddress{{Type: "InternalIP", Address: "1.1.1.1"}},
		},
	}
	apply := func(obj Object, patch string) Object {
		t.Helper()
		kind := kindOf(obj)
		out, dropped, err := ApplyPatch(kind, obj, Patch{Type: types.StrategicMergePatchType, Data: []byte(patch)})
		if err != nil || len(dropped) > 0 {
			t.Fatalf("%s: %v %v", patch, dropped, err)
		}
		return out
	}
	n := apply(node, `{"spec":{"unschedulable":true}}`).(*corev1.Node) // N-11.6
	if !n.Spec.Unschedulable || len(n.Spec.Taints) != 1 {
		t.Errorf("cordon: %+v", n.Spec)
	}
	n = apply(n, `{"spec":{"unschedulable":null,"taints":[{"key":"b","effect":"NoExecute"}]}}`).(*corev1.Node)
	if n.Spec.Unschedulable || len(n.Spec.Taints) != 1 || n.Spec.Taints[0].Key != "b" {
		t.Errorf("taints must be replaced as a whole: %+v", n.Spec)
	}
	n = apply(n, `{"metadata":{"finalizers":["c/d"]},"status":{"conditions":[{"type":"Ready","status":"False"}]}}`).(*corev1.Node)
	if len(n.Finalizers) != 2 || len(n.Status.Conditions) != 2 || n.Status.Conditions[0].Status != "False" {
		t.Errorf("lists with a key must be merged: %+v %+v", n.Finalizers, n.Status.Conditions)
	}
	n = apply(n, `{"status":{"conditions":[{"type":"DiskPressure","$patch":"delete"}],"$setElementOrder/conditions":[{"type":"Ready"}]}}`).(*corev1.Node)
	if len(n.Status.Conditions) != 1 {
		t.Errorf("$patch delete: %+v", n.Status.Conditions)
	}
	n = apply(n, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["a/b"]}}`).(*corev1.Node)
	if len(n.Finalizers) != 1 || n.Finalizers[0] != "c/d" {
		t.Errorf("$deleteFromPrimitiveList: %v", n.Finalizers)
	}
	p := apply(validPod(), `{"spec":{"containers":[{"name":"c","image":"x"}],"volumes":[{"name":"v","emptyDir":{}}]}}`).(*corev1.Pod)
	if len(p.Spec.Containers) != 1 || p.Spec.Containers[0].Image != "x" || p.Spec.Containers[0].ImagePullPolicy == "" {
		t.Errorf("containers must be merged by name: %+v", p.Spec.Containers)
	}
	p = apply(p, `{"spec":{"volumes":[{"name":"v","$retainKeys":["name","hostPath"],"hostPath":{"path":"/x"}}]}}`).(*corev1.Pod)
	if v := p.Spec.Volumes[0]; v.EmptyDir != nil || v.HostPath == nil {
		t.Errorf("$retainKeys: %+v", v)
	}
	for _, bad := range []string{`{"spec":{"taints":"x"}}`, `{"status":{"conditions":[{"status":"True"}]}}`, `[]`, `{"$patch":"spin"}`} {
		_, _, err := ApplyPatch(Nodes, node, Patch{Type: types.StrategicMergePatchType, Data: []byte(bad)})
		if !apierrors.IsBadRequest(err) && !apierrors.IsInvalid(err) {
			t.Errorf("%s: want 400 or 422, got %v", bad, err)
		}
	}
}

func TestApplyPatchNamesWhatItDrops(t *testing.T) { // N-11.15
	for typ, patch := range map[types.PatchType]string{
		types.MergePatchType:          `{"spec":{"foo":1},"data":{"a":"1","a":"2"}}`,
		types.StrategicMergePatchType: `{"spec":{"foo":1},"data":{"a":"1","a":"2"}}`,
		types.JSONPatchType:           `[{"op":"add","path":"/spec","value":{"foo":1}},{"op":"add","path":"/bar","value":1}]`,
	} {
		_, dropped, err := ApplyPatch(ConfigMaps, &corev1.ConfigMap{}, Patch{Type: typ, Data: []byte(patch)})
		if err != nil || len(dropped) != 2 {
			t.Errorf("%s: got %q, %v", typ, dropped, err)
		}
	}
}

// Small patches that ask for much are refused before they cost much.
func TestJSONPatchBombs(t *testing.T) {
	copies := []string{`{"op":"add","path":"/data","value":{"a":"` + strings.Repeat("x", 1000) + `"}}`}
	for i := range 40 {
		copies = append(copies, fmt.Sprintf(`{"op":"copy","from":"/data","path":"/data/%d"}`, i))
	}
	deep := []string{`{"op":"add","path":"/data","value":{}}`}
	for i := range 5000 {
		deep = append(deep, fmt.Sprintf(`{"op":"add","path":"/data%s","value":{}}`, strings.Repeat("/a", i%600+1)))
	}
	for name, ops := range map[string][]string{
		"copies": copies,
		"depth":  deep,
		"number": strings.Split(strings.Repeat(`{"op":"test","path":"","value":1} `, maxPatchOps+1), " ")[:maxPatchOps+1],
	} {
		_, _, err := ApplyPatch(ConfigMaps, &corev1.ConfigMap{},
			Patch{Type: types.JSONPatchType, Data: []byte("[" + strings.Join(ops, ",") + "]")})
		status, ok := err.(apierrors.APIStatus)
		if !ok || status.Status().Code != 422 && status.Status().Code != 413 {
			t.Errorf("%s: want 413 or 422, got %v", name, err)
		}
	}
}

// No patch panics, changes its input, or fails with anything but a status that blames the caller.
func FuzzApplyPatch(f *testing.F) {
	for _, s := range []string{
		`[{"op":"add","path":"/metadata/labels","value":{"a":"b"}}]`, `[{"op":"copy","from":"","path":"/spec"}]`,
		`[{"op":"move","from":"/spec/containers/0","path":"/spec/containers/-"}]`, `[{"op":"test","path":"/spec","value":null}]`,
		`[{"op":"remove","path":""}]`, `{"metadata":{"labels":{"a":null}}}`, `{"spec":null}`,
		`{"spec":{"containers":[{"name":"c","$patch":"delete"}]}}`,
		`{"spec":{"$setElementOrder/containers":[{"name":"c"}],"containers":[{"name":"c","env":[{"name":"x"}]}]}}`,
		`{"spec":{"containers":[{"$patch":"replace"}]}}`, `{"metadata":{"$deleteFromPrimitiveList/finalizers":["x"]}}`,
		`{"spec":{"volumes":[{"$retainKeys":["name"],"name":"v"}]}}`, `{"$patch":"replace"}`, `{"$retainKeys":"x"}`,
	} {
		f.Add(s)
	}
	pod := validPod()
	pod.Finalizers = []string{"a/b"}
	pod.Spec.Volumes = []corev1.Volume{{Name: "v"}}
	f.Fuzz(func(t *testing.T, data string) {
		for _, typ := range []types.PatchType{types.JSONPatchType, types.MergePatchType, types.StrategicMergePatchType} {
			before := pod.DeepCopy()
			out, _, err := ApplyPatch(Pods, pod, Patch{Type: typ, Data: []byte(data)})
			if !apiequality.Semantic.DeepEqual(pod, before) {
				t.Fatalf("%s: the input was changed", typ)
			}
			if err != nil {
				status, ok := err.(apierrors.APIStatus)
				if !ok || status.Status().Code < 400 || status.Status().Code > 499 {
					t.Fatalf("%s: %v", typ, err)
				}
				continue
			}
			fill(out)
			_ = validate(out)
		}
	})
}
