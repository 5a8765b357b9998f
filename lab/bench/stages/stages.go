// Package stages takes a recording of the kernel's apart: where the time between the POST of a pod and its program's start went.
package stages

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Event is a line of a recording.
type Event struct {
	At     time.Duration
	Thread int
	Task   int    // the process of the thread; 0 if it was not recorded
	What   string // the name of the trace point: sys_enter, sched_process_fork ...
	Args   string
}

var line = regexp.MustCompile(`^\s*.*-(\d+)\s+\(\s*(\d+|-+)\)\s+\[\d+\]\s+\S+\s+(\d+)\.(\d+): (\w+): (.*)$`)

// Parse reads the text of tracefs's file "trace" with record-tgid; what is no event is left out.
func Parse(text string) []Event {
	var out []Event
	for l := range strings.Lines(text) {
		m := line.FindStringSubmatch(strings.TrimRight(l, "\n"))
		if m == nil {
			continue
		}
		e := Event{What: m[5], Args: m[6]}
		e.Thread, _ = strconv.Atoi(m[1])
		e.Task, _ = strconv.Atoi(m[2])
		s, _ := strconv.ParseInt(m[3], 10, 64)
		us, _ := strconv.ParseInt(m[4], 10, 64)
		e.At = time.Duration(s)*time.Second + time.Duration(us)*time.Microsecond
		out = append(out, e)
	}
	return out
}

// call is the number of the system call that an event enters, or -1.
func (e Event) call() int {
	rest, ok := strings.CutPrefix(e.Args, "NR ")
	if e.What != "sys_enter" || !ok {
		return -1
	}
	number, _, _ := strings.Cut(rest, " ")
	n, err := strconv.Atoi(number)
	if err != nil {
		return -1
	}
	return n
}

var child = regexp.MustCompile(`child_pid=(\d+)`)

// forks is the process or thread that an event makes, or 0.
func (e Event) forks() int {
	if m := child.FindStringSubmatch(e.Args); m != nil && e.What == "sched_process_fork" {
		n, _ := strconv.Atoi(m[1])
		return n
	}
	return 0
}

// Start is what is known of one pod's start: its name, of which the recorder wrote "post NAME", "posted NAME" and "running NAME".
type Start struct {
	Name          string
	Brain, Keeper int
	Network       bool // of its own
}

// Calls are the numbers of the system calls that the stages are told by.
type Calls struct{ Mkdirat, Unshare, Sendto, Sendmsg, Mount, PivotRoot int }

// Stage is a part of the way, which ends with an event.
type Stage struct {
	Name string
	Took time.Duration
}

const lastStage = "told: keeper, status stored, watchers"

// Of gives the stages of one start, which together are all the time from "post" to "running".
func Of(all []Event, s Start, n Calls) ([]Stage, error) {
	w := walk{events: all}
	mark := func(word string) func(Event) bool {
		return func(e Event) bool { return e.What == "tracing_mark_write" && e.Args == word+" "+s.Name }
	}
	enters := func(task int, calls ...int) func(Event) bool {
		return func(e Event) bool { return e.Task == task && slices.Contains(calls, e.call()) }
	}
	if !w.begin(mark("post")) {
		return nil, fmt.Errorf("%s: no mark of its POST", s.Name)
	}
	w.to("stored and answered (brain)", mark("posted"))
	w.to("bound, heard of by its worker, image looked up (brain)", enters(s.Brain, n.Mkdirat))
	w.to("its first volumes (brain)", enters(s.Keeper, n.Mkdirat))
	if s.Network {
		w.to("cgroup of the pod (keeper)", enters(s.Keeper, n.Unshare))
		w.to("namespaces, and the answer (keeper)", enters(s.Brain, n.Sendto, n.Sendmsg))
	}
	var parent, middle, init int
	anew := func(e Event) bool { // the program, as a container's first process
		if e.What != "sched_process_exec" || !strings.Contains(e.Args, "filename=/proc/self/") {
			return false
		}
		parent = e.Thread
		return true
	}
	forked := func(of, to *int) func(Event) bool {
		return func(e Event) bool {
			if e.Thread != *of || e.forks() == 0 {
				return false
			}
			*to = e.forks()
			return true
		}
	}
	if s.Network {
		w.toLast("its network (brain)", enters(s.Brain, n.Sendto), anew)
	}
	w.to("its other volumes, what the container is to be (brain, keeper)", anew)
	w.to("cgroup of the container (keeper)", forked(&parent, &middle))
	w.to("namespaces (libcontainer's C code)", forked(&middle, &init))
	w.to("the program itself starts anew: Go, packages, configuration (init)", func(e Event) bool { return e.Thread == init && e.call() == n.Mount })
	w.to("mounts (init)", func(e Event) bool { return e.Thread == init && e.call() == n.PivotRoot })
	running, told := mark("running"), false // that the program is about to start may be known before the kernel has started it
	w.to("masks, rights, filter (init)", func(e Event) bool {
		told = running(e)
		return told || e.Thread == init && e.What == "sched_process_exec"
	})
	if told {
		w.toLast(lastStage, running, running)
	} else {
		w.to(lastStage, running)
	}
	return w.stages, w.err
}

// walk goes through events, never back.
type walk struct {
	events []Event // those that are left
	at     time.Duration
	stages []Stage
	err    error
}

func (w *walk) begin(is func(Event) bool) bool {
	i := slices.IndexFunc(w.events, is)
	if i < 0 {
		return false
	}
	w.at, w.events = w.events[i].At, w.events[i+1:]
	return true
}

// to ends a stage with the first event that is the one.
func (w *walk) to(name string, is func(Event) bool) {
	if w.err != nil {
		return
	}
	before := w.at
	if !w.begin(is) {
		w.err = fmt.Errorf("no event ends the stage %q", name)
		return
	}
	w.stages = append(w.stages, Stage{name, w.at - before})
}

// toLast ends a stage with the last event of a kind before the first of another.
func (w *walk) toLast(name string, is, before func(Event) bool) {
	if w.err != nil {
		return
	}
	at := w.at
	for _, e := range w.events {
		if before(e) {
			break
		}
		if is(e) {
			at = e.At
		}
	}
	w.stages = append(w.stages, Stage{name, at - w.at})
	w.at = at
}

// Middle is the median of each stage over several starts; the last is that of their sums.
func Middle(starts [][]Stage) ([]Stage, error) {
	if len(starts) == 0 {
		return nil, errors.New("no start was recorded")
	}
	all := make([][]time.Duration, len(starts[0])+1)
	for _, s := range starts {
		if len(s) != len(starts[0]) {
			return nil, fmt.Errorf("a start has other stages: %v, %v", starts[0], s)
		}
		sum := time.Duration(0)
		for i, stage := range s {
			all[i] = append(all[i], stage.Took)
			sum += stage.Took
		}
		all[len(s)] = append(all[len(s)], sum)
	}
	out := make([]Stage, len(all))
	for i, took := range all {
		slices.Sort(took)
		out[i] = Stage{"all of it", took[len(took)/2]}
		if i < len(starts[0]) {
			out[i].Name = starts[0][i].Name
		}
	}
	return out, nil
}
