package brain

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"

	"ledge/brain/place"
	"ledge/config"
)

// leaveFormer takes away what the node of this run directory had under names that it has no more, and that nobody would find again. What
// pods stand on is left to them, and the start refused.
func (b *Brain) leaveFormer(ctx context.Context) error {
	was, err := place.ReadInfo(b.RunDir)
	if err != nil {
		slog.Warn("what the node here was before is not known", "err", err) // it is written anew
		return nil
	}
	if was.Bridge == place.NoBridge && b.Bridge != place.NoBridge {
		if err := (forwarding{rules: forwarder(b.rims.Network, was.Bridge)}).remove(ctx); err != nil {
			return err
		}
	}
	var old PodNetwork
	if was.Bridge != "" && was.Bridge != place.NoBridge && was.Bridge != b.Bridge {
		if old, err = b.rims.Network.Open(was.Bridge, netip.Prefix{}, netip.Prefix{}); err != nil {
			return err
		}
		if n := old.Pods(); n > 0 {
			return stillThere(networkSetting(b.Bridge), networkSetting(was.Bridge), n)
		}
	}
	// A keeper that a service has started stands where that says.
	if cmd, err := b.keeperCommand(); err == nil && len(cmd) > 0 && was.CgroupRoot != "" && was.CgroupRoot != b.CgroupRoot {
		if n := heldPods(b.RunDir, b.rims.Host.BootID()); n > 0 {
			return stillThere("--cgroup-root "+b.CgroupRoot, "--cgroup-root "+was.CgroupRoot, n)
		}
		if err := b.rims.Keeper.StopAll(ctx, was.CgroupRoot); err != nil {
			return fmt.Errorf("--cgroup-root %s: leave %s, which this node had before: %w", b.CgroupRoot, was.CgroupRoot, err)
		}
	}
	if old != nil {
		former := fences{rules: fencer(b.rims.Network, was.Bridge)}
		return errors.Join(old.Close(ctx), forwarding{rules: forwarder(b.rims.Network, was.Bridge)}.remove(ctx), former.remove(ctx))
	}
	return nil
}

func stillThere(now, was string, pods int) error {
	return fmt.Errorf("%s: this node had %s, and pods (%d) stand there: keep that, or stop them first: start it so, with --on-term=drain, and end it",
		now, was, pods)
}

// networkSetting is what gives a board this network.
func networkSetting(bridge string) string {
	if bridge == config.PluginNetwork {
		return "network: " + bridge + " in the configuration"
	}
	return "--bridge " + bridge
}

// heldPods counts what a keeper of this boot holds, or held when it was killed.
func heldPods(runDir, bootID string) (n int) {
	boot, err := os.ReadFile(filepath.Join(runDir, "boot_id"))
	if err != nil || string(boot) != bootID {
		return 0
	}
	pods, _ := os.ReadDir(filepath.Join(runDir, "pods")) // what is not there holds none
	return len(pods)
}
