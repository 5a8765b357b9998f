package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// A kind stands in one place (decision 93): who needs to know something of an object asks its kind. A switch over the types of
// objects is a second place, which the next kind would miss.
func TestNoSwitchesOverKinds(t *testing.T) {
	list := slices.IndexFunc(packages(t), func(p pkg) bool { return p.ImportPath == module+"api/kinds" })
	if list < 0 {
		t.Fatal("there is no list of kinds")
	}
	eachFile(t, func(name, path string, file *ast.File, fset *token.FileSet) {
		if slices.Contains(packages(t)[list].Imports, module+name) {
			return // a kind's own package
		}
		for _, at := range kindSwitches(file) {
			t.Errorf("%s: switches over types of objects: have the kind say it (api.Rules)", fset.Position(at))
		}
	})
}

// The test above would see one.
func TestKindSwitchesAreSeen(t *testing.T) {
	const head = `package x; import ( corev1 "k8s.io/api/core/v1"; "fmt" ); func f(o any) { `
	for body, want := range map[string]int{
		`switch o.(type) { case *corev1.Pod: }`: 1, `switch o := o.(type) { case nil, *corev1.Pod: fmt.Print(o) }`: 1,
		`switch o.(type) { case *fmt.State, string: }`: 0, `switch o { case 1: }`: 0,
	} {
		file, err := parser.ParseFile(token.NewFileSet(), "", head+body+"}", parser.SkipObjectResolution)
		if err != nil || len(kindSwitches(file)) != want {
			t.Errorf("%s: %v, %v", body, kindSwitches(file), err)
		}
	}
}

// kindSwitches are the type switches with a case for a pointer to a type of k8s.io/api.
func kindSwitches(file *ast.File) []token.Pos {
	groups := map[string]bool{} // names under which packages of k8s.io/api are imported
	for _, spec := range file.Imports {
		path, _ := strconv.Unquote(spec.Path.Value)
		if strings.HasPrefix(path, "k8s.io/api/") && spec.Name != nil {
			groups[spec.Name.Name] = true
		}
	}
	isObject := func(e ast.Expr) bool {
		star, ok := e.(*ast.StarExpr)
		if !ok {
			return false
		}
		sel, ok := star.X.(*ast.SelectorExpr)
		if !ok {
			return false
		}
		pkg, ok := sel.X.(*ast.Ident)
		return ok && groups[pkg.Name]
	}
	var found []token.Pos
	ast.Inspect(file, func(n ast.Node) bool {
		s, ok := n.(*ast.TypeSwitchStmt)
		if !ok {
			return true
		}
		for _, c := range s.Body.List {
			for _, e := range c.(*ast.CaseClause).List {
				if isObject(e) {
					found = append(found, s.Pos())
					return true
				}
			}
		}
		return true
	})
	return found
}
