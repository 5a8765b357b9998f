package deps

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestDecisions: each page has a number of its own, without a gap, and bears it.
func TestDecisions(t *testing.T) {
	pages, err := filepath.Glob(filepath.Join(top, "docs", "decisions", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no pages: %v", err)
	}
	for i, page := range pages { // sorted by name
		if want := fmt.Sprintf("%04d-", i+1); !strings.HasPrefix(filepath.Base(page), want) {
			t.Errorf("%s: the next number is %s", filepath.Base(page), want)
		}
		f, err := os.Open(page)
		if err != nil {
			t.Fatal(err)
		}
		line := bufio.NewScanner(f)
		line.Scan()
		f.Close()
		if want := fmt.Sprintf("# %d. ", i+1); !strings.HasPrefix(line.Text(), want) {
			t.Errorf("%s begins with %q, not with %q", filepath.Base(page), line.Text(), want)
		}
	}
}
