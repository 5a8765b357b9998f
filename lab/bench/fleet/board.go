package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"

	"ledge/api"
	"ledge/brain"
	"ledge/brain/played"
	"ledge/config"
	"ledge/host"
	"ledge/images"
	imagesfake "ledge/images/fake"
	networkfake "ledge/network/fake"
	machinefake "ledge/node/machine/fake"
	enginefake "ledge/runtime/fake"
)

// board is one that joins: all of its brain but what it would do to a machine.
type board struct {
	name   string
	brain  *brain.Brain
	joined chan struct{} // closed when it has
}

// imageName is what all pods run, and all boards have.
const imageName = "bench.local/app:v1"

// label of the boards, which pods are placed by.
const label = "bench.local/fleet"

// hardware describes a board on which nothing ever changes.
func hardware(name string) machinefake.Machine {
	s := machinefake.Board(name)
	s.MemoryTotal, s.MemoryAvailable = 1<<30, 700<<20
	m := machinefake.Of(s)
	m.Waits = make(chan string) // for nothing
	return m
}

// rooted makes the root file systems that the fake images only name: an agent looks into them.
type rooted struct{ *imagesfake.Store }

func (r rooted) Mount(ctx context.Context, imageID, key string) (string, error) {
	dir, err := r.Store.Mount(ctx, imageID, key)
	if err != nil {
		return "", err
	}
	return dir, os.MkdirAll(dir, 0o755)
}

func boardName(n int) string { return fmt.Sprintf("fleet-%d", n) }

// newBoard makes the n-th board. It joins when it runs, as 'ledge agent' does with these flags.
func newBoard(dir string, n int, join ...string) (*board, error) {
	b := &board{name: boardName(n), joined: make(chan struct{})}
	dir = filepath.Join(dir, b.name)
	at := func(name string) string { return filepath.Join(dir, name) }
	store := &imagesfake.Store{Dir: at("roots")}
	_, err := store.Add(images.Image{Names: []string{imageName}, Size: 1 << 20})
	err = errors.Join(err, os.Mkdir(dir, 0o700), os.WriteFile(at("resolv.conf"), []byte("nameserver 192.0.2.1\n"), 0o600),
		os.WriteFile(at("config.yaml"), fmt.Appendf(nil, "resolvConf: %q\npower: {supplies: %q, sensors: %q}\n", at("resolv.conf"), at("none"),
			at("none")), 0o600))
	if err != nil {
		return nil, err
	}
	f := flag.NewFlagSet("agent", flag.ContinueOnError)
	o := config.AgentFlags(f)
	if err := f.Parse(append([]string{"--data-dir", at("data"), "--config", at("config.yaml"), "--config-dir", "", "--hostname-override", b.name,
		"--node-labels", label + "=yes", "--start-keeper=false", "--power-backend=none", "--port=0"}, join...)); err != nil {
		return nil, err
	}
	settings, err := o.Resolve(f)
	if err != nil {
		return nil, err
	}
	rims := played.Board{Host: host.New(host.Config{OverlayCapable: func(string) error { return nil }}),
		Machine: hardware(b.name),
		Engine:  enginefake.New(enginefake.Config{}), Images: rooted{store}, Network: newNetwork, Signals: make(chan os.Signal, 1),
		Keys: at("none")}.Rims()
	rims.Uplink = func(c api.Client) api.Client { // asked for once it has joined
		close(b.joined)
		return c
	}
	b.brain = brain.New(brain.Config{Settings: settings, RunDir: at("run"), Build: config.Build{Version: "v0.0.0-bench"},
		Trial: brain.OpenTrial(at("data"), os.Exit)}, rims)
	return b, nil
}

func newNetwork(cidr, cidr6 netip.Prefix) (brain.PodNetwork, error) {
	m, err := networkfake.NewMachine(cidr, cidr6)
	return networkfake.New(m), err
}

// Run works until ctx ends.
func (b *board) Run(ctx context.Context) error { return b.brain.Run(ctx) }
