package deps

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestProofs: each page of docs/proofs names for every promise tests, or lines of scripts/steps, that
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
				if step, ok := strings.CutPrefix(test, "scripts/steps: "); ok {
					if !steps[step] {
						t.Errorf("%s: %q: scripts/steps has no step %q", name, row.what, step)
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

// testSteps are the names in scripts/steps. A run takes each line once, so a name stands there at most once a run.
func testSteps(t *testing.T) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(top, "scripts", "steps"))
	if err != nil {
		t.Fatal(err)
	}
	names, taken := map[string]bool{}, map[string]bool{}
	for line := range strings.Lines(string(text)) {
		if line = strings.TrimSpace(line); line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		fields := strings.SplitN(line, "|", 4)
		for i := range fields {
			fields[i] = strings.TrimSpace(fields[i])
		}
		runs := map[string][]string{"short": {"short"}, "all": {"all"}, "both": {"short", "all"}}[fields[0]]
		how, known := map[string]int{"need": 4, "step": 4, "beside": 4, "together": 2}[fields[min(1, len(fields)-1)]]
		if len(runs) == 0 || !known || how != len(fields) {
			t.Errorf("scripts/steps: %q is no step", line)
			continue
		}
		if how == 2 {
			continue
		}
		names[fields[2]] = true
		for _, run := range runs {
			if taken[run+fields[2]] {
				t.Errorf("scripts/steps: %q is there twice for %s", fields[2], run)
			}
			taken[run+fields[2]] = true
		}
	}
	return names
}
