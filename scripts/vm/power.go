package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"time"

	"ledge/internal/testrun"
	"ledge/scripts/vm/flash"
)

// power is a run of boots of one disk, which forgets what it was not told to flush: orderly ends, whose order the pods'
// own logs tell after the next boot, and cuts. No boot is told anything of those before, and none gets a hand.
type power struct {
	ends   []string // orderly ends before the cuts: button, or a verb of systemctl
	cuts   int
	early  bool // some cuts fall into the boot
	lie    bool // two boots more, with a disk that lies about flushes
	seed   uint64
	binary string
	to     string // report
	memory int
	limit  time.Duration // of one boot

	dir, work string
	disk      *flash.Disk
	ledger    *ledger
	random    *rand.Rand
	report    powerReport
}

// powerReport is the run as JSON.
type powerReport struct {
	Seed         uint64       `json:"seed"`
	Cuts         int          `json:"cuts"`
	Acknowledged int          `json:"acknowledged"`
	Wrong        int          `json:"wrong"` // of which Lost were acknowledged and are not there
	Lost         int          `json:"lost"`
	LieFound     *bool        `json:"lieFound,omitempty"`
	Boots        []bootReport `json:"boots"`
}

// bootReport is one boot. Millis are times since the kernel's start.
type bootReport struct {
	Do           string         `json:"do"`
	Millis       map[string]int `json:"ms"`    // until the API answers, a first pod runs, all do (settled), the 20 do (full)
	EndMillis    int64          `json:"endMs"` // from the power event to the machine's end, or from the load's begin to the cut
	Acknowledged int            `json:"acknowledged"`
	Open         int            `json:"notAcknowledged"`
	Loss         *flash.Loss    `json:"cut,omitempty"`
	Events       []string       `json:"events,omitempty"`
	Stages       []stage        `json:"stages,omitempty"` // of the shutdown before this boot
	Wrong        []string       `json:"wrong,omitempty"`
}

// runPowerTwice gives an emulated machine that is late, or whose pods had no time to say their word, a second try. What was
// acknowledged and lost is never excused.
func runPowerTwice(ctx context.Context, p *power) error {
	again := *p
	err := runPower(ctx, p)
	if err == nil || p.report.Lost > 0 || ctx.Err() != nil {
		return err
	}
	fmt.Println("vm: nothing that was acknowledged is lost, once more:", err)
	if err := runPower(ctx, &again); err != nil {
		return err
	}
	return testrun.Note(os.Stdout, "vm", "power", []string{err.Error()})
}

func runPower(ctx context.Context, p *power) error {
	var err error
	if p.dir, err = prepare(ctx, "amd64"); err != nil {
		return err
	}
	if p.work, err = os.MkdirTemp("", "ledge-vm-"); err != nil {
		return err
	}
	defer os.RemoveAll(p.work)
	if err := p.payload(ctx); err != nil {
		return err
	}
	path := filepath.Join(p.work, "root.img")
	if out, err := command(ctx, "cp", "--sparse=always", filepath.Join(p.dir, "root.img"), path).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the root disk: %w: %s", err, out)
	}
	if p.disk, err = flash.Open(path); err != nil {
		return err
	}
	defer p.disk.Close()
	l, err := net.Listen("unix", p.socket())
	if err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- p.disk.Serve(l) }()
	p.ledger, p.random, p.report.Seed = newLedger(), rand.New(rand.NewPCG(p.seed, 1)), p.seed
	err = errors.Join(p.boots(ctx), l.Close(), <-served, p.write())
	if err == nil && p.report.Wrong > 0 {
		err = fmt.Errorf("%d things are wrong", p.report.Wrong)
	}
	if err != nil {
		return fmt.Errorf("seed %d: %w", p.seed, err)
	}
	return nil
}

func (p *power) socket() string { return filepath.Join(p.work, "nbd") }

// boots is the whole run. The last boot only looks.
func (p *power) boots(ctx context.Context) error {
	last := "" // how the boot before ended
	for _, by := range p.ends {
		if err := p.boot(ctx, "order", by, last); err != nil {
			return err
		}
		last = by
	}
	for range p.cuts {
		if err := p.boot(ctx, "busy", "", last); err != nil {
			return err
		}
		last = "cut"
	}
	if err := p.boot(ctx, "look", "", last); err != nil || !p.lie {
		return err
	}
	// The control: a disk that lies must be found out, or nothing above proves anything.
	p.disk.Lie()
	if err := p.boot(ctx, "busy", "", ""); err != nil {
		return err
	}
	wrong, lost := p.report.Wrong, p.report.Lost
	err := p.boot(ctx, "look", "", "")
	found := p.report.Wrong > wrong
	p.report.Wrong, p.report.Lost, p.report.LieFound = wrong, lost, &found
	if !found {
		return errors.Join(err, errors.New("a disk that lied about every flush lost nothing: this run proves nothing"))
	}
	return ctx.Err()
}

// payload makes the disk with ledge and the programs of the guest.
func (p *power) payload(ctx context.Context) error {
	tree := filepath.Join(p.work, "payload")
	bin := filepath.Join(tree, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for name, pkg := range map[string]string{"load": "./scripts/vm/load", "pod": "./scripts/vm/load/pod"} {
		build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
		if out, err := build.CombinedOutput(); err != nil {
			return fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	for from, to := range map[string]string{p.binary: "bin/ledge", "scripts/systemd/ledge.service": "ledge.service",
		"scripts/systemd/ledge-keeper.service": "ledge-keeper.service"} {
		if err := copyFile(from, filepath.Join(tree, to)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "run"), []byte(powerScript), 0o755); err != nil {
		return err
	}
	return payloadDisk(ctx, tree, filepath.Join(p.work, "payload.img"))
}

// powerScript installs ledge in the first boot as its README says; in all others the board has to come up by itself.
const powerScript = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
if ! [ -e /etc/systemd/system/multi-user.target.wants/ledge.service ]; then
	cp /payload/bin/ledge /usr/local/bin/
	cp /payload/*.service /etc/systemd/system/
	mkdir -p /etc/ledge
	cat >/etc/ledge/config.yaml <<END
shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 20}
- {priority: 10, shutdownGracePeriodSeconds: 20}
- {priority: 100, shutdownGracePeriodSeconds: 20}
- {priority: 1000, shutdownGracePeriodSeconds: 20}
END
	systemctl daemon-reload
	systemctl enable --now --quiet ledge-keeper.service ledge.service
	sync
fi
exec /payload/bin/load
`

func (p *power) write() error {
	data, err := json.MarshalIndent(p.report, "", "  ")
	if err != nil || p.to == "" {
		return err
	}
	return os.WriteFile(p.to, append(data, '\n'), 0o644)
}
