package httpd_test

import (
	"fmt"
	"strings"
	"testing"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/httpd"
)

const rcsPath = "/api/v1/namespaces/default/replicationcontrollers"

// The number of pods is seen and set as a Scale, in every form that clients use.
func TestScale(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.must(201, "POST", rcsPath, `{"metadata":{"name":"web"},"spec":{"replicas":2,"template":{"metadata":{"labels":{"app":"web","v":"1"}},
		"spec":{"containers":[{"name":"c","image":"i"}]}}}}`)
	var rc corev1.ReplicationController
	f.must(200, "GET", rcsPath+"/web", "").into(t, &rc)
	rc.Status.Replicas = 1
	if _, err := api.UpdateStatus(t.Context(), f.store, api.ReplicationControllers, &rc); err != nil {
		t.Fatal(err)
	}
	var scale autoscalingv1.Scale
	f.must(200, "GET", rcsPath+"/web/scale", "").into(t, &scale)
	if scale.Kind != "Scale" || scale.APIVersion != "autoscaling/v1" || scale.Name != "web" || scale.Namespace != "default" ||
		scale.UID != rc.UID ||
		scale.Spec.Replicas != 2 || scale.Status.Replicas != 1 || scale.Status.Selector != "app=web,v=1" {
		t.Errorf("got %+v", scale)
	}

	replicas := func() string {
		t.Helper()
		var now corev1.ReplicationController
		f.must(200, "GET", rcsPath+"/web", "").into(t, &now)
		return fmt.Sprintf("%d of generation %d, %d there", *now.Spec.Replicas, now.Generation, now.Status.Replicas)
	}
	put := func(n int, more string) string {
		return fmt.Sprintf(`{"kind":"Scale","apiVersion":"autoscaling/v1","metadata":{"name":"web"%s},"spec":{"replicas":%d},"status":{"replicas":99}}`, more, n)
	}
	for _, tc := range []struct{ name, method, body, media, want string }{
		{"update", "PUT", put(3, ""), "application/json", "3 of generation 2, 1 there"},
		{"the same again", "PUT", put(3, ""), "application/json", "3 of generation 2, 1 there"},
		{"merge patch, as kubectl scale", "PATCH", `{"spec":{"replicas":4}}`, mergePatch, "4 of generation 3, 1 there"},
		{"none", "PUT", put(0, ""), "application/json", "0 of generation 4, 1 there"},
		{"strategic patch", "PATCH", `{"spec":{"replicas":1}}`, strategicPatch, "1 of generation 5, 1 there"},
		{"JSON patch", "PATCH", `[{"op":"test","path":"/spec/replicas","value":1},{"op":"replace","path":"/spec/replicas","value":5}]`, jsonPatch,
			"5 of generation 6, 1 there"},
	} {
		var got autoscalingv1.Scale
		f.must(200, tc.method, rcsPath+"/web/scale", tc.body, "Content-Type", tc.media).into(t, &got)
		if now := replicas(); now != tc.want || fmt.Sprint(got.Spec.Replicas) != strings.Fields(now)[0] || got.Status.Replicas != 1 {
			t.Errorf("%s: %s, answered %+v, want %s", tc.name, now, got.Spec, tc.want)
		}
	}
	f.must(200, "PUT", rcsPath+"/web/scale?dryRun=All", put(9, ""))
	for _, tc := range []struct {
		name         string
		code         int
		method, body string
		media, says  string
	}{
		{"a negative number", 422, "PUT", put(-1, ""), "", "spec.replicas: Invalid value: -1"},
		{"an old revision", 409, "PUT", put(1, `,"resourceVersion":"1"`), "", "ResourceVersion in precondition: 1"},
		{"another one", 409, "PATCH", `{"metadata":{"uid":"x"}}`, mergePatch, "UID in precondition: x"},
		{"another name", 400, "PUT", strings.Replace(put(1, ""), `"web"`, `"other"`, 1), "", "does not match the name on the URL"},
		{"not a Scale", 400, "PUT", pod("web"), "", "a Scale of autoscaling/v1 was expected"},
		{"apply", 415, "PATCH", `{}`, applyPatch, "is not supported"},
	} {
		if s := f.must(tc.code, tc.method, rcsPath+"/web/scale", tc.body, "Content-Type", tc.media).status(t); !strings.Contains(s.Message,
			tc.says) {
			t.Errorf("%s: %s, want %q", tc.name, s.Message, tc.says)
		}
	}
	if now := replicas(); now != "5 of generation 6, 1 there" {
		t.Errorf("afterwards: %s", now)
	}
	f.must(404, "GET", rcsPath+"/none/scale", "")
	f.must(404, "GET", podsPath+"/p/scale", "")

	scale.ResourceVersion, scale.Spec.Replicas = "", 7 // as Kubernetes' own clients send it
	body, err := api.ToProtobuf(api.Scales, &scale)
	if err != nil {
		t.Fatal(err)
	}
	f.must(200, "PUT", rcsPath+"/web/scale", string(body), "Content-Type", protobufType, "Accept", protobufType+",application/json")
	if now := replicas(); now != "7 of generation 7, 1 there" {
		t.Errorf("in protobuf: %s", now)
	}
	var table metav1.Table
	f.must(200, "GET", rcsPath+"/web/scale", "", "Accept", tableAccept).into(t, &table)
	if len(table.Rows) != 1 || table.Rows[0].Cells[0] != "web" {
		t.Errorf("as a table: %+v", table)
	}
}
