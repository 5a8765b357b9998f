package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// disk is an ext4 file system on a device of its own, so that what arrives there can be counted.
type disk struct {
	mount, device string
}

func newDisk(ctx context.Context, dir, name string) (*disk, error) {
	image := filepath.Join(dir, name+".img")
	d := &disk{mount: filepath.Join(dir, name)}
	if err := os.Mkdir(d.mount, 0o700); err != nil {
		return nil, err
	}
	f, err := os.Create(image)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(f.Truncate(2<<30), f.Close()); err != nil {
		return nil, err
	}
	if err := quiet(exec.CommandContext(ctx, "mke2fs", "-q", "-t", "ext4", "-E", "lazy_itable_init=0,lazy_journal_init=0",
		image)); err != nil {
		return nil, err
	}
	if err := quiet(exec.CommandContext(ctx, "mount", "-o", "loop,noatime", image, d.mount)); err != nil {
		return nil, err
	}
	out, err := exec.CommandContext(ctx, "losetup", "-n", "-O", "NAME", "-j", image).Output()
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	d.device = filepath.Base(strings.TrimSpace(string(out)))
	return d, nil
}

// sectors counts what was written so far. What is still on its way is written first.
func (d *disk) sectors() (int64, error) {
	f, err := os.Open(d.mount)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	if err := unix.Syncfs(int(f.Fd())); err != nil {
		return 0, err
	}
	text, err := os.ReadFile("/sys/block/" + d.device + "/stat")
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(text))
	if len(fields) < 7 {
		return 0, fmt.Errorf("cannot read the counters of %s", d.device)
	}
	return strconv.ParseInt(fields[6], 10, 64)
}

func (d *disk) close() error { return quiet(exec.Command("umount", d.mount)) }
