package deps

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	decisionLine   = regexp.MustCompile(`(?m)^\| \[(\d+)\]\(([^)]+)\) \| (.+) \| (.+) \|$`)
	decisionStatus = regexp.MustCompile(`^(?:in force|(?:amended|replaced) by \[\d+\]\(\d{4}-[^)]+\.md\)(?:, \[\d+\]\(\d{4}-[^)]+\.md\))*)$`)
)

// TestPageDecisions: each page has a number of its own and bears it, and a line in the index with its title and a status.
// Numbers are given out before pages are written, so one may be missing for a while.
func TestPageDecisions(t *testing.T) {
	dir := filepath.Join(top, "docs", "decisions")
	index, err := os.ReadFile(filepath.Join(dir, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	listed := map[string]string{} // by file: the head that its line means
	for _, m := range decisionLine.FindAllStringSubmatch(string(index), -1) {
		if listed[m[2]] != "" {
			t.Errorf("the index has two lines for %s", m[2])
		}
		listed[m[2]] = "# " + m[1] + ". " + m[3]
		if !decisionStatus.MatchString(m[4]) {
			t.Errorf("the index: %s is %q, which is no status", m[2], m[4])
		}
	}
	pages, err := filepath.Glob(filepath.Join(dir, "0*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	last := 0
	for _, page := range pages { // sorted by name
		name := filepath.Base(page)
		var number int
		if _, err := fmt.Sscanf(name, "%04d-", &number); err != nil || number <= last {
			t.Errorf("%s: no number above %d", name, last)
		}
		last = number
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		head, _, _ := strings.Cut(string(text), "\n")
		if want := fmt.Sprintf("# %d. ", number); !strings.HasPrefix(head, want) {
			t.Errorf("%s begins with %q, not with %q", name, head, want)
		}
		if listed[name] != head {
			t.Errorf("%s is %q; its line in docs/decisions/README.md says %q", name, head, listed[name])
		}
	}
}
