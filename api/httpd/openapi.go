package httpd

import (
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
)

// The few parts of an OpenAPI v3 document that ledge writes.
type (
	openAPIDoc struct {
		OpenAPI    string              `json:"openapi"`
		Info       map[string]string   `json:"info"`
		Paths      map[string]pathItem `json:"paths"`
		Components components          `json:"components"`
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
	components struct {
		Schemas map[string]openAPISchema `json:"schemas"`
	}
	openAPISchema struct {
		Type        string   `json:"type"`
		Description string   `json:"description,omitempty"`
		GVKs        []gvkRef `json:"x-kubernetes-group-version-kind,omitempty"`
	}
	gvkRef struct {
		Group   string `json:"group"`
		Version string `json:"version"`
		Kind    string `json:"kind"`
	}
)

// openAPI is the document of one group and version. kubectl create and apply look in it for one thing: whether the
// PATCH of a kind takes fieldValidation, upon which they leave the checking of fields to the server (N-11.15).
//
// No operation declares a requestBody. kubectl would take a declared strategic merge patch as an invitation to
// compute patches from these schemas, which do not carry the patch keys yet: lists would be replaced, not merged.
// Without the declaration it uses the types it was built with, which do.
func openAPI(gv schema.GroupVersion) openAPIDoc {
	doc := openAPIDoc{
		OpenAPI:    "3.0.0",
		Info:       map[string]string{"title": "ledge", "version": "v1"},
		Paths:      map[string]pathItem{},
		Components: components{Schemas: map[string]openAPISchema{}},
	}
	for _, k := range allKinds() {
		if k.GVK().GroupVersion() == gv {
			addKind(&doc, k)
		}
	}
	for _, v := range reviews {
		if v.gvk.GroupVersion() == gv {
			doc.Paths[v.path] = pathItem{Post: newOperation("post", v.gvk, writeParameters)}
			addSchema(&doc, v.gvk, "A question, answered when it is created.")
		}
	}
	return doc
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
	for _, sub := range subsOf(k) {
		item := pathItem{Parameters: inPath}
		for _, verb := range verbsOf(k, sub) {
			op := newOperation(verb, subKind(k, sub), writeParameters)
			switch verb {
			case "create":
				item.Post = op
			case "update":
				item.Put = op
			case "patch":
				item.Patch = op
			case "get":
				op.Parameters = nil
				item.Get = op
			}
		}
		doc.Paths[base+"/"+sub] = item
	}
	addSchema(doc, gvk, "")
}

func addSchema(doc *openAPIDoc, gvk schema.GroupVersionKind, text string) {
	doc.Components.Schemas[schemaName(gvk)] = openAPISchema{
		Type: "object", Description: text, GVKs: []gvkRef{{gvk.Group, gvk.Version, gvk.Kind}},
	}
}

// schemaName is how Kubernetes names the schemas of its own types: io.k8s.api.core.v1.Pod.
func schemaName(gvk schema.GroupVersionKind) string {
	group, _, _ := strings.Cut(gvk.Group, ".")
	if group == "" {
		group = "core"
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
