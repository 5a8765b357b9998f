package main

import (
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
)

// A document is taken, or is refused for its kind, its fields, or in words; what comes later is looked at all the same.
func TestTry(t *testing.T) {
	c, err := try(t.Context(), source{name: "made"}, []byte(`# Source: a comment alone
---
apiVersion: v1
kind: ConfigMap
metadata: {name: good, namespace: elsewhere}
---
apiVersion: example.com/v1
kind: Unheard
metadata: {name: of}
---
apiVersion: v1
kind: Pod
metadata: {name: wrong}
spec:
  containers:
  - {name: a, image: busybox, imagePullPolicy: Sometimes}
  - {name: b, image: busybox, imagePullPolicy: Seldom}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: misspelt}
dada: {}
---
apiVersion: v1
kind: Secret
metadata: {name: last}
`))
	if err != nil {
		t.Fatal(err)
	}
	var got [][]string
	for _, d := range c.documents {
		got = append(got, append([]string{d.kind}, d.against...))
	}
	want := [][]string{{"ConfigMap"}, {"Unheard", ""}, {"Pod", "spec.containers[].imagePullPolicy"},
		{"ConfigMap", `ConfigMap: error unmarshaling JSON: while decoding JSON: json: unknown field "dada"`}, {"Secret"}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
	if c.taken() != 2 || c.whole() {
		t.Errorf("%d taken, whole: %v", c.taken(), c.whole())
	}
}

func TestWrite(t *testing.T) {
	page := write([]chart{
		{source{"a", "r", "0123456789abcdef", "p"}, []document{{"ConfigMap", nil}, {"Pod", []string{"spec.x"}}, {"Pod", nil}}},
		{source{"b", "r", "c", "p"}, []document{{"Secret", nil}}},
		{source{"c", "r", "c", "p"}, []document{{"Job", []string{""}}, {"Pod", []string{"spec.x", "spec.a|b"}}}},
	})
	for _, line := range []string{
		"**3 of 6 documents taken, 1 of 3 charts whole.**",
		"| a | r/p | 0123456789ab | 3 | 2 | 1 Pod |",
		"| b | r/p | c | 1 | 1 | whole |",
		"| c | r/p | c | 2 | 0 | 1 Job, 1 Pod |",
		"| Pod | 3 | 2 | 2 | spec.x (2), spec.a\\|b (1) |",
		"| Job | 1 | 1 | 1 | the kind |",
	} {
		if !strings.Contains(page, line+"\n") {
			t.Errorf("no line %q in\n%s", line, page)
		}
	}
	if strings.Index(page, "| Pod |") > strings.Index(page, "| Job |") {
		t.Error("what most charts lack stands below what one lacks")
	}
}

// The page says what ledge takes now. If ledge takes less, something broke; if it takes more, the page is old.
func TestPageIsTrue(t *testing.T) {
	page, err := os.ReadFile("../../docs/measured/charts.md")
	if err != nil {
		t.Fatal(err)
	}
	says := regexp.MustCompile(`(?m)^\*\*(.+)\.\*\*$`).FindSubmatch(page)
	if says == nil {
		t.Fatal("docs/measured/charts.md has no line of sums")
	}
	if n := strings.Count(string(page), "\n| "); n < strings.Count(sourceList, "\n") {
		t.Errorf("docs/measured/charts.md has %d lines in its tables, fewer than there are charts", n)
	}
	dir := os.Getenv("LEDGE_CHARTS")
	if dir == "" {
		dir = "../../../shared/charts" // beside the work tree
	}
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no rendered charts: LEDGE_CHARTS names their directory")
	}
	charts, err := tryAll(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := total(charts); got != string(says[1]) {
		t.Errorf("docs/measured/charts.md says %s; it is %s: `make charts CHARTS=%s` writes it again, see the difference", says[1], got, dir)
	}
}
