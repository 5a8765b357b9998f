// Command vm runs ledge's root tests inside a Debian guest with cgroup v2, and boots ledge as the first process of
// boards of other architectures, under QEMU without hardware support.
//
//	go run ./lab/vm prepare                      build the cached guest image (amd64)
//	go run ./lab/vm test [flags] PACKAGE...      run these packages' tests in the guest
//	go run ./lab/vm sh [flags] COMMAND           run one shell command in the guest
//	go run ./lab/vm power -cuts 3 -o FILE        end a node in order and by power cuts, and look at the next boot
//	go run ./lab/vm pressure -memory 256 -o FILE one pod after the other that takes all there is of something
//	go run ./lab/vm appliance -arch arm64 -binary bin/ledge-linux-arm64 -- doctor
//	go run ./lab/vm board -arch amd64            a node as process 1: pods, killed brains, the power button
//	go run ./lab/vm flashed -firmware uefi -board generic-amd64 IMAGE.img.xz
//	                                                 an image as it was made, by its own boot loader, twice
//	go run ./lab/vm upgrades -cuts 3             a board that changes its version again and again, and power cuts
//	go run ./lab/vm firstboot -cuts 3            a card with files and mistakes on it, and power cuts while it first boots
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"ledge/lab/vm/pressed"
)

func main() {
	// QEMU is told to die with the thread that started it (Pdeathsig), so that thread must live as long as we do.
	runtime.LockOSThread()
	// And we die with ours: `go run` that is killed hard leaves its child, and so a guest, running.
	if err := unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0); err != nil {
		fmt.Fprintln(os.Stderr, "vm: parent death signal:", err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM, unix.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "vm:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("usage: vm prepare | test [flags] PACKAGE | sh [flags] COMMAND | power [flags] | pressure [flags] | appliance [flags] -- ARG | board [flags] | flashed [flags] IMAGE | firstboot [flags] | upgrades [flags]")

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	verb, args := args[0], args[1:]
	fs := flag.NewFlagSet("vm "+verb, flag.ContinueOnError)
	limit := fs.Duration("timeout", 15*time.Minute, "hard limit for everything inside the guest")
	memory := fs.Int("memory", 1536, "guest memory in MiB")
	binary := fs.String("binary", "bin/ledge", "ledge binary to take along")
	filter := fs.String("run", "", "only tests that match, as go test -run")
	whole := fs.Bool("whole", false, "test: with the tests that are left to the host otherwise")
	verbose := fs.Bool("v", false, "print everything the guest prints")
	words := fs.String("kernel", "", "sh: more words for the kernel's command line")
	arch := fs.String("arch", "arm64", "appliance: amd64, arm64 or arm")
	signalled := fs.Bool("signal", false, "board: its end is SIGPWR to process 1")
	p := powerFlags{}
	fs.IntVar(&p.cuts, "cuts", 2, "power: how often to pull the plug")
	fs.IntVar(&p.disks, "disks", 1, "power: so many disks at a time, each in a machine of its own, share the boots")
	fs.StringVar(&p.keep, "keep", "", "power: directory for a disk whose board does not come up")
	ends := fs.String("ends", "button", "power: orderly ends before that: button, poweroff, reboot")
	fs.BoolVar(&p.early, "early", false, "power: some cuts while the guest boots")
	fs.BoolVar(&p.lie, "lie", false, "power: at the end a disk that lies about flushes, which must be found out")
	fs.Uint64Var(&p.seed, "seed", uint64(time.Now().Unix()), "power: seed of moments and losses")
	fs.StringVar(&p.to, "o", "", "power, pressure, flashed, upgrades: report, as JSON")
	model := fs.String("board", "generic-amd64", "flashed: what the image is for")
	firmware := fs.String("firmware", "uefi", "flashed: uefi, bios or pi")
	boots := fs.Int("boots", 2, "flashed: how often")
	firsts := fs.Int("first-cuts", 0, "flashed: after that, how often to pull the plug in first boots of other cards")
	idle := fs.Duration("idle", 0, "flashed: at the end of the last boot, count what is written in that time")
	hogs := fs.String("hogs", pressed.AllHogs, "pressure: which")
	twice := fs.Bool("twice", false, "power: a run that has lost nothing may be late once")
	if err := fs.Parse(args); err != nil {
		return err
	}
	switch {
	case verb == "prepare" && fs.NArg() == 0:
		_, err := prepare(ctx, "amd64")
		return err
	case verb == "test" && fs.NArg() > 0:
		return runTests(ctx, suite{packages: fs.Args(), binary: *binary, filter: *filter, verbose: *verbose, whole: *whole,
			memory: *memory, limit: *limit})
	case verb == "sh" && fs.NArg() == 1:
		return runShell(ctx, suite{binary: *binary, verbose: true, kernel: *words, memory: *memory, limit: *limit}, fs.Arg(0))
	case verb == "board" && fs.NArg() == 0:
		return runBoard(ctx, *arch, *binary, *signalled, *memory, *limit)
	case verb == "flashed" && fs.NArg() == 1 && *boots > 0:
		return runFlashed(ctx, flashedFlags{board: *model, image: fs.Arg(0), firmware: *firmware, to: p.to, boots: *boots, idle: *idle,
			cuts: *firsts, seed: p.seed,
			memory: *memory, limit: *limit})
	case verb == "firstboot" && fs.NArg() == 0:
		return runFirstBoot(ctx, *binary, *memory, p.cuts, p.seed, *limit)
	case verb == "upgrades" && fs.NArg() == 0:
		return runUpgrades(ctx, *binary, p.to, *memory, p.cuts, p.seed, *limit)
	case verb == "power" && fs.NArg() == 0 && p.disks > 0:
		p.ends = strings.Fields(strings.ReplaceAll(*ends, ",", " "))
		p.binary, p.memory, p.limit = *binary, *memory, *limit
		if *twice {
			return runPowerTwice(ctx, p)
		}
		_, err := runPower(ctx, p)
		return err
	case verb == "pressure" && fs.NArg() == 0:
		return runPressure(ctx, pressureFlags{hogs: strings.Split(*hogs, ","), verbose: *verbose, binary: *binary, to: p.to, memory: *memory,
			limit: *limit})
	case verb == "appliance" && fs.NArg() > 0:
		return runAppliance(ctx, *arch, *binary, *memory, *limit, fs.Args())
	}
	return errUsage
}
