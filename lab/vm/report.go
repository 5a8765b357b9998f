package main

import (
	"cmp"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"ledge/internal/testrun"
)

// report turns the output of the guest into lines of go test.
type report struct {
	out     io.Writer
	verbose bool
	waiting int // packages that have not ended
	failed  int
	again   map[string][]string // of the failed packages, those whose tests may have failed by chance

	lines   []string // of the package that runs now, or of the guest before the first
	passed  int
	skipped []string
	slow    []slow
}

// slow is a test that took long, as go test says it: "TestX (12.50s)".
type slow struct {
	seconds float64
	test    string
}

const longTest = 15 // seconds; what takes longer is named

// result is the line of a whole test, not of a part of it.
var result = regexp.MustCompile(`^--- (?:PASS|FAIL): (\w+) \((\d+\.\d+)s\)$`)

// line takes one line; true means the last package has ended.
func (r *report) line(text string) bool {
	verb, rest, marked := strings.Cut(text, " ")
	switch {
	case marked && verb == "@@begin":
		r.lines, r.passed, r.skipped, r.slow = nil, 0, nil, nil
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
	if m := result.FindStringSubmatch(text); m != nil {
		if seconds, err := strconv.ParseFloat(m[2], 64); err == nil && seconds > longTest {
			r.slow = append(r.slow, slow{seconds, m[1]})
		}
	}
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
	slices.SortFunc(r.slow, func(a, b slow) int { return cmp.Compare(b.seconds, a.seconds) })
	for _, s := range r.slow {
		fmt.Fprintf(r.out, "    %4.0f s in the guest: %s\n", s.seconds, s.test)
	}
	for _, s := range r.skipped {
		fmt.Fprintf(r.out, "    skipped in the guest: %s\n", s)
	}
	r.lines = nil
}

// dump prints the output of the package that runs now, unless it was printed already.
func (r *report) dump() {
	if !r.verbose {
		for _, l := range r.lines {
			fmt.Fprintln(r.out, l)
		}
	}
	r.lines = nil
}
