package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// guest is one virtual machine. Fields that are not needed may be zero.
type guest struct {
	arch   string   // Go's name
	kernel string   // vmlinux or Image
	initrd string   // instead of a root disk
	root   string   // the root disk as QEMU's -drive takes it, before disks; what is written to it stays
	qmp    string   // socket to listen on for QEMU's monitor
	disks  []string // raw images; the first is the root if root does not say another. Writes go to a throw-away overlay
	append string   // more kernel arguments

	// bios, uefi or pi: the disk is a board's own, and boots as it does there; forward has ports of QEMU's user network, each behind a comma
	firmware string
	forward  string
	dtb      string
	memory   int // MiB
	// recycles says that the guest will use pages of programs for other things all the time. For a page that was translated QEMU takes
	// each store to it apart; on a board short of memory that took three quarters of its time. With little room for translations few
	// pages are translated.
	recycles bool
	dir      string    // of files of this run
	keys     io.Reader // what is typed on the serial line; nil: nothing
	log      string    // where the kernel's console goes when the guest talks on a second port; "" = one port for both
}

// args is the QEMU command line. What a guest needs is on its disks; only a board that boots by its own firmware has a network.
func (g guest) args() []string {
	if g.firmware != "" {
		return g.boardArgs()
	}
	// One thread for all CPUs. With a thread each, QEMU 7.2 can go on executing an instruction that another CPU has patched
	// meanwhile: the kernel switches a jump label (the first CPU quota of a cgroup does), and both CPUs trap at its
	// breakpoint for ever, although it is long gone.
	cpus := "2"
	if g.arch == "arm" { // two of them in one thread wait for each other while the kernel comes up
		cpus = "1"
	}
	accel := "tcg,thread=single"
	if g.recycles {
		accel += ",tb-size=64"
	}
	a := []string{"-accel", accel, "-smp", cpus, "-m", strconv.Itoa(g.memory), "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot", "-kernel", g.kernel}
	line := "panic=-1 quiet "
	switch g.arch {
	case "amd64":
		// q35 has the timers to fall back on when the emulated PIT calibration fails on a busy host; microvm hangs.
		// Not -cpu max: without an Intel CPU's name the kernel does not trust the TSC, and every look at the clock goes to
		// an emulated HPET; and AVX registers are slow to emulate. Together that is a third of the time.
		a = append(a, "-M", "q35", "-cpu", "Nehalem")
		line += "console=ttyS0 mitigations=off no_timer_check " + hostTSC()
	case "arm64":
		// -cpu max emulates pointer authentication in software: four times slower.
		a = append(a, "-M", "virt", "-cpu", "cortex-a72")
		line += "console=ttyAMA0 "
	case "arm":
		a = append(a, "-M", "virt", "-cpu", "cortex-a15")
		line += "console=ttyAMA0 "
	}
	var drives []string
	if g.root != "" {
		drives = append(drives, g.root)
	}
	for _, d := range g.disks {
		drives = append(drives, "file="+d+",format=raw,cache=unsafe,snapshot=on")
	}
	for i, d := range drives {
		id := "d" + strconv.Itoa(i)
		a = append(a, "-drive", d+",if=none,id="+id, "-device", "nvme,serial="+id+",drive="+id)
	}
	if g.qmp != "" {
		a = append(a, "-qmp", "unix:"+g.qmp+",server=on,wait=off")
	}
	if len(drives) > 0 {
		line += "root=/dev/nvme0n1 rw rootwait "
	}
	if g.initrd != "" {
		a = append(a, "-initrd", g.initrd)
	}
	if g.log != "" {
		a = append(a, "-serial", "file:"+g.log)
	}
	return append(a, "-serial", "stdio", "-append", line+g.append)
}

// boardArgs is the command line of a machine that boots as a board would, with nothing but its disk.
func (g guest) boardArgs() []string {
	a := []string{"-accel", "tcg,thread=single", "-m", strconv.Itoa(g.memory), "-nodefaults", "-no-user-config", "-display", "none",
		"-no-reboot",
		"-serial", "stdio", "-qmp", "unix:" + g.qmp + ",server=on,wait=off", "-netdev", "user,id=net,restrict=on" + g.forward}
	if g.firmware == "pi" {
		return append(a, "-M", "raspi3b", "-serial", "null", "-kernel", g.kernel, "-initrd", g.initrd, "-dtb", g.dtb, "-append", g.append,
			"-drive", g.root+",if=sd", "-device", "usb-net,netdev=net")
	}
	a = append(a, "-smp", "2", "-drive", g.root+",if=none,id=disk", "-device", "virtio-blk-pci,drive=disk,bootindex=0", "-device",
		"virtio-net-pci,netdev=net,romfile=")
	switch {
	case g.arch == "arm64":
		return append(a, "-M", "virt", "-cpu", "cortex-a72", "-bios", "/usr/share/qemu-efi-aarch64/QEMU_EFI.fd")
	case g.firmware == "uefi":
		a = append(a, "-drive", "if=pflash,format=raw,unit=0,readonly=on,file=/usr/share/OVMF/OVMF_CODE.fd")
	}
	return append(a, "-M", "q35", "-cpu", "Nehalem", "-vga", "std")
}

// hostTSC tells a guest the frequency of the time stamp counter it will read (under emulation: the host's).
func hostTSC() string {
	out, err := exec.Command("dmesg").Output()
	if err != nil {
		return ""
	}
	_, rest, ok := strings.Cut(string(out), "tsc: Detected ")
	if !ok {
		return ""
	}
	mhz, _, ok := strings.Cut(rest, " MHz")
	if !ok {
		return ""
	}
	return "tsc_early_khz=" + strings.Replace(mhz, ".", "", 1) + " "
}

var errGuestEnded = errors.New("the guest ended early")

// boot runs the guest and hands over each line it prints until line returns true. The guest is killed then: nothing in
// it is worth an orderly stop, its disks are overlays.
func (g guest) boot(ctx context.Context, limit time.Duration, line func(string) bool) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no end after %s", limit))
	defer cancel()
	program := map[string]string{"amd64": "qemu-system-x86_64", "arm64": "qemu-system-aarch64", "arm": "qemu-system-arm"}[g.arch]
	if program == "" {
		return fmt.Errorf("no guest for %q: amd64, arm64 or arm", g.arch)
	}
	cmd := command(ctx, program, g.args()...)
	cmd.Stdin = g.keys
	var complaints bytes.Buffer
	cmd.Stderr = &complaints
	out, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	ended := errGuestEnded
	for s := bufio.NewReader(out); ; {
		text, err := s.ReadString('\n')
		if text != "" && line(strings.TrimRight(text, "\r\n")) {
			ended = nil
			break
		}
		if err != nil {
			break
		}
	}
	cause := context.Cause(ctx)
	cancel()
	// The exit code says nothing: a panic, a reset and a power-off are all 0, and we have just killed it.
	_ = cmd.Wait()
	if ended == nil || cause == nil {
		if ended != nil && complaints.Len() > 0 {
			return fmt.Errorf("%w: %s", ended, bytes.TrimSpace(complaints.Bytes()))
		}
		return ended
	}
	return fmt.Errorf("%w: %w", ended, cause)
}

// console returns the end of the kernel's log for a failure report.
func (g guest) console() string {
	text, err := os.ReadFile(g.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(text)), "\n")
	return strings.Join(lines[max(0, len(lines)-40):], "\n")
}

// debian is the amd64 guest with a payload disk.
func debian(ctx context.Context, payload string, memory int) (guest, error) {
	dir, err := prepare(ctx, "amd64")
	if err != nil {
		return guest{}, err
	}
	return guest{arch: "amd64", kernel: filepath.Join(dir, "vmlinux"), disks: []string{filepath.Join(dir, "root.img"), payload},
		memory: memory, log: filepath.Join(filepath.Dir(payload), "console.log")}, nil
}
