package api

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
)

// Strategic merge patches (N-11.33): like a merge patch, but a list whose field says so in its struct tags is merged
// element by element, and directives say what plain JSON cannot. This is written here since apimachinery's
// implementation brings the OpenAPI and protobuf libraries with it, 1.5 MB that nothing else of ledge needs; a test and a
// fuzz target hold the two side by side.
const (
	patchDirective  = "$patch"
	retainDirective = "$retainKeys"
	orderDirective  = "$setElementOrder/"
	deleteDirective = "$deleteFromPrimitiveList/"
)

// mergeStrategic applies a patch to an object of a type. Both trees are used up.
func mergeStrategic(t reflect.Type, doc, patch map[string]any) (map[string]any, error) {
	switch d, ok := patch[patchDirective]; {
	case !ok:
	case d == "replace":
		out, _ := withoutDirectives(patch, true).(map[string]any)
		return out, nil
	case d == "delete":
		return map[string]any{}, nil
	default:
		return nil, fmt.Errorf("%s: %v is neither replace nor delete", patchDirective, d)
	}
	if doc == nil {
		doc = map[string]any{}
	}
	if err := retainKeys(doc, patch); err != nil {
		return nil, err
	}
	fields, err := sortDirectives(patch)
	if err != nil {
		return nil, err
	}
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if err := mergeField(t, doc, name, fields[name]); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	return doc, nil
}

// A fieldPatch is all that a patch says of one field.
type fieldPatch struct {
	set           bool
	value         any
	order, remove []any
}

// sortDirectives puts the directives of lists to the fields they are about.
func sortDirectives(patch map[string]any) (map[string]*fieldPatch, error) {
	out := map[string]*fieldPatch{}
	of := func(name string) *fieldPatch {
		if out[name] == nil {
			out[name] = &fieldPatch{}
		}
		return out[name]
	}
	for key, v := range patch {
		name, ordered := strings.CutPrefix(key, orderDirective)
		name, removes := strings.CutPrefix(name, deleteDirective)
		if !ordered && !removes {
			of(key).set, of(key).value = true, v
			continue
		}
		list, ok := v.([]any)
		if !ok {
			return nil, fmt.Errorf("%s: a list was expected", key)
		}
		if ordered {
			of(name).order = list
		} else {
			of(name).remove = list
		}
	}
	return out, nil
}

// retainKeys leaves only the named fields of the object: the others are of a union's other members.
func retainKeys(doc, patch map[string]any) error {
	v, ok := patch[retainDirective]
	if !ok {
		return nil
	}
	delete(patch, retainDirective)
	list, ok := v.([]any)
	if !ok {
		return fmt.Errorf("%s: a list was expected", retainDirective)
	}
	keep := map[string]bool{}
	for _, item := range list {
		name, ok := item.(string)
		if !ok {
			return fmt.Errorf("%s: a list of names was expected", retainDirective)
		}
		keep[name] = true
	}
	for key, v := range patch {
		if v != nil && !keep[key] && !strings.HasPrefix(key, orderDirective) && !strings.HasPrefix(key, deleteDirective) {
			return fmt.Errorf("%s does not name %s, which the patch sets", retainDirective, key)
		}
	}
	maps.DeleteFunc(doc, func(key string, _ any) bool { return !keep[key] })
	return nil
}

func mergeField(t reflect.Type, doc map[string]any, name string, p *fieldPatch) error {
	list, isList := doc[name].([]any)
	if isList && len(p.remove) > 0 {
		list = slices.DeleteFunc(list, func(v any) bool { return slices.ContainsFunc(p.remove, func(r any) bool { return sameScalar(v, r) }) })
		doc[name] = list
	}
	if !p.set && p.order == nil {
		return nil
	}
	if p.set && p.value == nil {
		delete(doc, name)
		return nil
	}
	meta := patchMetaOf(t, name)
	switch value := p.value.(type) {
	case map[string]any:
		if old, ok := doc[name].(map[string]any); ok && meta.strategy != "replace" {
			merged, err := mergeStrategic(meta.t, old, value)
			doc[name] = merged
			return err
		}
	case []any:
		if isList {
			merged, err := meta.mergeList(list, value, p.order)
			doc[name] = merged
			return err
		}
		if p.order != nil {
			added, _ := withoutDirectives(value, false).([]any)
			merged, err := meta.mergeList(nil, added, p.order)
			doc[name] = merged
			return err
		}
	case nil: // only an order
		if isList {
			arranged, err := arrange(list, list, p.order, meta.key)
			doc[name] = arranged
			return err
		}
		return nil
	}
	if plain := withoutDirectives(p.value, false); plain != nil {
		doc[name] = plain
	} else {
		delete(doc, name)
	}
	return nil
}

// withoutDirectives is a value that is taken as it is: nothing is there to delete or to order. An object with a $patch
// directive is no value at all, unless it is the one whose directive has just been obeyed.
func withoutDirectives(v any, obeyed bool) any {
	switch v := v.(type) {
	case map[string]any:
		if _, ok := v[patchDirective]; ok && !obeyed {
			return nil
		}
		out := make(map[string]any, len(v))
		for key, item := range v {
			if key == patchDirective || key == retainDirective || strings.HasPrefix(key, orderDirective) || strings.HasPrefix(key, deleteDirective) {
				continue
			}
			if plain := withoutDirectives(item, false); plain != nil {
				out[key] = plain
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, item := range v {
			if plain := withoutDirectives(item, false); plain != nil || item == nil {
				out = append(out, plain)
			}
		}
		return out
	}
	return v
}

// patchMeta is what a field's type and tags say of patching it.
type patchMeta struct {
	t        reflect.Type // of the field, or of its elements; nil: not known, then objects merge and lists are replaced
	strategy string       // merge, replace or nothing
	key      string       // by which elements are told apart
}

var patchMetas sync.Map // type and name -> patchMeta: the tags do not change

func patchMetaOf(t reflect.Type, name string) patchMeta {
	type question struct {
		t    reflect.Type
		name string
	}
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t == nil {
		return patchMeta{}
	}
	if t.Kind() == reflect.Map {
		return patchMeta{t: elementOf(t.Elem())}
	}
	if t.Kind() != reflect.Struct {
		return patchMeta{}
	}
	if known, ok := patchMetas.Load(question{t, name}); ok {
		return known.(patchMeta)
	}
	meta, found := lookUpPatchMeta(t, name)
	if found { // names that are not fields come from outside: remembering them would fill the memory
		patchMetas.Store(question{t, name}, meta)
	}
	return meta
}

func lookUpPatchMeta(t reflect.Type, name string) (patchMeta, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, opts, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == "" && (f.Anonymous || strings.Contains(opts, "inline")) && f.Type.Kind() == reflect.Struct {
			if meta, ok := lookUpPatchMeta(f.Type, name); ok {
				return meta, true
			}
		}
		if tag != name || tag == "" || tag == "-" {
			continue
		}
		meta := patchMeta{t: elementOf(f.Type), key: f.Tag.Get("patchMergeKey")}
		for s := range strings.SplitSeq(f.Tag.Get("patchStrategy"), ",") {
			if s == "merge" || s == "replace" {
				meta.strategy = s
			}
		}
		return meta, true
	}
	return patchMeta{}, false
}

// elementOf is the type of a list's elements, or else the type itself.
func elementOf(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() == reflect.Slice && t.Elem().Kind() != reflect.Uint8 {
		return elementOf(t.Elem())
	}
	return t
}
