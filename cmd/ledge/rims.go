package main

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"ledge/api/httpd"
	"ledge/brain"
	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
	"ledge/host/heap"
	"ledge/images"
	"ledge/images/layers"
	"ledge/network"
	"ledge/network/bridge"
	"ledge/network/cni"
	"ledge/network/dns"
	"ledge/network/fence"
	"ledge/network/mdns"
	"ledge/network/proxy"
	"ledge/node/stats"
	"ledge/runtime/keeper"
	"ledge/shutdown"
	"ledge/storage"
)

// rims are what a brain gets of this machine.
func rims(s config.Settings, runDir string) brain.Rims {
	overlays := &host.Overlays{File: filepath.Join(runDir, place.OverlayFile)}
	machine := host.New(host.Config{OverlayCapable: overlays.Capable})
	return brain.Rims{Host: machine, Checked: overlays.Remember, Machine: brain.MachineOf(machine, s), Stats: stats.New(stats.Config{}),
		Store: openStore, Images: openImages, Network: bridges{place.NetworkDir(runDir), place.PluginsDir(s.DataDir), s.File.ServesNames()},
		Names: dns.Listen, Found: brain.Found{Serve: mdns.Serve, Beside: mdns.Beside},
		Disks: &host.Labelled{}, DiskGone: host.BlockGone, Devices: &host.CharDevices{},
		Keeper: brain.Keeper{
			Open: func(command []string) brain.Engine {
				return keeper.New(keeper.ClientConfig{RunDir: runDir, Command: command})
			},
			StopAll: func(ctx context.Context, cgroupRoot string) error { return keeper.StopAll(ctx, runDir, cgroupRoot) },
		},
		Power: brain.Power{Signals: shutdown.Incoming(), GoingDown: shutdown.MachineGoingDown,
			Off: func(ctx context.Context, by shutdown.Backend, reboot bool) error { return by.Off(ctx, reboot) }},
		Doors: openSocket, Beside: beside, Idle: host.IdleThread}
}

// openStore has another process look a store over that is in doubt: bbolt may die of what it finds.
func openStore(ctx context.Context, dir string) (*storage.Store, error) {
	exe, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return storage.Open(ctx, storage.Config{Dir: dir, Check: storage.CheckChild(exe, "check-db")})
}

func openImages(ctx context.Context, cfg images.StoreConfig) (brain.Images, error) {
	cfg.Layers = layers.New(layers.Config{})
	disk, err := images.Open(ctx, cfg)
	if err != nil {
		return nil, err // a nil *Disk in it would not be nil
	}
	return disk, nil
}

func openSocket(path string) ([]*httpd.Listener, error) {
	unix, err := httpd.ListenUnix(path, host.TrustPeer)
	return []*httpd.Listener{unix}, err
}

// beside spares a brain that serves when memory runs out, and gives back what it does not need.
func beside(ctx context.Context) {
	host.SpareFromOOM()
	heap.Run(ctx)
}

// bridges are networks of pods on a bridge of this machine; what they have is noted in a directory.
type bridges struct {
	dir   string
	kept  string // what outlives a reboot, of a network that plugins make
	names bool   // the board answers its pods' questions for names
}

func (bridges) Check(name string) error { return bridge.Check(name) }

func (b bridges) Forwarder(bridge string) network.Forwarder {
	return proxy.New(proxy.Config{Bridge: bridge, Dir: b.dir})
}

func (bridges) Fencer(bridge string) network.Fencer { return fence.New(fence.Config{Bridge: bridge}) }

func (bridges) Hold(ctx context.Context) (release func(), err error) { return host.HoldNetwork(ctx) }

func (b bridges) Open(name string, cidr, cidr6 netip.Prefix) (brain.PodNetwork, error) {
	if name == config.PluginNetwork {
		plugins, err := cni.New(cni.Config{Dir: b.kept})
		if err != nil {
			return nil, err
		}
		return plugins, nil
	}
	setup, err := bridge.New(bridge.Config{Bridge: name, PodCIDR: cidr, PodCIDR6: cidr6, RunDir: b.dir, Questions: b.names})
	if err != nil {
		return nil, err
	}
	return setup, nil
}
