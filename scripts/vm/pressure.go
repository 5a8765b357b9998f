package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ledge/scripts/vm/pressed"
)

// allHogs are those that scripts/vm/load/press.go knows.
const allHogs = "leak5,leak20,leak40,leak20-deaf,leak40-deaf,cache,bomb,bytes,inodes,leak5-zram,full95,crowd"

// pressureFlags say which hogs a board has to bear.
type pressureFlags struct {
	hogs    []string
	binary  string
	verbose bool
	to      string // report; what it has of other hogs and of boards of another size stays
	memory  int
	limit   time.Duration
}

// pressureReport is one board.
type pressureReport struct {
	MemoryMiB int              `json:"memoryMiB"`
	Kernel    string           `json:"kernel"`
	Hogs      []pressed.Result `json:"hogs"`
}

// runPressure boots a small board with a card of its own and lets one hog after the other at it.
func runPressure(ctx context.Context, f pressureFlags) error {
	dir, err := prepare(ctx, "amd64")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	if err := compileProgram(ctx, filepath.Join(work, "payload", "bin", "testprog")); err != nil {
		return err
	}
	payload, err := powerPayload(ctx, work, f.binary, pressureScript)
	if err != nil {
		return err
	}
	card := filepath.Join(work, "card.img")
	if out, err := command(ctx, "mke2fs", "-q", "-t", "ext4", "-m", "0", "-N", "8000", card, "768M").CombinedOutput(); err != nil {
		return fmt.Errorf("make the card: %w: %s", err, out)
	}
	b := &pressureBoot{verbose: f.verbose, pressureReport: pressureReport{MemoryMiB: f.memory}}
	b.guest = guest{arch: "amd64", kernel: filepath.Join(dir, "vmlinux"), disks: []string{filepath.Join(dir, "root.img"), payload, card},
		memory: f.memory, recycles: true, log: filepath.Join(work, "console.log"), qmp: filepath.Join(work, "qmp"),
		append: "sysrq_always_enabled nosoftlockup rcupdate.rcu_cpu_stall_suppress=1 ledge.do=press ledge.by=" + strings.Join(f.hogs, ",")}
	if err := b.guest.boot(ctx, f.limit, b.line); err != nil { // what has been seen until then is worth keeping
		b.faults = append(b.faults, fmt.Sprintf("%v; its console:\n%s", err, b.guest.console()))
	}
	if len(b.Hogs) < len(f.hogs) {
		b.faults = append(b.faults, fmt.Sprintf("%d hogs of %d", len(b.Hogs), len(f.hogs)))
	}
	if f.to != "" {
		if err := b.write(f.to); err != nil {
			return err
		}
	}
	if len(b.faults) > 0 {
		return errors.New(strings.Join(b.faults, "; "))
	}
	return nil
}

// pressureBoot is what is seen of one boot.
type pressureBoot struct {
	pressureReport
	guest   guest
	verbose bool
	faults  []string
}

func (b *pressureBoot) line(text string) bool {
	if b.verbose {
		fmt.Println(text)
	}
	word, rest, _ := strings.Cut(strings.TrimPrefix(text, "@"), " ")
	switch {
	case strings.HasPrefix(text, "guest: "):
		b.Kernel = strings.Fields(text)[1]
	case text == "@@done" || text == "@@stopped":
		b.faults = append(b.faults, "the program that looks on has ended")
		return true
	case !strings.HasPrefix(text, "@"):
	case word == "pressed":
		var p pressed.Result
		if err := json.Unmarshal([]byte(rest), &p); err != nil {
			b.faults = append(b.faults, text)
			return false
		}
		p.Judge()
		b.Hogs = append(b.Hogs, p)
		for _, w := range p.Wrong {
			b.faults = append(b.faults, p.Hog+": "+w)
		}
		fmt.Printf("vm: %d MiB, %s: %s %d of %d left; condition after %d ms, evicted %d, eased %d, well %d; %d killed by the kernel, %d hurt; %d answers, the slowest %d ms, %d at the limit, %d without room, %d missing, %d lost %s\n",
			b.MemoryMiB, p.Hog, p.End, p.Least, p.Line, p.Condition, p.Evicted, p.Eased, p.Recovered, p.Kills, p.Hurt, p.Answers, p.Slowest, p.AtTheLimit, p.NoRoom, p.Refused, p.Lost,
			strings.Join(p.Wrong, "; "))
	case word == "fault":
		b.faults = append(b.faults, rest)
		fmt.Println("vm:", text)
	case word == "at":
		fmt.Printf("vm: %s ms after the kernel's start\n", rest)
	case word == "note":
		fmt.Println("vm:", rest)
	case word == "done":
		return true
	}
	return false
}

// write puts each hog in place of what the report has of it on a board of this size, in the order of allHogs.
func (b *pressureBoot) write(to string) error {
	var all []pressureReport
	text, err := os.ReadFile(to)
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("%s: %w", to, err)
	}
	now := b.pressureReport
	for _, r := range all {
		for _, h := range r.Hogs {
			if r.MemoryMiB == b.MemoryMiB && !slices.ContainsFunc(b.Hogs, func(p pressed.Result) bool { return p.Hog == h.Hog }) {
				now.Hogs = append(now.Hogs, h)
			}
		}
	}
	order := strings.Split(allHogs, ",")
	slices.SortStableFunc(now.Hogs, func(a, b pressed.Result) int { return slices.Index(order, a.Hog) - slices.Index(order, b.Hog) })
	all = append(slices.DeleteFunc(all, func(r pressureReport) bool { return r.MemoryMiB == b.MemoryMiB }), now)
	slices.SortFunc(all, func(a, b pressureReport) int { return a.MemoryMiB - b.MemoryMiB })
	if text, err = json.MarshalIndent(all, "", " "); err != nil {
		return err
	}
	return os.WriteFile(to, append(text, '\n'), 0o644)
}

// pressureScript installs ledge with its data on a card of its own, which hogs may fill.
const pressureScript = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
echo "guest: $(uname -r)"
mkdir -p /var/lib/ledge /etc/ledge
mount /dev/nvme2n1 /var/lib/ledge
cp /payload/bin/ledge /usr/local/bin/
cp /payload/*.service /etc/systemd/system/
echo 'evictionPressureTransitionPeriod: 10s' >/etc/ledge/config.yaml
# The pages of a program that was copied count for who copied it; after a boot they count for who runs it.
sync
echo 1 >/proc/sys/vm/drop_caches
# Half a minute is little for an emulated CPU on a busy machine.
mkdir -p /etc/systemd/system/ledge.service.d
printf '[Service]\nWatchdogSec=180\n' >/etc/systemd/system/ledge.service.d/slow.conf
systemctl daemon-reload
systemctl enable --now --quiet ledge-keeper.service ledge.service
exec /payload/bin/load
`
