package testrun

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestAgain(t *testing.T) {
	for name, c := range map[string]struct {
		output string
		want   []string
	}{
		"nothing":        {"ok", nil},
		"one":            {"--- FAIL: TestA (0.00s)\n    a_test.go:3: late\nFAIL", []string{"TestA"}},
		"with its parts": {"--- FAIL: TestA (0.00s)\n    --- FAIL: TestA/b (0.00s)\nFAIL", []string{"TestA"}},
		"three":          {"--- FAIL: TestA (0s)\n--- FAIL: TestB (0s)\n--- FAIL: TestC (0s)", []string{"TestA", "TestB", "TestC"}},
		"too many":       {"--- FAIL: TestA (0s)\n--- FAIL: TestB (0s)\n--- FAIL: TestC (0s)\n--- FAIL: TestD (0s)", nil},
		"a race":         {"WARNING: DATA RACE\n--- FAIL: TestA (0.00s)", nil},
		"a panic":        {"--- FAIL: TestA (0.00s)\npanic: x [recovered]", nil},
		"a hang":         {"panic: test timed out after 15m0s", nil},
		"Go's own": {"SIGSEGV: segmentation violation\nPC=0x41d369 m=0\n\ngoroutine 0 gp=0x1 m=0 mp=0x2 [idle, synctest bubble 12]:",
			[]string{"Test.*"}},
		"C's":             {"SIGSEGV: segmentation violation\nPC=0x41d369 m=0\n\ngoroutine 0 gp=0x1 m=0 mp=0x2 [idle]:", nil},
		"the whole":       {"left behind: a mount\nFAIL", nil},
		"talk of a panic": {"--- FAIL: TestA (0.00s)\n    a_test.go:3: no panic: good", []string{"TestA"}},
	} {
		if got := Again(strings.Split(c.output, "\n")); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

func TestNote(t *testing.T) {
	file := filepath.Join(t.TempDir(), "again")
	t.Setenv("LEDGE_AGAIN", file)
	var out strings.Builder
	for _, test := range []string{"TestA", "TestB"} {
		if err := Note(&out, "here", "ledge/x", []string{test}); err != nil {
			t.Fatal(err)
		}
	}
	b, err := os.ReadFile(file)
	want := "failed once, passed alone (here): ledge/x TestA\nfailed once, passed alone (here): ledge/x TestB\n"
	if err != nil || string(b) != want || out.String() != want {
		t.Errorf("%q %q %v", b, &out, err)
	}
}
