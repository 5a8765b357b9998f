package main

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"slices"
	"time"

	"ledge/lab/bench/report"
)

// tell writes the table for people, and all for programs.
func (b *bench) tell(sides []*side, quiet, busy []standing, skipped, out, page string) error {
	text := b.compared(sides, quiet, busy)
	if skipped != "" {
		text += "\nSkipped: " + skipped + "\n"
	}
	fmt.Print(text)
	all := map[string]any{"time": time.Now().UTC(), "cores": runtime.NumCPU(), "arch": runtime.GOARCH, "load": b.load,
		"watched": b.watch.String()}
	for i, s := range sides {
		all[s.name] = map[string]any{"turns": s.turns, "atRest": quiet[i], "atRestWithDeployments": busy[i]}
	}
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(out, append(data, '\n'), 0o644); err != nil || page == "" {
		return err
	}
	return report.Replace(page, "workloads", text)
}

// compared is the table: the other side's figures as multiples of ledge's.
func (b *bench) compared(sides []*side, quiet, busy []standing) string {
	head := []string{"what"}
	for _, s := range sides {
		head = append(head, s.name)
	}
	if len(sides) > 1 {
		head = append(head, "times ledge")
	}
	var rows [][]string
	add := func(what, format string, of func(i int) float64) {
		row := []string{what}
		for i := range sides {
			row = append(row, fmt.Sprintf(format, of(i)))
		}
		if len(sides) > 1 {
			ratio := ""
			if first := of(0); first > 0 {
				ratio = fmt.Sprintf("%.1f", of(1)/first)
			}
			row = append(row, ratio)
		}
		rows = append(rows, row)
	}
	whats := []string{"create -> 1 available", "create -> 10 available", "create -> 50 available", fmt.Sprintf("rollout of %d pods", rolled)}
	for _, c := range []struct {
		what, format string
		of           func(cost) float64
	}{
		{"s", "%.2f", func(c cost) float64 { return c.Seconds }},
		{"KiB written", "%.0f", func(c cost) float64 { return c.WrittenKiB }},
		{"s of CPU", "%.2f", func(c cost) float64 { return c.CPU }},
	} {
		for _, what := range whats {
			add(what+", "+c.what, c.format, func(i int) float64 { return middle(sides[i].turns[what], c.of) })
		}
	}
	for _, c := range []struct {
		what string
		of   []standing
	}{{"at rest", quiet}, {fmt.Sprintf("at rest with %d Deployments", restingWorkloads), busy}} {
		add(c.what+", % of a core", "%.2f", func(i int) float64 { return c.of[i].CPU })
		add(c.what+", PSS MiB", "%.1f", func(i int) float64 { return c.of[i].PSS })
		add(c.what+", KiB written", "%.0f", func(i int) float64 { return c.of[i].WrittenKiB })
	}
	add("each Deployment with its pod, KiB of PSS", "%.0f", func(i int) float64 { return 1024 * (busy[i].PSS - quiet[i].PSS) / restingWorkloads })
	return fmt.Sprintf("%s, %d cores, %s; load before: %s\n\n", time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOARCH,
		b.load) + report.Table(head, rows) + fmt.Sprintf("\nThe middle of some turns, which the sides took one after the other. Bytes are those that arrived at a "+
		"file system of each side's own, with its journal; they and CPU count until %s after the end. At rest both were watched together, for %s. "+
		"%d boards that only play what they do are on each side, and not counted.\n", calm, b.watch, boardsOfWorkloads)
}

// middle is the median.
func middle(costs []cost, of func(cost) float64) float64 {
	var all []float64
	for _, c := range costs {
		all = append(all, of(c))
	}
	slices.Sort(all)
	return all[len(all)/2]
}
