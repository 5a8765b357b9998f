// Command image makes what is written to a board's card: firmware's files, a kernel, ledge as its first process or a Debian with
// ledge in it, and an empty data partition. Nothing of it is mounted and no loop device is used; the same commit and the same Debian
// packages give the same bytes.
//
//	go run ./packaging/image -board generic-amd64 -flavour appliance -o bin     (or: make image BOARD=generic-amd64)
//
// Beside ledge-BOARD-FLAVOUR-VERSION.img.xz it writes .sha256, .bmap (for bmaptool) and .spdx.json (what is in it).
package main

import (
	"context"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	syscall.Umask(0o022) // whoever makes an image, programs on it that are not root's read what is theirs
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	fs := flag.NewFlagSet("image", flag.ContinueOnError)
	name := fs.String("board", "", strings.Join(slices.Sorted(maps.Keys(boards)), ", "))
	flavour := fs.String("flavour", debian, "debian: systemd is process 1, and root makes the image; appliance: ledge is")
	binary := fs.String("binary", "", "ledge for that board (default bin/ledge-linux-ARCH)")
	to := fs.String("o", "bin", "directory for the image")
	fast := fs.Bool("fast", false, "pack badly: for tests")
	if err := fs.Parse(args); err != nil {
		return err
	}
	b, ok := boards[*name]
	switch {
	case !ok:
		return fmt.Errorf("no board %q; there are %s", *name, strings.Join(slices.Sorted(maps.Keys(boards)), ", "))
	case *flavour != appliance && *flavour != debian:
		return fmt.Errorf("no flavour %q; there are %s and %s", *flavour, appliance, debian)
	case fs.NArg() > 0:
		return fmt.Errorf("unexpected %q", fs.Arg(0))
	}
	if *binary == "" {
		*binary = "bin/ledge-linux-" + b.arch
	}
	v, err := versionOf(ctx)
	if err != nil {
		return err
	}
	start := time.Now()
	im := &image{board: b, flavour: *flavour, version: v, ids: newIDs(*name, *flavour, v.name), ledge: *binary, fast: *fast,
		base: filepath.Join(*to, "ledge-"+*name+"-"+*flavour+"-"+v.name)}
	if err := im.make(ctx); err != nil {
		return err
	}
	packed, err := os.Stat(im.base + ".img.xz")
	if err != nil {
		return err
	}
	fmt.Printf("image: %s.img.xz, %d bytes, in %.0f s\n", im.base, packed.Size(), time.Since(start).Seconds())
	if packed.Size() > most && *flavour == appliance {
		return fmt.Errorf("that is more than the %d bytes an appliance may have", most)
	}
	return nil
}

// Of flavours:
const (
	appliance = "appliance"
	debian    = "debian"
)

// most is what a packed image of an appliance may weigh.
const most = 80_000_000

// version says what an image is made of: the commit, and its time, which all times in the image are.
type version struct {
	name  string
	epoch int64
}

// versionOf asks as scripts/build.sh does.
func versionOf(ctx context.Context) (v version, err error) {
	name, err := exec.CommandContext(ctx, "scripts/version.sh").Output()
	if err != nil {
		return v, fmt.Errorf("scripts/version.sh: %w", err)
	}
	v.name = strings.TrimSpace(string(name))
	epoch := os.Getenv("SOURCE_DATE_EPOCH")
	if epoch == "" {
		epoch = "0"
		if out, err := exec.CommandContext(ctx, "git", "log", "-1", "--format=%ct").Output(); err == nil {
			epoch = strings.TrimSpace(string(out))
		}
	}
	if v.epoch, err = strconv.ParseInt(epoch, 10, 64); err != nil {
		return v, fmt.Errorf("SOURCE_DATE_EPOCH: %w", err)
	}
	return v, nil
}

// tool runs a program that is told which time it is.
func (im *image) tool(ctx context.Context, name string, args ...string) error {
	cmd := exec.CommandContext(ctx, name, args...)
	epoch := strconv.FormatInt(im.version.epoch, 10)
	cmd.Env = append(os.Environ(), "SOURCE_DATE_EPOCH="+epoch, "E2FSPROGS_FAKE_TIME="+epoch, "TZ=UTC", "LC_ALL=C", "MTOOLS_SKIP_CHECK=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return nil
}
