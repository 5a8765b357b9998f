package stages

import (
	"strings"
	"testing"
	"time"
)

// recording is what the kernel writes of one start, without most of what is between.
const recording = `# tracer: nop
#           TASK-PID       TGID    CPU#  |||||  TIMESTAMP  FUNCTION
           bench-9     (      9) [000] ...1. 70.000000: tracing_mark_write: post p
           ledge-11    (     10) [001] ..... 70.001000: sys_enter: NR 258 (ffffffffffffff9c, 1, 1c0, 0, 0, 0)
           bench-9     (      9) [000] ...1. 70.002000: tracing_mark_write: posted p
           ledge-21    (     20) [001] ..... 70.003000: sys_enter: NR 44 (b, 1, 0, 0, 0, 0)
           ledge-11    (     10) [001] ..... 70.004000: sys_enter: NR 258 (ffffffffffffff9c, 1, 1c0, 0, 0, 0)
           ledge-22    (     20) [001] ..... 70.006000: sys_enter: NR 258 (ffffffffffffff9c, 1, 1c0, 0, 0, 0)
           ledge-22    (     20) [001] ..... 70.007000: sys_enter: NR 272 (8000000, 0, 0, 0, 0, 0)
           ledge-12    (     10) [001] ..... 70.010000: sys_enter: NR 44 (b, 1, 0, 0, 0, 0)
           ledge-12    (     10) [001] ..... 70.014000: sys_enter: NR 44 (b, 1, 0, 0, 0, 0)
           ledge-22    (     20) [001] ..... 70.015000: sched_process_fork: comm=ledge pid=22 child_comm=ledge child_pid=30
 runc:[0:PARENT]-30    (     30) [001] d..2. 70.016000: sched_process_exec: filename=/proc/self/fd/7 pid=30 old_pid=30
           other-99    (-------) [001] ..... 70.017000: sched_process_fork: comm=other pid=99 child_comm=other child_pid=98
 runc:[0:PARENT]-30    (     30) [001] ..... 70.018000: sched_process_fork: comm=runc:[0:PARENT] pid=30 child_comm=x child_pid=31
  runc:[1:CHILD]-31    (     31) [001] ..... 70.019000: sched_process_fork: comm=runc:[1:CHILD] pid=31 child_comm=x child_pid=32
           pause-32    (     32) [001] ..... 70.024000: sys_enter: NR 165 (1, 2, 3, 4, 0, 0)
           ledge-12    (     10) [001] ..... 70.025000: sys_enter: NR 44 (b, 1, 0, 0, 0, 0)
           pause-32    (     32) [001] ..... 70.030000: sys_enter: NR 155 (1, 2, 3, 4, 0, 0)
`

const (
	program = "           pause-32    (     32) [001] ..... 70.035000: sched_process_exec: filename=/pause pid=32 old_pid=32\n"
	running = "           bench-9     (      9) [000] ...1. 70.040000: tracing_mark_write: running p\n"
	early   = "           bench-9     (      9) [000] ...1. 70.034000: tracing_mark_write: running p\n"
)

// calls are those of amd64.
var calls = Calls{Mkdirat: 258, Unshare: 272, Sendto: 44, Sendmsg: 46, Mount: 165, PivotRoot: 155}

func TestOf(t *testing.T) {
	for _, tt := range []struct {
		name, text string
		network    bool
		want       []int // milliseconds
	}{
		{"a network of its own", recording + program + running, true, []int{2, 2, 2, 1, 3, 4, 2, 2, 1, 5, 6, 5, 5}},
		{"the host's network", recording + program + running, false, []int{2, 2, 2, 10, 2, 1, 5, 6, 5, 5}},
		{"told before the kernel has started the program", recording + early + program, true, []int{2, 2, 2, 1, 3, 4, 2, 2, 1, 5, 6, 4, 0}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			got, err := Of(Parse(tt.text), Start{Name: "p", Brain: 10, Keeper: 20, Network: tt.network}, calls)
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != len(tt.want) {
				t.Fatalf("%v, want %v", got, tt.want)
			}
			for i, s := range got {
				if want := time.Duration(tt.want[i]) * time.Millisecond; s.Took != want {
					t.Errorf("%s took %v, want %v", s.Name, s.Took, want)
				}
			}
		})
	}
}

// TestOfIncomplete: what was not recorded is named, and no figure is made up.
func TestOfIncomplete(t *testing.T) {
	all := recording + program + running
	for drop, want := range map[string]string{"post p": "its POST", "NR 155": "mounts (init)", "running p": "told", "NR 272": "cgroup of the pod"} {
		var kept []string
		for l := range strings.Lines(all) {
			if !strings.Contains(l, drop) {
				kept = append(kept, l)
			}
		}
		got, err := Of(Parse(strings.Join(kept, "")), Start{Name: "p", Brain: 10, Keeper: 20, Network: true}, calls)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("without %q: %v, %v; want an error that names %q", drop, got, err, want)
		}
	}
}

func TestMiddle(t *testing.T) {
	start := func(a, b time.Duration) []Stage { return []Stage{{"a", a}, {"b", b}} }
	got, err := Middle([][]Stage{start(1, 9), start(3, 1), start(2, 2)})
	if err != nil || len(got) != 3 || got[0] != (Stage{"a", 2}) || got[1] != (Stage{"b", 2}) || got[2] != (Stage{"all of it", 4}) {
		t.Errorf("%v, %v", got, err)
	}
	for _, bad := range [][][]Stage{nil, {start(1, 1), start(1, 1)[:1]}} {
		if got, err := Middle(bad); err == nil {
			t.Errorf("%v of %v", got, bad)
		}
	}
}
