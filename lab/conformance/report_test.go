package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The list names every test of the groups once, and picks exactly the chosen ones out of all names.
func TestList(t *testing.T) {
	all, err := parseTests(testList)
	if err != nil {
		t.Fatal(err)
	}
	n := map[string]int{}
	seen := map[string]bool{}
	for _, x := range all {
		n[x.group]++
		if seen[x.name] {
			t.Errorf("%s stands there twice", x.name)
		}
		seen[x.name] = true
	}
	for group, want := range map[string]int{"A": 75, "B": 81, "C": 19, "D": 30, "E": 10, "F": 10, "G": 8, "H": 5} {
		if n[group] != want {
			t.Errorf("group %s has %d tests, want %d", group, n[group], want)
		}
	}
	chosen, err := choose(all, "DE", "Namespaces")
	if err != nil || len(chosen) != 5 {
		t.Fatalf("%v, %v", chosen, err)
	}
	re := regexp.MustCompile(focusOf(chosen))
	for _, x := range all {
		if re.MatchString(x.name) != slices.Contains(chosen, x) {
			t.Errorf("the focus is wrong about %s", x.name)
		}
	}
	if _, err := choose(all, "", "no such test"); err == nil {
		t.Error("an empty choice was taken")
	}
	if _, err := choose(all, "", "("); err == nil {
		t.Error("a broken expression was taken")
	}
	if _, err := parseTests("A no tab\n"); err == nil {
		t.Error("a broken list was taken")
	}
}

func TestResults(t *testing.T) {
	path := filepath.Join(t.TempDir(), "report.json")
	write := func(specs string) {
		if err := os.WriteFile(path, []byte(`[{"SpecReports":[`+specs+`]}]`), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"LeafNodeText":"","State":"passed"},
		{"ContainerHierarchyTexts":["a","b"],"LeafNodeText":"c","State":"passed","RunTime":5},
		{"ContainerHierarchyTexts":["a"],"LeafNodeText":"d","State":"failed","Failure":{"Message":"why","Location":{"FileName":"f.go","LineNumber":3}}},
		{"ContainerHierarchyTexts":["a"],"LeafNodeText":"e","State":"skipped","Failure":{"Message":"needs two nodes"}}`)
	chosen := []test{{"A", "a b c"}, {"A", "a d"}, {"B", "a e"}, {"B", "gone"}}
	got, err := readResults(path, chosen)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, r := range got {
		states = append(states, r.state)
	}
	if strings.Join(states, " ") != "passed FAILED not-run not-run" || !strings.Contains(got[1].why, "why (f.go:3") || got[0].took != 5 {
		t.Errorf("%+v", got)
	}
	if count(got) != "1 passed, 1 failed, 2 not run" {
		t.Error(count(got))
	}

	// A run of some tests leaves the lines of the others.
	first := score("", "v1", "day1 aaa", chosen, got)
	second := score(first, "v1", "day2 bbb", chosen, []result{{test: chosen[1], state: passed}})
	for _, line := range []string{"passed  A day1 aaa\ta b c", "passed  A day2 bbb\ta d", "not-run B day1 aaa\ta e"} {
		if !strings.Contains(second, line+"\n") {
			t.Errorf("no line %q in\n%s", line, second)
		}
	}
	if !strings.Contains(second, "all          2       0       2       4\n") {
		t.Errorf("the sum is wrong in\n%s", second)
	}

	write(`{"LeafNodeText":"","State":"failed","Failure":{"Message":"no nodes"}}`)
	if _, err := readResults(path, chosen); err == nil || !strings.Contains(err.Error(), "no nodes") {
		t.Errorf("a suite that cannot start: %v", err)
	}
}
