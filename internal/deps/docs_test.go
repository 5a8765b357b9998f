package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// mostReadMe is how many words README.md may have: what a stranger reads. All else is the manual's.
const mostReadMe = 800

func TestPageReadMe(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(top, "README.md"))
	if err != nil {
		t.Fatal(err)
	}
	if n := len(strings.Fields(string(text))); n > mostReadMe {
		t.Errorf("README.md has %d words, %d are meant to do: docs/manual has room", n, mostReadMe)
	}
}

var pageLink = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// TestPageLinks: a link from one of our pages to another leads somewhere, and the manual's index names each of its pages.
func TestPageLinks(t *testing.T) {
	linked := map[string]bool{}
	eachText(t, []string{".md"}, func(path, text string) {
		for _, m := range pageLink.FindAllStringSubmatch(text, -1) {
			to := filepath.Join(filepath.Dir(path), m[1])
			linked[path+" "+to] = true
			if _, err := os.Stat(filepath.Join(top, to)); err != nil {
				t.Errorf("%s links to %s, which is not there", path, m[1])
			}
		}
	})
	pages, err := filepath.Glob(filepath.Join(top, "docs", "manual", "*.md"))
	if err != nil || len(pages) == 0 {
		t.Fatalf("no manual: %v", err)
	}
	const index = "docs/manual/README.md"
	for _, page := range pages {
		name := filepath.Join("docs", "manual", filepath.Base(page))
		if name != index && !linked[index+" "+name] {
			t.Errorf("%s does not name %s", index, filepath.Base(page))
		}
	}
}

var variable = regexp.MustCompile(`\bLEDGE_[A-Z0-9_]+`)

// TestPageVariables: CONTRIBUTING.md has a row for each environment variable of ours that a source names, and for no other.
func TestPageVariables(t *testing.T) {
	page, err := os.ReadFile(filepath.Join(top, "CONTRIBUTING.md"))
	if err != nil {
		t.Fatal(err)
	}
	told, families := map[string]bool{}, []string{}
	for _, m := range regexp.MustCompile("`(LEDGE_[A-Z0-9_]+)(\\*?)`").FindAllStringSubmatch(string(page), -1) {
		told[m[1]] = true
		if m[2] != "" {
			families = append(families, m[1])
		}
	}
	used := map[string]bool{}
	eachText(t, []string{".go", ".sh", "", ".service"}, func(path, text string) {
		for _, name := range variable.FindAllString(text, -1) {
			family := slices.IndexFunc(families, func(f string) bool { return strings.HasPrefix(name, f) })
			if family >= 0 {
				name = families[family]
			}
			if !told[name] && !used[name] && path != "internal/deps/docs_test.go" {
				t.Errorf("%s names %s; CONTRIBUTING.md does not", path, name)
			}
			used[name] = true
		}
	})
	for name := range told {
		if !used[name] {
			t.Errorf("CONTRIBUTING.md names %s, and no source does", name)
		}
	}
}
