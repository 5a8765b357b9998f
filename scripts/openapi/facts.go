package main

import (
	"cmp"
	"fmt"
	"go/ast"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// fact is what a marker says of one field of a type: that it is required, what it may be, what it is when it is left out.
type fact struct {
	owner, field, rule, value string
}

// spoken are the markers that say something of an object's fields, and the names of their facts.
var spoken = map[string]string{
	"required": "required", "k8s:required": "required", "default": "default", "k8s:minimum": "minimum", "k8s:maximum": "maximum",
	"k8s:maxItems": "maxItems", "k8s:maxLength": "maxLength", "k8s:maxBytes": "maxBytes", "k8s:format": "format",
	"k8s:immutable": "immutable", "k8s:update": "update", "k8s:forbidden": "forbidden",
	"k8s:dependentRequired": "dependentRequired", "k8s:dependentForbidden": "dependentForbidden", "k8s:unionMember": "union",
	"k8s:unionDiscriminator": "union", "k8s:zeroOrOneOfMember": "union",
	"k8s:listMapKey": "unique", "featureGate": "feature",
}

// silent are the markers of the same family that say nothing which a server has to hold an object to: they are for other
// generators, or refuse nothing. enum is said of types, and read there. The keys of lists are in the schemas.
var silent = []string{"k8s:optional", "k8s:opaqueType", "k8s:customValidation", "k8s:listType", "k8s:supportsSubresource",
	"k8s:isSubresource", "k8s:conversion-gen", "k8s:deprecated", "k8s:enum"}

// facts are those of the structs of a package that something refers to.
func (g *generator) facts(s *source) ([]fact, error) {
	var out []fact
	for _, name := range slices.Sorted(maps.Keys(s.types)) {
		st, ok := s.types[name].Type.(*ast.StructType)
		if !ok || !g.reached[s.path+"."+name] {
			continue
		}
		for _, f := range st.Fields.List {
			if f.Tag == nil {
				continue
			}
			text, err := strconv.Unquote(f.Tag.Value)
			if err != nil {
				return nil, err
			}
			wire, _, _ := strings.Cut(reflect.StructTag(text).Get("json"), ",")
			if wire == "" || wire == "-" {
				continue
			}
			found, err := g.factsOf(s, s.files[name], f)
			if err != nil {
				return nil, fmt.Errorf("%s.%s.%s: %w", s.path, name, wire, err)
			}
			for _, f := range found {
				f.owner, f.field = s.path+"."+name, wire
				out = append(out, f)
			}
		}
	}
	return out, nil
}

// factsOf are those of one field.
func (g *generator) factsOf(s *source, file string, f *ast.Field) ([]fact, error) {
	var out []fact
	for line := range strings.Lines(text(f.Doc)) {
		said, ok := strings.CutPrefix(strings.TrimSpace(line), "+")
		if !ok {
			continue
		}
		found, err := read(said)
		if err != nil {
			return nil, err
		}
		if found.rule == "default" && strings.HasPrefix(found.value, "ref(") {
			found.value = strconv.Quote(s.consts[strings.TrimSuffix(strings.TrimPrefix(found.value, "ref("), ")")])
		}
		if found.rule != "" && !slices.Contains(out, found) {
			out = append(out, found)
		}
	}
	if pkg, name := g.enum(s, file, f.Type); name != "" {
		var quoted []string
		for _, v := range g.packages[pkg].enum(name) {
			quoted = append(quoted, strconv.Quote(v))
		}
		out = append(out, fact{rule: "enum", value: strings.Join(quoted, " ")})
	}
	return out, nil
}

// read is the fact of one marker; one without a rule says nothing. Markers stand in markers: of what version they are from, whether a
// feature is on, and that they speak of each element.
func read(said string) (fact, error) {
	name, value, _ := strings.Cut(said, "=")
	name, arg, _ := strings.Cut(name, "(")
	arg = strings.Trim(strings.TrimSuffix(strings.TrimSpace(arg), ")"), `"`)
	inner := func(prefix string) (fact, error) {
		f, err := read(strings.TrimPrefix(value, "+"))
		if f.rule != "" {
			f.rule = prefix + f.rule
		}
		return f, err
	}
	switch {
	case name == "k8s:alpha" || name == "k8s:beta":
		return inner("")
	case name == "k8s:ifDisabled" || name == "k8s:ifEnabled":
		return inner(strings.TrimPrefix(name, "k8s:if") + "(" + arg + ") ")
	case name == "k8s:eachVal":
		return inner("each ")
	case name == "k8s:subfield": // of metadata, which has rules of its own for every kind
		return fact{}, nil
	case spoken[name] != "":
		return fact{rule: spoken[name], value: cmp.Or(arg, strings.Trim(value, ` `))}, nil
	case strings.HasPrefix(name, "k8s:") && !slices.Contains(silent, name):
		return fact{}, fmt.Errorf("marker +%s: say in scripts/openapi what it means", said)
	}
	return fact{}, nil
}

// enum is the named type of a field, of its elements, or of its values, if only some values of it are valid.
func (g *generator) enum(s *source, file string, e ast.Expr) (pkg, name string) {
	switch e := e.(type) {
	case *ast.StarExpr:
		return g.enum(s, file, e.X)
	case *ast.ArrayType:
		return g.enum(s, file, e.Elt)
	case *ast.MapType:
		return g.enum(s, file, e.Value)
	}
	pkg, name = g.named(s, file, e)
	to := g.packages[pkg]
	if to == nil || len(to.enum(name)) == 0 {
		return "", ""
	}
	return pkg, name
}

// enum are the values of a type that has only these, sorted.
func (s *source) enum(name string) []string {
	_, a := marker(s.docs[name], "enum")
	_, b := marker(s.docs[name], "k8s:enum")
	if !a && !b {
		return nil
	}
	return slices.Compact(slices.Sorted(slices.Values(s.values[name])))
}

// table has a line for each fact of the structs reached so far: the type, the field, the rule, and what it says.
func (g *generator) table() ([]byte, error) {
	b := []byte("# What the markers in the pinned k8s.io modules say of the kinds that are kept. Written by go generate ./api/openapi.\n")
	for _, path := range slices.Sorted(maps.Keys(g.packages)) {
		if !strings.HasPrefix(path, apiModule+"/") { // metadata and conditions are held to theirs by apimachinery's own checks
			continue
		}
		facts, err := g.facts(g.packages[path])
		if err != nil {
			return nil, err
		}
		for _, f := range facts {
			b = fmt.Appendln(b, strings.TrimSpace(strings.Join([]string{f.owner, f.field, f.rule, f.value}, "\t")))
		}
	}
	return b, nil
}
