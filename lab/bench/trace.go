package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"ledge/lab/bench/stages"
)

// recorder has the kernel record what starts of pods consist of, in an instance of tracefs of its own. It slows a start by some
// hundredths.
type recorder struct{ dir, mounted string }

// recorded are the system calls that tell stages apart; all threads of the machine are looked at, so there are not many.
var recorded = stages.Calls{Mkdirat: unix.SYS_MKDIRAT, Unshare: unix.SYS_UNSHARE, Sendto: unix.SYS_SENDTO, Sendmsg: unix.SYS_SENDMSG,
	Mount: unix.SYS_MOUNT, PivotRoot: unix.SYS_PIVOT_ROOT}

func (b *bench) record(ctx context.Context) (*recorder, error) {
	r := &recorder{mounted: filepath.Join(b.dir, "tracing")}
	if err := os.Mkdir(r.mounted, 0o700); err != nil {
		return nil, err
	}
	if err := quiet(command(ctx, "mount", "-t", "tracefs", "tracefs", r.mounted)); err != nil {
		return nil, err
	}
	r.dir = filepath.Join(r.mounted, "instances", fmt.Sprintf("ledge-bench-%d", os.Getpid()))
	if err := os.Mkdir(r.dir, 0o700); err != nil {
		return nil, errors.Join(err, r.end())
	}
	var filter []string
	for _, n := range []int{recorded.Mkdirat, recorded.Unshare, recorded.Sendto, recorded.Sendmsg, recorded.Mount, recorded.PivotRoot} {
		filter = append(filter, fmt.Sprintf("id==%d", n))
	}
	for _, f := range [][2]string{
		{"trace_clock", "mono"}, {"buffer_size_kb", "8192"}, {"options/record-tgid", "1"},
		{"events/raw_syscalls/sys_enter/filter", strings.Join(filter, "||")}, {"events/raw_syscalls/sys_enter/enable", "1"},
		{"events/sched/sched_process_fork/enable", "1"}, {"events/sched/sched_process_exec/enable", "1"},
	} {
		if err := r.write(f[0], f[1]); err != nil {
			return nil, errors.Join(err, r.end())
		}
	}
	return r, nil
}

func (r *recorder) write(file, text string) error {
	return os.WriteFile(filepath.Join(r.dir, file), []byte(text), 0)
}

func (r *recorder) end() error {
	var err error
	if r.dir != "" {
		err = unix.Rmdir(r.dir) // tracefs ends the recording with its instance
	}
	return errors.Join(err, unix.Unmount(r.mounted, unix.MNT_DETACH), os.Remove(r.mounted))
}

// trace shows where the time of a start goes, by the kernel's own clock.
func (n *node) trace(ctx context.Context) (err error) {
	r, err := n.b.record(ctx)
	if err != nil {
		n.b.skip("the stages of a start", err)
		return nil
	}
	defer func() { err = errors.Join(err, r.end()) }()
	var found [2][]stages.Stage // of pods with a network of their own, and with the host's
	for k, host := range []bool{false, true} {
		var all [][]stages.Stage
		for i := range n.b.runs + 1 {
			s, err := n.recordStart(ctx, r, fmt.Sprintf("traced-%v-%d", host, i), host)
			if err != nil {
				return err
			}
			if i > 0 { // the first finds nothing in memory
				all = append(all, s)
			}
		}
		if found[k], err = stages.Middle(all); err != nil {
			return err
		}
	}
	n.b.addStages(found)
	return nil
}

// recordStart starts one pod while the kernel records, and ends it.
func (n *node) recordStart(ctx context.Context, r *recorder, name string, host bool) ([]stages.Stage, error) {
	if err := r.write("trace", ""); err != nil {
		return nil, err
	}
	n.marks = func(word string) error { return r.write("trace_marker", word+" "+name) }
	_, err := n.runPod(ctx, name, host)
	n.marks = nil
	if err != nil {
		return nil, err
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "trace"))
	if err != nil {
		return nil, err
	}
	s := stages.Start{Name: name, Brain: n.brain.Process.Pid, Network: !host}
	for _, pid := range n.own() {
		if pid != s.Brain {
			s.Keeper = pid
		}
	}
	out, err := stages.Of(stages.Parse(string(text)), s, recorded)
	return out, errors.Join(err, n.deletePod(ctx, name))
}

// addStages adds a metric for each stage, with both kinds of pods that have it.
func (b *bench) addStages(found [2][]stages.Stage) {
	for _, s := range found[0] {
		for k, kind := range []string{"network of its own", "hostNetwork"} {
			i := slices.IndexFunc(found[k], func(x stages.Stage) bool { return x.Name == s.Name })
			if i < 0 {
				continue
			}
			all := found[k][len(found[k])-1].Took
			b.add("a start, "+s.Name, kind, float64(found[k][i].Took.Microseconds())/1000, "ms",
				fmt.Sprintf("%.0f %%", 100*float64(found[k][i].Took)/float64(all)))
		}
	}
}
