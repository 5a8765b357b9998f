package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protowire"
)

// Protobuf writes a v2 document in the binary form that older clients ask for (the messages of OpenAPIv2.proto of
// gnostic), as far as such a document has members that ledge writes.
func Protobuf(doc map[string]any) ([]byte, error) {
	e := &encoder{}
	out := e.text(nil, 1, doc["swagger"])
	out = e.message(out, 2, func(b []byte) []byte {
		info, _ := doc["info"].(map[string]any)
		return e.text(e.text(b, 1, info["title"]), 2, info["version"])
	})
	out = e.message(out, 8, func(b []byte) []byte { return e.named(b, 2, doc["paths"], e.pathItem) })
	out = e.message(out, 9, func(b []byte) []byte { return e.named(b, 1, doc["definitions"], e.schema) })
	return out, e.err
}

// encoder writes messages; the first thing it does not know is its error.
type encoder struct{ err error }

func (e *encoder) fail(what string, v any) {
	if e.err == nil {
		e.err = fmt.Errorf("ledge bug: cannot write %s %v as protobuf", what, v)
	}
}

func (e *encoder) message(b []byte, field protowire.Number, fill func([]byte) []byte) []byte {
	b = protowire.AppendTag(b, field, protowire.BytesType)
	return protowire.AppendBytes(b, fill(nil))
}

// text writes a string, unless it is empty.
func (e *encoder) text(b []byte, field protowire.Number, v any) []byte {
	s, ok := v.(string)
	if !ok && v != nil {
		e.fail("a string", v)
	}
	if s == "" {
		return b
	}
	return protowire.AppendString(protowire.AppendTag(b, field, protowire.BytesType), s)
}

func (e *encoder) boolean(b []byte, field protowire.Number, v any) []byte {
	if is, _ := v.(bool); is {
		return protowire.AppendVarint(protowire.AppendTag(b, field, protowire.VarintType), 1)
	}
	return b
}

// named writes a map as a list of pairs of name and value, in order.
func (e *encoder) named(b []byte, field protowire.Number, v any, value func([]byte, map[string]any) []byte) []byte {
	all, ok := v.(map[string]any)
	if !ok {
		e.fail("a map", v)
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		inner, ok := all[name].(map[string]any)
		if !ok {
			e.fail(name, all[name])
		}
		b = e.message(b, field, func(b []byte) []byte {
			return e.message(e.text(b, 1, name), 2, func(b []byte) []byte { return value(b, inner) })
		})
	}
	return b
}

// value writes what may be anything, as the YAML it would be in a document: JSON is YAML.
func (e *encoder) value(b []byte, field protowire.Number, v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		e.fail("a value", v)
	}
	return e.message(b, field, func(b []byte) []byte { return e.text(b, 2, string(data)) })
}

// extensions writes the members x-...
func (e *encoder) extensions(b []byte, field protowire.Number, m map[string]any) []byte {
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if strings.HasPrefix(name, "x-") {
			b = e.message(b, field, func(b []byte) []byte { return e.value(e.text(b, 1, name), 2, m[name]) })
		}
	}
	return b
}

func (e *encoder) strings(b []byte, field protowire.Number, v any) []byte {
	list, _ := v.([]any)
	for _, s := range list {
		b = e.text(b, field, s)
	}
	return b
}

func (e *encoder) schema(b []byte, s map[string]any) []byte {
	b = e.text(b, 1, s["$ref"])
	b = e.text(b, 2, s["format"])
	b = e.text(b, 4, s["description"])
	if v, ok := s["default"]; ok {
		b = e.value(b, 5, v)
	}
	b = e.strings(b, 19, s["required"])
	if list, ok := s["enum"].([]any); ok {
		for _, v := range list {
			b = e.value(b, 20, v)
		}
	}
	if inner, ok := s["additionalProperties"].(map[string]any); ok {
		b = e.message(b, 21, func(b []byte) []byte { return e.message(b, 1, func(b []byte) []byte { return e.schema(b, inner) }) })
	}
	if s["type"] != nil {
		b = e.message(b, 22, func(b []byte) []byte { return e.text(b, 1, s["type"]) })
	}
	if inner, ok := s["items"].(map[string]any); ok {
		b = e.message(b, 23, func(b []byte) []byte { return e.message(b, 1, func(b []byte) []byte { return e.schema(b, inner) }) })
	}
	if s["properties"] != nil {
		b = e.message(b, 25, func(b []byte) []byte { return e.named(b, 1, s["properties"], e.schema) })
	}
	return e.extensions(b, 31, s)
}

// methods are the fields of a path's operations.
var methods = []struct {
	name  string
	field protowire.Number
}{{"get", 2}, {"put", 3}, {"post", 4}, {"delete", 5}, {"patch", 8}}

func (e *encoder) pathItem(b []byte, item map[string]any) []byte {
	for _, m := range methods {
		if op, ok := item[m.name].(map[string]any); ok {
			b = e.message(b, m.field, func(b []byte) []byte { return e.operation(b, op) })
		}
	}
	return e.parameters(b, 9, item["parameters"])
}

func (e *encoder) operation(b []byte, op map[string]any) []byte {
	b = e.text(b, 5, op["operationId"])
	b = e.strings(b, 6, op["produces"])
	b = e.strings(b, 7, op["consumes"])
	b = e.parameters(b, 8, op["parameters"])
	b = e.message(b, 9, func(b []byte) []byte {
		return e.named(b, 1, op["responses"], func(b []byte, r map[string]any) []byte {
			return e.message(b, 1, func(b []byte) []byte { return e.text(b, 1, r["description"]) })
		})
	})
	return e.extensions(b, 13, op)
}

// parameters writes those of the path and of the query, which differ in the numbers of their fields.
func (e *encoder) parameters(b []byte, field protowire.Number, v any) []byte {
	list, _ := v.([]any)
	for _, p := range list {
		p, ok := p.(map[string]any)
		kind, typeField := protowire.Number(3), protowire.Number(6)
		switch {
		case !ok:
			e.fail("a parameter", p)
			return b
		case p["in"] == "path":
			kind, typeField = 4, 5
		case p["in"] == "body":
			b = e.message(b, field, func(b []byte) []byte {
				return e.message(b, 1, func(b []byte) []byte { return e.message(b, 1, func(b []byte) []byte { return e.body(b, p) }) })
			})
			continue
		}
		b = e.message(b, field, func(b []byte) []byte {
			return e.message(b, 1, func(b []byte) []byte {
				return e.message(b, 2, func(b []byte) []byte {
					return e.message(b, kind, func(b []byte) []byte {
						b = e.boolean(b, 1, p["required"])
						b = e.text(e.text(b, 2, p["in"]), 4, p["name"])
						return e.text(b, typeField, p["type"])
					})
				})
			})
		})
	}
	return b
}

func (e *encoder) body(b []byte, p map[string]any) []byte {
	b = e.text(e.text(b, 2, p["name"]), 3, p["in"])
	b = e.boolean(b, 4, p["required"])
	schema, ok := p["schema"].(map[string]any)
	if !ok {
		e.fail("the schema of a body", p)
	}
	return e.message(b, 5, func(b []byte) []byte { return e.schema(b, schema) })
}
