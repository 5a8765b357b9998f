package main

import (
	"fmt"

	"ledge/lab/bench/report"
)

// The rows of the table of bytes.
const (
	rowCreates  = "creates a second"
	rowPatches  = "patches a second"
	rowGet      = "get of one"
	rowList     = "list of all"
	rowSelector = "list whose selector finds one"
	rowLists    = "32 lists at once"
	rowStates   = "50 watches with the present state"
	rowDeletes  = "deletecollection of all"
	rowMemory   = "memory (PSS) after all that, MiB"
)

var watcherCounts = []int{50, 100, 500}

func rowChange(watchers int) string { return fmt.Sprintf("one change reaches %d watchers", watchers) }

// bytesTable is both runs of both sides, the runs' ratios by the clock, and that of the processor's time of both together.
func bytesTable(theirs, ours *asked, pods int) string {
	var rows [][]string
	names := []string{rowCreates, rowPatches, rowGet, rowList, rowSelector, rowLists, rowStates}
	for _, n := range watcherCounts {
		names = append(names, rowChange(n))
	}
	for _, name := range append(names, rowDeletes, rowMemory) {
		a, b := theirs.turns[name], ours.turns[name]
		ratio, cpu := "", ""
		var theirCPU, ourCPU float64
		for i := range min(len(a), len(b)) {
			if i > 0 {
				ratio += ", "
			}
			x, y := shown(name, a[i], pods), shown(name, b[i], pods)
			ratio += fmt.Sprintf("%.2f", y/x)
			theirCPU, ourCPU = theirCPU+a[i].CPU, ourCPU+b[i].CPU
		}
		if theirCPU > 0 {
			cpu = fmt.Sprintf("%.2f", ourCPU/theirCPU)
		}
		rows = append(rows, []string{name, figures(name, a, pods), figures(name, b, pods), ratio, cpu})
	}
	return report.Table([]string{"call", theirs.name, ours.name, "ledge / theirs", "of processor time"}, rows)
}

// shown is a figure as its row tells it: most are milliseconds.
func shown(name string, t taken, pods int) float64 {
	if name == rowCreates || name == rowPatches {
		return float64(pods) / t.Milliseconds * 1e3
	}
	return t.Milliseconds
}

func figures(name string, turns []taken, pods int) (text string) {
	if len(turns) == 0 {
		return "more than one caller may have"
	}
	for i, t := range turns {
		if i > 0 {
			text += ", "
		}
		switch v := shown(name, t, pods); {
		case name == rowCreates || name == rowPatches || name == rowMemory:
			text += fmt.Sprintf("%.0f", v)
		case v >= 100:
			text += fmt.Sprintf("%.0f ms", v)
		default:
			text += fmt.Sprintf("%.1f ms", v)
		}
	}
	return text
}
