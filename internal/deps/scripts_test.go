package deps

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	besideSelf = regexp.MustCompile(`\$(?:here|\(dirname "\$0"\))"?/([a-zA-Z0-9_./-]+\.sh)`)
	fromTheTop = regexp.MustCompile(`\b((?:scripts|packaging|lab)/[a-zA-Z0-9_./-]*\.sh)\b`)
)

// TestScriptsNamed: each script that a script, the Makefile, a step or a source names is there. setup.sh once looked for one that had
// moved; only a machine with an empty cache asked for it.
func TestScriptsNamed(t *testing.T) {
	seen := 0
	look := func(path, named, at string) {
		seen++
		if _, err := os.Stat(filepath.Join(top, at)); err != nil {
			t.Errorf("%s names %s, which is not there", path, named)
		}
	}
	eachText(t, []string{".sh", ".go", ""}, func(path, text string) {
		for _, m := range besideSelf.FindAllStringSubmatch(text, -1) {
			look(path, m[1], filepath.Join(filepath.Dir(path), m[1]))
		}
		for _, m := range fromTheTop.FindAllStringSubmatch(text, -1) {
			look(path, m[1], m[1])
		}
	})
	if seen < 20 {
		t.Errorf("%d scripts are named in all: this test does not see them", seen)
	}
}

// TestQuickSkips: each test that make quick leaves out is there. One with another name would run, and nobody would know why it is slow.
func TestQuickSkips(t *testing.T) {
	script, err := os.ReadFile(filepath.Join(top, "scripts", "quick.sh"))
	if err != nil {
		t.Fatal(err)
	}
	skipped := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^skip="(.*)"$`).FindAllStringSubmatch(string(script), -1) {
		for name := range strings.SplitSeq(strings.TrimPrefix(m[1], "$skip|"), "|") {
			skipped[name] = true
		}
	}
	if len(skipped) < 10 {
		t.Fatalf("quick.sh leaves out %d tests: this test does not see them", len(skipped))
	}
	eachText(t, []string{".go"}, func(path, text string) {
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllStringSubmatch(text, -1) {
			delete(skipped, m[1])
		}
	})
	for name := range skipped {
		t.Errorf("scripts/quick.sh leaves out %s, which is no test", name)
	}
}
