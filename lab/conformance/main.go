// Command conformance runs Kubernetes' own end-to-end tests against a ledge node of its own, and keeps the score.
//
//	go run ./lab/conformance [flags]
//
//	-focus REGEXP   only tests whose name matches; the score is printed and not kept
//	-group LETTERS  only these groups of tests.txt (A pods, B volumes, C newer features, D API, E scheduling, F kubectl,
//	                G identities, H network, I workloads, J Services and names, K claims and quotas, L what extends the API,
//	                M certificates and devices)
//	-kubeconfig F   against a server that runs already, instead of a node made for this run
//	-keep           write what was found into the report, also after a run of only some tests
//
// A test that needs what ledge does not have (needs.go) waits; against somebody else's server, all run.
//
// The suite is built from its published modules, its images from Debian packages and the suite's own programs; nothing
// comes from a registry.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

//go:embed tests.txt
var testList string

func main() {
	// The node is told to die with the thread that started it (Pdeathsig), so that thread must live as long as we do.
	runtime.LockOSThread()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "conformance:", err)
		os.Exit(1)
	}
}

type options struct {
	focus, groups, kubeconfig string
	binary, report, logs      string
	keep                      bool
	procs                     int
	limit                     time.Duration
}

func run(ctx context.Context, args []string) error {
	var o options
	fs := flag.NewFlagSet("conformance", flag.ContinueOnError)
	fs.StringVar(&o.focus, "focus", "", "only tests whose name matches this regular expression")
	fs.StringVar(&o.groups, "group", "", "only tests of these groups, as ABD")
	fs.StringVar(&o.kubeconfig, "kubeconfig", "", "a server that runs already, with the images in it")
	fs.StringVar(&o.binary, "binary", "bin/ledge", "ledge")
	fs.StringVar(&o.report, "report", "docs/measured/conformance.txt", "the score by test")
	fs.StringVar(&o.logs, "logs", "", "directory for the node's and the suite's output, made if need be; empty: a new one below /tmp")
	fs.BoolVar(&o.keep, "keep", false, "write the report also when only some tests were run")
	fs.IntVar(&o.procs, "procs", 4, "tests at once")
	fs.DurationVar(&o.limit, "timeout", 90*time.Minute, "end the run after this time")
	if err := fs.Parse(args); err != nil {
		return err
	}
	all, err := parseTests(testList)
	if err != nil {
		return err
	}
	can, tested := ready(all), o.binary
	if o.kubeconfig != "" {
		can, tested = all, "" // a server of somebody else's
	}
	chosen, err := choose(can, o.groups, o.focus)
	if err != nil {
		return err
	}
	whole := o.focus == "" && o.groups == ""
	ctx, cancel := context.WithTimeout(ctx, o.limit)
	defer cancel()
	if o.logs == "" {
		if o.logs, err = os.MkdirTemp("/tmp", "ledge-conformance."); err != nil {
			return err
		}
	} else if err := os.MkdirAll(o.logs, 0o755); err != nil {
		return err
	}
	suite, err := output(ctx, "lab/conformance/suite/build.sh")
	if err != nil {
		return err
	}
	results, err := o.runSuite(ctx, suite, chosen)
	if err != nil {
		return err
	}
	for _, r := range results {
		if r.state != passed {
			fmt.Printf("%s %s %s\n%s\n", r.state, r.group, r.name, indent(r.why))
		}
	}
	fmt.Println(count(results))
	fmt.Println("output:", o.logs)
	if whole || o.keep {
		version, _ := os.ReadFile(filepath.Join(suite, "version"))
		if err := keepScore(o.report, strings.TrimSpace(string(version)), tested, all, results); err != nil {
			return err
		}
		fmt.Println("kept in", o.report)
	}
	if tally(results)[failed] > 0 {
		return errors.New("tests failed")
	}
	return nil
}

// runSuite runs the chosen tests against the given server or a node of our own.
func (o *options) runSuite(ctx context.Context, suite string, chosen []test) (results []result, err error) {
	if o.kubeconfig != "" {
		return o.runTests(ctx, suite, o.kubeconfig, "", chosen)
	}
	n, err := startNode(ctx, o.binary, filepath.Join(o.logs, "node.log"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, n.stop()) }()
	if err := n.importImages(ctx, suite); err != nil {
		return nil, err
	}
	var alone, together []test
	for _, t := range chosen {
		if slices.Contains(t.needs, twoBoards) {
			together = append(together, t)
		} else {
			alone = append(alone, t)
		}
	}
	if len(alone) > 0 {
		if results, err = o.runTests(ctx, suite, n.kubeconfig, "", alone); err != nil {
			return results, err
		}
	}
	if len(together) == 0 {
		return results, nil
	}
	second, err := n.second(ctx, filepath.Join(o.logs, "second.log"))
	if err != nil {
		return results, err
	}
	defer func() { err = errors.Join(err, second.stop()) }()
	if err := second.importImages(ctx, suite); err != nil {
		return results, err
	}
	more, err := o.runTests(ctx, suite, n.kubeconfig, "second", together)
	return append(results, more...), err
}

// runTests runs tests against a server. What they write has a name that begins in a way.
func (o *options) runTests(ctx context.Context, suite, kubeconfig, name string, chosen []test) ([]result, error) {
	kubectl, err := output(ctx, "lab/kubectl/build.sh")
	if err != nil {
		return nil, err
	}
	args := []string{fmt.Sprintf("--procs=%d", o.procs), "--no-color", "--silence-skips", "--timeout=" + o.limit.String(),
		"--json-report=" + name + "report.json", "--output-dir=" + o.logs, "--focus=" + focusOf(chosen), filepath.Join(suite, "e2e.test"), "--",
		"--kubeconfig=" + kubeconfig, "--kubectl-path=" + kubectl, "--provider=skeleton", "--num-nodes=1",
		"--minStartupPods=-1", "--allowed-not-ready-nodes=-1", "--disable-log-dump", "--report-dir=" + o.logs}
	args = append(args, extraArgs()...)
	log, err := os.Create(filepath.Join(o.logs, name+"suite.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	fmt.Printf("running %d tests, %d at once; output in %s\n", len(chosen), o.procs, o.logs)
	cmd := exec.CommandContext(ctx, filepath.Join(suite, "ginkgo"), args...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Env = append(os.Environ(), "KUBECONFIG="+kubeconfig)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	var exit *exec.ExitError
	if err := cmd.Run(); err != nil && !errors.As(err, &exit) { // a failed test makes it exit with 1
		return nil, fmt.Errorf("run the suite: %w", err)
	}
	return readResults(filepath.Join(o.logs, name+"report.json"), chosen)
}

// extraArgs are flags for the suite itself, for debugging.
func extraArgs() []string { return strings.Fields(os.Getenv("E2E_ARGS")) }

// focusOf is the regular expression that picks exactly these tests.
func focusOf(chosen []test) string {
	names := make([]string, len(chosen))
	for i, t := range chosen {
		names[i] = regexp.QuoteMeta(t.name)
	}
	return strings.Join(names, "|")
}

// output runs a script that prints one line.
func output(ctx context.Context, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w", name, err)
	}
	return strings.TrimSpace(string(out)), nil
}

func indent(s string) string {
	const most = 12
	lines := strings.Split(strings.TrimSpace(s), "\n")
	if len(lines) > most {
		lines = append(lines[:most], "...")
	}
	return "    " + strings.Join(lines, "\n    ")
}
