package valid

import (
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

// NotYet ends every refusal of something Kubernetes has and ledge does not honour. A field is never ignored in silence.
const NotYet = "not supported by ledge yet"

// Refusal names a field by its JSON path, [*] standing for every element, and the values that may stay because they mean
// what ledge does anyway.
type Refusal struct {
	Path  string
	Allow []string
}

// Lookup is a Refusal whose path is resolved to struct fields, once: it is walked for every new object.
type Lookup struct {
	Refusal
	steps []step
}

type step struct {
	name  string // on the wire
	field []int  // in the struct
	each  bool   // of its elements
}

// Resolve finds the fields that a table names in a type.
func Resolve(typ reflect.Type, table []Refusal) []Lookup {
	var out []Lookup
	for _, r := range table {
		l, t := Lookup{Refusal: r}, typ
		for _, part := range strings.Split(r.Path, ".") {
			name, each := strings.CutSuffix(part, "[*]")
			for t.Kind() == reflect.Pointer {
				t = t.Elem()
			}
			f, ok := FieldByJSON(t, name)
			if !ok {
				panic("ledge bug: no field " + name + " in " + t.String())
			}
			l.steps = append(l.steps, step{name, f.Index, each})
			if t = f.Type; each {
				t = t.Elem()
			}
		}
		out = append(out, l)
	}
	return out
}

// FieldByJSON finds a struct field by its name on the wire, looking into embedded structs as JSON does.
func FieldByJSON(t reflect.Type, name string) (reflect.StructField, bool) {
	for i := range t.NumField() {
		f := t.Field(i)
		tag, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		if tag == name {
			return f, true
		}
		if tag == "" && f.Anonymous && f.Type.Kind() == reflect.Struct {
			if found, ok := FieldByJSON(f.Type, name); ok {
				found.Index = append([]int{i}, found.Index...)
				return found, true
			}
		}
	}
	return reflect.StructField{}, false
}

// Refuse reports each field of obj that a table names and that holds something else than it allows.
func Refuse(obj any, table []Lookup) field.ErrorList {
	var errs field.ErrorList
	for _, r := range table {
		visit(reflect.ValueOf(obj), r.steps, nil, func(v reflect.Value, at []string) {
			for v.Kind() == reflect.Pointer {
				v = v.Elem()
			}
			if len(r.Allow) > 0 && slices.Contains(r.Allow, fmt.Sprint(v.Interface())) {
				return
			}
			msg := NotYet
			if isPlain(v) {
				if text, err := json.Marshal(v.Interface()); err == nil {
					msg = string(text) + " is " + NotYet
				}
			}
			errs = append(errs, field.Forbidden(field.NewPath(strings.Join(at, ".")), msg))
		})
	}
	return errs
}

func isPlain(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Struct, reflect.Slice, reflect.Map, reflect.Pointer, reflect.Interface:
		return false
	}
	return true
}

// visit calls fn with every value at a path that is not empty. A pointer is empty when nil.
func visit(v reflect.Value, path []step, at []string, fn func(reflect.Value, []string)) {
	if len(path) == 0 {
		if !v.IsZero() && (v.Kind() != reflect.Slice && v.Kind() != reflect.Map || v.Len() > 0) {
			fn(v, at)
		}
		return
	}
	for v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return
		}
		v = v.Elem()
	}
	f := v.FieldByIndex(path[0].field)
	if !path[0].each {
		visit(f, path[1:], append(at, path[0].name), fn)
		return
	}
	for i := range f.Len() {
		visit(f.Index(i), path[1:], append(at, fmt.Sprintf("%s[%d]", path[0].name, i)), fn)
	}
}
