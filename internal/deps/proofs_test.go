package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestProofs: each page of docs/proofs names for every promise tests, or steps of scripts/test.sh, that
// exist, or says why there is none.
func TestProofs(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(top, "docs", "proofs", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	tests, steps := citations(t), testSteps(t)
	for _, path := range pages {
		name := filepath.Base(path)
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		rows := rowsOf(t, []string{"promise"}, string(text))
		if len(rows) == 0 {
			t.Errorf("%s has no rows", name)
		}
		seen := map[string]bool{}
		for _, row := range rows {
			if seen[row.what] {
				t.Errorf("%s: %q is there twice", name, row.what)
			}
			seen[row.what] = true
			if len(row.tests) == 0 && !row.out {
				t.Errorf("%s: %q has no test and no reason", name, row.what)
			}
			for _, test := range row.tests {
				if step, ok := strings.CutPrefix(test, "scripts/test.sh: "); ok {
					if !steps.MatchString(step) {
						t.Errorf("%s: %q: scripts/test.sh has no step %q", name, row.what, step)
					}
					continue
				}
				where, function, _ := strings.Cut(test, ": ")
				function, _, _ = strings.Cut(function, "/") // what stands behind it is a part of that test
				if tests[where+": "+function] == nil {
					t.Errorf("%s: %q: there is no test %s in %s", name, row.what, function, where)
				}
			}
		}
	}
}

// testSteps matches the names of the steps of scripts/test.sh; what it fills in there may be anything here.
func testSteps(t *testing.T) *regexp.Regexp {
	t.Helper()
	script, err := os.ReadFile(filepath.Join(top, "scripts", "test.sh"))
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, m := range regexp.MustCompile(`(?m)^.*\b(?:step|need|beside) "([^"]+)"`).FindAllStringSubmatch(string(script), -1) {
		name := regexp.MustCompile(`\\\$(?:\w+|\\\{.*?\\\})`).ReplaceAllString(regexp.QuoteMeta(m[1]), ".+")
		names = append(names, name)
	}
	return regexp.MustCompile("^(?:" + strings.Join(names, "|") + ")$")
}
