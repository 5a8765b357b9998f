package main

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/coreos/go-systemd/v22/activation"
	"github.com/coreos/go-systemd/v22/daemon"
	"golang.org/x/sys/unix"

	"ledge/brain"
	"ledge/brain/place"
	"ledge/cli"
	"ledge/host"
	"ledge/host/alive"
	"ledge/host/heap"
	"ledge/runtime/keeper"
	"ledge/runtime/libct"
	"ledge/upgrade"
)

// keeperVerb is the process that holds the containers. It ends on SIGTERM; they do not.
func keeperVerb(ctx context.Context, c *cli.Command) error {
	host.SpareThreads(spareThreads)
	cli.LogTo(c.Err, false)
	if err := place.CheckRunDir(c.RunDir); err != nil { // under systemd it comes before the brain
		return err
	}
	host.SpareFromOOM()
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM)
	defer stop()
	// Ctrl-C in the terminal of a serve that started this keeper is meant for that serve. It is taken and dropped, not
	// ignored: containers would inherit that, and not end on a Ctrl-C in terminals of their own.
	signal.Notify(make(chan os.Signal, 1), syscall.SIGINT, syscall.SIGHUP)
	runner, err := libct.New(libct.Config{CgroupRoot: *c.Opts.(*string), Warn: func(msg string) { slog.Warn(msg) }})
	if err != nil {
		return err
	}
	cfg := keeper.Config{RunDir: c.RunDir, Runner: runner, Trust: host.TrustPeer, Parked: activation.Files(true), Ready: func() {
		alive.TellManager(daemon.SdNotifyReady)
		keeperIsWell()
		// Through its own socket, as the brain speaks to it.
		if w := alive.BySystemd(brain.Answers(keeper.New(keeper.ClientConfig{RunDir: c.RunDir}))); w != nil {
			go func() { _ = w.Run(ctx) }() // it only ever ends with ctx, and without an error
		}
	}}
	if os.Getenv("NOTIFY_SOCKET") != "" {
		cfg.Park = func(name string, f *os.File) error { return fdStore("FDSTORE=1\nFDPOLL=0\nFDNAME="+name, f) }
		cfg.Unpark = func(name string) error { return fdStore("FDSTOREREMOVE=1\nFDNAME="+name, nil) }
	}
	go heap.Run(ctx)
	return keeper.Run(ctx, cfg)
}

// fdStore speaks to the service manager's file descriptor store. Not through net: a connected datagram socket of Go's sends
// no files.
func fdStore(message string, f *os.File) error {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("speak to systemd: %w", err)
	}
	defer unix.Close(fd)
	var rights []byte
	if f != nil {
		rights = unix.UnixRights(int(f.Fd()))
	}
	if err := unix.Sendmsg(fd, []byte(message), rights, &unix.SockaddrUnix{Name: os.Getenv("NOTIFY_SOCKET")}, 0); err != nil {
		return fmt.Errorf("speak to systemd: %w", err)
	}
	return nil
}

// keeperIsWell notes that this version can be a keeper.
func keeperIsWell() {
	exe, err := os.Executable()
	if err != nil {
		return
	}
	dir := upgrade.Open(filepath.Dir(filepath.Dir(exe)))
	self := dir.Self(exe)
	if self == upgrade.Base {
		return
	}
	if _, err := dir.Change(func(s upgrade.State) (upgrade.State, error) { return s.KeeperReady(self), nil }); err != nil {
		slog.Warn("that this version can be a keeper is not noted", "err", err)
	}
}
