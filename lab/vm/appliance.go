package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"ledge/packaging/initramfs"
)

// What the guest's own disks, button and watchdog need besides.
var applianceModules = append(slices.Clone(initramfs.PodModules), "button", "evdev", "virtio_blk", "softdog", "zram", "lzo_rle",
	"vfat", "nls_cp437", "nls_ascii", "nls_iso8859_1")

// runAppliance boots a kernel with nothing but ledge: ledge is the first process, with args as its command line.
// When it exits the kernel panics, which names the exit code and ends QEMU.
func runAppliance(ctx context.Context, arch, ledge string, memory int, limit time.Duration, args []string) error {
	deb := arch
	if arch == "arm" {
		deb = "armhf"
	}
	dir, err := prepare(ctx, deb)
	if err != nil {
		return err
	}
	work, err := os.MkdirTemp("", "ledge-vm-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	initrd := filepath.Join(work, "appliance.cpio")
	if err := applianceRoot(ctx, arch, dir, ledge, work, initrd, nil); err != nil {
		return err
	}
	kernel := filepath.Join(dir, "vmlinuz")
	if arch == "amd64" {
		kernel = filepath.Join(dir, "vmlinux")
	}
	g := guest{arch: arch, kernel: kernel, initrd: initrd, memory: memory,
		append: "rdinit=/init -- " + strings.Join(args, " ")}
	start := time.Now()
	const exit = "Attempted to kill init! exitcode=0x"
	up, code := false, ""
	var before, said []string
	err = g.boot(ctx, limit, func(text string) bool {
		if text == "@@ledge" {
			up = true
			fmt.Printf("vm: %s: ledge started as process 1 after %.1f s\n", arch, time.Since(start).Seconds())
			return false
		}
		if _, rest, ok := strings.Cut(text, exit); ok && len(rest) >= 8 {
			code = rest[:8]
			return true
		}
		if !up {
			before = append(before, text)
			if strings.HasPrefix(text, "init: ") {
				fmt.Println(text)
			}
			return false
		}
		said = append(said, text)
		fmt.Println(text)
		return false
	})
	switch {
	case !up:
		return fmt.Errorf("%s did not come up: %w; its console:\n%s", arch, errors.Join(err, ctx.Err()), strings.Join(before, "\n"))
	case code == "":
		return fmt.Errorf("%s: no exit code: %w", arch, err)
	case code != "00000000":
		return fmt.Errorf("%s: ledge %s ended with wait status 0x%s", arch, strings.Join(args, " "), code)
	}
	if missing := unsaid(args, said); len(missing) > 0 {
		return fmt.Errorf("%s: ledge %s did not say: %s", arch, strings.Join(args, " "), strings.Join(missing, ", "))
	}
	fmt.Printf("ok  \tappliance %s\t%.3fs\n", arch, time.Since(start).Seconds())
	return nil
}

// checked are the checks that `ledge doctor` must pass on a board that runs pods. An exit code of 0 and some lines would prove nothing:
// any verb that prints has both.
var checked = []string{"kernel", "namespaces", "cgroups", "overlayfs", "controllers", "bridge", "veth", "nftables"}

// unsaid returns the checks that doctor did not pass or did not name. Any other verb must only have printed something. The kernel may print
// between two lines, but not inside one.
func unsaid(args, said []string) (missing []string) {
	if args[0] != "doctor" {
		if len(said) == 0 {
			missing = []string{"anything"}
		}
		return missing
	}
	for _, name := range checked {
		if !slices.ContainsFunc(said, func(line string) bool {
			verdict, rest, _ := strings.Cut(line, " ")
			detail, named := strings.CutPrefix(strings.TrimSpace(rest), name+" ")
			return verdict == "ok" && named && strings.TrimSpace(detail) != ""
		}) {
			missing = append(missing, name)
		}
	}
	return missing
}

// applianceRoot writes the initramfs: a small init that loads the modules and starts ledge, then ledge, the modules and the manifests.
func applianceRoot(ctx context.Context, arch, dir, ledge, work, to string, more map[string]string) error {
	init := filepath.Join(work, "init")
	build := command(ctx, "go", "build", "-trimpath", "-ldflags", "-s -w", "-o", init, "./lab/vm/init")
	build.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "GOARM=7", "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return fmt.Errorf("build the appliance's init: %w: %s", err, out)
	}
	modules, err := initramfs.ReadModules(filepath.Join(dir, "lib", "modules"))
	if err != nil {
		return err
	}
	var a initramfs.Archive
	for _, d := range []string{"dev", "proc", "etc", "modules"} {
		a.Directory(d)
	}
	a.Console("dev/console")
	for i, m := range modules.InOrder(applianceModules) {
		// The number keeps the order: a module comes after those it needs.
		if err := a.File(fmt.Sprintf("modules/%03d-%s", i, filepath.Base(m)), filepath.Join(modules.Top, m), 0o644); err != nil {
			return err
		}
	}
	for name, from := range map[string]string{"init": init, "ledge": ledge} {
		if err := a.File(name, from, 0o755); err != nil {
			return err
		}
	}
	for name, text := range more {
		a.Text(name, 0o644, []byte(text))
	}
	return os.WriteFile(to, a.Bytes(), 0o644)
}
