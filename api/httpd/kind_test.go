package httpd_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/api/kinds"
	"ledge/api/table"
	"ledge/api/valid"
	"ledge/internal/testrun"
)

// boat is an object of a kind that there is in this file only.
type boat struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              boatSpec   `json:"spec,omitempty"`
	Status            boatStatus `json:"status,omitempty"`
}

type boatSpec struct {
	Captain string                 `json:"captain,omitempty"`
	Crew    *int32                 `json:"crew,omitempty"`
	Each    corev1.PodTemplateSpec `json:"each,omitempty"` // of the crew
}

type boatStatus struct {
	Aboard int32 `json:"aboard,omitempty"`
}

func (b *boat) DeepCopyObject() k8sruntime.Object {
	out := *b
	b.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	b.Spec.Each.DeepCopyInto(&out.Spec.Each)
	if b.Spec.Crew != nil {
		crew := *b.Spec.Crew
		out.Spec.Crew = &crew
	}
	return &out
}

type boatList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []boat `json:"items"`
}

func (l *boatList) DeepCopyObject() k8sruntime.Object { return l }

// boats are that kind.
var boats = api.Define(api.Kind{Group: "sea.example", Version: "v1", Name: "Boat", Resource: "boats", Singular: "boat",
	Short:      []string{"bt"},
	Namespaced: true, Generation: true,
	Schema: json.RawMessage(`{"type":"object","x-kubernetes-group-version-kind":[{"group":"sea.example","version":"v1","kind":"Boat"}],"properties":{
		"apiVersion":{"type":"string"},"kind":{"type":"string"},
		"metadata":{"allOf":[{"$ref":"#/components/schemas/io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"}]},
		"spec":{"type":"object","properties":{"captain":{"type":"string"},"crew":{"type":"integer"},
			"each":{"allOf":[{"$ref":"#/components/schemas/io.k8s.api.core.v1.PodTemplateSpec"}]}}},
		"status":{"type":"object","properties":{"aboard":{"type":"integer"}}}}}`)},
	api.Rules[*boat]{
		New: func() *boat { return &boat{} }, NewList: func() api.ListObject { return &boatList{} },
		Default: func(b *boat) {
			if b.Spec.Crew == nil {
				b.Spec.Crew = new(int32)
				*b.Spec.Crew = 1
			}
		},
		Fresh:    func(b *boat) { b.Status = boatStatus{} },
		Validate: func(b *boat) field.ErrorList { return valid.Required(b.Spec.Captain, field.NewPath("spec", "captain")) },
		ValidateUpdate: func(b, _ *boat, sub string) field.ErrorList {
			if sub == api.StatusSub {
				return valid.NotNegative(b.Status.Aboard, field.NewPath("status", "aboard"))
			}
			return valid.Required(b.Spec.Captain, field.NewPath("spec", "captain"))
		},
		Warn: func(b *boat) []string {
			if b.Spec.Captain == "Ahab" {
				return []string{"beware of whales"}
			}
			return nil
		},
		Spec: func(b *boat) any { return &b.Spec }, Status: func(b *boat) any { return &b.Status },
		Fields:   []api.Field[*boat]{{Name: "spec.captain", Get: func(b *boat) string { return b.Spec.Captain }}},
		Template: func(b *boat) *corev1.PodTemplateSpec { return &b.Spec.Each },
		Scale: func(b *boat) (autoscalingv1.ScaleSpec, autoscalingv1.ScaleStatus) {
			return autoscalingv1.ScaleSpec{Replicas: *b.Spec.Crew}, autoscalingv1.ScaleStatus{Replicas: b.Status.Aboard}
		},
		SetScale: func(b *boat, n int32) { b.Spec.Crew = &n },
		Columns: table.Columns{table.Name, table.Column("Captain", "string", "Who commands it."),
			table.Column("Aboard", "integer", "How many are aboard."), table.Age},
		Cells: func(b *boat, l table.Look) []any {
			return []any{b.Name, b.Spec.Captain, int64(b.Status.Aboard), l.AgeOf(b)}
		},
	})

const boatsPath = "/apis/sea.example/v1/namespaces/default/boats"

func boatJSON(name, captain, more string) string {
	return `{"kind":"Boat","apiVersion":"sea.example/v1","metadata":{"name":"` + name + `"},"spec":{"captain":"` + captain + `"` + more + `}}`
}

// withBoats serves a board's kinds and one more.
func withBoats(t *testing.T) *fixture {
	more := *kinds.All
	more.Kept = append(slices.Clone(more.Kept), boats)
	return serve(t, httpd.Config{Kinds: &more})
}

// A kind that stands in one file, this one, has all that kinds have.
func TestMadeUpKind(t *testing.T) {
	f := withBoats(t)
	t.Run("discovery", f.boatsDiscovered)
	t.Run("written and read", f.boatsWritten)
	t.Run("applied", f.boatsApplied)
	t.Run("scaled", f.boatsScaled)
	t.Run("table and selectors", f.boatsListed)
	t.Run("watched", func(t *testing.T) { synctest.Test(t, boatsWatched) })
	t.Run("deleted", f.boatsDeleted)
	t.Run("counted", f.boatsCounted)
}

// boatsCounted: a quota counts them, refuses one too many, and takes back what one that goes leaves.
func (f *fixture) boatsCounted(t *testing.T) {
	const quotas = "/api/v1/namespaces/default/resourcequotas"
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() { over <- f.store.Run(ctx) }() // it writes the status
	defer func() {
		if stop(); <-over != nil {
			t.Error("the client ended with an error")
		}
	}()
	f.must(201, "POST", quotas, `{"kind":"ResourceQuota","apiVersion":"v1","metadata":{"name":"harbour"},"spec":{"hard":{"count/boats.sea.example":"2"}}}`)
	for _, name := range []string{"one", "two"} {
		f.must(201, "POST", boatsPath, boatJSON(name, "ada", ""))
	}
	s := f.must(403, "POST", boatsPath, boatJSON("three", "ada", "")).status(t)
	if want := "exceeded quota: harbour, requested: count/boats.sea.example=1, used: count/boats.sea.example=2, limited: " +
		"count/boats.sea.example=2"; !strings.Contains(s.Message, want) {
		t.Errorf("%s, want %s", s.Message, want)
	}
	f.must(200, "DELETE", boatsPath+"/one", "")
	f.must(201, "POST", boatsPath, boatJSON("three", "ada", ""))
	testrun.Until(t, 10*time.Second, "the quota says that two are used", func() bool {
		var q corev1.ResourceQuota
		f.must(200, "GET", quotas+"/harbour", "").into(t, &q)
		used := q.Status.Used["count/boats.sea.example"]
		return used.Value() == 2
	})
}

func (f *fixture) boatsDiscovered(t *testing.T) {
	var list metav1.APIResourceList
	f.must(200, "GET", "/apis/sea.example/v1", "").into(t, &list)
	var got []string
	for _, r := range list.APIResources {
		got = append(got, fmt.Sprintf("%s %s %v %s", r.Name, r.Kind, r.ShortNames, strings.Join(r.Verbs, ",")))
	}
	want := []string{"boats Boat [bt] create,delete,deletecollection,get,list,patch,update,watch", "boats/scale Scale [] get,patch,update",
		"boats/status Boat [] get,patch,update"}
	if !slices.Equal(got, want) {
		t.Errorf("discovered %q", got)
	}
	for _, path := range []string{"/openapi/v3/apis/sea.example/v1", "/openapi/v2", "/apis"} {
		if a := f.must(200, "GET", path, ""); !strings.Contains(a.body, "sea.example") || path != "/apis" &&
			!strings.Contains(a.body, `"captain":{"type":"string"}`) {
			t.Errorf("%s does not know boats", path)
		}
	}
}

func (f *fixture) boatsWritten(t *testing.T) {
	var b boat
	created := f.must(201, "POST", boatsPath, strings.Replace(boatJSON("pequod", "Ahab", ""), `"spec"`, `"status":{"aboard":9},"spec"`, 1))
	created.into(t, &b)
	if *b.Spec.Crew != 1 || b.Status.Aboard != 0 || b.Generation != 1 || b.Kind != "Boat" ||
		!strings.Contains(fmt.Sprint(created.head["Warning"]), "whales") {
		t.Errorf("made %+v, %v", b, created.head["Warning"])
	}
	if s := f.must(422, "POST", boatsPath, boatJSON("raft", "", "")).status(t); s.Details.Causes[0].Field != "spec.captain" {
		t.Errorf("without a captain: %+v", s)
	}
	f.must(422, "POST", boatsPath, boatJSON("Not A Name", "x", ""))
	f.must(400, "POST", boatsPath+"?fieldValidation=Strict", boatJSON("raft", "x", `,"sails":3`))
	f.must(409, "POST", boatsPath, boatJSON("pequod", "Starbuck", ""))

	f.must(200, "PUT", boatsPath+"/pequod/status",
		strings.Replace(boatJSON("pequod", "Starbuck", ""), `"spec"`, `"status":{"aboard":3},"spec"`, 1)).into(t, &b)
	if b.Status.Aboard != 3 || b.Spec.Captain != "Ahab" || b.Generation != 1 {
		t.Errorf("after its status: %+v", b)
	}
	f.must(422, "PATCH", boatsPath+"/pequod/status", `{"status":{"aboard":-1}}`, "Content-Type", mergePatch)
	f.must(200, "PUT", boatsPath+"/pequod", boatJSON("pequod", "Starbuck", `,"crew":30`)).into(t, &b)
	if b.Spec.Captain != "Starbuck" || b.Status.Aboard != 3 || b.Generation != 2 {
		t.Errorf("replaced by %+v", b)
	}
	f.must(200, "PATCH", boatsPath+"/pequod", `{"metadata":{"labels":{"sea":"south"}}}`, "Content-Type", strategicPatch)
	f.must(200, "GET", boatsPath+"/pequod", "").into(t, &b)
	if b.Labels["sea"] != "south" || b.Generation != 2 {
		t.Errorf("patched to %+v", b)
	}
	if a := f.do(nodeA, "PUT", boatsPath+"/pequod", boatJSON("pequod", "x", "")); a.code != 403 {
		t.Errorf("the agent of a node may write boats: %d", a.code)
	}
}

func (f *fixture) boatsApplied(t *testing.T) {
	apply := func(code int, manager, body string) answer {
		t.Helper()
		return f.must(code, "PATCH", boatsPath+"/essex?fieldManager="+manager, body, "Content-Type", applyPatch)
	}
	apply(201, "owner", boatJSON("essex", "Pollard", ""))
	apply(409, "other", boatJSON("essex", "Chase", ""))
	apply(400, "owner", boatJSON("essex", "Pollard", `,"sails":3`))
	var b boat
	apply(200, "other", boatJSON("essex", "Pollard", `,"crew":20`)).into(t, &b)
	if *b.Spec.Crew != 20 || len(b.ManagedFields) != 2 {
		t.Errorf("applied %+v", b)
	}
}

func (f *fixture) boatsScaled(t *testing.T) {
	var s autoscalingv1.Scale
	f.must(200, "PATCH", boatsPath+"/pequod/scale", `{"spec":{"replicas":31}}`, "Content-Type", mergePatch).into(t, &s)
	if s.Spec.Replicas != 31 || s.Status.Replicas != 3 || s.Kind != "Scale" {
		t.Errorf("scaled to %+v", s)
	}
	scale := &autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "pequod"},
		Spec: autoscalingv1.ScaleSpec{Replicas: 32}}
	if got, err := f.store.Update(t.Context(), boats, scale, api.WriteOptions{Subresource: api.Scale}); err != nil ||
		got.(*autoscalingv1.Scale).Spec.Replicas != 32 {
		t.Errorf("in process: %v, %v", got, err)
	}
}

func (f *fixture) boatsListed(t *testing.T) {
	var list boatList
	f.must(200, "GET", boatsPath+"?fieldSelector=spec.captain%3DPollard", "").into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "essex" {
		t.Errorf("Pollard's: %+v", list.Items)
	}
	f.must(200, "GET", "/apis/sea.example/v1/boats?labelSelector=sea%3Dsouth", "").into(t, &list)
	if len(list.Items) != 1 || list.Items[0].Name != "pequod" {
		t.Errorf("in the south: %+v", list.Items)
	}
	f.must(400, "GET", boatsPath+"?fieldSelector=spec.crew%3D1", "")
	var shown metav1.Table
	f.must(200, "GET", boatsPath, "", "Accept", tableAccept).into(t, &shown)
	if len(shown.Rows) != 2 || fmt.Sprint(shown.Rows[1].Cells[:3]) != "[pequod Starbuck 3]" || shown.ColumnDefinitions[1].Name != "Captain" {
		t.Errorf("table: %+v", shown)
	}
}

func boatsWatched(t *testing.T) {
	f := withBoats(t)
	s := f.watch(boatsPath + "?watch=true&fieldSelector=spec.captain%3DPollard")
	f.must(201, "POST", boatsPath, boatJSON("essex", "Pollard", ""))
	f.must(201, "POST", boatsPath, boatJSON("pequod", "Ahab", ""))
	f.must(200, "PUT", boatsPath+"/essex", boatJSON("essex", "Pollard", `,"crew":2`))
	f.must(200, "PUT", boatsPath+"/essex", boatJSON("essex", "Chase", ""))
	f.must(200, "PUT", boatsPath+"/pequod", boatJSON("pequod", "Pollard", ""))
	f.must(200, "DELETE", boatsPath+"/pequod", "")
	s.expect("ADDED essex", "MODIFIED essex", "DELETED essex", "ADDED pequod", "DELETED pequod")
	f.stop()
}

func (f *fixture) boatsDeleted(t *testing.T) {
	f.must(200, "DELETE", boatsPath+"/essex", "")
	f.must(404, "GET", boatsPath+"/essex", "")
	f.must(200, "DELETE", boatsPath, "")
	f.must(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"sea"}}`)
	f.must(201, "POST", "/apis/sea.example/v1/namespaces/sea/boats", boatJSON("whaler", "x", ""))
	f.must(200, "DELETE", "/api/v1/namespaces/sea", "")
	f.must(404, "GET", "/apis/sea.example/v1/namespaces/sea/boats/whaler", "")
	var list boatList
	if f.must(200, "GET", "/apis/sea.example/v1/boats", "").into(t, &list); len(list.Items) != 0 {
		t.Errorf("left: %+v", list.Items)
	}
}
