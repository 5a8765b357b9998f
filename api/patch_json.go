package api

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	kjson "sigs.k8s.io/json"
)

// Bounds of one JSON patch: how many operations, by how much copies may make the document grow, and how deep
// it may get. Without them a few hundred bytes of copies double an object until the board is out of memory or
// the encoder out of stack.
const (
	maxPatchOps   = 10000
	maxPatchCopy  = 3 << 20
	maxPatchDepth = 500
)

// jsonOp is one operation of RFC 6902. Value is a pointer so that "value": null differs from no value.
type jsonOp struct {
	Op    string  `json:"op"`
	Path  *string `json:"path"`
	From  *string `json:"from"`
	Value *any    `json:"value"`
}

func (o *jsonOp) UnmarshalJSON(data []byte) error {
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(data, &raw); err != nil {
		return err
	}
	for name, to := range map[string]any{"op": &o.Op, "path": &o.Path, "from": &o.From} {
		if v, ok := raw[name]; ok {
			if err := json.Unmarshal(v, to); err != nil {
				return fmt.Errorf("%s: %w", name, err)
			}
		}
	}
	if v, ok := raw["value"]; ok {
		o.Value = new(any)
		return kjson.UnmarshalCaseSensitivePreserveInts(v, o.Value)
	}
	return nil
}

func applyJSONPatch(doc any, data []byte) (any, []string, error) {
	var ops []jsonOp
	strict, err := kjson.UnmarshalStrict(data, &ops, kjson.DisallowDuplicateFields)
	if err != nil {
		return nil, nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding patch: %v", err))
	}
	if len(ops) > maxPatchOps {
		return nil, nil, apierrors.NewRequestEntityTooLargeError(
			fmt.Sprintf("the allowed maximum operations in a JSON patch is %d, got %d", maxPatchOps, len(ops)))
	}
	p := patcher{doc: doc, budget: maxPatchCopy}
	for i := range ops {
		if err := p.apply(&ops[i]); err != nil {
			return nil, nil, patchRefused("the server rejected our request due to an error in our request: operation %d (%s): %v",
				i, ops[i].Op, err)
		}
	}
	if err := shallow(p.doc, maxPatchDepth); err != nil {
		return nil, nil, patchRefused("the server rejected our request due to an error in our request: %v", err)
	}
	return p.doc, messages(strict), nil
}

// shallow refuses a value nested deeper than a limit, looking no deeper than that itself.
func shallow(v any, most int) error {
	if most == 0 {
		return fmt.Errorf("values may not be nested deeper than %d", maxPatchDepth)
	}
	switch v := v.(type) {
	case map[string]any:
		for _, e := range v {
			if err := shallow(e, most-1); err != nil {
				return err
			}
		}
	case []any:
		for _, e := range v {
			if err := shallow(e, most-1); err != nil {
				return err
			}
		}
	}
	return nil
}

type patcher struct {
	doc    any
	budget int // bytes that copies may still add
}

func (p *patcher) apply(op *jsonOp) error {
	if op.Path == nil {
		return fmt.Errorf("path is missing")
	}
	path, err := pointer(*op.Path)
	if err != nil {
		return err
	}
	switch op.Op {
	case "add", "replace", "test":
		if op.Value == nil {
			return fmt.Errorf("value is missing")
		}
	}
	switch op.Op {
	case "add":
		return p.add(path, *op.Value)
	case "remove":
		_, err := p.remove(path)
		return err
	case "replace":
		return p.replace(path, *op.Value)
	case "test":
		got, err := p.get(path)
		if err == nil {
			err = errors.Join(shallow(got, maxPatchDepth), shallow(*op.Value, maxPatchDepth))
		}
		if err == nil && !reflect.DeepEqual(number(got), number(*op.Value)) {
			err = fmt.Errorf("testing value %s failed", *op.Path)
		}
		return err
	case "move", "copy":
		return p.transfer(op, path)
	}
	return fmt.Errorf("unknown operation %q", op.Op)
}

func (p *patcher) transfer(op *jsonOp, to []string) error {
	if op.From == nil {
		return fmt.Errorf("from is missing")
	}
	from, err := pointer(*op.From)
	if err != nil {
		return err
	}
	if op.Op == "move" {
		if len(to) > len(from) && slices.Equal(from, to[:len(from)]) {
			return fmt.Errorf("cannot move %s into itself", *op.From)
		}
		v, err := p.remove(from)
		if err != nil {
			return err
		}
		return p.add(to, v)
	}
	v, err := p.get(from)
	if err != nil {
		return err
	}
	if err := shallow(v, maxPatchDepth); err != nil {
		return err
	}
	size, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if p.budget -= len(size); p.budget < 0 {
		return fmt.Errorf("copies add more than %d bytes", maxPatchCopy)
	}
	return p.add(to, runtime.DeepCopyJSONValue(v))
}

// pointer splits a JSON pointer (RFC 6901). The empty pointer is the whole document.
func pointer(s string) ([]string, error) {
	if s == "" {
		return nil, nil
	}
	if s[0] != '/' {
		return nil, fmt.Errorf("path %q must start with /", s)
	}
	parts := strings.Split(s[1:], "/")
	for i, part := range parts {
		parts[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~1", "/"), "~0", "~")
	}
	return parts, nil
}

func (p *patcher) get(path []string) (any, error) {
	v := p.doc
	for i, key := range path {
		switch c := v.(type) {
		case map[string]any:
			next, ok := c[key]
			if !ok {
				return nil, missing(path[:i+1])
			}
			v = next
		case []any:
			n, err := index(key, len(c))
			if err != nil {
				return nil, err
			}
			v = c[n]
		default:
			return nil, missing(path[:i+1])
		}
	}
	return v, nil
}

func (p *patcher) add(path []string, v any) error {
	return p.change(path, v, func(list []any, key string) ([]any, error) {
		if key == "-" {
			return append(list, v), nil
		}
		n, err := index(key, len(list)+1) // one past the end appends
		if err != nil {
			return nil, err
		}
		return slices.Insert(list, n, v), nil
	}, func(m map[string]any, key string) error {
		m[key] = v
		return nil
	})
}

func (p *patcher) replace(path []string, v any) error {
	return p.change(path, v, func(list []any, key string) ([]any, error) {
		n, err := index(key, len(list))
		if err != nil {
			return nil, err
		}
		list[n] = v
		return list, nil
	}, func(m map[string]any, key string) error {
		if _, ok := m[key]; !ok {
			return missing(path)
		}
		m[key] = v
		return nil
	})
}

func (p *patcher) remove(path []string) (any, error) {
	old, err := p.get(path)
	if err != nil {
		return nil, err
	}
	return old, p.change(path, nil, func(list []any, key string) ([]any, error) {
		n, err := index(key, len(list))
		if err != nil {
			return nil, err
		}
		return slices.Delete(list, n, n+1), nil
	}, func(m map[string]any, key string) error {
		delete(m, key)
		return nil
	})
}

// change finds the container that path ends in and lets inList or inMap change it; a changed list is put back
// where it hangs. The empty path replaces the document by whole.
func (p *patcher) change(path []string, whole any, inList func([]any, string) ([]any, error),
	inMap func(map[string]any, string) error) error {
	if len(path) == 0 {
		p.doc = whole
		return nil
	}
	at, key := path[:len(path)-1], path[len(path)-1]
	c, err := p.get(at)
	if err != nil {
		return err
	}
	switch c := c.(type) {
	case map[string]any:
		return inMap(c, key)
	case []any:
		list, err := inList(c, key)
		if err != nil {
			return err
		}
		return p.replace(at, list)
	}
	return missing(path)
}

// index reads a list index below n. Negative ones count from the end, as Kubernetes allows.
func index(key string, n int) (int, error) {
	i, err := strconv.Atoi(key)
	if err != nil || strings.HasPrefix(key, "+") {
		return 0, fmt.Errorf("%q is not a list index", key)
	}
	if i < 0 {
		i += n
	}
	if i < 0 || i >= n {
		return 0, fmt.Errorf("list index %s is out of bounds", key)
	}
	return i, nil
}

func missing(path []string) error {
	return fmt.Errorf("%q does not exist", "/"+strings.Join(path, "/"))
}

// number makes equal numbers equal values, whether they were written 1 or 1.0.
func number(v any) any {
	switch v := v.(type) {
	case int64:
		return float64(v)
	case []any:
		out := make([]any, len(v))
		for i := range v {
			out[i] = number(v[i])
		}
		return out
	case map[string]any:
		out := make(map[string]any, len(v))
		for k := range v {
			out[k] = number(v[k])
		}
		return out
	}
	return v
}
