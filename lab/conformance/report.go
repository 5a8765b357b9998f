package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"time"
)

// test is one line of tests.txt: its group, its name in the suite, and what a board must have to run it.
type test struct {
	group, name string
	needs       []string
}

// result is the outcome of a test.
type result struct {
	test
	state string
	why   string
	took  time.Duration
}

// The states of a test. A test that the suite skipped itself counts as not run: it has proven nothing.
const (
	passed = "passed"
	failed = "FAILED"
	notRun = "not-run"
	waits  = "waits" // for what ledge does not have yet
)

func parseTests(text string) ([]test, error) {
	var all []test
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(fields) < 2 || len(fields) > 3 || len(fields[0]) != 1 || fields[1] == "" {
			return nil, fmt.Errorf("tests.txt: %q is not GROUP<tab>NAME[<tab>NEED, NEED]", line)
		}
		t := test{group: fields[0], name: fields[1]}
		if len(fields) == 3 {
			t.needs = strings.Split(fields[2], ", ")
		}
		all = append(all, t)
	}
	return all, nil
}

func choose(all []test, groups, focus string) ([]test, error) {
	re, err := regexp.Compile(focus)
	if err != nil {
		return nil, fmt.Errorf("-focus: %w", err)
	}
	var out []test
	for _, t := range all {
		if (groups == "" || strings.Contains(groups, t.group)) && re.MatchString(t.name) {
			out = append(out, t)
		}
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("no test of tests.txt that can run is of group %q and matches %q", groups, focus)
	}
	return out, nil
}

// specReport is what we read of ginkgo's JSON report.
type specReport struct {
	ContainerHierarchyTexts []string
	LeafNodeText            string
	State                   string
	RunTime                 time.Duration
	Failure                 struct {
		Message  string
		Location struct {
			FileName   string
			LineNumber int
		}
	}
}

func readResults(path string, chosen []test) ([]result, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the suite wrote no report, see its log: %w", err)
	}
	var suites []struct {
		SpecReports                []specReport
		SpecialSuiteFailureReasons []string
	}
	if err := json.Unmarshal(data, &suites); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	specs := map[string]specReport{}
	for _, s := range suites {
		for _, r := range s.SpecReports {
			if r.LeafNodeText == "" { // the start of the suite itself
				if r.State == "failed" || r.State == "panicked" {
					return nil, fmt.Errorf("the suite cannot start: %s", r.Failure.Message)
				}
				continue
			}
			specs[strings.Join(append(slices.Clone(r.ContainerHierarchyTexts), r.LeafNodeText), " ")] = r
		}
	}
	out := make([]result, len(chosen))
	for i, t := range chosen {
		out[i] = result{test: t, state: notRun}
		spec, ok := specs[t.name]
		switch {
		case !ok:
			out[i].why = "the suite has no such test"
		case spec.State == "passed":
			out[i].state, out[i].took = passed, spec.RunTime
		case spec.State == "skipped" || spec.State == "pending" || spec.State == "":
			out[i].why = spec.Failure.Message
		default: // failed, panicked, timedout, interrupted, aborted
			out[i].state, out[i].took = failed, spec.RunTime
			out[i].why = fmt.Sprintf("%s (%s:%d, %s)", spec.Failure.Message, spec.Failure.Location.FileName,
				spec.Failure.Location.LineNumber, spec.State)
		}
	}
	return out, nil
}

func tally(results []result) map[string]int {
	n := map[string]int{}
	for _, r := range results {
		n[r.state]++
	}
	return n
}

func count(results []result) string {
	n := tally(results)
	return fmt.Sprintf("%d passed, %d failed, %d not run", n[passed], n[failed], n[notRun])
}

// keepScore writes the report: the results of this run of a binary, and for the other tests what the report had of the same version.
func keepScore(path, version, binary string, all []test, results []result) error {
	old, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	text := score(string(old), version, time.Now().UTC().Format(time.DateOnly)+" "+commitOf(binary), all, results)
	return os.WriteFile(path, []byte(text), 0o644)
}

// commitOf is what a binary was built from: the work tree may have gone on since.
func commitOf(binary string) string {
	var v struct{ Commit string }
	out, err := exec.Command(binary, "version", "-o", "json").Output()
	if err != nil || json.Unmarshal(out, &v) != nil || len(v.Commit) < 7 {
		return "unknown"
	}
	return v.Commit[:7]
}

// score merges results into the lines of a report, which says nothing about another version of the suite. stamp says when and on
// what this run was.
func score(old, version, stamp string, all []test, results []result) string {
	head := fmt.Sprintf("Kubernetes' own end-to-end tests (e2e.test %s) on ledge: state, group, day, commit and duration of the last run, name.\n", version)
	if !strings.HasPrefix(old, head) {
		old = ""
	}
	lines := linesOf(old)
	for _, r := range results {
		lines[r.name] = fmt.Sprintf("%-7s %s %s %4.0fs\t%s", r.state, r.group, stamp, r.took.Seconds(), r.name)
	}
	n := map[string]map[string]int{}
	var body strings.Builder
	for _, t := range all {
		line, ok := lines[t.name]
		if missing := t.missing(); len(missing) > 0 {
			line = fmt.Sprintf("%-7s %s for %s\t%s", waits, t.group, strings.Join(missing, ", "), t.name)
		} else if !ok {
			line = fmt.Sprintf("%-7s %s -\t%s", notRun, t.group, t.name)
		}
		state, _, _ := strings.Cut(line, " ")
		if n[t.group] == nil {
			n[t.group] = map[string]int{}
		}
		n[t.group][state]++
		n[t.group][""]++
		fmt.Fprintln(&body, line)
	}
	return head + "Written by `make conformance`; the groups are those of lab/conformance/tests.txt, with what each test needs.\n\n" +
		sums(n) + "\n" + body.String()
}

// linesOf are a report's lines about tests that were run, by name.
func linesOf(report string) map[string]string {
	lines := map[string]string{}
	for line := range strings.Lines(report) {
		line = strings.TrimRight(line, "\n")
		state, _, _ := strings.Cut(line, " ")
		if _, name, ok := strings.Cut(line, "\t"); ok && slices.Contains([]string{passed, failed, notRun}, state) {
			lines[name] = line
		}
	}
	return lines
}

// sums is the table of how many tests of each group are in which state.
func sums(n map[string]map[string]int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%-6s%8s%8s%8s%8s%8s\n", "group", passed, "failed", "not run", waits, "of")
	sum := map[string]int{}
	for _, g := range sorted(n) {
		fmt.Fprintf(&b, "%-6s%8d%8d%8d%8d%8d\n", g, n[g][passed], n[g][failed], n[g][notRun], n[g][waits], n[g][""])
		for k, v := range n[g] {
			sum[k] += v
		}
	}
	fmt.Fprintf(&b, "%-6s%8d%8d%8d%8d%8d\n", "all", sum[passed], sum[failed], sum[notRun], sum[waits], sum[""])
	return b.String()
}

func sorted[V any](m map[string]V) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
