package apitest

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

var patchCases = []Case{
	{"Patch", testPatch},
	{"PatchRefused", testPatchRefused},
	{"PatchStrategic", testPatchStrategic},
	{"Apply", testApply},
	{"ApplyAfterCreate", testApplyAfterCreate},
	{"ApplyRefused", testApplyRefused},
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
		{types.MergePatchType, `{"metadata":{"resourceVersion":"` + was.GetResourceVersion() + `"},"data":{"k":"3"}}`,
			metav1.StatusReasonConflict, 409},
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

func (e *env) apply(name, manager, data string, force bool) (*corev1.ConfigMap, bool, error) {
	made := false
	config := fmt.Sprintf(`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":%q},"data":%s}`, name, data)
	out, err := e.patch(api.ConfigMaps, e.ns, name, types.ApplyYAMLPatchType, config,
		api.WriteOptions{Manager: manager, Force: force, Made: &made})
	cm, _ := out.(*corev1.ConfigMap)
	return cm, made, err
}

// Server-side apply: managers own what they set, take away what they stop setting, and conflict over the rest (N-11.33).
func testApply(t *testing.T, c api.Client) {
	e := begin(t, c)
	cm, made, err := e.apply("a", "one", `{"k":"1","l":"1"}`, false)
	e.must(err)
	if !made || cm.UID == "" || len(cm.ManagedFields) != 1 || cm.ManagedFields[0].Manager != "one" ||
		cm.ManagedFields[0].Operation != metav1.ManagedFieldsOperationApply {
		t.Errorf("made %v: %+v", made, cm.ObjectMeta)
	}
	again, made, err := e.apply("a", "one", `{"k":"1","l":"1"}`, false)
	e.must(err)
	if made || again.ResourceVersion != cm.ResourceVersion {
		t.Errorf("applying the same was a change: made %v, revision %s after %s", made, again.ResourceVersion, cm.ResourceVersion)
	}
	cm, _, err = e.apply("a", "two", `{"m":"2"}`, false)
	e.must(err)
	if fmt.Sprint(cm.Data) != "map[k:1 l:1 m:2]" || len(cm.ManagedFields) != 2 {
		t.Errorf("a second manager: %v, %v", cm.Data, cm.ManagedFields)
	}
	_, _, err = e.apply("a", "two", `{"m":"2","k":"2"}`, false)
	if !apierrors.IsConflict(err) || !strings.Contains(fmt.Sprint(err), `conflict with "one": .data.k`) ||
		!apierrors.HasStatusCause(err, metav1.CauseTypeFieldManagerConflict) {
		t.Errorf("a conflict: %v", err)
	}
	cm, _, err = e.apply("a", "two", `{"m":"2","k":"2"}`, true)
	e.must(err)
	if fmt.Sprint(cm.Data) != "map[k:2 l:1 m:2]" {
		t.Errorf("forced: %v", cm.Data)
	}
	// What a manager stops applying goes, unless another has it too.
	cm, _, err = e.apply("a", "one", `{}`, false)
	e.must(err)
	if fmt.Sprint(cm.Data) != "map[k:2 m:2]" {
		t.Errorf("left out: %v", cm.Data)
	}
	// Other writes are tracked too, once somebody has applied.
	out, err := e.patch(api.ConfigMaps, e.ns, "a", types.MergePatchType, `{"data":{"k":"3"}}`, api.WriteOptions{Manager: "three"})
	e.must(err)
	if _, _, err = e.apply("a", "two", `{"m":"2","k":"2"}`, false); !strings.Contains(fmt.Sprint(err), `conflict with "three"`) {
		t.Errorf("after a patch by %v: %v", out.GetManagedFields(), err)
	}
	dry, err := e.patch(api.ConfigMaps, e.ns, "b", types.ApplyYAMLPatchType,
		`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"}}`, api.WriteOptions{Manager: "one", DryRun: true})
	e.must(err)
	if _, err := e.c.Get(e.ctx, api.ConfigMaps, e.ns, "b"); !apierrors.IsNotFound(err) || dry.GetName() != "b" {
		t.Errorf("a dry run: %v, %v", dry, err)
	}
}

// An object made in another way has its fields from before the first apply; lists merge by their keys.
func testApplyAfterCreate(t *testing.T, c api.Client) {
	e := begin(t, c)
	e.create(e.configMap("a", "k", "1"))
	if _, _, err := e.apply("a", "one", `{"k":"2"}`, false); !apierrors.IsConflict(err) {
		t.Errorf("took over without force: %v", err)
	}
	cm, made, err := e.apply("a", "one", `{"k":"2"}`, true)
	e.must(err)
	if made || cm.Data["k"] != "2" {
		t.Errorf("made %v: %v", made, cm.Data)
	}
	e.create(e.pod("p"))
	out, err := e.patch(api.Pods, e.ns, "p", types.ApplyYAMLPatchType,
		`{"kind":"Pod","apiVersion":"v1","metadata":{"name":"p","labels":{"a":"b"}}}`, api.WriteOptions{Manager: "one"})
	e.must(err)
	if pod := out.(*corev1.Pod); pod.Labels["a"] != "b" || len(pod.Spec.Containers) != 1 || pod.Spec.Containers[0].Image == "" {
		t.Errorf("a pod lost something by an apply of its labels: %+v", pod)
	}
	cm = e.get(cm).(*corev1.ConfigMap)
	cm.ManagedFields = []metav1.ManagedFieldsEntry{}
	out, err = e.c.Update(e.ctx, api.ConfigMaps, cm, api.WriteOptions{})
	e.must(err)
	if out.GetResourceVersion() == "" {
		t.Error("no revision")
	}
}

func testApplyRefused(t *testing.T, c api.Client) {
	e := begin(t, c)
	for name, tc := range map[string]struct{ config, manager, want string }{
		"no manager":    {`{"kind":"ConfigMap","apiVersion":"v1"}`, "", "fieldManager"},
		"another kind":  {`{"kind":"Secret","apiVersion":"v1"}`, "one", "Secret"},
		"another name":  {`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"b"}}`, "one", "name"},
		"unknown field": {`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a"},"dota":{}}`, "one", "dota"},
		"managedFields": {`{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"a","managedFields":[{"manager":"x"}]}}`, "one",
			"managedFields"},
		"no object": {`[]`, "one", ""},
	} {
		_, err := e.patch(api.ConfigMaps, e.ns, "a", types.ApplyYAMLPatchType, tc.config, api.WriteOptions{Manager: tc.manager})
		// kube-apiserver gives an unknown field no reason and 500.
		if !(apierrors.IsBadRequest(err) || apierrors.IsInvalid(err) || err != nil && name == "unknown field") ||
			!strings.Contains(fmt.Sprint(err), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
