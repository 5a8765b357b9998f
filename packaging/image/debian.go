package main

import (
	"bytes"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"ledge/packaging/initramfs"
)

// The flavour with Debian's systemd: an initramfs that finds the card, and on it a root that nothing writes to.

//go:embed debian/start.sh
var startScript []byte

// debianPackages are installed beside those that every Debian has.
var debianPackages = []string{"apparmor", "ca-certificates", "dbus", "e2fsprogs", "init-system-helpers", "iproute2", "kmod",
	"libpam-systemd", "nftables",
	"openssh-server", "procps", "systemd", "systemd-resolved", "systemd-sysv", "systemd-timesyncd", "systemd-zram-generator", "udev",
	"wireless-regdb",
	"wpasupplicant"}

// debianFiles are the files of settings, by path.
var debianFiles = map[string]string{
	"etc/hostname": "ledge\n",
	"etc/hosts":    "127.0.0.1 localhost\n::1 localhost ip6-localhost\n",
	"etc/fstab":    "# All is mounted before systemd starts. The root is in memory, over the card's, which nothing writes to.\n",
	// Pods and bridges of theirs are not asked about, and what ledge has set stays.
	"etc/systemd/network/80-ledge.network":                "[Match]\nName=en* eth* usb*\n\n[Network]\nDHCP=yes\n\n[DHCPv4]\nClientIdentifier=mac\n",
	"etc/systemd/networkd.conf.d/ledge.conf":              "[Network]\nManageForeignRoutes=no\nManageForeignRoutingPolicyRules=no\n",
	"etc/systemd/journald.conf.d/ledge.conf":              "[Journal]\nStorage=volatile\nRuntimeMaxUse=16M\n",
	"etc/systemd/timesyncd.conf.d/ledge.conf":             "[Time]\nSaveIntervalSec=1h\n",
	"etc/systemd/zram-generator.conf":                     "[zram0]\nzram-size = min(ram / 2, 1024)\n",
	"etc/systemd/system/ledge.service.d/card.conf":        onlyWithData,
	"etc/systemd/system/ledge-keeper.service.d/card.conf": onlyWithData,
	"etc/systemd/system/ssh.service.d/card.conf":          sshUnit,
	"etc/ssh/sshd_config.d/card.conf": "HostKey " + hostKey +
		"\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin prohibit-password\n",
	kindToCard:                   kindToCardText,
	"usr/libexec/ledge-host-key": hostKeyScript,
}

const (
	onlyWithData = "# Without its data it would be another node, in memory.\n[Unit]\nAssertPathIsMountPoint=/var/lib/ledge\n"
	// Nobody could log in without a key.
	sshUnit = "[Unit]\nConditionPathExists=/root/.ssh/authorized_keys\n\n[Service]\nExecStartPre=\nExecStartPre=/usr/libexec/ledge-host-key\nExecStartPre=/usr/sbin/sshd -t\n"

	hostKey       = "/var/lib/ledge/system/ssh/ssh_host_ed25519_key"
	hostKeyScript = `#!/bin/sh
# Makes the key that this board is known by, once; a power cut leaves it whole or not there.
set -e
key=` + hostKey + `
[ ! -s $key ] || exit 0
mkdir -p -m 700 ${key%/*}
rm -f $key.new
ssh-keygen -q -t ed25519 -N '' -C '' -f $key.new
sync $key.new
mv $key.new $key
sync ${key%/*}
`
)

// debianLinks enable units and mask others. Nobody sits before the screen; nothing here renews packages, as the next boot knows
// nothing of it.
var debianLinks = map[string]string{
	"multi-user.target.wants/systemd-networkd.service": "/lib/systemd/system/systemd-networkd.service",
	"sockets.target.wants/systemd-networkd.socket":     "/lib/systemd/system/systemd-networkd.socket",
	"dbus-org.freedesktop.network1.service":            "/lib/systemd/system/systemd-networkd.service",
	"multi-user.target.wants/ledge-firstboot.service":  "/lib/systemd/system/ledge-firstboot.service",
	"getty@.service":                                 "/dev/null",
	"serial-getty@.service":                          "/dev/null",
	"systemd-firstboot.service":                      "/dev/null",
	"systemd-networkd-wait-online.service":           "/dev/null",
	"apt-daily.timer":                                "/dev/null",
	"apt-daily-upgrade.timer":                        "/dev/null",
	"dpkg-db-backup.timer":                           "/dev/null",
	"e2scrub_all.timer":                              "/dev/null",
	"e2scrub_reap.service":                           "/dev/null",
	"multi-user.target.wants/wpa_supplicant.service": "", // ledge firstboot starts one for the radio there is
	"multi-user.target.wants/e2scrub_reap.service":   "",
	"getty.target.wants/getty@tty1.service":          "",
	"timers.target.wants/apt-daily.timer":            "",
	"timers.target.wants/apt-daily-upgrade.timer":    "",
	"timers.target.wants/dpkg-db-backup.timer":       "",
	"timers.target.wants/e2scrub_all.timer":          "",
}

// podDevices are drivers that pods are given devices of: sticks, buses, sensors, cameras' and meters' serial lines.
var podDevices = []string{
	"kernel/net/", "kernel/fs/", "kernel/crypto/", "kernel/lib/", "kernel/drivers/net/wireless/", "kernel/drivers/net/*.ko",
	"kernel/drivers/block/",
	"kernel/drivers/md/", "kernel/drivers/hid/", "kernel/drivers/hwmon/", "kernel/drivers/i2c/", "kernel/drivers/iio/", "kernel/drivers/leds/",
	"kernel/drivers/rtc/", "kernel/drivers/spi/", "kernel/drivers/tty/", "kernel/drivers/usb/class/", "kernel/drivers/usb/serial/",
	"kernel/drivers/w1/",
	"kernel/drivers/watchdog/", "kernel/drivers/bluetooth/", "kernel/drivers/media/usb/uvc/", "kernel/drivers/char/", "kernel/drivers/power/",
	"kernel/drivers/nvmem/", "kernel/drivers/input/misc/",
}

// debianStart writes the initramfs that finds the card: drivers of disks, and a script.
func (im *image) debianStart(ctx context.Context, debs, to string) error {
	modules, err := initramfs.ReadModules(filepath.Join(debs, "lib/modules"))
	if err != nil {
		return err
	}
	var a initramfs.Archive
	for _, d := range []string{"card", "dev", "memory", "proc", "root", "sys"} {
		a.Directory(d)
	}
	a.Console("dev/console")
	a.Text("init", 0o755, startScript)
	if err := a.File("bin/busybox", filepath.Join(debs, "bin/busybox"), 0o755); err != nil {
		return err
	}
	for _, name := range []string{"cat", "dd", "find", "grep", "mkdir", "modprobe", "mount", "mv", "od", "sh", "sleep", "sort", "switch_root",
		"sync", "tr", "xargs"} {
		a.Link(path.Join("bin", name), "busybox")
	}
	a.Link("sbin/modprobe", "/bin/busybox") // the kernel's name for it
	load := []string{"squashfs", "overlay", "quota_v2", "ext4", "vfat", "nls_cp437", "nls_ascii", "nls_utf8", "crc32c_generic"}
	a.Text("etc/modules", 0o644, []byte(strings.Join(load, "\n")+"\n"))
	if err := addModules(&a, modules, append(load, im.disks...)); err != nil {
		return err
	}
	return im.packInitramfs(ctx, &a, to)
}

// debianRoot makes the root: Debian, the package of this commit, the kernel's modules. It gives the list of packages.
func (im *image) debianRoot(ctx context.Context, debs, work, to string) (list string, err error) {
	if os.Getuid() != 0 {
		return "", errors.New("run me as root: the packages of Debian set themselves up; the appliance (FLAVOUR=appliance) takes no root")
	}
	script, err := os.ReadFile("packaging/image/debian/root.sh")
	if err != nil {
		return "", err
	}
	done, err := foreign(im.arch)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, done()) }()
	packages := strings.Join(slices.Concat(debianPackages, im.firmware), ",")
	base, err := cached("root-"+im.arch, string(script)+packages, func(tmp string) error {
		out, err := exec.CommandContext(ctx, "packaging/image/debian/root.sh", im.arch, tmp, packages).CombinedOutput()
		if err != nil {
			return fmt.Errorf("set up Debian for %s: %w: %s", im.arch, err, out)
		}
		return nil
	})
	if err != nil {
		return "", err
	}
	text, err := os.ReadFile(filepath.Join(base, ".debs"))
	if err != nil {
		return "", err
	}
	root := filepath.Join(work, "root")
	if err := im.tool(ctx, "cp", "-a", "--reflink=auto", base, root); err != nil {
		return "", err
	}
	if err := os.Remove(filepath.Join(root, ".debs")); err != nil {
		return "", err
	}
	if err := im.installLedge(ctx, work, root); err != nil {
		return "", err
	}
	if err := configure(root, im.load); err != nil {
		return "", err
	}
	if err := im.copyModules(ctx, debs, root); err != nil {
		return "", err
	}
	level := "15"
	if im.fast {
		level = "1"
	}
	// It takes the times from SOURCE_DATE_EPOCH: none is later than the commit.
	if err := im.tool(ctx, "mksquashfs", root, to, "-noappend", "-no-progress", "-quiet", "-no-xattrs", "-b", "256K", "-comp", "zstd",
		"-Xcompression-level", level); err != nil {
		return "", err
	}
	return string(text), nil
}

// installLedge installs the package as on any Debian.
func (im *image) installLedge(ctx context.Context, work, root string) error {
	build := exec.CommandContext(ctx, "packaging/deb/build.sh", im.arch, im.ledge, work)
	build.Env = append(os.Environ(), "COMPRESS=gzip", fmt.Sprintf("SOURCE_DATE_EPOCH=%d", im.version.epoch))
	build.Stderr = os.Stderr
	out, err := build.Output()
	if err != nil {
		return fmt.Errorf("the package: %w", err)
	}
	deb := strings.TrimSpace(string(out))
	inside := filepath.Join(root, "ledge.deb")
	if err := os.Rename(deb, inside); err != nil {
		return err
	}
	install := exec.CommandContext(ctx, "/usr/bin/dpkg", "-i", "/ledge.deb")
	install.Dir, install.SysProcAttr = "/", &syscall.SysProcAttr{Chroot: root}
	install.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive",
		"DPKG_MAINTSCRIPT_ARCH=" + im.arch}
	if out, err := install.CombinedOutput(); err != nil {
		return fmt.Errorf("install the package: %w: %s", err, out)
	}
	var left []string
	for _, pattern := range []string{"var/lib/dpkg/*-old", "var/log/*"} {
		found, err := filepath.Glob(filepath.Join(root, pattern))
		if err != nil {
			return err
		}
		left = append(left, found...)
	}
	for _, f := range append(left, inside) {
		if err := os.RemoveAll(f); err != nil {
			return err
		}
	}
	return nil
}

// configure writes the files and links.
func configure(root string, load []string) error {
	files := map[string]string{"etc/modules-load.d/ledge.conf": strings.Join(load, "\n") + "\n"}
	for name, text := range debianFiles {
		files[name] = text
	}
	for name, text := range files {
		perm := fs.FileMode(0o644)
		if strings.HasPrefix(text, "#!") {
			perm = 0o755
		}
		at := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, []byte(text), perm)); err != nil {
			return err
		}
	}
	for name, to := range debianLinks {
		at := filepath.Join(root, "etc/systemd/system", name)
		if err := os.RemoveAll(at); err != nil {
			return err
		}
		if to == "" {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.Symlink(to, at)); err != nil {
			return err
		}
	}
	// Where the initramfs mounts.
	for _, dir := range []string{"boot/firmware", "var/lib/ledge", "var/lib/systemd/timesync"} {
		if err := os.MkdirAll(filepath.Join(root, dir), 0o755); err != nil {
			return err
		}
	}
	return nil
}

// copyModules gives the root the kernel's modules for boards and what pods do with them, and has depmod list these.
func (im *image) copyModules(ctx context.Context, debs, root string) error {
	m, err := initramfs.ReadModules(filepath.Join(debs, "lib/modules"))
	if err != nil {
		return err
	}
	release := filepath.Base(m.Top)
	top := filepath.Join(root, "usr/lib/modules", release)
	files := m.InOrder(slices.Concat(im.load, im.modules, podDevices))
	for _, f := range append(files, "modules.builtin", "modules.builtin.modinfo", "modules.order") {
		text, err := os.ReadFile(filepath.Join(m.Top, f))
		if err != nil {
			return err
		}
		at := filepath.Join(top, f)
		if err := errors.Join(os.MkdirAll(filepath.Dir(at), 0o755), os.WriteFile(at, text, 0o644)); err != nil {
			return err
		}
	}
	return im.tool(ctx, "depmod", "-b", root, release)
}

// packages puts lists of packages together, each once, by name.
func packages(lists ...string) string {
	var all []string
	for _, l := range lists {
		for line := range strings.Lines(l) {
			if line = strings.TrimSpace(line); line != "" {
				all = append(all, line)
			}
		}
	}
	slices.Sort(all)
	var out bytes.Buffer
	for _, line := range slices.Compact(all) {
		fmt.Fprintln(&out, line)
	}
	return out.String()
}
