package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
)

// doorUnits are what BenchmarkDoor (network/ingress/door) says of each way, and what that is.
var doorUnits = []struct{ unit, metric, as string }{
	{"req/s", "requests", "/s"},
	{"cpu-µs/req", "processor time of a request", "µs"},
	{"p50-ms", "half of the requests within", "ms"},
	{"p99-ms", "99 of 100 requests within", "ms"},
	{"anon-MiB", "memory (anonymous)", "MiB"},
}

// requests has the benchmark of the door run, which knows how to open one, and notes what it says.
func (b *bench) requests(ctx context.Context) error {
	cmd := exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", "^BenchmarkDoor$", "-benchtime", "10s", "./network/ingress/door")
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	ways := b.doorRows(string(out))
	if !ways["direct"] || !ways["ledge"] {
		return fmt.Errorf("the benchmark of the door says nothing of ledge: %s", out)
	}
	if !ways["nginx"] {
		b.skip("nginx", fmt.Errorf("it is not in PATH: apt-get install nginx-light"))
	}
	return nil
}

// doorRows reads the lines of a benchmark: a name, how often it ran, and pairs of a value and its unit.
func (b *bench) doorRows(out string) (ways map[string]bool) {
	ways = map[string]bool{}
	for line := range strings.Lines(out) {
		f := strings.Fields(line)
		if len(f) < 2 || !strings.HasPrefix(f[0], "BenchmarkDoor/") {
			continue
		}
		way, _, _ := strings.Cut(strings.TrimPrefix(f[0], "BenchmarkDoor/"), "-") // behind it stands the number of processors
		ways[way] = true
		for _, u := range doorUnits {
			for i := 2; i+1 < len(f); i += 2 {
				if v, err := strconv.ParseFloat(f[i], 64); err == nil && f[i+1] == u.unit {
					b.add(u.metric, way, v, u.as, "32 clients, 1 KiB")
				}
			}
		}
	}
	return ways
}
