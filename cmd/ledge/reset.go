package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"ledge/config"
	"ledge/network/bridge"
	"ledge/runtime/keeper"
	"ledge/shutdown"
	"ledge/storage"
)

type resetOpts struct {
	dataDir, bridge, cgroupRoot string
	data                        bool
}

func resetFlags(c *command) {
	o := &resetOpts{}
	c.flags.StringVar(&o.dataDir, "data-dir", "", dataDirUsage)
	c.flags.StringVar(&o.bridge, "bridge", "", "the node's bridge; empty: as it was last run")
	c.flags.StringVar(&o.cgroupRoot, "cgroup-root", "", "the node's cgroup root; empty: as it was last run")
	c.flags.BoolVar(&o.data, "data", false, "remove the data directory too: objects, images, volumes, certificates")
	c.opts = o
}

// reset removes what pods of these directories left on the machine: processes, mounts, cgroups, interfaces,
// tables, namespaces, and with --data everything else of the node.
func reset(ctx context.Context, c *command) error {
	logTo(c, false)
	o := c.opts.(*resetOpts)
	if c.reachable() == nil {
		return fmt.Errorf("a node runs on %s: stop it first (systemctl stop ledge, or Ctrl-C)", c.runDir)
	}
	if lock, err := holdRunDir(ctx, c.runDir); err == nil {
		defer lock.Close() // nothing was written through it
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: stop it first (systemctl stop ledge)", err)
	}
	was, err := readRunInfo(c.runDir)
	if err != nil {
		return err
	}
	if err := c.resetDirs(o); err != nil {
		return err
	}
	if o.dataDir != "" {
		// Somebody may hold it from another run directory.
		release, err := storage.Hold(storeOf(o.dataDir))
		if err != nil {
			return stopFirst(err)
		}
		defer release()
	}
	if o.cgroupRoot == "" {
		o.cgroupRoot = was.CgroupRoot
	}
	if err := errors.Join(resetPods(ctx, c.runDir, o.cgroupRoot), resetNetwork(ctx, c.runDir, o.bridge, was)); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	for _, dir := range []string{c.runDir, o.dataDir} {
		if err := unmountBelow(dir); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	if c.runDir == config.DefaultRunDir { // a node beside the machine's own has none
		if err := os.Remove(shutdown.LogindDropIn); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reset: %w", err)
		}
	}
	if err := removeDir(c.runDir, runMarks); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if o.data {
		if err := removeDir(o.dataDir, dataMarks); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	_, err = fmt.Fprintln(c.out, "reset done")
	return err
}

// resetDirs settles which data directory is meant, and refuses directories of others.
func (c *command) resetDirs(o *resetOpts) (err error) {
	asked := o.data || o.dataDir != ""
	switch other, err := foreign(c.runDir, runMarks); {
	case err != nil:
		return fmt.Errorf("reset: %w", err)
	case other:
		return fmt.Errorf("reset: %s has something in it and no run state of a node (such as %s): give the --run-dir of a node", c.runDir, runInfoFile)
	}
	if o.dataDir, err = c.dataOf(o.dataDir); err != nil {
		if o.data {
			return err
		}
		return nil // no data are known that a mount could be left in
	}
	switch other, err := foreign(o.dataDir, dataMarks); {
	case err != nil:
		return fmt.Errorf("reset: %w", err)
	case other && asked:
		return fmt.Errorf("reset: %s has something in it and no store of a node (such as %s): give the --data-dir of a node, or remove it by hand",
			o.dataDir, dataMarks[0])
	case other:
		o.dataDir = ""
	}
	return nil
}

// resetPods stops every pod through a keeper, the one that runs or one started for this, which ends with them.
func resetPods(ctx context.Context, runDir, cgroupRoot string) error {
	if _, err := os.Stat(filepath.Join(runDir, "boot_id")); errors.Is(err, fs.ErrNotExist) {
		if _, err := os.Stat(filepath.Join(runDir, "keeper.sock")); errors.Is(err, fs.ErrNotExist) {
			return nil // no keeper has run since the boot
		}
	}
	exe, err := os.Executable()
	if err != nil {
		return fmt.Errorf("find this program: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	k := keeper.New(keeper.ClientConfig{RunDir: runDir, Command: []string{exe, "--run-dir", runDir, "keeper", "--cgroup-root", cgroupRoot}})
	starter, stop := context.WithCancel(ctx)
	started := make(chan error, 1)
	go func() { started <- k.Run(starter) }() // starts the keeper when none answers
	_, err = k.WaitReady(ctx)
	stop() // before the reset: a keeper that has ended must not be started again
	if err := errors.Join(err, <-started); err != nil {
		return fmt.Errorf("start a keeper to stop the pods: %w", err)
	}
	return k.Reset(ctx)
}

// resetNetwork removes a bridge that was named, or that a node here said it had.
func resetNetwork(ctx context.Context, runDir, name string, was runInfo) error {
	name = cmp.Or(name, was.Bridge)
	if name == "" || name == noBridge {
		return nil
	}
	s, err := bridge.New(bridge.Config{Bridge: name, RunDir: networkDir(runDir)})
	if err != nil {
		return err
	}
	return s.Close(ctx)
}
