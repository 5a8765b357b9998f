package deps

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sections of the rules that docs/rules.md accounts for, and how many rules each has. What stands at the end of section 5 is
// only where its issue numbers are from.
var sections = map[int]int{1: 69, 2: 18, 3: 62, 4: 11, 5: 44, 6: 37, 10: 26}

var (
	ruleRow   = regexp.MustCompile(`^\| (N-\d+\.\d+) \| ([^|]*) \| ([^|]*)\|$`)
	ruleTest  = regexp.MustCompile("`([a-z0-9/]+): (\\w+)`")
	ruleCited = regexp.MustCompile(`N-(\d+)\.(\d+)(?: to N-(\d+)\.(\d+))?`)
)

// TestRules: docs/rules.md names for every rule a test that exists and says the rule's number, or why there is none; and
// what is out is said in the README too.
func TestRules(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	missing := map[string]bool{}
	for section, n := range sections {
		for i := range n {
			missing[fmt.Sprintf("N-%d.%d", section, i+1)] = true
		}
	}
	told, cited := rulesIn(string(readme)), citations(t)
	for _, line := range strings.Split(string(page), "\n") {
		row := ruleRow.FindStringSubmatch(line)
		if row == nil {
			if strings.HasPrefix(line, "| N-") {
				t.Errorf("cannot read %q", line)
			}
			continue
		}
		rule, tests, note := row[1], ruleTest.FindAllStringSubmatch(row[2], -1), strings.TrimSpace(row[3])
		if !missing[rule] {
			t.Errorf("%s is listed twice, or there is no such rule", rule)
		}
		delete(missing, rule)
		for _, where := range tests {
			rules, ok := cited[where[1]+": "+where[2]]
			switch {
			case !ok:
				t.Errorf("%s: there is no test %s in %s", rule, where[2], where[1])
			case !rules[rule]:
				t.Errorf("%s: %s in %s does not say this number", rule, where[2], where[1])
			}
		}
		waits, out := strings.HasPrefix(note, "waits for "), strings.HasPrefix(note, "out: ")
		if len(tests) == 0 && !waits && !out {
			t.Errorf("%s has no test and no reason", rule)
		}
		if out && !told[rule] {
			t.Errorf("%s is out in docs/rules.md; the README does not say so", rule)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s is not listed in docs/rules.md", rule)
	}
}

// rulesIn is every rule a text names, alone or in a range.
func rulesIn(text string) map[string]bool {
	out := map[string]bool{}
	for _, m := range ruleCited.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[3] == m[1] {
			last, _ = strconv.Atoi(m[4])
		}
		for i := first; i <= last; i++ {
			out["N-"+m[1]+"."+strconv.Itoa(i)] = true
		}
	}
	return out
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
