package deps

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"slices"
	"strings"
	"testing"
)

// What a reader can hold in mind: a type with more methods is several, and a mutex that is taken all over a package guards nobody
// knows what.
const (
	mostMethods    = 40
	mostMutexFiles = 3
)

func TestShapes(t *testing.T) {
	methods, taken := shapes(t)
	files := map[string]int{}
	for mutex, in := range taken {
		files[mutex] = len(in)
	}
	if len(methods) < 500 || len(files) < 50 {
		t.Fatalf("%d types and %d mutexes: this test does not see them", len(methods), len(files))
	}
	within(t, "methods", methods, mostMethods)
	within(t, "files that take it", files, mostMutexFiles)
}

// within holds every count to most.
func within(t *testing.T, what string, counts map[string]int, most int) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > most {
			t.Errorf("%s: %d %s, at most %d: take a part out of it", name, n, what, most)
		}
	}
}

// shapes counts the methods of each type of the module, and gives the files that each mutex is taken in. A mutex is the field of
// a type or a variable of a package. Tests do not count.
func shapes(t *testing.T) (methods map[string]int, taken map[string]map[string]bool) {
	t.Helper()
	all, err := parsed()
	if err != nil {
		t.Fatal(err)
	}
	methods, taken = map[string]int{}, map[string]map[string]bool{}
	only, err := newJustSync()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range packages(t) {
		name, files := strings.TrimPrefix(p.ImportPath, module), all[p.ImportPath]
		info := &types.Info{Selections: map[*ast.SelectorExpr]*types.Selection{}, Uses: map[*ast.Ident]types.Object{}}
		// Whatever is imported is unknown, so there are errors; what a package says of itself is all that is asked for.
		cfg := types.Config{Importer: only, FakeImportC: true, Error: func(error) {}}
		pkg, _ := cfg.Check(p.ImportPath, sources, files, info)
		for _, n := range pkg.Scope().Names() {
			if named, ok := types.Unalias(pkg.Scope().Lookup(n).Type()).(*types.Named); ok && named.Obj().Pkg() == pkg && named.Obj().Name() == n {
				methods[name+"."+n] = named.NumMethods()
			}
		}
		for _, file := range files {
			for mutex := range locks(info, file) {
				key := name + "." + mutex
				if taken[key] == nil {
					taken[key] = map[string]bool{}
				}
				taken[key][sources.File(file.Pos()).Name()] = true
			}
		}
	}
	return methods, taken
}

// locks are the mutexes that a file takes: "Type.field", or the name of a variable.
func locks(info *types.Info, file *ast.File) map[string]bool {
	out := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		call, ok := n.(*ast.SelectorExpr)
		if !ok || call.Sel.Name != "Lock" && call.Sel.Name != "RLock" {
			return true
		}
		if name := mutexOf(info, call); name != "" {
			out[name] = true
		}
		return true
	})
	return out
}

// mutexOf names what Lock is called on; "" if that is no mutex of a type or package.
func mutexOf(info *types.Info, call *ast.SelectorExpr) string {
	if sel := info.Selections[call]; sel == nil || sel.Obj().Pkg() == nil || sel.Obj().Pkg().Path() != "sync" {
		return ""
	} else if len(sel.Index()) > 1 { // embedded
		return typeName(sel.Recv()) + ".Mutex"
	}
	switch x := call.X.(type) {
	case *ast.SelectorExpr:
		if sel := info.Selections[x]; sel != nil {
			return typeName(sel.Recv()) + "." + x.Sel.Name
		}
	case *ast.Ident:
		if v, ok := info.Uses[x].(*types.Var); ok && v.Pkg() != nil && v.Parent() == v.Pkg().Scope() {
			return x.Name
		}
	}
	return ""
}

func typeName(t types.Type) string {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	if n, ok := types.Unalias(t).(*types.Named); ok {
		return n.Obj().Name()
	}
	return "?"
}

// justSync knows sync by its mutexes, and nothing else.
type justSync struct{ sync *types.Package }

func newJustSync() (*justSync, error) {
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, "sync.go", `package sync
		type Mutex struct{}
		func (*Mutex) Lock()
		func (*Mutex) Unlock()
		type RWMutex struct{ Mutex }
		func (*RWMutex) Lock()
		func (*RWMutex) RLock()`, 0)
	if err != nil {
		return nil, err
	}
	cfg := types.Config{IgnoreFuncBodies: true}
	pkg, err := cfg.Check("sync", fset, []*ast.File{f}, nil)
	return &justSync{pkg}, err
}

// Import implements types.Importer.
func (i *justSync) Import(path string) (*types.Package, error) {
	if path == "sync" {
		return i.sync, nil
	}
	return nil, errors.New("not asked for")
}
