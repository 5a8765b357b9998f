package deps

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDecisions: each page has a number of its own and bears it. Numbers are given out before pages are written, so one
// may be missing for a while.
func TestDecisions(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(top, "docs", "decisions", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	last := 0
	for _, page := range pages { // sorted by name
		var number int
		if _, err := fmt.Sscanf(filepath.Base(page), "%04d-", &number); err != nil || number <= last {
			t.Errorf("%s: no number above %d", filepath.Base(page), last)
		}
		last = number
		f, err := os.Open(page)
		if err != nil {
			t.Fatal(err)
		}
		line := bufio.NewScanner(f)
		line.Scan()
		f.Close()
		if want := fmt.Sprintf("# %d. ", number); !strings.HasPrefix(line.Text(), want) {
			t.Errorf("%s begins with %q, not with %q", filepath.Base(page), line.Text(), want)
		}
	}
}
