package report

import (
	"os"
	"path/filepath"
	"testing"
)

func TestReplace(t *testing.T) {
	path := filepath.Join(t.TempDir(), "page.md")
	must := func(want string) {
		t.Helper()
		if got, err := os.ReadFile(path); err != nil || string(got) != want {
			t.Errorf("%v:\n%s\nwant\n%s", err, got, want)
		}
	}
	write := func(name, text string) {
		t.Helper()
		if err := Replace(path, name, text); err != nil {
			t.Fatal(err)
		}
	}
	const a, b = "<!-- a: written by make bench -->\n", "<!-- b: written by make bench -->\n"
	write("a", "one")
	must(a + "one\n<!-- end of a -->\n")
	write("b", Table([]string{"x", "y"}, [][]string{{"1", "2|3"}}))
	table := "| x | y |\n|---|---|\n| 1 | 2\\|3 |\n"
	must(a + "one\n<!-- end of a -->\n\n" + b + table + "<!-- end of b -->\n")
	if err := os.WriteFile(path, []byte("# Page\n\n"+a+"one\n<!-- end of a -->\nwords\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	write("a", "two\n")
	must("# Page\n\n" + a + "two\n<!-- end of a -->\nwords\n")
	if err := os.WriteFile(path, []byte(a+"one\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Replace(path, "a", "two"); err == nil {
		t.Error("a section without an end was replaced")
	}
	must(a + "one\n")
}
