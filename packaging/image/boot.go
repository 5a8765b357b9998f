package main

import (
	"context"
	_ "embed"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

//go:embed read-me.txt
var readMe []byte

// commandLine is what the kernel is told. A machine that panics starts again; who takes a word away here has to look at
// boot/init.go, or at debian/start.sh. With Debian interfaces are called as where ledge is process 1, eth0 and wlan0: whoever
// writes ledge.yaml cannot know in which slot they are.
func (im *image) commandLine() string {
	line := im.consoles + " loglevel=4 panic=10 cgroup_enable=memory cgroup_memory=1 psi=1"
	if im.flavour == debian {
		return line + fmt.Sprintf(" ledge.disk=%08x net.ifnames=0 systemd.watchdog_sec=30", im.ids.disk)
	}
	return line + " ledge.data=LABEL=ledge-data -- serve --manifests /boot/firmware/manifests --watchdog /dev/watchdog"
}

// bootTree lays out the partition that firmware reads and people write.
func (im *image) bootTree(ctx context.Context, debs, tree string) error {
	for _, dir := range []string{"EFI/BOOT", "grub", "images", "licenses", "manifests"} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return err
		}
	}
	kernel, err := only(filepath.Join(debs, "boot/vmlinuz-*"))
	if err != nil {
		return err
	}
	if err := copyFile(filepath.Join(tree, "vmlinuz"), kernel); err != nil {
		return err
	}
	initrd := im.root
	if im.flavour == debian {
		initrd = im.debianStart
	}
	if err := initrd(ctx, debs, filepath.Join(tree, "initrd.img")); err != nil {
		return err
	}
	texts := map[string][]byte{"grub/grub.cfg": grubConfig(im.commandLine()), "README.txt": readMe}
	if im.pi {
		texts["cmdline.txt"], texts["config.txt"] = []byte(im.commandLine()+"\n"), []byte(piConfig)
		if err := piFiles(debs, tree); err != nil {
			return err
		}
	}
	for name, text := range texts {
		if err := os.WriteFile(filepath.Join(tree, name), text, 0o644); err != nil {
			return err
		}
	}
	if err := licenses(debs, filepath.Join(tree, "licenses")); err != nil {
		return err
	}
	format, program := "x86_64-efi", "BOOTX64.EFI"
	if im.arch == "arm64" {
		format, program = "arm64-efi", "BOOTAA64.EFI"
	}
	return im.grub(ctx, debs, format, "/grub", filepath.Join(tree, "EFI/BOOT", program), "all_video", "fdt")
}

// grubConfig has no menu: nobody is there to choose.
func grubConfig(line string) []byte {
	return fmt.Appendf(nil, "# Read by GRUB, under a BIOS and under UEFI. The line that begins with \"linux\" is the kernel's.\nlinux /vmlinuz %s\ninitrd /initrd.img\nboot\n", line)
}

// grub makes GRUB's own program with all it needs in it; it finds the rest on the partition it was started from.
func (im *image) grub(ctx context.Context, debs, format, prefix, to string, modules ...string) error {
	dir := filepath.Join(debs, "usr/lib/grub", format)
	args := []string{"-d", dir, "-O", format, "-p", prefix, "-o", to}
	for _, m := range append([]string{"part_msdos", "fat", "normal", "linux", "boot", "echo"}, modules...) {
		if _, err := os.Stat(filepath.Join(dir, m+".mod")); err == nil || m != "fdt" { // ARM's only
			args = append(args, m)
		}
	}
	return im.tool(ctx, "grub-mkimage", args...)
}

// biosGRUB is what a BIOS starts: the code of the disk's first sector, and what follows it.
func (im *image) biosGRUB(ctx context.Context, debs, work string) (code, core []byte, err error) {
	at := filepath.Join(work, "core.img")
	if err := im.grub(ctx, debs, "i386-pc", "(,msdos1)/grub", at, "biosdisk"); err != nil {
		return nil, nil, err
	}
	if core, err = os.ReadFile(at); err != nil {
		return nil, nil, err
	}
	boot, err := os.ReadFile(filepath.Join(debs, "usr/lib/grub/i386-pc/boot.img"))
	if err != nil {
		return nil, nil, err
	}
	if code, err = biosCode(boot); err != nil {
		return nil, nil, err
	}
	return code, core, checkCore(core)
}

// piConfig has the Pi's firmware start the kernel as it is, with Debian's names of the boards.
const piConfig = `# Read by the Raspberry Pi's firmware. What the kernel is told stands in cmdline.txt.
arm_64bit=1
enable_uart=1
upstream_kernel=1
kernel=vmlinuz
initramfs initrd.img followkernel
`

// piFiles are the firmware of every Pi with 64 bits up to the 4, and Debian's descriptions of these boards.
func piFiles(debs, tree string) error {
	var files []string
	for _, name := range []string{"bootcode.bin", "start.elf", "fixup.dat", "start4.elf", "fixup4.dat"} {
		files = append(files, filepath.Join(debs, "usr/lib/raspi-firmware", name))
	}
	boards, err := filepath.Glob(filepath.Join(debs, "usr/lib/linux-image-*/broadcom/bcm2*-rpi-*.dtb"))
	if err != nil || len(boards) == 0 {
		return fmt.Errorf("no descriptions of boards in Debian's kernel: %w", err)
	}
	for _, f := range append(files, boards...) {
		if err := copyFile(filepath.Join(tree, filepath.Base(f)), f); err != nil {
			return err
		}
	}
	return nil
}

// licenses are ledge's and those of Debian's packages.
func licenses(debs, to string) error {
	files, err := filepath.Glob(filepath.Join(debs, "usr/share/doc/*/copyright"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := copyFile(filepath.Join(to, filepath.Base(filepath.Dir(f))+".txt"), f); err != nil {
			return err
		}
	}
	for _, f := range []string{"LICENSE", "NOTICE"} {
		if err := copyFile(filepath.Join(to, "ledge-"+strings.ToLower(f)+".txt"), f); err != nil {
			return err
		}
	}
	return nil
}

func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, fs.FileMode(0o644))
}
