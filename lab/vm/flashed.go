package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

// flashedPods are two pods that a person might put on the boot partition. Both answer on a port of the board; one must be stopped last.
const flashedPods = `apiVersion: v1
kind: Pod
metadata: {name: web, namespace: default}
spec:
  containers:
  - name: main
    image: ledge.local/self
    args: [httpd, -p, "8080"]
    ports: [{containerPort: 8080, hostPort: 8080}]
---
apiVersion: v1
kind: Pod
metadata: {name: last, namespace: kube-system}
spec:
  priorityClassName: system-node-critical
  containers:
  - name: main
    image: ledge.local/self
    args: [httpd, -p, "8080"]
    ports: [{containerPort: 8080, hostPort: 8081}]
`

// flashedReport is the result of one image under one firmware.
type flashedReport struct {
	Board    string        `json:"board"`
	Image    string        `json:"image"`
	Bytes    int64         `json:"bytes"` // packed
	Firmware string        `json:"firmware"`
	Memory   int           `json:"memoryMiB"`
	Boots    []flashedBoot `json:"boots,omitempty"`
	Cuts     *flashedCuts  `json:"cuts,omitempty"`
}

type flashedBoot struct {
	MountedMillis int64 `json:"mountedMillis,omitempty"` // process 1 has its partitions and listens to the power key
	AddressMillis int64 `json:"addressMillis,omitempty"`
	ServingMillis int64 `json:"servingMillis,omitempty"`
	PodMillis     int64 `json:"podMillis"`             // the pod of manifests/ answers over the network
	LoginMillis   int64 `json:"loginMillis,omitempty"` // somebody has logged in by ssh
	WiFiMillis    int64 `json:"wifiMillis,omitempty"`  // from the beginning of an access point to an address from there
	OffMillis     int64 `json:"offMillis"`             // from the power button to the end of the machine; 0: the plug was pulled
	Idle          *idle `json:"idle,omitempty"`
}

// flashedCuts are power cuts in first boots: one to three for each fresh card, then a boot in which all must be well.
type flashedCuts struct {
	Seed   uint64  `json:"seed"`
	Cuts   int     `json:"cuts"`
	Cards  int     `json:"cards"`
	Torn   int     `json:"tornCards"` // of these cards: their superblock and journal were torn besides
	Lost   int     `json:"lostSectors"`
	Within int64   `json:"withinMillis"` // of the machine's start, each at a moment that came by chance
	Pods   []int64 `json:"podMillis"`    // in the boots after them
}

// idle counts what a board writes to its card while it has nothing to do.
type idle struct {
	Seconds int64 `json:"seconds"`
	Bytes   int64 `json:"bytes"`
}

// flashedFlags say which image is booted, and how.
type flashedFlags struct {
	board, image, firmware string
	to                     string // report
	boots                  int
	idle                   time.Duration // of the last boot; 0: not looked at
	cuts                   int           // of the power, in first boots
	seed                   uint64        // of when
	memory                 int
	limit                  time.Duration // of a boot, without idle
}

// flashing is one image under one firmware.
type flashing struct {
	flashedFlags
	work, image string
	key         string // of who may log in; empty: nobody
	guest       guest
	report      flashedReport
}

// runFlashed takes an image as it was made, puts a manifest on its boot partition as a person would, and boots it twice the way a
// board's firmware does: by its own boot loader from its own disk. The pod has to answer over the network, and the power button has
// to end the machine in order; a board without one has its plug pulled. Then first boots of other cards may be cut.
func runFlashed(ctx context.Context, f flashedFlags) error {
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	packed, err := os.Stat(f.image)
	if err != nil {
		return err
	}
	s := &flashing{flashedFlags: f, work: work, image: filepath.Join(work, "image.img"),
		report: flashedReport{Board: f.board, Image: filepath.Base(f.image), Bytes: packed.Size(), Firmware: f.firmware, Memory: f.memory}}
	if err := unpackImage(ctx, f.image, s.image, work); err != nil {
		return err
	}
	switch {
	case withDebian(f.image):
		s.key, err = putKey(ctx, s.image, work)
	case f.board == "rpi" && f.firmware == "uefi": // where nobody can log in, and the last console is a screen
		err = tellKernel(ctx, s.image, work, "console=ttyAMA0,115200")
	}
	if err != nil {
		return err
	}
	s.guest = guest{arch: "amd64", memory: f.memory, firmware: f.firmware, qmp: filepath.Join(work, "qmp"), dir: work}
	if f.board != "generic-amd64" {
		s.guest.arch = "arm64"
	}
	if f.firmware == "pi" {
		if err := piBoot(ctx, &s.guest, s.image); err != nil {
			return err
		}
	}
	if err := s.boot(ctx); err != nil {
		return err
	}
	if err := s.cut(ctx); err != nil {
		return err
	}
	if f.to == "" {
		return nil
	}
	return s.report.keep(f.to)
}

// boot boots a card as often as wanted.
func (s *flashing) boot(ctx context.Context) error {
	disk, err := s.fresh(ctx)
	if err != nil {
		return err
	}
	node := ""
	for n := range s.boots {
		b, err := s.bootOf("file=" + disk + ",format=raw,cache=unsafe")
		if err != nil {
			return err
		}
		b.first = n == 0
		if n == s.boots-1 {
			b.watch = s.idle
		}
		if err := b.run(ctx, s.limit+b.watch+settled); err != nil {
			return fmt.Errorf("%s, boot %d: %w; its console:\n%s", s.report.Image, n+1, err, strings.Join(b.all, "\n"))
		}
		// Nobody has named it but by the key's ledge.yaml.
		if s.key == "" && !ownName.MatchString(b.node) || n > 0 && b.node != node {
			return fmt.Errorf("%s, boot %d: the node is %q, and was %q before", s.report.Image, n+1, b.node, node)
		}
		node = b.node
		s.report.Boots = append(s.report.Boots, b.flashedBoot)
		fmt.Printf("vm: %s by %s, boot %d: mounted %d, address %d, serving %d, pod answers %d, login %d, Wi-Fi after %d ms; off %d ms after the button\n", s.report.Image,
			s.firmware, n+1, b.MountedMillis, b.AddressMillis, b.ServingMillis, b.PodMillis, b.LoginMillis, b.WiFiMillis, b.OffMillis)
		if b.Idle != nil {
			fmt.Printf("vm: it wrote %d bytes in %d s\n", b.Idle.Bytes, b.Idle.Seconds)
		}
		if err := inspectCard(ctx, disk, b.OffMillis > 0); err != nil {
			return fmt.Errorf("%s, the card after boot %d: %w", s.report.Image, n+1, err)
		}
	}
	return nil
}

// bootOf prepares a boot of a card, with forwarded ports to its pods and to SSH.
func (s *flashing) bootOf(card string) (*flashed, error) {
	b := &flashed{guest: s.guest, key: s.key, began: time.Now()}
	b.guest.root = card
	for i, inside := range []int{8080, 8081, pagePort} {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		b.urls[i] = fmt.Sprintf("http://127.0.0.1:%d/", port)
		if inside == pagePort {
			b.urls[i] = fmt.Sprintf("https://127.0.0.1:%d/enter", port)
		}
		b.guest.forward += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:%d", port, inside)
	}
	if s.key != "" {
		var err error
		if b.ssh, err = freePort(); err != nil {
			return nil, err
		}
		b.guest.forward += fmt.Sprintf(",hostfwd=tcp:127.0.0.1:%d-:22", b.ssh)
	}
	return b, nil
}

// cut pulls the plug of first boots, from the machine's start to when the pods of the boots before would have answered.
func (s *flashing) cut(ctx context.Context) error {
	if s.cuts == 0 {
		return nil
	}
	fmt.Println("vm: seed", s.seed)
	c := flashedCuts{Seed: s.seed}
	p := &pulled{socket: filepath.Join(s.work, "nbd"), rng: rand.New(rand.NewPCG(s.seed, 49)), limit: s.limit}
	c.Within = max(s.report.Boots[0].PodMillis, s.report.Boots[0].LoginMillis) + 2000
	p.within = time.Duration(c.Within) * time.Millisecond
	for c.Cuts < s.cuts {
		n := min(1+p.rng.IntN(3), s.cuts-c.Cuts)
		torn := c.Cards%2 == 1
		pod, err := s.round(ctx, p, n, torn)
		if err != nil {
			return fmt.Errorf("%s, seed %d, after %d cuts and %d more of the next card: %w", s.report.Image, s.seed, c.Cuts, n, err)
		}
		if c.Cuts, c.Cards, c.Lost, c.Pods = c.Cuts+n, c.Cards+1, p.lost, append(c.Pods, pod); torn {
			c.Torn++
		}
		fmt.Printf("vm: %d of %d cuts, pod answers %d ms after the next start\n", c.Cuts, s.cuts, pod)
	}
	s.report.Cuts = &c
	return nil
}

// round takes a fresh card through cuts to a boot that is looked at. A cut in the middle of a block that counts hardly ever comes by
// chance.
func (s *flashing) round(ctx context.Context, p *pulled, cuts int, torn bool) (pod int64, err error) {
	card, err := s.fresh(ctx)
	if err != nil {
		return 0, err
	}
	err = p.round(ctx, card, cuts, s.guest, func(g guest) error {
		if torn {
			if err := tearLast(card); err != nil {
				return err
			}
		}
		b, err := s.bootOf(g.root)
		if err != nil {
			return err
		}
		b.wired = true
		if err := b.run(ctx, s.limit); err != nil {
			return fmt.Errorf("%w; its console:\n%s", err, strings.Join(b.all, "\n"))
		}
		pod = b.PodMillis
		return nil
	})
	if err != nil {
		return 0, err
	}
	return pod, inspectCard(ctx, card, s.firmware != "pi", airless)
}

// ownName matches the name of a board that was not given one.
var ownName = regexp.MustCompile(`^ledge-[0-9a-f]{6}$`)

// withDebian: an image's name tells its flavour.
func withDebian(image string) bool { return strings.Contains(filepath.Base(image), "-debian-") }

// keep puts the report in the place of an older one of this board, flavour and firmware.
func (r flashedReport) keep(file string) error {
	var all []flashedReport
	old, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(old, &all)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: %w", file, err)
	}
	if i := slices.IndexFunc(all, func(o flashedReport) bool {
		return o.Board == r.Board && o.Firmware == r.Firmware && withDebian(o.Image) == withDebian(r.Image)
	}); i >= 0 {
		if r.Cuts == nil { // another run's
			r.Cuts = all[i].Cuts
		}
		all[i] = r
	} else {
		all = append(all, r)
	}
	return writeJSON(file, all)
}

func writeJSON(file string, report any) error {
	text, err := json.MarshalIndent(report, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(file, append(text, '\n'), 0o644)
}

func unpackImage(ctx context.Context, image, disk, work string) error {
	out, err := os.Create(disk)
	if err != nil {
		return err
	}
	unpack := command(ctx, "xz", "-dc", image)
	unpack.Stdout, unpack.Stderr = out, os.Stderr
	if err := errors.Join(unpack.Run(), out.Close()); err != nil {
		return fmt.Errorf("unpack %s: %w", image, err)
	}
	for to, text := range map[string]string{"manifests/web.yaml": flashedPods, "ledge.yaml": flashedPage} {
		file := filepath.Join(work, filepath.Base(to))
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			return err
		}
		if out, err := command(ctx, "mcopy", "-o", "-i", disk+"@@1M", file, "::/"+to).CombinedOutput(); err != nil {
			return fmt.Errorf("write %s onto the boot partition: %w: %s", to, err, out)
		}
	}
	return nil
}

// piBoot does what a Raspberry Pi's firmware would, which QEMU has not: it reads kernel, initramfs, description and command line
// from the card's first partition. QEMU's board wants a card whose size is a power of two.
func piBoot(ctx context.Context, g *guest, disk string) error {
	for _, name := range []string{"vmlinuz", "initrd.img", "bcm2837-rpi-3-b.dtb", "cmdline.txt", "config.txt"} {
		if out, err := command(ctx, "mcopy", "-n", "-i", disk+"@@1M", "::/"+name, g.dir).CombinedOutput(); err != nil {
			return fmt.Errorf("read %s from the boot partition: %w: %s", name, err, out)
		}
	}
	line, err := os.ReadFile(filepath.Join(g.dir, "cmdline.txt"))
	if err != nil {
		return err
	}
	// The board always has four CPUs, and those of no use spin. Of the consoles it has one that can be seen. Its watchdog resets the
	// machine at the moment it is started.
	g.kernel, g.initrd, g.dtb, g.append = filepath.Join(g.dir, "vmlinuz"), filepath.Join(g.dir, "initrd.img"),
		filepath.Join(g.dir, "bcm2837-rpi-3-b.dtb"),
		"nr_cpus=1 "+strings.NewReplacer("console=tty0", "", "console=ttyS1,115200", "", " --watchdog /dev/watchdog", "",
			" systemd.watchdog_sec=30", "").Replace(strings.TrimSpace(string(line)))
	return os.Truncate(disk, 1<<30)
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return l.Addr().(*net.TCPAddr).Port, l.Close()
}
