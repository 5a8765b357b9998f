// Command lint holds the house rules that gofmt, vet and staticcheck do not know: the length of functions and lines, doc
// comments on exported names, package names that say nothing, sorts that the binary pays for. It reads sources only and prints one
// line per finding.
//
//	go run ./scripts/lint [DIR]
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode/utf8"
)

const (
	longFunction = 80  // lines; more fails
	longFile     = 400 // lines; more is said, once for all
	longLine     = 140 // columns, without the longest string; more fails
)

// vague names say nothing about what is inside.
var vague = []string{"manager", "util", "utils", "common", "helpers", "types", "misc"}

func main() {
	top := "."
	if len(os.Args) > 1 {
		top = os.Args[1]
	}
	findings, long, err := lint(top)
	if err != nil {
		fmt.Fprintln(os.Stderr, "lint:", err)
		os.Exit(2)
	}
	for _, f := range findings {
		fmt.Println(f)
	}
	if len(long) > 0 {
		fmt.Printf("lint: %d files are longer than %d lines (no failure)\n", len(long), longFile)
	}
	if len(findings) > 0 {
		os.Exit(1)
	}
}

// lint returns what breaks a rule, and the files that are long.
func lint(top string) (findings, long []string, err error) {
	fset := token.NewFileSet()
	err = filepath.WalkDir(top, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != top && (strings.HasPrefix(name, ".") || name == "testdata" || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if filepath.Ext(path) != ".go" {
			return nil
		}
		source, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		file, err := parser.ParseFile(fset, path, source, parser.ParseComments)
		if err != nil {
			findings = append(findings, err.Error())
			return nil
		}
		if ast.IsGenerated(file) {
			return nil
		}
		if n := fset.File(file.Pos()).LineCount(); n > longFile {
			long = append(long, fmt.Sprintf("%s (%d)", path, n))
		}
		findings = append(findings, check(fset, path, file)...)
		findings = append(findings, wide(fset, path, file, string(source))...)
		if linked(path) {
			findings = append(findings, sorts(fset, file)...)
		}
		return nil
	})
	return findings, long, err
}

func check(fset *token.FileSet, path string, file *ast.File) []string {
	var found []string
	say := func(pos token.Pos, format string, args ...any) {
		found = append(found, fmt.Sprintf("%s: %s", fset.Position(pos), fmt.Sprintf(format, args...)))
	}
	test := strings.HasSuffix(path, "_test.go")
	if slices.Contains(vague, file.Name.Name) {
		say(file.Package, "package name %s says nothing", file.Name.Name)
	}
	for _, decl := range file.Decls {
		switch d := decl.(type) {
		case *ast.FuncDecl:
			n := lines(fset, d)
			if test {
				n -= tableLines(fset, d) // cases are data
			}
			if n > longFunction {
				say(d.Pos(), "function %s has %d lines, the limit is %d", d.Name.Name, n, longFunction)
			}
			if !test && file.Name.Name != "main" && d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) {
				say(d.Pos(), "exported %s has no comment", d.Name.Name)
			}
		case *ast.GenDecl:
			if test || file.Name.Name == "main" || d.Doc != nil {
				continue
			}
			for _, spec := range d.Specs {
				if name := undocumented(spec); name != "" {
					say(spec.Pos(), "exported %s has no comment", name)
				}
			}
		}
	}
	return found
}

// wide finds lines that are too long to read. A string cannot be broken where it stands, so the longest one of a line does not count,
// nor do lines inside of one. A tab is one column.
func wide(fset *token.FileSet, path string, file *ast.File, source string) (found []string) {
	longest := map[int]int{} // of a line
	ast.Inspect(file, func(n ast.Node) bool {
		lit, ok := n.(*ast.BasicLit)
		if !ok || lit.Kind != token.STRING {
			return true
		}
		for i, part := range strings.Split(lit.Value, "\n") {
			line := fset.Position(lit.Pos()).Line + i
			longest[line] = max(longest[line], utf8.RuneCountInString(part))
		}
		return true
	})
	for i, line := range strings.Split(source, "\n") {
		if n := utf8.RuneCountInString(line); n > longLine && n-longest[i+1] > longLine {
			found = append(found, fmt.Sprintf("%s:%d: the line has %d columns, the limit is %d", path, i+1, n, longLine))
		}
	}
	return found
}

// linked says whether a file may become a part of the binary.
func linked(path string) bool {
	path = filepath.ToSlash(filepath.Clean(path))
	first, _, _ := strings.Cut(path, "/")
	return !strings.HasSuffix(path, "_test.go") && !slices.Contains([]string{"e2e", "internal", "lab", "packaging", "scripts"}, first) &&
		!strings.Contains(path, "/fake/") && !strings.Contains(path, "test/")
}

// sorts finds calls of slices.SortFunc and the like with elements that are structs. The compiler makes each of them anew, 20 KB for
// each type (docs/decisions/0134); sort.Slice has one body for all. The comparison tells the type: a function literal, or a method.
func sorts(fset *token.FileSet, file *ast.File) (found []string) {
	shared := []string{"string", "int", "any", "os.DirEntry", "fs.DirEntry", "corev1.ResourceName"} // not structs
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.CallExpr)
		if !ok || len(call.Args) != 2 || !slices.Contains([]string{"slices.SortFunc", "slices.SortStableFunc", "slices.SortedFunc",
			"slices.SortedStableFunc"}, types.ExprString(call.Fun)) {
			return true
		}
		element := ""
		switch less := call.Args[1].(type) {
		case *ast.FuncLit:
			if _, pointer := less.Type.Params.List[0].Type.(*ast.StarExpr); !pointer {
				element = types.ExprString(less.Type.Params.List[0].Type)
			}
		case *ast.SelectorExpr: // netip.Addr.Compare, but not strings.Compare
			if of, ok := less.X.(*ast.SelectorExpr); ok {
				element = types.ExprString(of)
			}
		}
		if element != "" && !slices.Contains(shared, element) {
			found = append(found, fmt.Sprintf("%s: sorts %s by a function compiled for it alone: sort.Slice, or a list of pointers",
				fset.Position(call.Pos()), element))
		}
		return true
	})
	return found
}

func lines(fset *token.FileSet, n ast.Node) int {
	return fset.Position(n.End()).Line - fset.Position(n.Pos()).Line + 1
}

// tableLines counts the lines inside the outermost literals of a function.
func tableLines(fset *token.FileSet, d *ast.FuncDecl) int {
	sum := 0
	ast.Inspect(d, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if ok {
			sum += lines(fset, lit) - 1
		}
		return !ok
	})
	return sum
}

// undocumented returns the exported name that spec declares without a comment of its own.
func undocumented(spec ast.Spec) string {
	switch s := spec.(type) {
	case *ast.TypeSpec:
		if s.Name.IsExported() && s.Doc == nil && s.Comment == nil {
			return s.Name.Name
		}
	case *ast.ValueSpec:
		if s.Doc == nil && s.Comment == nil && s.Names[0].IsExported() {
			return s.Names[0].Name
		}
	}
	return ""
}

// exportedReceiver tells methods that documentation shows from those of internal types. Methods that satisfy an
// interface everybody knows need no sentence.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	switch d.Name.Name {
	case "Error", "String", "Unwrap", "Is", "Close", "Len", "Less", "Swap", "Read", "Write", "MarshalJSON", "UnmarshalJSON":
		return false
	}
	t := d.Recv.List[0].Type
	if star, ok := t.(*ast.StarExpr); ok {
		t = star.X
	}
	if index, ok := t.(*ast.IndexExpr); ok {
		t = index.X
	}
	name, ok := t.(*ast.Ident)
	return ok && name.IsExported()
}
