package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"reflect"
	"slices"
	"strings"
)

// property is the schema of one field.
func (g *generator) property(s *source, file string, typ ast.Expr, doc string, tag reflect.StructTag) (map[string]any, error) {
	p, zero, err := g.schemaOf(s, file, typ)
	if err != nil {
		return nil, err
	}
	if ref, ok := p["$ref"]; ok { // a $ref stands alone: what is said beside it goes around it
		p = map[string]any{"allOf": []any{map[string]any{"$ref": ref}}}
	}
	if d := description(doc); d != "" {
		if e, ok := p["description"].(string); ok { // the values of an enum
			d += "\n\n" + e
		}
		p["description"] = d
	}
	if v, ok := marker(doc, "listType"); ok {
		p["x-kubernetes-list-type"] = v
	}
	if keys := markers(doc, "listMapKey"); len(keys) > 0 {
		p["x-kubernetes-list-map-keys"] = keys
	}
	if v, ok := marker(doc, "mapType"); ok {
		p["x-kubernetes-map-type"] = v
	}
	if v, ok := marker(doc, "structType"); ok {
		p["x-kubernetes-map-type"] = v
	}
	if v := tag.Get("patchStrategy"); v != "" {
		p["x-kubernetes-patch-strategy"] = v
	}
	if v := tag.Get("patchMergeKey"); v != "" {
		p["x-kubernetes-patch-merge-key"] = v
	}
	if v, ok := marker(doc, "default"); ok {
		if name, ok := strings.CutPrefix(v, "ref("); ok { // the name of a constant
			p["default"] = s.consts[strings.TrimSuffix(name, ")")]
			if p["default"] == "" {
				return nil, fmt.Errorf("+default=%s: no such constant", v)
			}
			return p, nil
		}
		if err := json.Unmarshal([]byte(v), &zero); err != nil {
			return nil, fmt.Errorf("+default=%s: %w", v, err)
		}
		p["default"] = zero
		return p, nil
	}
	_, isStruct := zero.(map[string]any)
	if _, options, _ := strings.Cut(tag.Get("json"), ","); zero != nil && (isStruct || !strings.Contains(options, "omitempty")) {
		p["default"] = zero
	}
	return p, nil
}

// basic are Go's own types: type and format, and the zero value.
var basic = map[string]struct {
	kind, format string
	zero         any
}{
	"string": {"string", "", ""}, "bool": {"boolean", "", false},
	"int": {"integer", "int32", 0}, "int32": {"integer", "int32", 0}, "int64": {"integer", "int64", 0}, "uint32": {"integer", "int64", 0},
	"uint8": {"integer", "byte", 0}, "float64": {"number", "double", 0}, "byte": {"integer", "byte", 0},
}

// schemaOf is the schema of a type, and the value an empty one has on the wire (nil: it has none).
func (g *generator) schemaOf(s *source, file string, e ast.Expr) (map[string]any, any, error) {
	switch e := e.(type) {
	case *ast.StarExpr:
		p, _, err := g.schemaOf(s, file, e.X)
		return p, nil, err
	case *ast.ArrayType:
		if id, ok := e.Elt.(*ast.Ident); ok && id.Name == "byte" {
			return map[string]any{"type": "string", "format": "byte"}, nil, nil
		}
		items, err := g.element(s, file, e.Elt)
		return map[string]any{"type": "array", "items": items}, nil, err
	case *ast.MapType:
		values, err := g.element(s, file, e.Value)
		return map[string]any{"type": "object", "additionalProperties": values}, nil, err
	case *ast.InterfaceType:
		return map[string]any{"type": "object"}, nil, nil
	case *ast.Ident:
		if b, ok := basic[e.Name]; ok && s.types[e.Name] == nil {
			p := map[string]any{"type": b.kind}
			if b.format != "" {
				p["format"] = b.format
			}
			return p, b.zero, nil
		}
	case *ast.SelectorExpr:
	default:
		return nil, nil, fmt.Errorf("cannot describe %T", e)
	}
	return g.reference(s, file, e)
}

// element is what a list or map holds. Its default says that nothing means empty, not null.
func (g *generator) element(s *source, file string, e ast.Expr) (map[string]any, error) {
	p, zero, err := g.schemaOf(s, file, e)
	if err != nil {
		return nil, err
	}
	if ref, ok := p["$ref"]; ok && zero != nil {
		return map[string]any{"allOf": []any{map[string]any{"$ref": ref}}, "default": zero}, nil
	}
	if zero != nil && p["enum"] == nil {
		p["default"] = zero
	}
	return p, nil
}

// reference describes a named type: structs by reference, everything else by what it is.
func (g *generator) reference(s *source, file string, e ast.Expr) (map[string]any, any, error) {
	pkg, name := g.named(s, file, e)
	if pkg == "" {
		return nil, nil, fmt.Errorf("no package for %v", e)
	}
	to, err := g.load(pkg)
	if err != nil {
		return nil, nil, err
	}
	if special[pkg+"."+name] != nil {
		return map[string]any{"$ref": refPrefix + to.model + "." + name}, nil, g.add(pkg, name)
	}
	spec := to.types[name]
	if spec == nil {
		return nil, nil, fmt.Errorf("%s has no type %s", pkg, name)
	}
	if _, ok := spec.Type.(*ast.StructType); ok {
		return map[string]any{"$ref": refPrefix + to.model + "." + name}, map[string]any{}, g.add(pkg, name)
	}
	p, zero, err := g.schemaOf(to, to.files[name], spec.Type)
	if err != nil {
		return nil, nil, err
	}
	if _, enum := marker(to.docs[name], "enum"); enum && len(to.values[name]) > 0 {
		values := slices.Clone(to.values[name])
		slices.Sort(values)
		p["enum"] = slices.Compact(values)
		zero = nil
	}
	return p, zero, nil
}

const refPrefix = "#/components/schemas/"

// mark says of which group, version and kind the objects of a schema are.
func (g *generator) mark(pkg, name, group, version string) {
	schema := g.schemas[g.packages[pkg].model+"."+name]
	if _, ok := schema["x-kubernetes-group-version-kind"]; !ok {
		schema["x-kubernetes-group-version-kind"] = []any{map[string]any{"group": group, "version": version, "kind": name}}
	}
}
