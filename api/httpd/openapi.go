package httpd

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/openapi"
)

// The few parts of an OpenAPI v3 document that ledge writes.
type (
	openAPIDoc struct {
		OpenAPI    string              `json:"openapi"`
		Info       map[string]string   `json:"info"`
		Paths      map[string]pathItem `json:"paths"`
		Components *components         `json:"components,omitempty"`
	}
	pathItem struct {
		Get        *operation  `json:"get,omitempty"`
		Put        *operation  `json:"put,omitempty"`
		Post       *operation  `json:"post,omitempty"`
		Delete     *operation  `json:"delete,omitempty"`
		Patch      *operation  `json:"patch,omitempty"`
		Parameters []parameter `json:"parameters,omitempty"`
	}
	operation struct {
		ID         string                 `json:"operationId"`
		Parameters []parameter            `json:"parameters,omitempty"`
		Responses  map[string]responseDoc `json:"responses"`
		Body       *requestBody           `json:"requestBody,omitempty"`
		Action     string                 `json:"x-kubernetes-action"`
		GVK        gvkRef                 `json:"x-kubernetes-group-version-kind"`
	}
	responseDoc struct {
		Description string `json:"description"`
	}
	parameter struct {
		Name     string            `json:"name"`
		In       string            `json:"in"`
		Required bool              `json:"required,omitempty"`
		Schema   map[string]string `json:"schema"`
	}
	requestBody struct {
		Content map[string]struct{} `json:"content"`
	}
	components struct {
		Schemas map[string]json.RawMessage `json:"schemas"`
	}
	gvkRef struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	}
)

// openAPI is the document of one group and version, without its schemas. kubectl create and apply look into it for two things: which
// formats of patches a kind takes, and whether its PATCH takes fieldValidation; if it does, they leave the checking of fields to the
// server (N-11.15). names are the schemas it needs.
func openAPI(s *api.Kinds, gv schema.GroupVersion) (doc openAPIDoc, names []string) {
	doc = openAPIDoc{
		OpenAPI: "3.0.0",
		Info:    map[string]string{"title": "ledge", "version": "v1"},
		Paths:   map[string]pathItem{},
	}
	for _, k := range s.All() {
		if k.GVK().GroupVersion() != gv {
			continue
		}
		addKind(&doc, k)
		list := k.GVK()
		list.Kind += "List"
		names = append(names, schemaName(k.GVK()), schemaName(list))
		for _, sub := range subsOf(k) {
			names = append(names, schemaName(k.As(sub).GVK()))
		}
	}
	for _, v := range reviews {
		if v.gvk.GroupVersion() == gv {
			doc.Paths[v.path] = pathItem{Post: newOperation("post", v.gvk, writeParameters)}
			names = append(names, schemaName(v.gvk))
		}
	}
	return doc, append(names, metaSchema+"DeleteOptions", metaSchema+"Status", metaSchema+"APIResourceList")
}

const metaSchema = "io.k8s.apimachinery.pkg.apis.meta.v1."

// schemas are all there are, by name.
func schemas(s *api.Kinds) (map[string]json.RawMessage, error) {
	all, err := openapi.Schemas()
	if err != nil {
		return nil, err
	}
	for _, k := range s.Kept {
		if k.Schema != nil {
			all[schemaName(k.GVK())] = k.Schema
		}
	}
	return all, nil
}

// documentV3 completes the document of one group and version.
func documentV3(s *api.Kinds, gv schema.GroupVersion) ([]byte, error) {
	all, err := schemas(s)
	if err != nil {
		return nil, err
	}
	doc, names := openAPI(s, gv)
	doc.Components = &components{Schemas: openapi.Select(all, names)}
	return json.Marshal(doc)
}

// documentV2 is everything in one document of the older form, for clients before v3.
func documentV2(s *api.Kinds) (map[string]any, error) {
	all, err := schemas(s)
	if err != nil {
		return nil, err
	}
	paths, definitions := map[string]any{}, map[string]any{}
	var names []string
	for _, gv := range groupVersions(s) {
		doc, more := openAPI(s, gv)
		names = append(names, more...)
		data, err := json.Marshal(doc.Paths)
		if err != nil {
			return nil, api.NewInternal("encode the paths of %s: %v", gv, err)
		}
		if err := json.Unmarshal(data, &paths); err != nil {
			return nil, api.NewInternal("decode the paths of %s: %v", gv, err)
		}
	}
	for _, item := range paths {
		lowerPath(item.(map[string]any))
	}
	for name, schema := range openapi.Select(all, names) {
		if definitions[name], err = openapi.V2(schema); err != nil {
			return nil, err
		}
	}
	return map[string]any{"swagger": "2.0", "info": map[string]any{"title": "ledge", "version": "v1"},
		"paths": paths, "definitions": definitions}, nil
}

// lowerPath turns a path of v3 into one of v2.
func lowerPath(item map[string]any) {
	parameters := func(of map[string]any) {
		list, _ := of["parameters"].([]any)
		for _, p := range list {
			p := p.(map[string]any)
			p["type"] = p["schema"].(map[string]any)["type"]
			delete(p, "schema")
		}
	}
	parameters(item)
	for _, op := range item {
		op, ok := op.(map[string]any)
		if !ok {
			continue
		}
		parameters(op)
		if body, ok := op["requestBody"].(map[string]any); ok {
			delete(op, "requestBody")
			consumes := []any{}
			for _, media := range slices.Sorted(maps.Keys(body["content"].(map[string]any))) {
				consumes = append(consumes, media)
			}
			op["consumes"] = consumes
		}
	}
}

func addKind(doc *openAPIDoc, k *api.Kind) {
	gvk := k.GVK()
	base := groupPath(gvk.GroupVersion()) + "/"
	var inPath []parameter
	if k.Namespaced {
		doc.Paths[base+k.Resource] = pathItem{Get: newOperation("list", gvk, listParameters)}
		base += "namespaces/{namespace}/"
		inPath = append(inPath, pathParameter("namespace"))
	}
	base += k.Resource
	if k.Measured {
		doc.Paths[base] = pathItem{Get: newOperation("list", gvk, listParameters), Parameters: inPath}
		doc.Paths[base+"/{name}"] = pathItem{Get: newOperation("get", gvk, nil), Parameters: append(inPath, pathParameter("name"))}
		return
	}
	doc.Paths[base] = pathItem{
		Get:        newOperation("list", gvk, listParameters),
		Post:       newOperation("post", gvk, writeParameters),
		Delete:     newOperation("deletecollection", gvk, listParameters),
		Parameters: inPath,
	}
	inPath = append(inPath, pathParameter("name"))
	base += "/{name}"
	doc.Paths[base] = pathItem{
		Get:        newOperation("get", gvk, nil),
		Put:        newOperation("put", gvk, writeParameters),
		Patch:      newOperation("patch", gvk, append([]parameter{queryParameter("force", "boolean")}, writeParameters...)),
		Delete:     newOperation("delete", gvk, deleteParameters),
		Parameters: inPath,
	}
	doc.Paths[base].Patch.Body = patchBody("")
	for _, sub := range subsOf(k) {
		item := pathItem{Parameters: inPath}
		for _, verb := range verbsOf(k, sub) {
			op := newOperation(verb, k.As(sub).GVK(), writeParameters)
			switch verb {
			case "create":
				item.Post = op
			case "update":
				item.Put = op
			case "patch":
				op.Body = patchBody(sub)
				item.Patch = op
			case "get":
				op.Parameters = nil
				item.Get = op
			}
		}
		doc.Paths[base+"/"+sub] = item
	}
}

// patchBody declares the formats of patches. kubectl apply makes its strategic patches from the schemas when this names
// that format, and they carry the patch keys.
func patchBody(sub string) *requestBody {
	content := map[string]struct{}{}
	for _, t := range patchTypesOf(sub) {
		content[string(t)] = struct{}{}
	}
	return &requestBody{Content: content}
}

// schemaName is how Kubernetes names the schemas of its own types: io.k8s.api.core.v1.Pod.
func schemaName(gvk schema.GroupVersionKind) string {
	group, _, _ := strings.Cut(gvk.Group, ".")
	switch group {
	case "":
		group = "core"
	case "metrics": // has a module of its own
		return "io.k8s.metrics.pkg.apis.metrics." + gvk.Version + "." + gvk.Kind
	}
	return "io.k8s.api." + group + "." + gvk.Version + "." + gvk.Kind
}

func newOperation(action string, gvk schema.GroupVersionKind, params []parameter) *operation {
	return &operation{
		ID:         action + gvk.Kind,
		Parameters: params,
		Responses:  map[string]responseDoc{"200": {Description: "OK"}},
		Action:     action,
		GVK:        gvkRef{gvk.Group, gvk.Version, gvk.Kind},
	}
}

func pathParameter(name string) parameter {
	return parameter{Name: name, In: "path", Required: true, Schema: map[string]string{"type": "string"}}
}

func queryParameter(name, kind string) parameter {
	return parameter{Name: name, In: "query", Schema: map[string]string{"type": kind}}
}

// What the operations take in their query: exactly what options.go reads.
var (
	writeParameters = []parameter{
		queryParameter("dryRun", "string"), queryParameter("fieldManager", "string"),
		queryParameter("fieldValidation", "string"), queryParameter("pretty", "string"),
	}
	listParameters = []parameter{
		queryParameter("allowWatchBookmarks", "boolean"), queryParameter("continue", "string"),
		queryParameter("fieldSelector", "string"), queryParameter("labelSelector", "string"),
		queryParameter("limit", "integer"), queryParameter("resourceVersion", "string"),
		queryParameter("resourceVersionMatch", "string"), queryParameter("sendInitialEvents", "boolean"),
		queryParameter("timeoutSeconds", "integer"), queryParameter("watch", "boolean"),
	}
	deleteParameters = []parameter{
		queryParameter("dryRun", "string"), queryParameter("gracePeriodSeconds", "integer"),
		queryParameter("propagationPolicy", "string"),
	}
)
