package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// processors are those whose programs a kernel may be told how to run: QEMU's name, and the number in their files.
var processors = map[string]struct {
	qemu    string
	machine byte
}{
	"amd64": {"x86_64", 62},
	"arm64": {"aarch64", 183},
}

const misc = "/proc/sys/fs/binfmt_misc"

// foreign has the kernel run programs of another processor by qemu-user, until done is called: packages run programs of theirs
// when they are set up. The emulator is opened now, so it is found in a chroot too. Whoever else has registered one keeps it.
func foreign(arch string) (done func() error, err error) {
	if arch == runtime.GOARCH {
		return func() error { return nil }, nil
	}
	p, ok := processors[arch]
	if !ok {
		return nil, fmt.Errorf("nobody has said how programs for %s are run here", arch)
	}
	qemu, err := exec.LookPath("qemu-" + p.qemu + "-static")
	if err != nil {
		return nil, fmt.Errorf("programs for %s: %w: scripts/setup.sh cross installs it", arch, err)
	}
	if _, err := os.Stat(filepath.Join(misc, "register")); errors.Is(err, fs.ErrNotExist) {
		if err := unix.Mount("binfmt_misc", misc, "binfmt_misc", 0, ""); err != nil {
			return nil, fmt.Errorf("programs for %s: mount binfmt_misc: %w", arch, err)
		}
	}
	name := fmt.Sprintf("ledge-%s-%d", p.qemu, os.Getpid())
	if err := os.WriteFile(filepath.Join(misc, "register"), []byte(handler(name, qemu, p.machine)), 0); err != nil {
		return nil, fmt.Errorf("programs for %s: register %s with the kernel: %w", arch, qemu, err)
	}
	return func() error { return os.WriteFile(filepath.Join(misc, name), []byte("-1"), 0) }, nil
}

// handler is what binfmt_misc wants to know: how an ELF file of 64 bits for that machine begins, a program or a library, whoever's
// ABI it says it has.
func handler(name, interpreter string, machine byte) string {
	begins := []byte{0x7f, 'E', 'L', 'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, 0, machine, 0}
	counts := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xfe, 0xff, 0xff, 0xff}
	escaped := func(bytes []byte) string {
		var s strings.Builder
		for _, b := range bytes {
			fmt.Fprintf(&s, `\x%02x`, b)
		}
		return s.String()
	}
	return fmt.Sprintf(":%s:M:0:%s:%s:%s:F", name, escaped(begins), escaped(counts), interpreter)
}
