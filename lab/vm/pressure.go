package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ledge/lab/vm/pressed"
)

// pressureFlags say which hogs a board has to bear.
type pressureFlags struct {
	hogs    []string
	binary  string
	verbose bool
	to      string // report; what it has of other hogs and of boards of another size stays
	memory  int
	limit   time.Duration
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
	b := &pressureBoot{verbose: f.verbose, Board: pressed.Board{MemoryMiB: f.memory, Day: time.Now().UTC().Format(time.DateOnly)}}
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
		if err := pressed.Add(f.to, b.Board); err != nil {
			return err
		}
	}
	if len(b.faults) > 0 {
		return errors.New(strings.Join(b.faults, "; "))
	}
	return nil
}

// pressureBoot collects what one boot prints.
type pressureBoot struct {
	pressed.Board
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
			b.MemoryMiB, p.Hog, p.End, p.Least, p.Line, p.Condition, p.Evicted, p.Eased, p.Recovered, p.Kills, p.Hurt, p.Answers, p.Slowest,
			p.AtTheLimit, p.NoRoom, p.Refused, p.Lost,
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
