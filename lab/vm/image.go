package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// cacheDir is outside the work tree, so that a fresh checkout on the same machine is warm.
func cacheDir() (string, error) {
	if dir := os.Getenv("LEDGE_CACHE"); dir != "" {
		return dir, nil
	}
	dir, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "ledge"), nil
}

// prepare returns the directory with the guest files of a Debian architecture, building it when this month's is
// missing: Debian's point releases come in with the month, changes of ours with the checksum of the scripts.
func prepare(ctx context.Context, arch string) (string, error) {
	cache, err := cacheDir()
	if err != nil {
		return "", err
	}
	top := filepath.Join(cache, "vm")
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", err
	}
	sum := sha256.New()
	for _, script := range []string{"lab/vm/image.sh", "packaging/debs.sh"} {
		text, err := os.ReadFile(script)
		if err != nil {
			return "", fmt.Errorf("run me from the top of the project: %w", err)
		}
		sum.Write(text)
	}
	name := arch + "-" + time.Now().UTC().Format("2006-01") + "-" + hex.EncodeToString(sum.Sum(nil))[:12]
	dir := filepath.Join(top, name)

	lock, err := os.OpenFile(filepath.Join(top, "lock-"+arch), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err == nil {
		return dir, nil
	}
	dropOld(top)

	start := time.Now()
	fmt.Printf("vm: building the %s guest in %s\n", arch, dir)
	tmp, err := os.MkdirTemp(top, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	cmd := command(ctx, "lab/vm/image.sh", tmp, arch)
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("build the %s guest: %w\n%s", arch, err, log.Bytes())
	}
	if arch == "amd64" {
		if err := uncompressKernel(ctx, filepath.Join(tmp, "vmlinuz"), filepath.Join(tmp, "vmlinux")); err != nil {
			return "", err
		}
	}
	if err := os.Rename(tmp, dir); err != nil {
		return "", err
	}
	fmt.Printf("vm: guest built in %.0f s\n", time.Since(start).Seconds())
	return dir, nil
}

// dropOld removes guests that were built more than 40 days ago. It leaves younger ones, which another checkout may use.
func dropOld(top string) {
	entries, err := os.ReadDir(top)
	if err != nil {
		return
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !e.IsDir() || time.Since(info.ModTime()) < 40*24*time.Hour {
			continue
		}
		if err := os.RemoveAll(filepath.Join(top, e.Name())); err != nil {
			fmt.Println("vm: old guest stays:", err)
		}
	}
}

// uncompressKernel takes the ELF image out of a bzImage (offsets: the x86 boot protocol's header). Booting that by
// PVH saves the decompressor inside the emulated CPU.
func uncompressKernel(ctx context.Context, from, to string) error {
	image, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if len(image) < 0x250 || string(image[0x202:0x206]) != "HdrS" {
		return fmt.Errorf("%s is not a bzImage", from)
	}
	offset := 512*(int(image[0x1f1])+1) + int(binary.LittleEndian.Uint32(image[0x248:]))
	length := int(binary.LittleEndian.Uint32(image[0x24c:]))
	if length < 8 || offset+length > len(image) {
		return fmt.Errorf("%s: payload of %d bytes at %d is outside the file", from, length, offset)
	}
	payload := image[offset : offset+length-4] // the last word is the uncompressed size
	tool := "xz"
	if bytes.HasPrefix(payload, []byte{0x02, 0x21, 0x4c, 0x18}) {
		tool = "lz4"
	}
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	cmd := command(ctx, tool, "-dc")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = bytes.NewReader(payload), out, os.Stderr
	if err := cmd.Run(); err != nil {
		out.Close()
		return fmt.Errorf("uncompress %s with %s: %w", from, tool, err)
	}
	return out.Close()
}

// command is exec.CommandContext whose child dies with us and gets no terminal signals of its own.
func command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.SysProcAttr = &unix.SysProcAttr{Pdeathsig: unix.SIGKILL, Setpgid: true}
	cmd.Cancel = func() error { return unix.Kill(-cmd.Process.Pid, unix.SIGKILL) }
	return cmd
}
