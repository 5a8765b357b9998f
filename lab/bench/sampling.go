package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// sampling is what it costs to see in time that the board is short: the reads of each interval, beside cgroups of 50 pods
// that this machine's kernel has to add up. They are the benchmarks that the packages keep for it.
func (n *node) sampling(ctx context.Context) error {
	for _, m := range []struct{ bench, pkg, metric, interval string }{
		{"BenchmarkGlance", "./host", "sampling cost: memory of the board", "each glance, every 250 ms to 5 s"},
		{"BenchmarkRoom", "./host", "sampling cost: disks and processes", "each second to 5 s"},
		{"BenchmarkGroup50", "./node/stats", "sampling cost: memory of 50 pods together", "each look (10 s), and glances near the line"},
		{"BenchmarkPass50", "./node/stats", "sampling cost: all that 50 pods use", "each 15 s"},
	} {
		out, err := command(ctx, "go", "test", "-tags", "netgo osusergo seccomp runc_nocriu", "-run", "^$", "-bench", "^"+m.bench+"$",
			m.pkg).Output()
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			err = fmt.Errorf("%w: %s%s", err, out, exit.Stderr)
		}
		if err != nil {
			n.b.skip(m.metric, err) // no Go here
			continue
		}
		ns, unit, ok := timeOf(string(out), m.bench)
		if !ok {
			return fmt.Errorf("%s says %q", m.bench, out)
		}
		n.b.add(m.metric, "ledge", ns/1e6, "ms", m.interval+"; "+unit)
	}
	return nil
}

// timeOf finds what one round of a benchmark took, in nanoseconds: processor time if it says so.
func timeOf(out, bench string) (ns float64, what string, ok bool) {
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) == 0 || !strings.HasPrefix(f[0], bench) {
			continue
		}
		for i := 1; i < len(f); i++ {
			v, err := strconv.ParseFloat(f[i-1], 64)
			switch {
			case err != nil:
			case f[i] == "cpu-ns/op":
				return v, "processor time", true
			case f[i] == "ns/op":
				ns, what, ok = v, "by the clock", true
			}
		}
	}
	return ns, what, ok
}
