// Command pressure writes what hogs have done to small boards, as `make pressure` and `make test-all` measure it in guests
// (ten minutes for a board), as a table. It measures nothing itself.
//
//	go run ./lab/bench/pressure [-from docs/measured/pressure.json] [-page docs/bench.md]
package main

import (
	"flag"
	"fmt"
	"os"
	"strconv"

	"ledge/lab/bench/report"
	"ledge/lab/vm/pressed"
)

func main() {
	from := flag.String("from", "docs/measured/pressure.json", "report of lab/vm pressure")
	page := flag.String("page", "", "a page whose table of these rows is to be written anew")
	flag.Parse()
	boards, err := pressed.Read(*from)
	if err == nil && len(boards) == 0 {
		err = fmt.Errorf("%s has no board: make pressure measures one", *from)
	}
	if err == nil {
		fmt.Print(table(boards))
		if *page != "" {
			err = report.Replace(*page, "pressure", table(boards))
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench pressure:", err)
		os.Exit(1)
	}
}

func table(boards []pressed.Board) string {
	var text string
	var rows [][]string
	for _, b := range boards {
		text += fmt.Sprintf("%d MB: %s, kernel %s.\n", b.MemoryMiB, b.Day, b.Kernel)
		for _, h := range b.Hogs {
			end := h.End
			if end == "" {
				end = "left alone"
			}
			rows = append(rows, []string{strconv.Itoa(b.MemoryMiB) + " MB", h.Hog, h.Signal, amount(h.Signal, h.Line),
				amount(h.Signal, h.Rate) + " /s",
				seconds(h.Noticed), seconds(h.Condition), seconds(h.Evicted), seconds(h.Recovered), end, strconv.Itoa(h.Kills), strconv.Itoa(h.Hurt),
				seconds(h.Slowest)})
		}
	}
	return text + "\n" + report.Table([]string{"board", "hog", "signal", "line", "goes with", "seen s", "condition s", "evicted s", "well s",
		"end", "kernel kills",
		"innocents hurt", "slowest answer s"}, rows)
}

// amount is a quantity with the unit of its signal: bytes, or tasks.
func amount(signal string, n int64) string {
	if signal == "pid.available" || signal == "nodefs.inodesFree" {
		return strconv.FormatInt(n, 10)
	}
	return fmt.Sprintf("%.1f MB", float64(n)/1e6)
}

// seconds since the line was crossed, if ever.
func seconds(ms int64) string {
	if ms < 0 {
		return "-"
	}
	return fmt.Sprintf("%.1f", float64(ms)/1000)
}
