package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestLintFindsEachRule(t *testing.T) {
	dir := t.TempDir()
	source := "package util\n\nfunc Bare() {}\n\nfunc long() {\n" + strings.Repeat("\t_ = 1\n", 80) + "}\n\nvar _ = long\n\ntype Naked int\n" +
		"\n// Fine is documented.\nfunc Fine() {}\n" +
		"\nvar a = 1 // " + strings.Repeat("w", 128) + "\n\nvar b = f(\"" + strings.Repeat("s", 200) + "\")\n" +
		"\nvar c = f(" + strings.Repeat("1, ", 43) + "\"str\")\n\nvar d = f(" + strings.Repeat("1, ", 45) + "\"str\")\n"
	if err := os.WriteFile(filepath.Join(dir, "a.go"), []byte(source), 0o644); err != nil {
		t.Fatal(err)
	}
	findings, _, err := lint(dir)
	if err != nil {
		t.Fatal(err)
	}
	all := strings.Join(findings, "\n")
	for _, want := range []string{"package name util", "exported Bare has no comment", "function long has 82 lines",
		"exported Naked has no comment",
		"a.go:95: the line has 141 columns", "a.go:101: the line has 151 columns"} {
		if !strings.Contains(all, want) {
			t.Errorf("no finding %q in:\n%s", want, all)
		}
	}
	if len(findings) != 6 {
		t.Errorf("%d findings, want 6:\n%s", len(findings), all)
	}
}
