package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// unpacked returns the directory with Debian's packages for a board, as they are today, and their names and versions. They are
// fetched once a day and shared by checkouts.
func (b board) unpacked(ctx context.Context) (dir, list string, err error) {
	cache := os.Getenv("LEDGE_CACHE")
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			return "", "", err
		}
		cache = filepath.Join(cache, "ledge")
	}
	top := filepath.Join(cache, "image")
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", "", err
	}
	script, err := os.ReadFile("scripts/debs.sh")
	if err != nil {
		return "", "", fmt.Errorf("run me from the top of the project: %w", err)
	}
	packages := append([]string{b.kernel + "+", "busybox-static", "ca-certificates"}, b.packages...)
	sum := sha256.Sum256(append(script, strings.Join(packages, " ")...))
	dir = filepath.Join(top, b.arch+"-"+hex.EncodeToString(sum[:6])+"-"+time.Now().UTC().Format("2006-01-02"))

	lock, err := os.OpenFile(filepath.Join(top, "lock-"+b.arch), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", "", err
	}
	defer lock.Close()
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		return "", "", fmt.Errorf("lock %s: %w", lock.Name(), err)
	}
	if _, err := os.Stat(dir); err != nil {
		if err := fetch(ctx, top, dir, b.arch, packages); err != nil {
			return "", "", err
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, ".debs"))
	return dir, string(text), err
}

func fetch(ctx context.Context, top, dir, arch string, packages []string) error {
	old, err := filepath.Glob(dir[:len(dir)-len("2006-01-02")] + "*")
	if err != nil {
		return err
	}
	for _, o := range old { // of days past
		if err := os.RemoveAll(o); err != nil {
			return err
		}
	}
	tmp, err := os.MkdirTemp(top, "new-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	cmd := exec.CommandContext(ctx, "scripts/debs.sh", append([]string{arch, tmp}, packages...)...)
	cmd.Env = append(os.Environ(), "DEBS_RELEASE=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("fetch packages for %s: %w: %s", arch, err, out)
	}
	version, err := only(filepath.Join(tmp, "lib/modules/*"))
	if err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, "depmod", "-b", tmp, filepath.Base(version)).CombinedOutput(); err != nil {
		return fmt.Errorf("depmod: %w: %s", err, out)
	}
	return os.Rename(tmp, dir)
}

// only is the one file that matches a pattern.
func only(pattern string) (string, error) {
	all, err := filepath.Glob(pattern)
	if err == nil && len(all) != 1 {
		err = fmt.Errorf("%d files match %s, want 1", len(all), pattern)
	}
	if err != nil {
		return "", err
	}
	return all[0], nil
}
