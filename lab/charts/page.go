package main

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// total is the line that the page is known by.
func total(charts []chart) string {
	var documents, taken, whole int
	for _, c := range charts {
		documents, taken = documents+len(c.documents), taken+c.taken()
		if c.whole() {
			whole++
		}
	}
	return fmt.Sprintf("%d of %d documents taken, %d of %d charts whole", taken, documents, whole, len(charts))
}

func write(charts []chart) string {
	var b strings.Builder
	fmt.Fprintf(&b, "# What ledge takes of charts\n\n**%s.**\n\n", total(charts))
	b.WriteString("Real charts with their default values, as `helm template` renders them, each applied to an API of its own. Written by\n" +
		"`make charts CHARTS=DIRECTORY`, which reads DIRECTORY/NAME.yaml; nothing of the charts is kept here.\n\n" +
		"| chart | from | at | documents | taken | not taken |\n|---|---|---|---|---|---|\n")
	for _, c := range charts {
		fmt.Fprintf(&b, "| %s | %s/%s | %.12s | %d | %d | %s |\n", c.name, c.repository, c.path, c.commit, len(c.documents), c.taken(),
			cmp.Or(refusals(c.documents), "whole"))
	}
	b.WriteString("\n## Why not\n\n| kind | documents | not taken | charts | because of |\n|---|---|---|---|---|\n")
	for _, r := range byKind(charts) {
		fmt.Fprintf(&b, "| %s | %d | %d | %d | %s |\n", r.kind, r.all, r.refused, r.charts, because(r.against))
	}
	return b.String()
}

// refusals names the parts of a chart that ledge did not take, by kind.
func refusals(documents []document) string {
	n := map[string]int{}
	for _, d := range documents {
		if len(d.against) > 0 {
			n[d.kind]++
		}
	}
	var out []string
	for _, kind := range slices.Sorted(maps.Keys(n)) {
		out = append(out, fmt.Sprintf("%d %s", n[kind], kind))
	}
	return strings.Join(out, ", ")
}

// row counts the objects of one kind, those that ledge refuses, the charts with one, and the reasons.
type row struct {
	kind                 string
	all, refused, charts int
	against              map[string]int
}

// byKind are the kinds that ledge does not take whole. The kind that most charts use comes first.
func byKind(charts []chart) []*row {
	rows := map[string]*row{}
	for _, c := range charts {
		lacks := map[string]bool{}
		for _, d := range c.documents {
			if rows[d.kind] == nil {
				rows[d.kind] = &row{kind: d.kind, against: map[string]int{}}
			}
			r := rows[d.kind]
			r.all++
			if len(d.against) == 0 {
				continue
			}
			r.refused++
			for _, field := range d.against {
				r.against[field]++
			}
			if !lacks[d.kind] {
				lacks[d.kind] = true
				r.charts++
			}
		}
	}
	out := slices.DeleteFunc(slices.Collect(maps.Values(rows)), func(r *row) bool { return r.refused == 0 })
	slices.SortFunc(out, func(a, b *row) int {
		return cmp.Or(b.charts-a.charts, b.refused-a.refused, cmp.Compare(a.kind, b.kind))
	})
	return out
}

func because(against map[string]int) string {
	fields := slices.Collect(maps.Keys(against))
	slices.SortFunc(fields, func(a, b string) int { return cmp.Or(against[b]-against[a], cmp.Compare(a, b)) })
	for i, f := range fields {
		if f == "" {
			fields[i] = "the kind"
		} else {
			fields[i] = fmt.Sprintf("%s (%d)", strings.ReplaceAll(f, "|", `\|`), against[f])
		}
	}
	return strings.Join(fields, ", ")
}
