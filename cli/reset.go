package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"

	"ledge/brain/place"
	"ledge/config"
	"ledge/console"
	"ledge/network/bridge"
	"ledge/network/cni"
	"ledge/network/fence"
	"ledge/network/proxy"
	"ledge/runtime/keeper"
	"ledge/shutdown"
	"ledge/storage"
)

type resetOpts struct {
	dataDir, bridge, cgroupRoot string
	data                        bool
}

func resetFlags(c *Command) {
	o := &resetOpts{}
	c.Flags.StringVar(&o.dataDir, "data-dir", "", dataDirUsage)
	c.Flags.StringVar(&o.bridge, "bridge", "", "the node's bridge; empty: as it was last run")
	c.Flags.StringVar(&o.cgroupRoot, "cgroup-root", "", "the node's cgroup root; empty: as it was last run")
	c.Flags.BoolVar(&o.data, "data", false, "remove the data directory too: objects, images, volumes, certificates")
	c.Opts = o
}

// reset removes what pods of these directories left on the machine: processes, mounts, cgroups, interfaces,
// tables, namespaces, and with --data everything else of the node.
func reset(ctx context.Context, c *Command) error {
	LogTo(c.Err, false)
	o := c.Opts.(*resetOpts)
	if c.reachable() == nil {
		return fmt.Errorf("a node runs on %s: stop it first (systemctl stop ledge, or Ctrl-C)", c.RunDir)
	}
	if lock, err := place.Hold(ctx, c.RunDir); err == nil {
		defer lock.Close() // nothing was written through it
	} else if !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%w: stop it first (systemctl stop ledge)", err)
	}
	was, err := place.ReadInfo(c.RunDir)
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
	if err := errors.Join(keeper.StopAll(ctx, c.RunDir, o.cgroupRoot), resetNetwork(ctx, c.RunDir, o.bridge, was)); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	for _, dir := range []string{c.RunDir, o.dataDir} {
		if err := unmountBelow(dir); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	if c.RunDir == config.DefaultRunDir { // a node beside the machine's own has none
		if err := os.Remove(shutdown.LogindDropIn); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("reset: %w", err)
		}
		if err := console.Remove("/run"); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	if err := removeDir(c.RunDir, place.RunMarks); err != nil {
		return fmt.Errorf("reset: %w", err)
	}
	if o.data {
		if err := removeDir(o.dataDir, place.KeptMarks()); err != nil {
			return fmt.Errorf("reset: %w", err)
		}
	}
	_, err = fmt.Fprintln(c.out, "reset done")
	return err
}

// resetDirs finds which data directory is meant, and refuses directories of others.
func (c *Command) resetDirs(o *resetOpts) (err error) {
	asked := o.data || o.dataDir != ""
	switch other, err := place.Foreign(c.RunDir, place.RunMarks); {
	case err != nil:
		return fmt.Errorf("reset: %w", err)
	case other:
		return fmt.Errorf("reset: %s has something in it and no run state of a node (such as %s): give the --run-dir of a node", c.RunDir,
			place.InfoFile)
	}
	if o.dataDir, err = c.dataOf(o.dataDir); err != nil {
		if o.data {
			return err
		}
		return nil // no data are known that a mount could be left in
	}
	switch other, err := place.Foreign(o.dataDir, place.KeptMarks()); {
	case err != nil:
		return fmt.Errorf("reset: %w", err)
	case other && asked:
		return fmt.Errorf("reset: %s has something in it and no store of a node (such as %s): give the --data-dir of a node, or remove it by hand",
			o.dataDir, place.DataMarks[0])
	case other:
		o.dataDir = ""
	}
	return nil
}

// resetNetwork removes a bridge that was named, or that a node here said it had, and beside it what forwarded Services and held network
// policies.
func resetNetwork(ctx context.Context, runDir, name string, was place.Info) error {
	name = cmp.Or(name, was.Bridge)
	if name == "" {
		return nil
	}
	rules := proxy.Config{Bridge: name, Dir: place.NetworkDir(runDir)}
	if name == place.NoBridge {
		rules.Bridge = ""
		return proxy.New(rules).Delete(ctx)
	}
	if name == config.PluginNetwork {
		s, err := cni.New(cni.Config{Dir: place.PluginsDir(was.DataDir)})
		if err != nil {
			return err
		}
		return s.Close(ctx)
	}
	s, err := bridge.New(bridge.Config{Bridge: name, RunDir: place.NetworkDir(runDir)})
	if err != nil {
		return err
	}
	return errors.Join(s.Close(ctx), proxy.New(rules).Delete(ctx), fence.New(fence.Config{Bridge: name}).Delete(ctx))
}
