package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

func architecture(t *testing.T) string {
	t.Helper()
	page, err := os.ReadFile(filepath.Join(top, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	return string(page)
}

// TestArchitecturePackages: every package has a line in a table of docs/architecture.md, and every line there a package.
func TestArchitecturePackages(t *testing.T) {
	lines := map[string]bool{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([a-z0-9/]+)` \\| .+ \\|$").FindAllStringSubmatch(architecture(t), -1) {
		if lines[m[1]] {
			t.Errorf("%s has two lines", m[1])
		}
		lines[m[1]] = true
	}
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		if !lines[name] {
			t.Errorf("docs/architecture.md does not name the package %s", name)
		}
		delete(lines, name)
	}
	for name := range lines {
		t.Errorf("docs/architecture.md names %s, which is no package", name)
	}
}

var (
	heading           = regexp.MustCompile(`(?m)^##+ (.+)$`)
	architectureCited = regexp.MustCompile(`architecture:\s+(?:// )?([A-Z].*)`)
)

// TestArchitectureCited: what sources and pages cite as "architecture: Heading" is a heading of docs/architecture.md.
func TestArchitectureCited(t *testing.T) {
	var headings []string
	for _, m := range heading.FindAllStringSubmatch(architecture(t), -1) {
		headings = append(headings, m[1])
	}
	cited := 0
	eachText(t, []string{".go", ".md", ".sh"}, func(path, text string) {
		if path == "internal/deps/architecture_test.go" || path == "docs/architecture.md" {
			return
		}
		for _, m := range architectureCited.FindAllStringSubmatch(text, -1) {
			cited++
			known := false
			for _, h := range headings {
				known = known || strings.HasPrefix(m[1], h)
			}
			if !known {
				t.Errorf("%s cites architecture: %s; there is no such heading", path, m[1])
			}
		}
	})
	if cited == 0 {
		t.Error("nothing cites the page: is the pattern wrong?")
	}
}
