package managed

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	smd "sigs.k8s.io/structured-merge-diff/v6/schema"
	"sigs.k8s.io/structured-merge-diff/v6/typed"

	"ledge/api"
	"ledge/api/openapi"
)

// model is what merging needs to know of an OpenAPI schema.
type model struct {
	Type, Format string
	Ref          string   `json:"$ref"`
	AllOf        []*model // one reference, with something said beside it
	Properties   map[string]*model
	Additional   *model `json:"additionalProperties"`
	Items        *model
	Default      any
	ListType     string                    `json:"x-kubernetes-list-type"`
	Keys         []string                  `json:"x-kubernetes-list-map-keys"`
	MapType      string                    `json:"x-kubernetes-map-type"`
	GVKs         []schema.GroupVersionKind `json:"x-kubernetes-group-version-kind"`
}

// Types that fit everything: one is replaced as a whole, of the other maps are merged.
var (
	atomicType  = "atomic"
	deducedType = "deduced"
)

// types reads the schemas of the kinds there are into the form of the library.
func types(s *api.Kinds) (map[*api.Kind]typed.ParseableType, error) {
	all, err := openapi.Schemas()
	if err != nil {
		return nil, err
	}
	models := map[string]*model{}
	names := map[*api.Kind]string{}
	for _, k := range s.Kept {
		if k.Schema != nil {
			names[k] = k.GR().String()
			all[names[k]] = k.Schema
		}
	}
	for name, raw := range all {
		m := &model{}
		if err := json.Unmarshal(raw, m); err != nil {
			return nil, fmt.Errorf("schema %s: %w", name, err)
		}
		models[name] = m
		for _, gvk := range m.GVKs {
			if k := s.ByGVK(gvk); k != nil {
				names[k] = name
			}
		}
	}
	var roots []string
	for _, n := range names {
		roots = append(roots, n)
	}
	defs := []smd.TypeDef{
		{Name: atomicType, Atom: anything(&atomicType, smd.Atomic)}, {Name: deducedType, Atom: anything(&deducedType, smd.Separable)}}
	for name := range openapi.Select(all, roots) {
		defs = append(defs, smd.TypeDef{Name: name, Atom: models[name].atom()})
	}
	parser := &typed.Parser{Schema: smd.Schema{Types: defs}}
	out := map[*api.Kind]typed.ParseableType{}
	for k, name := range names {
		out[k] = parser.Type(name)
	}
	return out, nil
}

func anything(element *string, maps smd.ElementRelationship) smd.Atom {
	untyped := smd.Untyped
	return smd.Atom{Scalar: &untyped,
		List: &smd.List{ElementType: smd.TypeRef{NamedType: &atomicType}, ElementRelationship: smd.Atomic},
		Map:  &smd.Map{ElementType: smd.TypeRef{NamedType: element}, ElementRelationship: maps}}
}

func scalar(s smd.Scalar) smd.Atom { return smd.Atom{Scalar: &s} }

// atom is the type of a schema.
func (m *model) atom() smd.Atom {
	switch m.Type {
	case "object":
		if len(m.Properties) == 0 && m.Additional == nil {
			return anything(&deducedType, smd.Separable)
		}
		out := &smd.Map{ElementRelationship: relationship(m.MapType)}
		names := make([]string, 0, len(m.Properties))
		for name := range m.Properties {
			names = append(names, name)
		}
		slices.Sort(names)
		for _, name := range names {
			p := m.Properties[name]
			out.Fields = append(out.Fields, smd.StructField{Name: name, Type: p.ref(), Default: p.Default})
		}
		if m.Additional != nil {
			out.ElementType = m.Additional.ref()
		}
		return smd.Atom{Map: out}
	case "array":
		out := &smd.List{ElementType: m.Items.ref(), ElementRelationship: smd.Atomic}
		if m.ListType == "map" || m.ListType == "set" {
			out.ElementRelationship, out.Keys = smd.Associative, m.Keys
		}
		return smd.Atom{List: out}
	case "integer", "number":
		return scalar(smd.Numeric)
	case "boolean":
		return scalar(smd.Boolean)
	case "string":
		if m.Format == "" || m.Format == "byte" {
			return scalar(smd.String)
		}
	}
	return scalar(smd.Untyped) // quantities, times, numbers or names
}

// ref is how a field or element is of this type.
func (m *model) ref() smd.TypeRef {
	to := m.Ref
	if to == "" && len(m.AllOf) == 1 {
		to = m.AllOf[0].Ref
	}
	if to == "" {
		return smd.TypeRef{Inlined: m.atom()}
	}
	name := to[strings.LastIndex(to, "/")+1:]
	ref := smd.TypeRef{NamedType: &name}
	if r := relationship(m.MapType); r != "" {
		ref.ElementRelationship = &r
	}
	return ref
}

func relationship(mapType string) smd.ElementRelationship {
	switch mapType {
	case "atomic":
		return smd.Atomic
	case "granular":
		return smd.Separable
	}
	return ""
}
