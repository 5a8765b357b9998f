package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"ledge/internal/testrun"
)

// report turns what the guest prints into go test's own lines.
type report struct {
	out     io.Writer
	verbose bool
	waiting int // packages that have not ended
	failed  int
	again   map[string][]string // of the failed packages, those whose tests may have failed by chance

	lines   []string // of the package that runs now, or of the guest before the first
	passed  int
	skipped []string
}

// line takes one line; true means the last package has ended.
func (r *report) line(text string) bool {
	verb, rest, marked := strings.Cut(text, " ")
	switch {
	case marked && verb == "@@begin":
		r.lines, r.passed, r.skipped = nil, 0, nil
		return false
	case marked && verb == "@@end":
		if fields := strings.Fields(rest); len(fields) == 3 {
			r.end(fields[0], fields[1], fields[2])
		}
		return false
	case text == "@@done" || text == "@@stopped":
		return true
	}
	if r.verbose {
		fmt.Fprintln(r.out, text)
	}
	r.lines = append(r.lines, text)
	switch trimmed := strings.TrimSpace(text); {
	case strings.HasPrefix(trimmed, "--- PASS"):
		r.passed++
	case strings.HasPrefix(trimmed, "--- SKIP: "):
		// The reason stands in the line before, unless that is of a sibling's result.
		why := ""
		if n := len(r.lines); n > 1 && strings.Contains(r.lines[n-2], "_test.go:") {
			why = " (" + strings.TrimSpace(r.lines[n-2]) + ")"
		}
		r.skipped = append(r.skipped, strings.Fields(trimmed)[2]+why)
	}
	return false
}

func (r *report) end(name, code, millis string) {
	r.waiting--
	ms, _ := strconv.Atoi(millis) // 0 for what is no number: the time is decoration
	seconds := float64(ms) / 1000
	if code != "0" {
		r.failed++
		if tests := testrun.Again(r.lines); len(tests) > 0 {
			r.again[name] = tests
		}
		r.dump()
		fmt.Fprintf(r.out, "FAIL\t%s\t%.3fs\t[guest, exit code %s]\n", name, seconds, code)
		return
	}
	fmt.Fprintf(r.out, "ok  \t%s\t%.3fs\t[guest: %d passed, %d skipped]\n", name, seconds, r.passed, len(r.skipped))
	for _, s := range r.skipped {
		fmt.Fprintf(r.out, "    skipped in the guest: %s\n", s)
	}
	r.lines = nil
}

// dump prints what the package that runs now has printed, unless it is out already.
func (r *report) dump() {
	if !r.verbose {
		for _, l := range r.lines {
			fmt.Fprintln(r.out, l)
		}
	}
	r.lines = nil
}
