// Package testrun is what tests know of the run they are part of: how fast the machine is, and what tells their things
// from those of other runs beside it.
package testrun

import (
	"os"
	"strconv"
	"testing"
	"time"
)

// Patience is d, or LEDGE_PATIENCE times d where the CPU is emulated. It is for limits that only something broken
// reaches; what a test measures, or lets pass on purpose, stays as it is.
func Patience(d time.Duration) time.Duration {
	if factor, err := strconv.Atoi(os.Getenv("LEDGE_PATIENCE")); err == nil && factor > 1 {
		return time.Duration(factor) * d
	}
	return d
}

// emulated is a guest, or a processor that is another one's program: everything takes six times as long.
func emulated() bool { return os.Getenv("LEDGE_EMULATED") != "" }

// OnHost skips a test where the processor is emulated: there it takes minutes and finds what it finds on the host too. With LEDGE_WHOLE,
// as in the guest of the long runs, it runs all the same. A test that another kernel or cgroup version may answer otherwise does not call
// OnHost.
func OnHost(t testing.TB) {
	t.Helper()
	if emulated() && os.Getenv("LEDGE_WHOLE") == "" {
		t.Skip("on the host")
	}
}

// Measured leaves a test out of all that is emulated: what it measures is not the same there.
func Measured(t testing.TB) {
	t.Helper()
	if emulated() {
		t.Skip("measures: on the host")
	}
}

// Rounds is how often to try something at random: n times, or fewer where the processor is emulated or the race detector watches.
func Rounds(n int) int {
	switch {
	case emulated():
		return (n + 5) / 6
	case Raced:
		return (n + 2) / 3
	}
	return n
}

// Mark stands in the name of everything that a test leaves visible to the whole machine: interfaces, cgroups, files
// outside of t.TempDir. No other process has the same, and scripts/leaks.sh knows its beginning, LEDGE_RUN.
// It has at most 11 letters and digits: an interface has room for four more.
func Mark() string {
	run := os.Getenv("LEDGE_RUN")
	if run == "" {
		run = "lt"
	}
	return run + strconv.FormatInt(int64(os.Getpid()), 36)
}
