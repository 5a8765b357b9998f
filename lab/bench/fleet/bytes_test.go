package main

import (
	"bufio"
	"strings"
	"testing"
)

// The table tells a ratio of each run, rates as rates, and what one side does not do.
func TestBytesTable(t *testing.T) {
	theirs := &asked{name: "theirs", turns: map[string][]taken{rowCreates: {{2000, 0}, {4000, 0}}, rowList: {{40, 100}, {50, 100}},
		rowChange(500): {{9, 0}}}}
	ours := &asked{name: "ledge", turns: map[string][]taken{rowCreates: {{1000, 0}, {1000, 0}}, rowList: {{4, 20}, {10, 30}}}}
	text := bytesTable(theirs, ours, 1000)
	for _, want := range []string{
		"| creates a second | 500, 250 | 1000, 1000 | 2.00, 4.00 |  |",
		"| list of all | 40.0 ms, 50.0 ms | 4.0 ms, 10.0 ms | 0.10, 0.20 | 0.25 |",
		"| one change reaches 500 watchers | 9.0 ms | more than one caller may have |  |  |",
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("no line %q in\n%s", want, text)
		}
	}
}

// An event longer than the buffer is one event.
func TestSkipLine(t *testing.T) {
	r := bufio.NewReaderSize(strings.NewReader(strings.Repeat("a", 100)+"\nb\nc"), 16)
	for i, whole := range []bool{true, true, false} {
		if err := skipLine(r); (err == nil) != whole {
			t.Errorf("line %d: %v", i, err)
		}
	}
}
