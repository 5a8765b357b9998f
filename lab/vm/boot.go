package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

var errCut = errors.New("the power is cut")

// boot is one boot under way.
type boot struct {
	bootReport
	*power
	guest  guest
	do, by string
	off    context.CancelCauseFunc
	timer  *time.Timer
	full   int        // cut when so many changes are acknowledged; 0: not yet
	kept   chan error // the result of the cut
	on     time.Time
	began  time.Time   // of the end
	told   atomic.Bool // what the node has
	notes  []string
	logs   podLogs
}

// boot starts the machine, does one thing with it, and keeps what it printed. last is how the boot before ended; with "" nothing is
// expected of it.
func (p *power) boot(ctx context.Context, do, by, last string) error {
	p.disk.On()
	p.ledger.boot()
	b := &boot{power: p, do: do, by: by, kept: make(chan error, 1), logs: podLogs{}}
	b.guest = guest{arch: "amd64", kernel: filepath.Join(p.dir, "vmlinux"), disks: []string{p.payload},
		root:   p.disk.drive(),
		memory: p.memory, log: filepath.Join(p.work, "console.log"), qmp: filepath.Join(p.work, "qmp"),
		// What the kernel says of CPUs that stand still is about the machine that emulates them, not about ledge.
		append: fmt.Sprintf("sysrq_always_enabled nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 ledge.do=%s ledge.by=%s ledge.seed=%d", do, by,
			p.random.Uint64())}
	b.Disk, b.Do, b.Millis = p.number, strings.TrimSpace(do+" "+by), map[string]int{}
	running, off := context.WithCancelCause(ctx)
	defer off(nil)
	b.off = off
	if do == "busy" && p.early && len(p.report.Boots) > 0 && p.random.IntN(4) == 0 {
		b.Do = "boot"
		b.cutWithin(time.Second, max(p.took, 2*time.Second))
	}
	b.on = time.Now()
	stuck := time.AfterFunc(p.limit*3/4, b.inspect)
	err := b.guest.boot(running, p.limit, b.line)
	stuck.Stop()
	if !b.began.IsZero() {
		b.EndMillis = time.Since(b.began).Milliseconds()
	}
	if b.timer != nil && !b.timer.Stop() {
		err = errors.Join(err, <-b.kept)
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	b.Acknowledged, b.Open = p.ledger.acked, len(p.ledger.open)
	b.judge(err, last)
	p.report.Boots = append(p.report.Boots, b.bootReport)
	p.report.Acknowledged += b.Acknowledged
	p.report.Wrong += len(b.Wrong)
	if b.Loss != nil {
		p.report.Cuts++
	}
	b.print(len(p.report.Boots))
	if len(b.Wrong) > 0 && !b.told.Load() {
		return errors.Join(errors.New("the board does not come up"), p.preserve(ctx))
	}
	return nil
}

// inspect asks the kernel of a board that has been silent for long what each task waits for.
func (b *boot) inspect() {
	if b.told.Load() {
		return
	}
	for _, key := range []string{"9", "w", "t", "l"} { // print all; who is blocked; all tasks; what the CPUs do
		if err := pressSysRq(b.guest.qmp, key); err != nil {
			fmt.Println("vm: cannot ask the kernel:", err)
			return
		}
		time.Sleep(time.Second)
	}
}

// preserve keeps the disk as it was before the boot that failed, and the console of that boot.
func (p *power) preserve(ctx context.Context) error {
	if p.keep == "" {
		return nil
	}
	to := filepath.Join(p.keep, fmt.Sprintf("disk%d-boot%d", p.number, len(p.report.Boots)))
	err := errors.Join(os.MkdirAll(to, 0o755), p.disk.Rewind())
	if err != nil {
		return err
	}
	out, err := command(ctx, "cp", "--sparse=always", filepath.Join(p.work, "root.img"), filepath.Join(p.work, "console.log"),
		to).CombinedOutput()
	if err != nil {
		return fmt.Errorf("keep the disk: %w: %s", err, out)
	}
	fmt.Println("vm: the disk as it was before that boot, and its console, are in", to)
	return nil
}

// cutWithin cuts the power after a time between least and most. Mostly it waits for the next flush of some size: between flushes there is
// often nothing to lose, and most flushes are small.
func (b *boot) cutWithin(least, most time.Duration) {
	b.began = time.Now()
	wait := least + time.Duration(b.random.Int64N(int64(most-least)))
	atFlush, sectors := b.random.IntN(4) > 0, 1<<b.random.IntN(12)
	b.timer = time.AfterFunc(wait, func() {
		if atFlush {
			b.disk.AwaitFlush(sectors, 15*time.Second)
		}
		loss, err := b.disk.Cut(b.random)
		b.Loss = &loss
		b.kept <- err
		b.off(errCut)
	})
}

// line reads one line that the guest prints; true ends the boot.
func (b *boot) line(text string) bool {
	word, ours := strings.CutPrefix(text, "@")
	word, rest, _ := strings.Cut(word, " ")
	args := strings.Fields(rest)
	if !ours {
		return false
	}
	if b.ledger.line(word, args) {
		if b.full > 0 && b.ledger.acked >= b.full && b.timer == nil {
			b.cutWithin(0, 400*time.Millisecond)
		}
		return false
	}
	switch {
	case word == "at" && len(args) == 2:
		b.Millis[args[0]], _ = strconv.Atoi(args[1]) // a number, or the console is broken and the rest will tell
	case word == "state":
		b.told.Store(true)
		b.took = time.Since(b.on)
		lost := b.ledger.compare()
		b.Wrong = append(b.Wrong, lost...)
		b.report.Lost += len(lost)
		return b.do == "look"
	case word == "busy": // counted in changes, not in seconds: the emulated machine may be slow
		b.full = b.ledger.acked + 10 + b.random.IntN(50)
	case word == "down":
		b.began = time.Now()
		if b.by == "button" {
			if err := pressPowerButton(b.guest.qmp); err != nil {
				b.Wrong = append(b.Wrong, "the power button: "+err.Error())
				return true
			}
		}
	case word == "event" && len(args) == 1:
		b.Events = append(b.Events, args[0])
	case word == "log" && len(args) == 3:
		b.logs.add(args[0], args[1], args[2])
	case word == "ended":
		b.logs.end(args)
	case word == "fault":
		b.Wrong = append(b.Wrong, rest)
	case word == "note":
		b.notes = append(b.notes, rest)
	case word == "done":
		return true
	}
	return false
}

// judge returns the faults of a boot. They depend on how it ended, and on how the boot before it ended.
func (b *boot) judge(err error, last string) {
	wrong := func(format string, args ...any) { b.Wrong = append(b.Wrong, fmt.Sprintf(format, args...)) }
	switch {
	case b.do == "busy" && errors.Is(err, errCut):
	case b.do == "look" && err == nil:
	case b.do == "order" && err == errGuestEnded && !b.began.IsZero(): // the machine has switched itself off
	default:
		wrong("%s did not end as it should: %v", b.Do, err)
	}
	if !b.told.Load() {
		return
	}
	slices.Sort(b.Events)
	b.Events = slices.Compact(b.Events)
	switch unclean := slices.Contains(b.Events, "UncleanShutdown"); {
	case last == "":
	case last == "cut" && !unclean:
		wrong("the power was cut and no event says so")
	case last != "cut" && unclean:
		wrong("an orderly end (%s) counts as a power cut", last)
	}
	if last != "" && last != "cut" {
		var faults []string
		b.Stages, faults = b.logs.stages()
		b.Wrong = append(b.Wrong, faults...)
	}
}

func (b *boot) print(n int) {
	var out strings.Builder
	fmt.Fprintf(&out, "vm: disk %d boot %d: %s; API %d, first pod %d, all %d ms; end after %d ms; %d acknowledged, %d open; %v", b.Disk, n,
		b.Do,
		b.Millis["api"], b.Millis["pod"], b.Millis["settled"], b.EndMillis, b.Acknowledged, b.Open, b.Events)
	if b.Loss != nil {
		fmt.Fprintf(&out, "; cut: %d of %d sectors lost, the largest flush had %d", b.Loss.Lost, b.Loss.Pending, b.Loss.Largest)
	}
	fmt.Fprintln(&out)
	for _, s := range b.Stages {
		fmt.Fprintf(&out, "vm:   priority %d: %d pods, %d ms after the first signal, for %d ms\n", s.Priority, s.Pods, s.From, s.Took)
	}
	for _, w := range b.Wrong {
		fmt.Fprintln(&out, "vm:   WRONG:", w)
	}
	if len(b.Wrong) > 0 {
		for _, n := range b.notes {
			fmt.Fprintln(&out, "vm:     ", n)
		}
		fmt.Fprintln(&out, b.guest.console())
	}
	fmt.Print(out.String()) // at once: another disk prints too
}
