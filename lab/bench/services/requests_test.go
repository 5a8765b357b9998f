package main

import (
	"fmt"
	"testing"
)

// TestDoorRows: what a benchmark says becomes rows, each way and unit its own, and other lines nothing.
func TestDoorRows(t *testing.T) {
	b := &bench{part: "requests"}
	ways := b.doorRows("goos: linux\nBenchmarkDoor/direct-2  82242  121894 ns/op  1.433 p50-ms  36.70 p99-ms  8153 req/s\n" +
		"BenchmarkDoor/ledge-2 47152 306488 ns/op 9.391 anon-MiB 156.7 cpu-µs/req 7.556 p50-ms 54.44 p99-ms 3261 req/s\nPASS\n")
	if len(ways) != 2 || !ways["direct"] || !ways["ledge"] {
		t.Errorf("ways %v", ways)
	}
	var got string
	for _, r := range b.rows {
		got += fmt.Sprintln(r.part, r.What, r.Metric, r.Value, r.Unit)
	}
	if want := `requests direct requests 8153 /s
requests direct half of the requests within 1.433 ms
requests direct 99 of 100 requests within 36.7 ms
requests ledge requests 3261 /s
requests ledge processor time of a request 156.7 µs
requests ledge half of the requests within 7.556 ms
requests ledge 99 of 100 requests within 54.44 ms
requests ledge memory (anonymous) 9.391 MiB
`; got != want {
		t.Errorf("%s", got)
	}
}
