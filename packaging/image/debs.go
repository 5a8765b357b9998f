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

// unpacked returns the directory with Debian's packages for a board, as they are today, and their names and versions.
func (b board) unpacked(ctx context.Context) (dir, list string, err error) {
	script, err := os.ReadFile("packaging/debs.sh")
	if err != nil {
		return "", "", fmt.Errorf("run me from the top of the project: %w", err)
	}
	packages := append([]string{b.kernel + "+", "busybox-static", "ca-certificates"}, b.packages...)
	dir, err = cached(b.arch, string(script)+strings.Join(packages, " "), func(tmp string) error { return fetch(ctx, tmp, b.arch, packages) })
	if err != nil {
		return "", "", err
	}
	text, err := os.ReadFile(filepath.Join(dir, ".debs"))
	return dir, string(text), err
}

// cached returns a directory that is made once a day, and anew when what it is made of changes. Checkouts share it.
func cached(name, of string, build func(tmp string) error) (dir string, err error) {
	cache := os.Getenv("LEDGE_CACHE")
	if cache == "" {
		if cache, err = os.UserCacheDir(); err != nil {
			return "", err
		}
		cache = filepath.Join(cache, "ledge")
	}
	top := filepath.Join(cache, "image")
	if err := os.MkdirAll(top, 0o755); err != nil {
		return "", err
	}
	sum := sha256.Sum256([]byte(of))
	const day = "2006-01-02"
	dir = filepath.Join(top, name+"-"+hex.EncodeToString(sum[:6])+"-"+time.Now().UTC().Format(day))

	lock, err := os.OpenFile(filepath.Join(top, "lock-"+name), os.O_CREATE|os.O_RDWR, 0o644)
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
	old, err := filepath.Glob(strings.TrimSuffix(dir, time.Now().UTC().Format(day)) + "*")
	if err != nil {
		return "", err
	}
	for _, o := range old { // of days past
		if err := os.RemoveAll(o); err != nil {
			return "", err
		}
	}
	tmp, err := os.MkdirTemp(top, "new-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tmp)
	if err := os.Chmod(tmp, 0o755); err != nil {
		return "", err
	}
	if err := build(tmp); err != nil {
		return "", err
	}
	return dir, os.Rename(tmp, dir)
}

func fetch(ctx context.Context, tmp, arch string, packages []string) error {
	cmd := exec.CommandContext(ctx, "packaging/debs.sh", append([]string{arch, tmp}, packages...)...)
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
	return nil
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
