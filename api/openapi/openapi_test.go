package openapi

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

func schemas(t testing.TB) map[string]json.RawMessage {
	t.Helper()
	all, err := Schemas()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

type schema struct {
	Type, Description string
	Default           any
	Ref               string `json:"$ref"`
	Enum, Required    []string
	Items             *schema
	Properties        map[string]*schema
	AllOf             []*schema
	ListType          string   `json:"x-kubernetes-list-type"`
	MapType           string   `json:"x-kubernetes-map-type"`
	Keys              []string `json:"x-kubernetes-list-map-keys"`
	PatchKey          string   `json:"x-kubernetes-patch-merge-key"`
	PatchStrategy     string   `json:"x-kubernetes-patch-strategy"`
}

func named(t *testing.T, name string) schema {
	t.Helper()
	var s schema
	if err := json.Unmarshal(schemas(t)[name], &s); err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return s
}

// What only the comments in the sources say is in the schemas: reflection would have lost it.
func TestMarkers(t *testing.T) {
	port := named(t, "io.k8s.api.core.v1.ContainerPort")
	if p := port.Properties["protocol"]; p.Default != "TCP" || strings.Join(p.Enum, " ") != "SCTP TCP UDP" {
		t.Errorf("protocol %+v", p)
	}
	if strings.Join(port.Required, " ") != "containerPort" {
		t.Errorf("required %v", port.Required)
	}
	container := named(t, "io.k8s.api.core.v1.Container")
	if p := container.Properties["ports"]; p.ListType != "map" || strings.Join(p.Keys, " ") != "containerPort protocol" ||
		p.PatchKey != "containerPort" || p.PatchStrategy != "merge" || p.Type != "array" {
		t.Errorf("ports %+v", p)
	}
	if p := container.Properties["livenessProbe"]; len(p.AllOf) != 1 || p.AllOf[0].Ref != refV3+"io.k8s.api.core.v1.Probe" ||
		p.Default != nil ||
		!strings.HasPrefix(p.Description, "Periodic probe of container liveness.") {
		t.Errorf("livenessProbe %+v", p)
	}
	meta := named(t, "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta")
	if p := meta.Properties["finalizers"]; p.ListType != "set" {
		t.Errorf("finalizers %+v", p)
	}
	if p := named(t, "io.k8s.api.core.v1.ObjectReference"); p.MapType != "atomic" {
		t.Errorf("ObjectReference %+v", p)
	}
	if d := container.Properties["image"].Description; strings.Contains(d, "+optional") || strings.Contains(d, "TODO") {
		t.Errorf("a description holds what is for developers: %q", d)
	}
}

// What is measured is described too, under the names of Kubernetes' own module for it.
func TestMeasuredSchemas(t *testing.T) {
	const metrics = "io.k8s.metrics.pkg.apis.metrics.v1beta1."
	pod := named(t, metrics+"PodMetrics")
	if p := pod.Properties["containers"]; p.ListType != "atomic" || p.Items == nil || len(p.Items.AllOf) != 1 ||
		p.Items.AllOf[0].Ref != refV3+metrics+"ContainerMetrics" {
		t.Errorf("containers %+v", p)
	}
	for _, name := range []string{"PodMetrics", "NodeMetrics", "PodMetricsList", "NodeMetricsList", "ContainerMetrics"} {
		s := named(t, metrics+name)
		if !strings.HasPrefix(s.Description, name+" is ") {
			t.Errorf("%s: description %q", name, s.Description)
		}
		for field, p := range s.Properties {
			if p.Description == "" {
				t.Errorf("%s.%s has no description", name, field)
			}
		}
	}
	if list := named(t, metrics+"NodeMetricsList"); strings.Join(list.Required, " ") != "items" || len(list.Properties) != 4 {
		t.Errorf("list: %+v", list)
	}
}

// Every reference leads somewhere.
func TestReferences(t *testing.T) {
	all := schemas(t)
	for name, raw := range all {
		for rest := string(raw); ; {
			_, after, found := strings.Cut(rest, refV3)
			if !found {
				break
			}
			to, tail, _ := strings.Cut(after, `"`)
			if all[to] == nil {
				t.Errorf("%s refers to %s, which is not there", name, to)
			}
			rest = tail
		}
	}
	some := Select(all, []string{"io.k8s.api.core.v1.ConfigMap", "nonsense"})
	if len(some) < 4 || len(some) > 12 || some["io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta"] == nil {
		t.Errorf("%d schemas for a ConfigMap", len(some))
	}
}

// The files are what the pinned sources say: go generate was run after they changed.
func TestGenerated(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles the generator")
	}
	dir := t.TempDir()
	schemas, facts := filepath.Join(dir, "schemas.json.gz"), filepath.Join(dir, "markers.tsv")
	if out, err := exec.Command("go", "run", "../../scripts/openapi", schemas, facts).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for path, kept := range map[string]string{schemas: "schemas.json.gz", facts: "../kinds/testdata/markers.tsv"} {
		fresh, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if old, err := os.ReadFile(kept); err != nil || !bytes.Equal(fresh, old) {
			t.Errorf("%s is not what the sources say: run go generate ./api/openapi (%v)", kept, err)
		}
	}
}

// The binary form says the same as the document, read by those who defined it.
func TestProtobuf(t *testing.T) {
	definitions := map[string]any{}
	for name, raw := range schemas(t) {
		v2, err := V2(raw)
		if err != nil {
			t.Fatal(err)
		}
		definitions[name] = v2
	}
	doc := map[string]any{"swagger": "2.0", "info": map[string]any{"title": "t", "version": "v"}, "definitions": definitions,
		"paths": map[string]any{"/x/{name}": map[string]any{
			"parameters": []any{map[string]any{"name": "name", "in": "path", "required": true, "type": "string"}},
			"patch": map[string]any{"operationId": "p", "consumes": []any{"a/b"}, "x-kubernetes-action": "patch",
				"parameters": []any{map[string]any{"name": "dryRun", "in": "query", "type": "string"},
					map[string]any{"name": "body", "in": "body", "required": true, "schema": map[string]any{"$ref": refV2 + "X"}}},
				"responses": map[string]any{"200": map[string]any{"description": "OK"}}},
		}}}
	data, err := Protobuf(doc)
	if err != nil {
		t.Fatal(err)
	}
	var got openapiv2.Document
	if err := proto.Unmarshal(data, &got); err != nil {
		t.Fatal(err)
	}
	// The text is JSON or YAML to their reader, so reading it must come to the same.
	text, err := json.Marshal(doc)
	if err != nil {
		t.Fatal(err)
	}
	want, err := openapiv2.ParseDocument(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Definitions.AdditionalProperties) != len(want.Definitions.AdditionalProperties) {
		t.Fatalf("%d definitions, want %d", len(got.Definitions.AdditionalProperties), len(want.Definitions.AdditionalProperties))
	}
	byName := map[string]*openapiv2.Schema{}
	for _, p := range want.Definitions.AdditionalProperties {
		byName[p.Name] = p.Value
	}
	for _, p := range got.Definitions.AdditionalProperties {
		compare(t, p.Name, p.Value, byName[p.Name])
	}
	op, wop := got.Paths.Path[0].Value.Patch, want.Paths.Path[0].Value.Patch
	body := func(p *openapiv2.Operation) string {
		return p.Parameters[1].GetParameter().GetBodyParameter().GetSchema().XRef
	}
	if op.OperationId != "p" || op.Parameters[0].GetParameter().GetNonBodyParameter().GetQueryParameterSubSchema().GetName() != "dryRun" ||
		body(op) != body(wop) ||
		op.Consumes[0] != "a/b" || op.Responses.ResponseCode[0].GetValue().GetResponse().GetDescription() != "OK" ||
		got.Paths.Path[0].Value.Parameters[0].GetParameter().GetNonBodyParameter().GetPathParameterSubSchema().GetType() != "string" {
		t.Errorf("path: %v", got.Paths)
	}
	if _, err := Protobuf(map[string]any{"swagger": 2}); err == nil {
		t.Error("a broken document was written")
	}
}

func compare(t *testing.T, at string, got, want *openapiv2.Schema) {
	t.Helper()
	if want == nil || got.XRef != want.XRef || got.Format != want.Format || got.Description != want.Description ||
		strings.Join(got.Required, " ") != strings.Join(want.Required, " ") || len(got.Enum) != len(want.Enum) ||
		strings.Join(got.GetType().GetValue(), " ") != strings.Join(want.GetType().GetValue(), " ") ||
		len(got.VendorExtension) != len(want.VendorExtension) || (got.Default == nil) != (want.Default == nil) {
		t.Errorf("%s: %v, want %v", at, got, want)
		return
	}
	if got.Items != nil || want.Items != nil {
		compare(t, at+"[]", got.GetItems().GetSchema()[0], want.GetItems().GetSchema()[0])
	}
	if got.AdditionalProperties != nil || want.AdditionalProperties != nil {
		compare(t, at+"{}", got.GetAdditionalProperties().GetSchema(), want.GetAdditionalProperties().GetSchema())
	}
	fields := map[string]*openapiv2.Schema{}
	for _, p := range want.GetProperties().GetAdditionalProperties() {
		fields[p.Name] = p.Value
	}
	if len(fields) != len(got.GetProperties().GetAdditionalProperties()) {
		t.Errorf("%s: %d properties, want %d", at, len(got.GetProperties().GetAdditionalProperties()), len(fields))
	}
	for _, p := range got.GetProperties().GetAdditionalProperties() {
		compare(t, at+"."+p.Name, p.Value, fields[p.Name])
	}
}
