// Command lint holds the house rules that gofmt, vet and staticcheck do not know: the length of functions and lines, doc
// comments on exported names, package names that say nothing. It reads sources only and prints one line per finding.
//
//	go run ./scripts/lint [DIR]
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
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
		fmt.Printf("lint: longer than %d lines (no failure): %s\n", longFile, strings.Join(long, ", "))
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
