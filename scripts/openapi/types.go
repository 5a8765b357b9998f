package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
)

// source is one parsed package.
type source struct {
	path    string
	model   string                   // how its schemas are called, before the type's name
	types   map[string]*ast.TypeSpec // by name
	docs    map[string]string
	values  map[string][]string // of enums: the strings of the constants of a type
	consts  map[string]string   // name -> value of the same constants
	imports map[string]map[string]string
	files   map[string]string // type name -> file it stands in
}

// generator collects the schemas of types and of all that they refer to.
type generator struct {
	dirs     map[string]string // module -> directory
	packages map[string]*source
	schemas  map[string]map[string]any
	reached  map[string]bool // structs that something refers to, by package and name
}

func (g *generator) load(path string) (*source, error) {
	if s := g.packages[path]; s != nil {
		return s, nil
	}
	dir := ""
	for module, d := range g.dirs {
		if rest, ok := strings.CutPrefix(path, module+"/"); ok {
			dir = filepath.Join(d, rest)
		}
	}
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil || dir == "" || len(files) == 0 {
		return nil, fmt.Errorf("no sources of %s in %q", path, dir)
	}
	s := &source{path: path, types: map[string]*ast.TypeSpec{}, docs: map[string]string{}, values: map[string][]string{},
		consts:  map[string]string{},
		imports: map[string]map[string]string{}, files: map[string]string{}}
	fset := token.NewFileSet()
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") || strings.HasPrefix(filepath.Base(name), "zz_generated") || strings.HasSuffix(name, ".pb.go") {
			continue
		}
		f, err := parser.ParseFile(fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		s.read(name, f)
	}
	if s.model == "" {
		s.model = "io." + strings.ReplaceAll(strings.TrimPrefix(strings.ReplaceAll(path, "k8s.io", "k8s"), "io."), "/", ".")
	}
	g.packages[path] = s
	return s, nil
}

func (s *source) read(name string, f *ast.File) {
	for _, c := range f.Comments {
		if model, ok := marker(c.Text(), "k8s:openapi-model-package"); ok {
			s.model = model
		}
	}
	s.imports[name] = map[string]string{}
	for _, imp := range f.Imports {
		path, _ := strconv.Unquote(imp.Path.Value)
		local := path[strings.LastIndex(path, "/")+1:]
		if imp.Name != nil {
			local = imp.Name.Name
		}
		s.imports[name][local] = path
	}
	for _, d := range f.Decls {
		gen, ok := d.(*ast.GenDecl)
		if !ok {
			continue
		}
		for _, spec := range gen.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				doc := spec.Doc
				if doc == nil {
					doc = gen.Doc
				}
				s.types[spec.Name.Name], s.docs[spec.Name.Name], s.files[spec.Name.Name] = spec, text(doc), name
			case *ast.ValueSpec:
				s.constants(gen.Tok, spec)
			}
		}
	}
}

// constants remembers the values of string constants that have a type: they are the values of an enum.
func (s *source) constants(tok token.Token, spec *ast.ValueSpec) {
	typ, ok := spec.Type.(*ast.Ident)
	if tok != token.CONST || !ok {
		return
	}
	for i, v := range spec.Values {
		if lit, ok := v.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			if value, err := strconv.Unquote(lit.Value); err == nil {
				s.values[typ.Name] = append(s.values[typ.Name], value)
				s.consts[spec.Names[i].Name] = value
			}
		}
	}
}

// text is a comment with its directives, which CommentGroup.Text drops when they look like //go:x.
func text(c *ast.CommentGroup) string {
	if c == nil {
		return ""
	}
	var lines []string
	for _, l := range c.List {
		lines = append(lines, strings.TrimPrefix(strings.TrimPrefix(l.Text, "//"), " "))
	}
	return strings.Join(lines, "\n")
}

// marker reads "+name" and "+name=value" out of a comment.
func marker(doc, name string) (value string, ok bool) {
	for line := range strings.Lines(doc) {
		rest, found := strings.CutPrefix(strings.TrimSpace(line), "+"+name)
		if found && (rest == "" || rest[0] == '=') {
			return strings.TrimPrefix(rest, "="), true
		}
	}
	return "", false
}

func markers(doc, name string) (values []string) {
	for line := range strings.Lines(doc) {
		if v, ok := marker(line, name); ok {
			values = append(values, v)
		}
	}
	return values
}

// description is the part of a comment that is for people: no markers, nothing below ---, no notes to developers.
func description(doc string) string {
	var out []string
	for line := range strings.Lines(doc) {
		line = strings.TrimRight(line, " \n")
		trimmed := strings.TrimSpace(line)
		if trimmed == "---" {
			break
		}
		if strings.HasPrefix(trimmed, "+") || strings.HasPrefix(trimmed, "TODO") || strings.HasPrefix(trimmed, "FIXME") {
			continue
		}
		out = append(out, trimmed)
	}
	var b strings.Builder
	for i, line := range out {
		switch {
		case line == "" && b.Len() > 0:
			b.WriteString("\n\n")
		case i > 0 && out[i-1] != "" && b.Len() > 0 && !strings.HasSuffix(b.String(), "\n"):
			if strings.HasPrefix(line, "- ") || strings.HasPrefix(line, "* ") {
				b.WriteByte('\n')
			} else {
				b.WriteByte(' ')
			}
			b.WriteString(line)
		default:
			b.WriteString(line)
		}
	}
	return strings.TrimSpace(strings.ReplaceAll(b.String(), "\n\n\n", "\n\n"))
}

// special are types whose form on the wire is not that of their fields.
var special = map[string]map[string]any{
	"k8s.io/apimachinery/pkg/apis/meta/v1.Time":      {"type": "string", "format": "date-time"},
	"k8s.io/apimachinery/pkg/apis/meta/v1.MicroTime": {"type": "string", "format": "date-time"},
	"k8s.io/apimachinery/pkg/apis/meta/v1.Duration":  {"type": "string"},
	"k8s.io/apimachinery/pkg/apis/meta/v1.FieldsV1":  {"type": "object"},
	"k8s.io/apimachinery/pkg/runtime.RawExtension":   {"type": "object"},
	"k8s.io/apimachinery/pkg/runtime.Object":         {"type": "object"},
	"k8s.io/apimachinery/pkg/api/resource.Quantity":  {"oneOf": []any{map[string]any{"type": "string"}, map[string]any{"type": "number"}}},
	"k8s.io/apimachinery/pkg/util/intstr.IntOrString": {"oneOf": []any{map[string]any{"type": "integer"}, map[string]any{"type": "string"}},
		"format": "int-or-string"},
}

// add makes the schema of a named type and of what it refers to.
func (g *generator) add(pkg, name string) error {
	s, err := g.load(pkg)
	if err != nil {
		return err
	}
	full := s.model + "." + name
	g.reached[pkg+"."+name] = true
	if g.schemas[full] != nil {
		return nil
	}
	if sp := special[pkg+"."+name]; sp != nil {
		schema := map[string]any{}
		for k, v := range sp {
			schema[k] = v
		}
		if d := description(s.docs[name]); d != "" {
			schema["description"] = d
		}
		g.schemas[full] = schema
		return nil
	}
	spec := s.types[name]
	if spec == nil {
		return fmt.Errorf("%s has no type %s", pkg, name)
	}
	st, ok := spec.Type.(*ast.StructType)
	if !ok {
		return fmt.Errorf("%s.%s is no struct", pkg, name)
	}
	schema := map[string]any{"type": "object", "properties": map[string]any{}}
	g.schemas[full] = schema // before its fields: a type may hold itself
	if d := description(s.docs[name]); d != "" {
		schema["description"] = d
	}
	if v, ok := marker(s.docs[name], "structType"); ok {
		schema["x-kubernetes-map-type"] = v
	}
	if err := g.fields(s, s.files[name], st, schema); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// addList makes the schema of a list of a type that has none in its package.
func (g *generator) addList(pkg, item string) error {
	s, err := g.load(pkg)
	if err != nil {
		return err
	}
	m, err := g.load(meta)
	if err != nil {
		return err
	}
	items := map[string]any{"type": "array", "description": "List of " + item + ".",
		"items": map[string]any{"allOf": []any{map[string]any{"$ref": refPrefix + s.model + "." + item}}, "default": map[string]any{}}}
	schema := map[string]any{"type": "object", "description": item + "List is a list of " + item + ".", "required": []string{"items"},
		"properties": map[string]any{"items": items,
			"metadata": map[string]any{"description": "Standard list metadata.", "default": map[string]any{},
				"allOf": []any{map[string]any{"$ref": refPrefix + m.model + ".ListMeta"}}}}}
	g.schemas[s.model+"."+item+"List"] = schema
	if err := g.add(meta, "ListMeta"); err != nil {
		return err
	}
	return g.fields(m, m.files["TypeMeta"], m.types["TypeMeta"].Type.(*ast.StructType), schema)
}

func (g *generator) fields(s *source, file string, st *ast.StructType, schema map[string]any) error {
	for _, f := range st.Fields.List {
		if f.Tag == nil {
			continue
		}
		tagText, err := strconv.Unquote(f.Tag.Value)
		if err != nil {
			return err
		}
		tag := reflect.StructTag(tagText)
		name, rest, _ := strings.Cut(tag.Get("json"), ",")
		if name == "-" {
			continue
		}
		if name == "" { // embedded
			pkg, typ := g.named(s, file, f.Type)
			inner, err := g.load(pkg)
			if err != nil {
				return err
			}
			g.reached[pkg+"."+typ] = true
			if err := g.fields(inner, inner.files[typ], inner.types[typ].Type.(*ast.StructType), schema); err != nil {
				return err
			}
			continue
		}
		doc := text(f.Doc)
		p, err := g.property(s, file, f.Type, doc, tag)
		if err != nil {
			return fmt.Errorf("field %s: %w", name, err)
		}
		schema["properties"].(map[string]any)[name] = p
		if _, optional := marker(doc, "optional"); !optional && !strings.Contains(rest, "omitempty") && !strings.Contains(rest, "omitzero") {
			required, _ := schema["required"].([]string)
			schema["required"] = append(required, name)
		}
	}
	return nil
}

// named resolves the name of a type to its package and name there.
func (g *generator) named(s *source, file string, e ast.Expr) (pkg, name string) {
	switch e := e.(type) {
	case *ast.Ident:
		return s.path, e.Name
	case *ast.SelectorExpr:
		return s.imports[file][e.X.(*ast.Ident).Name], e.Sel.Name
	case *ast.StarExpr:
		return g.named(s, file, e.X)
	}
	return "", ""
}
