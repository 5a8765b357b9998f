package deps

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// sections of which docs/rules.md accounts for every rule, and how many rules each has. Of other sections it has the rules
// that are cited. Section 5 has 44: its last number is a remark.
var sections = map[int]int{1: 69, 2: 18, 3: 62, 4: 11, 5: 44, 6: 37, 10: 26}

var ruleCited = regexp.MustCompile(`N-(\d+)\.(\d+)(?: to N-(\d+)\.(\d+))?`)

// TestRules: docs/rules.md has a sentence for every rule that is cited anywhere, and a test that exists and says the rule's
// number; in the sections above it is told why there is none. What is out is said in the manual too.
func TestRules(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "docs", "rules.md"))
	if err != nil {
		t.Fatal(err)
	}
	manual, err := os.ReadFile(filepath.Join(top, "docs", "manual", "rules-not-followed.md"))
	if err != nil {
		t.Fatal(err)
	}
	missing := rulesCited(t)
	for section, n := range sections {
		for i := range n {
			missing[fmt.Sprintf("N-%d.%d", section, i+1)] = true
		}
	}
	told, cited := rulesIn(string(manual)), citations(t)
	for _, row := range rowsOf(t, []string{"no.", "rule"}, string(page)) {
		rule := row.what
		if !missing[rule] {
			t.Errorf("%s is listed twice, or nothing cites it", rule)
		}
		delete(missing, rule)
		if !strings.HasSuffix(row.says, ".") {
			t.Errorf("%s has no sentence that says it", rule)
		}
		for _, test := range row.tests {
			switch rules, ok := cited[test]; {
			case !ok:
				t.Errorf("%s: there is no test %s", rule, test)
			case !rules[rule]:
				t.Errorf("%s: %s does not say this number", rule, test)
			}
		}
		if len(row.tests) == 0 && row.note == "" {
			t.Errorf("%s has no test and no reason", rule)
		}
		if row.out && !told[rule] {
			t.Errorf("%s is out in docs/rules.md; docs/manual/rules-not-followed.md does not say so", rule)
		}
	}
	for _, rule := range slices.Sorted(maps.Keys(missing)) {
		t.Errorf("%s is not listed in docs/rules.md", rule)
	}
}

// rulesCited is every rule that a source or a page names, docs/rules.md aside.
func rulesCited(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	eachText(t, []string{".go", ".md"}, func(path, text string) {
		if path != filepath.Join("docs", "rules.md") {
			maps.Copy(out, rulesIn(text))
		}
	})
	return out
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
