package deps

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
)

// sections of the rules that docs/rules.md accounts for, and how many rules each has. What stands at the end of section 5 is
// only where its issue numbers are from.
var sections = map[int]int{1: 69, 2: 18, 3: 62, 4: 11, 5: 44, 6: 37, 10: 26}

var ruleCited = regexp.MustCompile(`N-(\d+)\.(\d+)(?: to N-(\d+)\.(\d+))?`)

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
	for _, row := range rowsOf(t, "rule", string(page)) {
		rule := row.what
		if !missing[rule] {
			t.Errorf("%s is listed twice, or there is no such rule", rule)
		}
		delete(missing, rule)
		for _, test := range row.tests {
			switch rules, ok := cited[test]; {
			case !ok:
				t.Errorf("%s: there is no test %s", rule, test)
			case !rules[rule]:
				t.Errorf("%s: %s does not say this number", rule, test)
			}
		}
		if len(row.tests) == 0 && !row.waits && !row.out {
			t.Errorf("%s has no test and no reason", rule)
		}
		if row.out && !told[rule] {
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
