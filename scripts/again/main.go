// Command again runs go test, and the tests that failed once more, each package's alone: on a busy machine a test can
// fail by chance, and a run of half an hour should not end there. It fails when a test fails twice, and never excuses a
// data race, a panic, a hang or a package with many failures. What passed at the second try is named in the report.
//
//	again [-tags X] [FLAG...] ledge/package...
package main

import (
	"bufio"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"

	"ledge/internal/testrun"
)

func main() {
	flags, packages := split(os.Args[1:])
	var failed []failure
	ok, err := goTest(append(flags, packages...), func(out io.Reader) error {
		var err error
		failed, err = read(io.TeeReader(out, os.Stdout))
		return err
	})
	if err == nil && !ok {
		err = again(flags, failed)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "again:", err)
		os.Exit(1)
	}
}

// split tells go test's flags from the packages, which are all of this module.
func split(args []string) (flags, packages []string) {
	for _, a := range args {
		if strings.HasPrefix(a, "ledge/") {
			packages = append(packages, a)
		} else {
			flags = append(flags, a)
		}
	}
	return flags, packages
}

// goTest runs it and reports whether everything passed.
func goTest(args []string, read func(io.Reader) error) (ok bool, err error) {
	cmd := exec.Command("go", append([]string{"test"}, args...)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		return false, err
	}
	if err := cmd.Start(); err != nil {
		return false, err
	}
	readErr := read(out)
	if err := cmd.Wait(); err != nil || readErr != nil {
		return false, readErr
	}
	return true, nil
}

// failure is a package that failed, and which of its tests may be tried again.
type failure struct {
	pkg   string
	tests []string
}

// read takes go test's output apart: what a package prints stands before the line with its result.
func read(out io.Reader) (failed []failure, err error) {
	var lines []string
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		line = strings.TrimSuffix(line, "\n")
		fields := strings.Split(line, "\t")
		switch {
		case len(fields) >= 2 && fields[0] == "FAIL":
			pkg, _, _ := strings.Cut(fields[1], " ") // "ledge/x [build failed]"
			failed = append(failed, failure{pkg, testrun.Again(lines)})
			lines = nil
		case len(fields) >= 2 && (strings.TrimSpace(fields[0]) == "ok" || fields[0] == "?   "):
			lines = nil
		default:
			lines = append(lines, line)
		}
		if err == io.EOF {
			return failed, nil
		}
		if err != nil {
			return nil, err
		}
	}
}

func again(flags []string, failed []failure) error {
	if len(failed) == 0 {
		return fmt.Errorf("go test failed before any package did")
	}
	for _, f := range failed {
		if len(f.tests) == 0 {
			return fmt.Errorf("%s failed; not by chance", f.pkg)
		}
	}
	for _, f := range failed {
		args := append(append([]string{}, flags...), "-count=1", "-v", "-run", testrun.Filter(f.tests), f.pkg)
		ok, err := goTest(args, func(out io.Reader) error {
			_, err := io.Copy(os.Stdout, out)
			return err
		})
		if err != nil {
			return err
		}
		if !ok {
			return fmt.Errorf("%s: %s failed again", f.pkg, strings.Join(f.tests, ", "))
		}
		where := os.Getenv("GOARCH")
		if where == "" {
			where = runtime.GOARCH
		}
		if err := testrun.Note(os.Stdout, where, f.pkg, f.tests); err != nil {
			return err
		}
	}
	return nil
}
