package main

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
	"ledge/node"
)

type applyOpts struct{ file, namespace string }

func applyFlags(c *command) {
	o := &applyOpts{}
	c.flags.StringVar(&o.file, "f", "", "file with objects, or - for standard input")
	namespaceFlag(c, &o.namespace)
	c.opts = o
}

// applyManager owns what ledge apply sets: a field that is gone from the file goes from the object.
const applyManager = "ledge-apply"

func apply(ctx context.Context, c *command) error {
	o := c.opts.(*applyOpts)
	if o.file == "" || len(c.args) > 0 {
		return usagef("apply: say what: ledge apply -f FILE")
	}
	objs, bad := readObjects(o.file, o.namespace)
	if len(objs) == 0 {
		return bad
	}
	cl, err := c.client()
	if err != nil {
		return err
	}
	var errs []error
	for _, obj := range objs {
		what, err := applyOne(ctx, cl, obj)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		fmt.Fprintf(c.out, "%s/%s %s\n", obj.kind.Singular, obj.GetName(), what)
	}
	return errors.Join(append(errs, bad)...)
}

// manifest is an object as its author wrote it.
type manifest struct {
	api.Object
	kind *api.Kind
	raw  []byte // JSON
}

// readObjects reads every document of a YAML or JSON file. A field the API does not know is an error. It gives what is right also if
// another document is not.
func readObjects(file, namespace string) ([]manifest, error) {
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
	var out []manifest
	var errs []error
	for _, d := range node.Documents(data) {
		switch m, err := parseManifest(d, namespace); {
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

func parseManifest(d node.Document, namespace string) (*manifest, error) {
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
	kind := api.KindByGVK(schema.FromAPIVersionAndKind(head.APIVersion, head.Kind))
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
	return &manifest{Object: obj, kind: kind, raw: raw}, nil
}

// applyOne applies on the server's side: what others have set there meanwhile is taken over where the file says it too.
func applyOne(ctx context.Context, cl api.Client, m manifest) (string, error) {
	id := fmt.Sprintf("%s/%s", m.kind.Singular, m.GetName())
	before, err := cl.Get(ctx, m.kind, m.GetNamespace(), m.GetName())
	fresh := apierrors.IsNotFound(err)
	if err != nil && !fresh {
		return "", fmt.Errorf("read %s: %w", id, err)
	}
	after, err := cl.Patch(ctx, m.kind, m.GetNamespace(), m.GetName(), api.Patch{Type: types.ApplyPatchType, Data: m.raw},
		api.WriteOptions{Manager: applyManager, Force: true, Strict: true})
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
func (m *manifest) label(key, value string) error {
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
