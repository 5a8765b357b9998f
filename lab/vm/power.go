package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	goruntime "runtime"
	"slices"
	"strconv"
	"sync"
	"time"

	"ledge/internal/testrun"
	"ledge/lab/vm/flash"
)

// powerFlags describe a run of boots and power cuts.
type powerFlags struct {
	ends   []string // orderly ends before the cuts: button, or a verb of systemctl
	cuts   int
	disks  int    // so many at a time, each in a machine of its own, share the work
	early  bool   // some cuts fall into the boot
	lie    bool   // two boots more, with a disk that lies about flushes
	seed   uint64 // of the first disk; the others' follow from it
	binary string
	to     string // report
	keep   string // where a disk whose board does not come up is kept; "" = nowhere
	memory int
	limit  time.Duration // of one boot
}

// share returns the flags of disk i: its part of the cuts and of the orderly ends. The disks together make all of them.
func (f powerFlags) share(i int) powerFlags {
	mine := f
	mine.cuts, mine.ends, mine.lie = 0, nil, f.lie && i == f.disks-1 // orderly ends take longest, and begin with the first
	for n := range f.cuts {
		if f.disks-1-n%f.disks == i {
			mine.cuts++
		}
	}
	for n, end := range f.ends {
		if n%f.disks == i {
			mine.ends = append(mine.ends, end)
		}
	}
	return mine
}

// power is the boots of one disk, which forgets what nobody has flushed. Some end in order, and the pods' own logs show that order after
// the next boot; others are cut. No boot is told of those before it, or gets help to start.
type power struct {
	powerFlags
	number       int
	dir, payload string // of all disks
	work         string
	disk         *served
	ledger       *ledger
	random       *rand.Rand
	took         time.Duration // the last boot, until it had told what it has
	report       powerReport
}

// powerReport is the run as JSON.
type powerReport struct {
	Seed         uint64       `json:"seed"`
	Disks        int          `json:"disks"`
	Seconds      int          `json:"seconds"`
	Cuts         int          `json:"cuts"`
	Early        int          `json:"cutsInTheBoot"`
	Sectors      sectors      `json:"sectorsOfACut"`
	Acknowledged int          `json:"acknowledged"`
	Wrong        int          `json:"wrong"` // of which Lost were acknowledged and are not there
	Lost         int          `json:"lost"`
	LieFound     *bool        `json:"lieFound,omitempty"`
	Boots        []bootReport `json:"boots"`
}

// sectors says how many sectors the cuts found unflushed in the disk's cache: half of the cuts found at least Median.
type sectors struct {
	Median int `json:"medianPending"`
	Most   int `json:"mostPending"`
	Lost   int `json:"lostOfAll"`
}

// add adds the counts of another disk.
func (r *powerReport) add(o powerReport) {
	r.Cuts += o.Cuts
	r.Acknowledged += o.Acknowledged
	r.Wrong += o.Wrong
	r.Lost += o.Lost
	if o.LieFound != nil {
		r.LieFound = o.LieFound
	}
	r.Boots = append(r.Boots, o.Boots...)
}

// count sums up the cuts of all boots.
func (r *powerReport) count() {
	r.Early, r.Sectors = 0, sectors{}
	var pending []int
	for _, b := range r.Boots {
		if b.Loss == nil {
			continue
		}
		if b.Do == "boot" {
			r.Early++
		}
		pending = append(pending, b.Loss.Pending)
		r.Sectors.Lost += b.Loss.Lost
	}
	if len(pending) > 0 {
		slices.Sort(pending)
		r.Sectors.Median, r.Sectors.Most = pending[len(pending)/2], pending[len(pending)-1]
	}
}

// bootReport is one boot. Millis are times since the kernel's start.
type bootReport struct {
	Disk         int            `json:"disk"`
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

// runPowerTwice runs again where the emulated machine was late or its pods had no time to print. An acknowledged write that was lost fails
// at once.
func runPowerTwice(ctx context.Context, f powerFlags) error {
	lost, err := runPower(ctx, f)
	if err == nil || lost > 0 || ctx.Err() != nil {
		return err
	}
	fmt.Println("vm: nothing that was acknowledged is lost, once more:", err)
	if _, err := runPower(ctx, f); err != nil {
		return err
	}
	return testrun.Note(os.Stdout, "vm", "power", []string{err.Error()})
}

// runPower runs all disks and says how much that was acknowledged is lost.
func runPower(ctx context.Context, f powerFlags) (lost int, err error) {
	dir, err := prepare(ctx, "amd64")
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	payload, err := powerPayload(ctx, work, f.binary, fmt.Sprintf(powerScript, rootSize, dataSize))
	if err != nil {
		return 0, err
	}
	fmt.Printf("vm: seed %d, %d disks\n", f.seed, f.disks)
	begin := time.Now()
	disks, errs := make([]*power, f.disks), make([]error, f.disks)
	var running sync.WaitGroup
	for i := range disks {
		p := &power{powerFlags: f.share(i), number: i + 1, dir: dir, payload: payload, work: filepath.Join(work, strconv.Itoa(i+1)),
			ledger: newLedger(), random: rand.New(rand.NewPCG(f.seed, uint64(i+1))), took: 14 * time.Second}
		disks[i] = p
		running.Go(func() {
			goruntime.LockOSThread() // a guest dies with the thread that started it
			if err := p.run(ctx); err != nil {
				errs[i] = fmt.Errorf("disk %d: %w", p.number, err)
			}
		})
	}
	running.Wait()
	sum := powerReport{Seed: f.seed, Disks: f.disks, Seconds: int(time.Since(begin).Seconds())}
	for _, p := range disks {
		sum.add(p.report)
	}
	sum.count()
	fmt.Printf("vm: %d cuts (%d in the boot) in %d s; sectors in the cache: median %d, most %d; %d acknowledged, %d lost, %d wrong\n",
		sum.Cuts, sum.Early, sum.Seconds, sum.Sectors.Median, sum.Sectors.Most, sum.Acknowledged, sum.Lost, sum.Wrong)
	err = errors.Join(append(errs, sum.write(f.to))...)
	if err == nil && sum.Wrong > 0 {
		err = fmt.Errorf("%d things are wrong", sum.Wrong)
	}
	if err != nil {
		return sum.Lost, fmt.Errorf("seed %d: %w", f.seed, err)
	}
	return 0, nil
}

// run makes the disk and boots it.
func (p *power) run(ctx context.Context) error {
	path := filepath.Join(p.work, "root.img")
	if err := os.Mkdir(p.work, 0o755); err != nil {
		return err
	}
	if out, err := command(ctx, "cp", "--sparse=always", filepath.Join(p.dir, "root.img"), path).CombinedOutput(); err != nil {
		return fmt.Errorf("copy the root disk: %w: %s", err, out)
	}
	err := addData(ctx, path)
	if err != nil {
		return err
	}
	if p.disk, err = serve(path, filepath.Join(p.work, "nbd")); err != nil {
		return err
	}
	return errors.Join(p.boots(ctx), p.disk.end())
}

// rootSize is that of the guest's root disk (image.sh). Behind it lies the file system for ledge's data, as boards made from an image have
// one of their own, that can hold claims to their sizes. It is mounted where the kernel has its modules.
const rootSize, dataSize = 2 << 30, 1 << 30

// addData makes the file system for data behind the root disk, so that both lose their power at once.
func addData(ctx context.Context, path string) error {
	if err := os.Truncate(path, rootSize+dataSize); err != nil {
		return err
	}
	out, err := command(ctx, "mke2fs", "-q", "-F", "-t", "ext4", "-O", "quota,project,^metadata_csum", "-E",
		fmt.Sprintf("quotatype=prjquota,lazy_itable_init=1,offset=%d", rootSize), "-m", "0", path, fmt.Sprintf("%dk", dataSize>>10)).CombinedOutput()
	if err != nil {
		return fmt.Errorf("make the file system for data: %w: %s", err, out)
	}
	return nil
}

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
	// The control: this test must find out a disk that lies about a flush, or it proves nothing.
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

// powerPayload makes the disk with ledge, the programs of the guest and the script that it begins with, which no guest writes to.
func powerPayload(ctx context.Context, work, ledge, script string) (image string, err error) {
	tree := filepath.Join(work, "payload")
	bin := filepath.Join(tree, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return "", err
	}
	for name, pkg := range map[string]string{"load": "./lab/vm/load", "pod": "./lab/vm/load/pod"} {
		build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", filepath.Join(bin, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOARCH=amd64")
		if out, err := build.CombinedOutput(); err != nil {
			return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
		}
	}
	for from, to := range map[string]string{ledge: "bin/ledge", "packaging/systemd/ledge.service": "ledge.service",
		"packaging/systemd/ledge-keeper.service": "ledge-keeper.service"} {
		if err := copyFile(from, filepath.Join(tree, to)); err != nil {
			return "", err
		}
	}
	if err := os.WriteFile(filepath.Join(tree, "run"), []byte(script), 0o755); err != nil {
		return "", err
	}
	image = filepath.Join(work, "payload.img")
	return image, payloadDisk(ctx, tree, image)
}

// powerScript installs ledge in the first boot as docs/manual/debian.md says; in all others the board has to come up by itself.
const powerScript = `#!/bin/sh
export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/root
if ! [ -e /etc/systemd/system/multi-user.target.wants/ledge.service ]; then
	cp /payload/bin/ledge /usr/local/bin/
	cp /payload/*.service /etc/systemd/system/
	mkdir -p /etc/ledge /var/lib/ledge /etc/systemd/system/ledge.service.d
	grep -q /var/lib/ledge /etc/fstab ||
		echo '/dev/nvme0n1 /var/lib/ledge ext4 loop,offset=%d,sizelimit=%d,prjquota 0 0' >>/etc/fstab
	printf '[Unit]\nRequiresMountsFor=/var/lib/ledge\n' >/etc/systemd/system/ledge.service.d/data.conf
	cat >/etc/ledge/config.yaml <<END
shutdownGracePeriodByPodPriority:
- {priority: 0, shutdownGracePeriodSeconds: 20}
- {priority: 10, shutdownGracePeriodSeconds: 20}
- {priority: 100, shutdownGracePeriodSeconds: 20}
- {priority: 1000, shutdownGracePeriodSeconds: 20}
END
	sync # what is enabled below is there whenever the power goes
	systemctl daemon-reload
	systemctl start /var/lib/ledge
	systemctl enable --now --quiet ledge-keeper.service ledge.service
	sync
fi
exec /payload/bin/load
`

func (r powerReport) write(to string) error {
	data, err := json.MarshalIndent(r, "", "  ")
	if err != nil || to == "" {
		return err
	}
	return os.WriteFile(to, append(data, '\n'), 0o644)
}
