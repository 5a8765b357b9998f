package main

import (
	"bytes"
	"slices"
	"strings"
	"testing"
)

func TestReportOfAGuest(t *testing.T) {
	var out bytes.Buffer
	r := report{out: &out, waiting: 3, again: map[string][]string{}}
	lines := strings.Split(`guest: up
@@begin a/good
=== RUN   TestX
    x_test.go:7: no such device
--- SKIP: TestX (0.00s)
--- PASS: TestY (0.00s)
--- PASS: TestLong (16.25s)
    --- PASS: TestLong/part (16.00s)
--- PASS: TestLongest (61.00s)
PASS
@@end a/good 0 1500
@@begin b/bad
--- FAIL: TestZ (0.00s)
    z_test.go:9: broken
@@end b/bad 1 20
@@stopped`, "\n")
	for i, l := range lines {
		if done := r.line(l); done != (i == len(lines)-1) {
			t.Errorf("line %q: done is %v", l, done)
		}
	}
	if r.failed != 1 || r.waiting != 1 {
		t.Errorf("failed %d, waiting %d; want 1 and 1: the third package never ended", r.failed, r.waiting)
	}
	if got := r.again["b/bad"]; !slices.Equal(got, []string{"TestZ"}) {
		t.Errorf("to be tried again: %q", got)
	}
	text := out.String()
	for _, want := range []string{"ok  \ta/good\t1.500s\t[guest: 4 passed, 1 skipped]\n      61 s in the guest: TestLongest\n      16 s in the guest: TestLong\n", "TestX (x_test.go:7: no such device)",
		"z_test.go:9: broken", "FAIL\tb/bad\t0.020s\t[guest, exit code 1]"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in:\n%s", want, text)
		}
	}
	if strings.Contains(text, "TestY") {
		t.Errorf("a passing package is quoted:\n%s", text)
	}
}
