package testrun

import (
	"fmt"
	"io"
	"os"
	"regexp"
	"slices"
	"strings"
)

// mostAgain is how many failed tests of a package may be chance.
const mostAgain = 3

var (
	failedTest = regexp.MustCompile(`^--- FAIL: (\w+) \(`)
	// What no second run makes good: found once, it is there.
	neverChance = regexp.MustCompile(`^(WARNING: DATA RACE|panic: |fatal error: |SIG[A-Z]+: |\*\*\* Test killed)`)
)

// A fault on the stack of Go's own scheduler, in a synctest bubble: under the race detector the runtime shares one race
// context between all threads that run timers of a bubble (runtime.(*timer).unlockAndRun, Go 1.26).
var goFault = regexp.MustCompile(`^goroutine 0 .*synctest bubble`)

// Again reads what the tests of a package that failed have printed, and names those whose failure may be the machine's:
// a starved process, a late timer. A package that raced, panicked, hung, failed as a whole or in many tests gives none.
func Again(output []string) []string {
	var tests []string
	if slices.ContainsFunc(output, goFault.MatchString) {
		return []string{"Test.*"}
	}
	for _, line := range output {
		if neverChance.MatchString(line) {
			return nil
		}
		if m := failedTest.FindStringSubmatch(line); m != nil {
			tests = append(tests, m[1])
		}
	}
	if len(tests) > mostAgain {
		return nil
	}
	return tests
}

// Filter is the -run argument for exactly these tests.
func Filter(tests []string) string { return "^(" + strings.Join(tests, "|") + ")$" }

// Note says that a failure was not seen again: to out, and in the file that LEDGE_AGAIN names, which the run's report
// quotes. A test that is named there often is broken.
func Note(out io.Writer, where, pkg string, tests []string) error {
	note := fmt.Sprintf("failed once, passed alone (%s): %s %s\n", where, pkg, strings.Join(tests, " "))
	path := os.Getenv("LEDGE_AGAIN")
	if _, err := io.WriteString(out, note); err != nil || path == "" {
		return err
	}
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(note); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
