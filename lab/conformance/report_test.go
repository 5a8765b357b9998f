package main

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
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
	want := map[string]int{"A": 75, "B": 81, "C": 16, "D": 30, "E": 10, "F": 10, "G": 8, "H": 5, "I": 73, "J": 47, "K": 24, "L": 59, "M": 24}
	if !maps.Equal(n, want) {
		t.Errorf("tests by group: %v, want %v", n, want)
	}
	if len(all) != 462 {
		t.Errorf("%d tests, the suite has 462", len(all))
	}
	chosen, err := choose(all, "DE", "Namespaces ")
	if err != nil || len(chosen) != 5 {
		t.Fatalf("%v, %v", chosen, err)
	}
	re := regexp.MustCompile(focusOf(chosen))
	for _, x := range all {
		if re.MatchString(x.name) != slices.ContainsFunc(chosen, func(c test) bool { return c.name == x.name }) {
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

// Every need is one that the runner knows, and each that it knows is somebody's. What a board keeps is no longer waited for.
func TestNeeds(t *testing.T) {
	all, err := parseTests(testList)
	if err != nil {
		t.Fatal(err)
	}
	unused := maps.Clone(brings)
	for _, x := range all {
		for _, need := range x.needs {
			if _, ok := brings[need]; !ok {
				t.Errorf("%q needs %q, which nothing brings", x.name, need)
			}
			delete(unused, need)
		}
		if strings.Contains("ABCDEFGH", x.group) && len(x.needs) > 0 {
			t.Errorf("%q ran before anything that it is to wait for: %v", x.name, x.needs)
		}
	}
	if len(unused) > 0 {
		t.Errorf("no test needs %v", unused)
	}
	for _, c := range []struct{ needs, missing string }{
		{"", ""},
		{"two boards", ""},
		{"volumes of CSI", "volumes of CSI"},
		{"custom kinds, two boards", "custom kinds"},
	} {
		x, err := parseTests("A\tname\t" + c.needs + "\n")
		if err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(x[0].missing(), ", "); got != c.missing {
			t.Errorf("who needs %q misses %q, want %q", c.needs, got, c.missing)
		}
	}
	if got := (test{needs: []string{twoBoards}}).missing(); len(got) > 0 {
		t.Errorf("misses %v, which the board keeps", got)
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
		{"ContainerHierarchyTexts":["a","b"],"LeafNodeText":"c","State":"passed","RunTime":5000000000},
		{"ContainerHierarchyTexts":["a"],"LeafNodeText":"d","State":"failed","Failure":{"Message":"why","Location":{"FileName":"f.go","LineNumber":3}}},
		{"ContainerHierarchyTexts":["a"],"LeafNodeText":"e","State":"skipped","Failure":{"Message":"needs two nodes"}}`)
	chosen := []test{{group: "A", name: "a b c"}, {group: "A", name: "a d"}, {group: "B", name: "a e"}, {group: "B", name: "gone"}}
	got, err := readResults(path, chosen)
	if err != nil {
		t.Fatal(err)
	}
	var states []string
	for _, r := range got {
		states = append(states, r.state)
	}
	if strings.Join(states, " ") != "passed FAILED not-run not-run" || !strings.Contains(got[1].why, "why (f.go:3") ||
		got[0].took != 5*time.Second {
		t.Errorf("%+v", got)
	}
	if count(got) != "1 passed, 1 failed, 2 not run" {
		t.Error(count(got))
	}

	// A run of some tests leaves the lines of the others.
	all := append(chosen, test{group: "B", name: "later", needs: []string{"volumes of CSI"}})
	first := score("", "v1", "day1 aaa", all, got)
	second := score(first, "v1", "day2 bbb", all, []result{{test: chosen[1], state: passed, took: 61 * time.Second}})
	for _, line := range []string{"passed  A day1 aaa    5s\ta b c", "passed  A day2 bbb   61s\ta d", "not-run B day1 aaa    0s\ta e",
		"waits   B for volumes of CSI\tlater", "all          2       0       2       1       5"} {
		if !strings.Contains(second, line+"\n") {
			t.Errorf("no line %q in\n%s", line, second)
		}
	}
	// What passed under another version proves nothing about this one.
	if third := score(second, "v2", "day3 ccc", all, nil); !strings.Contains(third, "all          0       0       4       1       5\n") {
		t.Errorf("the report of v1 is in that of v2:\n%s", third)
	}

	write(`{"LeafNodeText":"","State":"failed","Failure":{"Message":"no nodes"}}`)
	if _, err := readResults(path, chosen); err == nil || !strings.Contains(err.Error(), "no nodes") {
		t.Errorf("a suite that cannot start: %v", err)
	}
}
