package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"time"

	"ledge/upgrade/upgradetest"
)

// upgradesReport is the run as JSON.
type upgradesReport struct {
	Seed    uint64         `json:"seed"`
	Seconds int            `json:"seconds"`
	Cuts    int            `json:"cuts"`
	Within  int64          `json:"withinMillis"` // of the moment when all was well, each by chance; an upgrade and its way back fit in
	Lost    int            `json:"lostSectors"`
	Boots   map[string]int `json:"boots"` // all of the disk that is cut, by the version with which all was well
}

// upgrades is one board that changes between two versions. Its disk loses all writes that were not flushed.
type upgrades struct {
	versions [2]string
	guest    guest
	limit    time.Duration
	report   upgradesReport
	boot     []string // what its console has said
	fault    error
}

// runUpgrades has a board take a signed version, go back, and take it again while its plug is pulled: each boot after a cut must come
// up whole, with one of the two.
func runUpgrades(ctx context.Context, ledge, to string, memory, cuts int, seed uint64, limit time.Duration) error {
	dir, err := prepare(ctx, "amd64")
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	u := &upgrades{limit: limit, report: upgradesReport{Seed: seed, Boots: map[string]int{}}}
	files, err := u.files(ctx, ledge, work)
	if err != nil {
		return err
	}
	initrd, card := filepath.Join(work, "board.cpio"), filepath.Join(work, "card.img")
	if err := applianceRoot(ctx, "amd64", dir, ledge, work, initrd, files); err != nil {
		return err
	}
	if out, err := command(ctx, "mke2fs", "-q", "-t", "ext4", card, "512M").CombinedOutput(); err != nil {
		return fmt.Errorf("make the data partition: %w: %s", err, out)
	}
	u.guest = guest{arch: "amd64", kernel: filepath.Join(dir, "vmlinux"), initrd: initrd, memory: memory,
		append: "rdinit=/init watch=upgrades ledge.data=/dev/nvme0n1 ledge.name=board -- serve --manifests /manifests --watchdog /dev/watchdog"}
	fmt.Println("vm: seed", seed)
	begin := time.Now()
	p := &pulled{socket: filepath.Join(work, "nbd"), rng: rand.New(rand.NewPCG(seed, 57)), limit: limit, from: u.line}
	// Nobody pulls anything at first: that is how long both ways take.
	if err := p.round(ctx, card, 0, u.guest, func(g guest) error { return u.look(ctx, g, 2) }); err != nil {
		return err
	}
	p.within = time.Duration(u.report.Within) * time.Millisecond
	if err := p.round(ctx, card, cuts, u.guest,
		func(g guest) error { return errors.Join(tearJournal(card, 0), u.look(ctx, g, 1)) }); err != nil {
		return fmt.Errorf("seed %d, after %d boots: %w; its console:\n%s", seed, total(u.report.Boots), errors.Join(err, u.fault),
			strings.Join(u.boot, "\n"))
	}
	u.report.Cuts, u.report.Lost, u.report.Seconds = cuts, p.lost, int(time.Since(begin).Seconds())
	fmt.Printf("ok  \tupgrades, %d cuts, boots by version %v\t%.3fs\n", cuts, u.report.Boots, time.Since(begin).Seconds())
	if to == "" {
		return nil
	}
	return writeJSON(to, u.report)
}

func total(boots map[string]int) (n int) {
	for _, v := range boots {
		n += v
	}
	return n
}

// files are the pods, and a version that minisign has signed: this one with another stamp.
func (u *upgrades) files(ctx context.Context, ledge, work string) (map[string]string, error) {
	out, err := command(ctx, ledge, "version", "-o", "json").Output()
	var own struct{ Version string }
	if err = errors.Join(err, json.Unmarshal(out, &own)); err != nil {
		return nil, fmt.Errorf("ask %s for its version: %w", ledge, err)
	}
	text, version, err := upgradetest.Restamped(ledge, own.Version, "9")
	if err != nil {
		return nil, err
	}
	u.versions = [2]string{own.Version, version}
	file, public, secret := filepath.Join(work, "ledge"), filepath.Join(work, "public"), filepath.Join(work, "secret")
	if err := os.WriteFile(file, text, 0o755); err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"-G", "-W", "-p", public, "-s", secret},
		{"-S", "-s", secret, "-m", file, "-t", "file:ledge version:" + version}} {
		if out, err := command(ctx, "minisign", args...).CombinedOutput(); err != nil {
			return nil, fmt.Errorf("minisign (scripts/setup.sh images installs it): %w: %s", err, out)
		}
	}
	files := maps.Clone(boardFiles)
	delete(files, "etc/ledge/config.yaml") // whose time server is not here
	for name, from := range map[string]string{"upgrade/ledge": file, "upgrade/ledge.minisig": file + ".minisig", "upgrade/keys": public} {
		text, err := os.ReadFile(from)
		if err != nil {
			return nil, err
		}
		files[name] = string(text)
	}
	return files, nil
}

// line takes one of the console; true when all is well.
func (u *upgrades) line(text string) bool {
	word, rest, _ := strings.Cut(text, " ")
	switch word {
	case "@@ledge":
		u.boot = nil
	case "@@version":
		if rest != u.versions[0] && rest != u.versions[1] {
			u.fault = errors.Join(u.fault, fmt.Errorf("the version %s is neither of %q", rest, u.versions))
		}
		u.report.Boots[rest]++
		fmt.Println("vm: it runs", rest)
	case "@@fault:":
		u.fault = errors.Join(u.fault, errors.New(rest))
	}
	u.boot = append(u.boot, text)
	return word == "@@well"
}

// look lets a board run until it has made that many changes of version, and measures the time of two changes.
func (u *upgrades) look(ctx context.Context, g guest, changes int) error {
	var well time.Time
	n := 0
	err := g.boot(ctx, u.limit, func(text string) bool {
		if u.line(text) {
			well = time.Now()
		}
		if strings.HasPrefix(text, "@@changed ") {
			fmt.Printf("vm: %5.1f s: %s\n", time.Since(well).Seconds(), text)
			n++
		}
		return n == changes || u.fault != nil
	})
	if err = errors.Join(err, u.fault); err != nil || n < changes {
		return fmt.Errorf("it did not change its version: %w; its console:\n%s", err, strings.Join(u.boot, "\n"))
	}
	if changes == 2 {
		u.report.Within = time.Since(well).Milliseconds()
		clear(u.report.Boots)
	}
	return nil
}
