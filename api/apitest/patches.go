package apitest

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

var patchCases = []Case{
	{"Patch", testPatch},
	{"PatchRefused", testPatchRefused},
	{"PatchStrategic", testPatchStrategic},
}

func (e *env) patch(kind *api.Kind, ns, name string, typ types.PatchType, data string, opts api.WriteOptions) (api.Object, error) {
	return e.c.Patch(e.ctx, kind, ns, name, api.Patch{Type: typ, Data: []byte(data)}, opts)
}

func testPatch(t *testing.T, c api.Client) { // N-11.33
	e := begin(t, c)
	was := e.create(e.configMap("a", "k", "1", "l", "2"))
	for _, tc := range []struct {
		typ        types.PatchType
		data, want string
	}{
		{types.MergePatchType, `{"data":{"k":"2","l":null}}`, "map[k:2]"},
		{types.JSONPatchType, `[{"op":"test","path":"/data/k","value":"2"},{"op":"add","path":"/data/m","value":"3"}]`, "map[k:2 m:3]"},
		{types.StrategicMergePatchType, `{"data":{"k":"4"}}`, "map[k:4 m:3]"},
	} {
		out, err := e.patch(api.ConfigMaps, e.ns, "a", tc.typ, tc.data, api.WriteOptions{})
		e.must(err)
		if got := fmt.Sprint(out.(*corev1.ConfigMap).Data); got != tc.want {
			t.Errorf("%s: got %s, want %s", tc.typ, got, tc.want)
		}
		if out.GetUID() != was.GetUID() || rv(t, out) <= rv(t, was) {
			t.Errorf("metadata: %+v", out)
		}
	}
	now := e.get(was)
	out, err := e.patch(api.ConfigMaps, e.ns, "a", types.MergePatchType, `{"data":{"k":"4"}}`, api.WriteOptions{})
	e.must(err)
	if out.GetResourceVersion() != now.GetResourceVersion() {
		t.Error("a patch that changes nothing was written")
	}
}

func testPatchRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	was := e.create(e.configMap("a", "k", "1"))
	e.update(e.configMap("a", "k", "2"))
	for _, tc := range []struct {
		typ    types.PatchType
		data   string
		reason metav1.StatusReason
		code   int32
	}{
		{types.MergePatchType, `{`, metav1.StatusReasonBadRequest, 400},
		{types.JSONPatchType, `{}`, metav1.StatusReasonBadRequest, 400},
		{types.JSONPatchType, `[{"op":"test","path":"/data/k","value":"x"}]`, metav1.StatusReasonInvalid, 422},
		{types.JSONPatchType, `[{"op":"remove","path":"/data/x"}]`, metav1.StatusReasonInvalid, 422},
		{types.MergePatchType, `{"metadata":{"resourceVersion":"` + was.GetResourceVersion() + `"},"data":{"k":"3"}}`, metav1.StatusReasonConflict, 409},
		{types.MergePatchType, `{"metadata":{"uid":"other"}}`, metav1.StatusReasonInvalid, 422},
		{types.MergePatchType, `{"metadata":{"name":"b"}}`, metav1.StatusReasonBadRequest, 400},
		{types.MergePatchType, `{"metadata":{"labels":{"a":"not a value"}}}`, metav1.StatusReasonInvalid, 422},
		{"application/x-no-such-patch", `{}`, metav1.StatusReasonUnsupportedMediaType, 415},
	} {
		_, err := e.patch(api.ConfigMaps, e.ns, "a", tc.typ, tc.data, api.WriteOptions{})
		if err == nil {
			t.Errorf("%s was accepted", tc.data)
			continue
		}
		e.fails(err, tc.reason, tc.code)
	}
	_, err := e.patch(api.ConfigMaps, e.ns, "nobody", types.MergePatchType, `{}`, api.WriteOptions{})
	e.fails(err, metav1.StatusReasonNotFound, 404)
	if got := e.get(was).(*corev1.ConfigMap).Data["k"]; got != "2" {
		t.Errorf("a refused patch left %q", got)
	}
}

func testPatchStrategic(t *testing.T, c api.Client) { // N-11.34
	e := begin(t, c)
	e.boundPod("p")
	out, err := e.patch(api.Pods, e.ns, "p", types.StrategicMergePatchType,
		`{"spec":{"containers":[{"name":"c","image":"ledge.local/self:v2"}]}}`, api.WriteOptions{})
	e.must(err)
	if cs := out.(*corev1.Pod).Spec.Containers; len(cs) != 1 || cs[0].Image != "ledge.local/self:v2" || cs[0].TerminationMessagePath == "" {
		t.Errorf("containers are merged by name: %+v", cs)
	}
	set := func(data string) *corev1.Pod {
		t.Helper()
		out, err := e.patch(api.Pods, e.ns, "p", types.StrategicMergePatchType, data, api.WriteOptions{Subresource: "status"})
		e.must(err)
		return out.(*corev1.Pod)
	}
	set(`{"status":{"conditions":[{"type":"apitest.dev/a","status":"True"},{"type":"apitest.dev/b","status":"True"}]}}`)
	p := set(`{"status":{"conditions":[{"type":"apitest.dev/a","status":"False"},{"type":"apitest.dev/b","$patch":"delete"}]}}`)
	if a, b := condition(p, "apitest.dev/a"), condition(p, "apitest.dev/b"); a == nil || a.Status != "False" || b != nil {
		t.Errorf("conditions are merged by type: %+v", p.Status.Conditions)
	}
}

func condition(p *corev1.Pod, typ string) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if string(p.Status.Conditions[i].Type) == typ {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}
