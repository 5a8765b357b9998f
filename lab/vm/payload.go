package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"ledge/internal/testrun"
)

// suite is one run of the Debian guest.
type suite struct {
	packages []string // import paths or patterns
	binary   string
	filter   string
	verbose  bool
	whole    bool   // with what is left to the host otherwise (testrun.OnHost)
	kernel   string // more words for its command line
	memory   int
	limit    time.Duration
}

// The guest shares no glibc with the machine that builds, so test binaries are static like ledge itself.
const buildTags = "netgo osusergo seccomp runc_nocriu"

// prologue begins what the guest runs. The emulated CPU is some six times slower than the host's, and a busy host makes
// that worse: LEDGE_PATIENCE stretches the limits of tests.
const prologue = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root LANG=C.UTF-8
export LEDGE_VM=1 LEDGE_EMULATED=1 LEDGE_PATIENCE=5 LEDGE_BIN=/payload/bin/ledge LEDGE_TESTPROG=/payload/bin/testprog LEDGE_DEBS=/payload/debs
export LEDGE_LONG='%s' LEDGE_SEED='%s'
echo "guest: $(uname -r), $(stat -fc %%T /sys/fs/cgroup): $(cat /sys/fs/cgroup/cgroup.controllers)"
`

func begin() string { return fmt.Sprintf(prologue, os.Getenv("LEDGE_LONG"), os.Getenv("LEDGE_SEED")) }

// one runs the tests of one package. Two packages run at a time, so it prints everything at once, between marks. It passes -test.v because
// the report counts tests and names those that are skipped. A package ends its own late test and prints all stacks; where the Go runtime
// itself is stuck, timeout ends it.
const one = `#!/bin/sh
cd "/payload/src/$1" || exit 0
exec 9>/tmp/one.lock
begin=$(date +%%s%%N)
timeout -s QUIT -k 30 $((%[1]d + 20)) "/payload/tests/$2" -test.v -test.run='%[2]s' -test.timeout=%[1]ds >"/tmp/$2.out" 2>&1 9>&-
code=$?
flock 9
echo "@@begin $1"
cat "/tmp/$2.out"
echo
echo "@@end $1 $code $((($(date +%%s%%N) - begin) / 1000000))"
exit 0
`

// alone takes the whole guest over.
const alone = "packaging/systemd"

// runTests runs the tests of each package in the guest, two packages at a time, and fails when one does.
func runTests(ctx context.Context, s suite) error {
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	tree := filepath.Join(work, "payload")
	packages, broken, err := compile(ctx, s.packages, tree)
	if err != nil {
		return err
	}
	if err := compileProgram(ctx, filepath.Join(tree, "bin", "testprog")); err != nil {
		return err
	}
	if slices.Contains(packages, alone) {
		if err := packDebs(ctx, s.binary, filepath.Join(tree, "debs")); err != nil {
			return err
		}
	}
	if len(packages)+broken == 0 {
		return errors.New("no package with tests among " + strings.Join(s.packages, " "))
	}
	r, err := s.try(ctx, work, packages)
	if err != nil {
		return err
	}
	if r.failed > 0 && len(r.again) == r.failed && r.waiting+broken == 0 {
		if r, err = s.tryAgain(ctx, work, r.again); err != nil {
			return err
		}
	}
	if r.failed+r.waiting+broken > 0 {
		return fmt.Errorf("of %d packages %d failed in the guest, %d did not end; %d more did not build",
			len(packages), r.failed, r.waiting, broken)
	}
	return nil
}

// tryAgain runs the packages that failed once more: the failure may have been chance.
func (s suite) tryAgain(ctx context.Context, work string, failed map[string][]string) (*report, error) {
	s.filter = testrun.Filter(slices.Concat(slices.Collect(maps.Values(failed))...))
	r, err := s.try(ctx, work, slices.Sorted(maps.Keys(failed)))
	if err != nil || r.failed+r.waiting > 0 {
		return r, err
	}
	for pkg, tests := range failed {
		if err := testrun.Note(os.Stdout, "guest", pkg, tests); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// try boots the guest with these packages.
func (s suite) try(ctx context.Context, work string, packages []string) (*report, error) {
	one := fmt.Appendf(nil, one, int(s.limit.Seconds())*3/4, s.filter)
	if err := os.WriteFile(filepath.Join(work, "payload", "one"), one, 0o755); err != nil {
		return nil, err
	}
	var script strings.Builder
	script.WriteString(begin())
	if s.whole {
		script.WriteString("export LEDGE_WHOLE=1\n")
	}
	// Shortly before the host gives up: the processes that still run, for its report.
	fmt.Fprintf(&script, "(sleep %d; echo unfinished:; ps -eo pid,ppid,stat,wchan,etimes,args; tail -n 40 /tmp/*.out) &\n",
		int(s.limit.Seconds())*9/10)
	script.WriteString("xargs -r -P 2 -n 2 /payload/one <<END\n")
	for _, p := range packages {
		if p != alone {
			fmt.Fprintln(&script, p, testName(p))
		}
	}
	script.WriteString("END\n")
	if slices.Contains(packages, alone) {
		fmt.Fprintln(&script, "/payload/one", alone, testName(alone))
	}
	r := &report{out: os.Stdout, verbose: s.verbose, waiting: len(packages), again: map[string][]string{}}
	if err := s.boot(ctx, work, script.String(), r.line); err != nil {
		r.dump()
		return nil, err
	}
	return r, nil
}

// runShell runs one command in the guest.
func runShell(ctx context.Context, s suite, command string) error {
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	code := -1
	err = s.boot(ctx, work, begin()+"cd /root\n("+command+"\n)\necho \"@@end shell $?\"\n", func(text string) bool {
		if rest, ok := strings.CutPrefix(text, "@@end shell "); ok {
			code, _ = strconv.Atoi(rest)
		}
		if !strings.HasPrefix(text, "@@") {
			fmt.Println(text)
		}
		return text == "@@done" || text == "@@stopped"
	})
	if err == nil && code != 0 {
		err = fmt.Errorf("exit code %d in the guest", code)
	}
	return err
}

// boot makes the payload disk from work/payload and runs the guest with it.
func (s suite) boot(ctx context.Context, work, script string, line func(string) bool) error {
	tree, disk := filepath.Join(work, "payload"), filepath.Join(work, "payload.img")
	if err := os.MkdirAll(filepath.Join(tree, "bin"), 0o755); err != nil {
		return err
	}
	if _, err := os.Stat(s.binary); err == nil {
		if err := copyFile(s.binary, filepath.Join(tree, "bin", "ledge")); err != nil {
			return err
		}
	}
	// Sleep: the host kills the guest, and a unit that ends would only add lines.
	if err := os.WriteFile(filepath.Join(tree, "run"), []byte(script+"echo @@done\nsleep 60\n"), 0o755); err != nil {
		return err
	}
	if err := payloadDisk(ctx, tree, disk); err != nil {
		return err
	}
	g, err := debian(ctx, disk, s.memory)
	if err != nil {
		return err
	}
	g.append = s.kernel
	start := time.Now()
	first := true
	err = g.boot(ctx, s.limit, func(text string) bool {
		if first && strings.HasPrefix(text, "guest: ") {
			first = false
			fmt.Printf("vm: up after %.1f s; %s\n", time.Since(start).Seconds(), text)
			return false
		}
		return line(text)
	})
	if err != nil {
		return fmt.Errorf("%w; its console:\n%s", err, g.console())
	}
	return nil
}

// payloadDisk packs a tree as the disk that the guest mounts at /payload.
func payloadDisk(ctx context.Context, tree, disk string) error {
	size := int64(64 << 20)
	err := filepath.WalkDir(tree, func(_ string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		info, err := d.Info()
		size += info.Size() + 4096
		return err
	})
	if err != nil {
		return err
	}
	if out, err := command(ctx, "mke2fs", "-q", "-t", "ext4", "-O", "^metadata_csum", "-E", "root_owner=0:0", "-m", "0",
		"-L", "payload", "-d", tree, disk, strconv.FormatInt(size>>20, 10)+"M").CombinedOutput(); err != nil {
		return fmt.Errorf("make the payload disk: %w: %s", err, out)
	}
	return nil
}

// compile builds the test binaries under tree/tests and lays the packages' other files out under tree/src, where the
// tests' working directories are. It returns the packages' directories, relative to the module, and how many of them do
// not build.
func compile(ctx context.Context, patterns []string, tree string) (packages []string, broken int, err error) {
	list := command(ctx, "go", append([]string{"list", "-tags", buildTags,
		"-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}\t{{.Module.Path}}{{end}}"}, patterns...)...)
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return nil, 0, fmt.Errorf("list %s: %w", strings.Join(patterns, " "), err)
	}
	for row := range strings.Lines(string(out)) {
		fields := strings.Split(strings.TrimSpace(row), "\t")
		if len(fields) != 3 {
			continue
		}
		name := strings.TrimPrefix(strings.TrimPrefix(fields[0], fields[2]), "/")
		build := command(ctx, "go", "test", "-c", "-trimpath", "-tags", buildTags,
			"-ldflags", "-s -w -linkmode external -extldflags -static", "-o", filepath.Join(tree, "tests", testName(name)), fields[0])
		build.Stdout, build.Stderr = os.Stderr, os.Stderr
		if err := build.Run(); err != nil {
			if ctx.Err() != nil {
				return nil, 0, context.Cause(ctx)
			}
			fmt.Printf("FAIL\t%s [build failed]\n", name)
			broken++
			continue
		}
		if err := copyPackage(fields[1], filepath.Join(tree, "src", name)); err != nil {
			return nil, 0, err
		}
		packages = append(packages, name)
	}
	return packages, broken, nil
}

// compileProgram builds the program that the containers of the tests run.
func compileProgram(ctx context.Context, to string) error {
	build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", to, "./runtime/runtimetest/testprog")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the test program: %w\n%s", err, out)
	}
	return nil
}

// packDebs makes two Debian packages of the binary: one to install and one to upgrade to.
func packDebs(ctx context.Context, binary, to string) error {
	if err := os.Mkdir(to, 0o755); err != nil {
		return err
	}
	for _, version := range []string{"v0.0.1", "v0.0.2"} {
		pack := command(ctx, "packaging/deb/build.sh", "amd64", binary, to)
		pack.Env = append(os.Environ(), "VERSION="+version, "COMPRESS=gzip", "LEDGE_BIN="+binary)
		if out, err := pack.CombinedOutput(); err != nil {
			return fmt.Errorf("pack ledge for Debian: %w\n%s", err, out)
		}
	}
	return nil
}

func testName(pkg string) string { return strings.ReplaceAll(pkg, "/", "_") + ".test" }

// copyPackage copies the files beside the sources and testdata: what a test may open by a relative path.
func copyPackage(from, to string) error {
	entries, err := os.ReadDir(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(to, 0o755); err != nil {
		return err
	}
	for _, e := range entries {
		switch {
		case e.IsDir() && e.Name() == "testdata":
			err = os.CopyFS(filepath.Join(to, "testdata"), os.DirFS(filepath.Join(from, "testdata")))
		case e.Type().IsRegular() && path.Ext(e.Name()) != ".go":
			err = copyFile(filepath.Join(from, e.Name()), filepath.Join(to, e.Name()))
		}
		if err != nil {
			return fmt.Errorf("copy %s of %s: %w", e.Name(), from, err)
		}
	}
	return nil
}

func copyFile(from, to string) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	info, err := in.Stat()
	if err != nil {
		return err
	}
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, info.Mode().Perm())
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return err
	}
	return out.Close()
}
