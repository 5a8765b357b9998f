package deps

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// tableRow is a line of a page that says which tests show what.
type tableRow struct {
	what       string   // the first column
	says       string   // the second, where there are four
	tests      []string // "lease: TestZoneOf", "scripts/steps: lint"
	note       string
	waits, out bool // what the note begins with
}

var (
	rowTests = regexp.MustCompile("^(?:`[^`]+`(?:, `[^`]+`)*)?$")
	rowTest  = regexp.MustCompile("`([^`]+)`")
)

// rowsOf reads the tables of a page whose columns are those of head, then tests and note.
func rowsOf(t *testing.T, head []string, page string) (rows []tableRow) {
	t.Helper()
	columns := append(slices.Clone(head), "tests", "note")
	inside := false
	for line := range strings.Lines(page) {
		line = strings.TrimSpace(line)
		if !strings.HasPrefix(line, "|") {
			inside = false
			continue
		}
		cells := cellsOf(line)
		switch {
		case slices.Equal(cells, columns):
			inside = true
			continue
		case strings.Trim(line, "|-") == "":
			continue
		case !inside:
			t.Errorf("in no table with the columns %q: %q", columns, line)
			continue
		}
		if len(cells) != len(columns) || !rowTests.MatchString(cells[len(cells)-2]) {
			t.Errorf("cannot read %q", line)
			continue
		}
		row := tableRow{what: cells[0], note: cells[len(cells)-1]}
		if len(head) > 1 {
			row.says = cells[1]
		}
		for _, m := range rowTest.FindAllStringSubmatch(cells[len(cells)-2], -1) {
			row.tests = append(row.tests, m[1])
		}
		row.waits, row.out = strings.HasPrefix(row.note, "waits for "), strings.HasPrefix(row.note, "out: ")
		rows = append(rows, row)
	}
	return rows
}

// cellsOf returns the cells of a line of a Markdown table.
func cellsOf(line string) []string {
	cells := strings.Split(strings.TrimSuffix(strings.TrimPrefix(line, "|"), "|"), "|")
	for i, c := range cells {
		cells[i] = strings.TrimSpace(c)
	}
	return cells
}

// eachText calls fn for every file of the repository whose name ends so, with its path from the top.
func eachText(t *testing.T, extensions []string, fn func(path, text string)) {
	t.Helper()
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			if name := d.Name(); path != top && (strings.HasPrefix(name, ".") || name == "bin") {
				return filepath.SkipDir
			}
			return nil
		}
		if !slices.Contains(extensions, filepath.Ext(path)) {
			return nil
		}
		name, err := filepath.Rel(top, path)
		if err != nil {
			return err
		}
		text, err := os.ReadFile(path)
		fn(name, string(text))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// citations is, for every test function ("lease: TestZoneOf"), and every part of api/apitest, the rules that stand in it
// or above it.
func citations(t *testing.T) map[string]map[string]bool {
	t.Helper()
	out := map[string]map[string]bool{}
	err := filepath.WalkDir(top, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || !strings.HasSuffix(path, ".go") {
			return err
		}
		dir, err := filepath.Rel(top, filepath.Dir(path))
		if err != nil || !strings.HasSuffix(path, "_test.go") && dir != "api/apitest" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, path, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		for _, decl := range file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || !regexp.MustCompile(`^(Test|test|Fuzz|Benchmark)`).MatchString(f.Name.Name) {
				continue
			}
			from, to := f.Pos(), f.End()
			if f.Doc != nil {
				from = f.Doc.Pos()
			}
			out[dir+": "+f.Name.Name] = rulesIn(string(text[fset.Position(from).Offset:fset.Position(to).Offset]))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}
