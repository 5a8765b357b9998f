package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"ledge/packaging/initramfs"
)

var (
	//go:embed network.sh
	networkScript []byte
	//go:embed lease.sh
	leaseScript []byte
)

// applets are the programs of busybox that the scripts and the kernel call, and a few for who looks into a board.
var applets = []string{"bin/sh", "bin/cat", "bin/grep", "bin/hostname", "bin/kill", "bin/ls", "bin/mkdir", "bin/mount", "bin/mv",
	"bin/ping", "bin/ps",
	"bin/rm", "bin/sleep", "sbin/ip", "sbin/lsmod", "sbin/modprobe", "sbin/udhcpc"}

// root writes what the kernel unpacks into memory: ledge as the first process, the modules it may need, and what gets the machine
// an address.
func (im *image) root(ctx context.Context, debs, to string) error {
	modules, err := initramfs.ReadModules(filepath.Join(debs, "lib/modules"))
	if err != nil {
		return err
	}
	var a initramfs.Archive
	for _, d := range []string{"boot/firmware", "dev", "etc/ledge/config.d", "proc", "root", "run", "sys", "tmp", "var/lib/ledge"} {
		a.Directory(d)
	}
	a.Console("dev/console")
	// Alone in its directory: libcontainer puts a mount over that when it seals the program.
	if err := a.File("usr/bin/ledge", im.ledge, 0o755); err != nil {
		return err
	}
	a.Link("init", "usr/bin/ledge")
	a.Text("etc/ledge/config.d/found.conf", 0o644, []byte("mdns: true\n")) // as packages have it; ledge.yaml has the last word
	if err := a.File("bin/busybox", filepath.Join(debs, "bin/busybox"), 0o755); err != nil {
		return err
	}
	for _, name := range applets {
		a.Link(name, "/bin/busybox")
	}
	a.Text("sbin/network", 0o755, networkScript)
	a.Text("sbin/lease", 0o755, leaseScript)
	a.Text(kindToCard, 0o644, []byte(kindToCardText))
	a.Text("etc/hosts", 0o644, []byte("127.0.0.1 localhost\n::1 localhost\n"))
	a.Text("etc/passwd", 0o644, []byte("root:x:0:0:root:/root:/bin/sh\n"))
	a.Text("etc/group", 0o644, []byte("root:x:0:\n"))
	a.Text("etc/resolv.conf", 0o644, nil)
	a.Text("etc/os-release", 0o644, fmt.Appendf(nil, "NAME=ledge\nID=ledge\nPRETTY_NAME=\"ledge %s\"\nVERSION=\"%[1]s\"\n", im.version.name))
	a.Text("etc/modules", 0o644, []byte(strings.Join(append(slices.Clone(im.board.load), "zram"), "\n")+"\n"))
	certificates, err := authorities(filepath.Join(debs, "usr/share/ca-certificates"))
	if err != nil {
		return err
	}
	a.Text("etc/ssl/certs/ca-certificates.crt", 0o644, certificates)
	if err := addModules(&a, modules, append(slices.Clone(im.board.load), im.board.modules...)); err != nil {
		return err
	}
	return im.packInitramfs(ctx, &a, to)
}

func (im *image) packInitramfs(ctx context.Context, a *initramfs.Archive, to string) error {
	plain := to + ".cpio"
	if err := os.WriteFile(plain, a.Bytes(), 0o644); err != nil {
		return err
	}
	level := "-19"
	if im.fast {
		level = "-3"
	}
	return im.tool(ctx, "zstd", "-q", "-T1", level, "--rm", plain, "-o", to)
}

// addModules adds modules where modprobe looks for them, with what depmod says of these and of what the kernel has built in.
func addModules(a *initramfs.Archive, m *initramfs.Modules, names []string) error {
	files := m.InOrder(names)
	top := path.Join("lib/modules", filepath.Base(m.Top))
	mine := map[string]bool{}
	for _, f := range files {
		if err := a.File(path.Join(top, f), filepath.Join(m.Top, f), 0o644); err != nil {
			return err
		}
		mine[initramfs.ModuleName(f)] = true
	}
	for list, module := range map[string]func(line string) string{
		"modules.dep":     func(line string) string { file, _, _ := strings.Cut(line, ":"); return file },
		"modules.alias":   func(line string) string { return line[strings.LastIndex(line, " ")+1:] },
		"modules.symbols": func(line string) string { return line[strings.LastIndex(line, " ")+1:] },
	} {
		text, err := os.ReadFile(filepath.Join(m.Top, list))
		if err != nil {
			return err
		}
		var kept bytes.Buffer
		for line := range strings.Lines(string(text)) {
			if mine[initramfs.ModuleName(module(strings.TrimSpace(line)))] {
				kept.WriteString(line)
			}
		}
		a.Text(path.Join(top, list), 0o644, kept.Bytes())
	}
	return a.File(path.Join(top, "modules.builtin"), filepath.Join(m.Top, "modules.builtin"), 0o644)
}

// authorities are those that Debian trusts, in one file, as its update-ca-certificates writes it.
func authorities(dir string) ([]byte, error) {
	files, err := filepath.Glob(filepath.Join(dir, "mozilla", "*.crt"))
	if err != nil {
		return nil, err
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("no certificates in %s", dir)
	}
	var all bytes.Buffer
	for _, f := range files { // sorted
		text, err := os.ReadFile(f)
		if err != nil {
			return nil, err
		}
		all.Write(bytes.TrimRight(text, "\n"))
		all.WriteByte('\n')
	}
	return all.Bytes(), nil
}
