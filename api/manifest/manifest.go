// Package manifest reads files of objects as people write them, and keeps a directory of them applied.
package manifest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/api/kinds"
)

// manager owns what ledge apply sets: a field that is gone from the file goes from the object.
const manager = "ledge-apply"

// Manifest is an object as its author wrote it.
type Manifest struct {
	api.Object
	Kind *api.Kind
	raw  []byte // JSON
}

// Read reads every document of a YAML or JSON file. A field the API does not know is an error. It gives what is right also if
// another document is not.
func Read(file, namespace string) ([]Manifest, error) {
	var in io.Reader = os.Stdin
	if file != "-" {
		f, err := os.Open(file)
		if err != nil {
			return nil, fmt.Errorf("read objects: %w", err)
		}
		defer f.Close()
		in = f
	}
	data, err := io.ReadAll(in)
	if err != nil {
		return nil, fmt.Errorf("read objects from %s: %w", file, err)
	}
	var out []Manifest
	var errs []error
	for _, d := range Documents(data) {
		switch m, err := Parse(d, namespace); {
		case err != nil:
			errs = append(errs, fmt.Errorf("%s, document %d: %w", file, d.Number+1, err))
		case m != nil:
			out = append(out, *m)
		}
	}
	if len(out) == 0 && len(errs) == 0 {
		return nil, fmt.Errorf("%s holds no objects", file)
	}
	return out, errors.Join(errs...)
}

// Parse reads one document; nil if it holds comments only.
func Parse(d Document, namespace string) (*Manifest, error) {
	if d.Bad != nil {
		return nil, d.Bad
	}
	doc := d.Data
	raw, err := yaml.YAMLToJSONStrict(doc)
	if err != nil {
		return nil, err
	}
	if string(raw) == "null" {
		return nil, nil //nolint:nilnil // a document of comments only
	}
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(raw, &head); err != nil {
		return nil, err
	}
	kind := kinds.All.Shown(schema.FromAPIVersionAndKind(head.APIVersion, head.Kind))
	if kind == nil {
		return nil, fmt.Errorf("ledge does not know objects of kind %q, apiVersion %q", head.Kind, head.APIVersion)
	}
	obj := kind.New()
	if err := yaml.UnmarshalStrict(doc, obj); err != nil {
		return nil, fmt.Errorf("%s: %w", head.Kind, err)
	}
	if kind.Namespaced && obj.GetNamespace() == "" {
		obj.SetNamespace(namespace)
	}
	var plain map[string]any
	if err := json.Unmarshal(raw, &plain); err != nil {
		return nil, err
	}
	meta, ok := plain["metadata"].(map[string]any)
	if !ok {
		return nil, fmt.Errorf("%s: metadata is missing", head.Kind)
	}
	if kind.Namespaced {
		meta["namespace"] = obj.GetNamespace()
	}
	if raw, err = json.Marshal(plain); err != nil {
		return nil, err
	}
	return &Manifest{Object: obj, Kind: kind, raw: raw}, nil
}

// Apply applies on the server's side: what others have set there meanwhile is taken over where the file says it too.
func Apply(ctx context.Context, cl api.Client, m Manifest) (string, error) {
	id := fmt.Sprintf("%s/%s", m.Kind.Singular, m.GetName())
	before, err := cl.Get(ctx, m.Kind, m.GetNamespace(), m.GetName())
	fresh := apierrors.IsNotFound(err)
	if err != nil && !fresh {
		return "", fmt.Errorf("read %s: %w", id, err)
	}
	after, err := cl.Patch(ctx, m.Kind, m.GetNamespace(), m.GetName(), api.Patch{Type: types.ApplyPatchType, Data: m.raw},
		api.WriteOptions{Manager: manager, Force: true, Strict: true})
	switch {
	case err != nil:
		return "", fmt.Errorf("apply %s: %w", id, err)
	case fresh:
		return "created", nil
	case before.GetResourceVersion() == after.GetResourceVersion():
		return "unchanged", nil
	}
	was, err := wished(before)
	is, ierr := wished(after)
	if err = errors.Join(err, ierr); err == nil && bytes.Equal(was, is) {
		return "unchanged", nil
	}
	return "configured", err
}

// wished is an object without what nobody applies: somebody may write its status between two looks, again and again.
func wished(obj api.Object) ([]byte, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, err
	}
	var plain map[string]any
	if err := json.Unmarshal(data, &plain); err != nil {
		return nil, err
	}
	for _, key := range []string{"apiVersion", "kind", "status"} {
		delete(plain, key)
	}
	if meta, ok := plain["metadata"].(map[string]any); ok {
		delete(meta, "resourceVersion")
		delete(meta, "managedFields")
	}
	return json.Marshal(plain)
}

// label sets a label on the object and on what is sent of it.
func (m *Manifest) label(key, value string) error {
	l := m.GetLabels()
	if l == nil {
		l = map[string]string{}
	}
	l[key] = value
	m.SetLabels(l)
	var plain map[string]any
	if err := json.Unmarshal(m.raw, &plain); err != nil {
		return err
	}
	meta, ok := plain["metadata"].(map[string]any)
	if !ok {
		return errors.New("metadata is missing")
	}
	ls, ok := meta["labels"].(map[string]any)
	if !ok {
		ls = map[string]any{}
		meta["labels"] = ls
	}
	ls[key] = value
	raw, err := json.Marshal(plain)
	m.raw = raw
	return err
}
