package main

import (
	"go/parser"
	"go/token"
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

// Elements that are structs cost a sort of their own; pointers, strings and interfaces do not.
func TestLintFindsSorts(t *testing.T) {
	for source, want := range map[string]string{
		"slices.SortFunc(x, func(a, b row) int { return 0 })":                    "row",
		"slices.SortStableFunc(x, func(a, b net.IP) int { return 0 })":           "net.IP",
		"slices.SortFunc(x, netip.Addr.Compare)":                                 "netip.Addr",
		"_ = slices.SortedFunc(y, func(a, b picked[T]) int { return 0 })":        "picked[T]",
		"slices.SortFunc(x, func(a, b *corev1.Pod) int { return 0 })":            "",
		"slices.SortFunc(x, func(a, b string) int { return 0 })":                 "",
		"slices.SortFunc(x, strings.Compare)":                                    "",
		"slices.SortFunc(x, olderFirst)":                                         "",
		"sort.Slice(x, func(i, j int) bool { return x[i].name < x[j].name })":    "",
		"slices.SortStableFunc(x, func(a, b os.DirEntry) int { return rank() })": "",
	} {
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "a.go", "package x\n\nfunc f() {\n\t"+source+"\n}\n", 0)
		if err != nil {
			t.Fatal(err)
		}
		if found := sorts(fset, file); (want == "") != (len(found) == 0) || len(found) > 0 && !strings.Contains(found[0], "sorts "+want+" by") {
			t.Errorf("%s: %q", source, found)
		}
	}
	for path, want := range map[string]bool{"node/stats.go": true, "./api/local/look.go": true, "node/stats_test.go": false, "lab/vm/main.go": false} {
		if linked(path) != want {
			t.Errorf("%s: linked %v", path, !want)
		}
	}
}
