package node

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/internal/grumble"
	"ledge/node/machine"
	"ledge/node/poster"
	"ledge/node/volume"
)

// posted is the board as its poster knows it.
type posted struct {
	a         *Agent
	noAddress grumble.Once
	warned    bool
}

// newPoster joins the poster of a board's Node with its agent.
func newPoster(a *Agent) *poster.Poster {
	return poster.New(poster.Config{Name: a.cfg.Name, Version: a.cfg.Version, Client: a.cfg.Client,
		Registration: a.cfg.Registration, Status: a.cfg.Status, Board: &posted{a: a}, Events: a.cfg.Events, Node: a.ref()})
}

// Self is the Node as this board has heard of it last; false: it has not yet.
func Self(a *Agent) (*corev1.Node, bool) { return a.self.Get("", a.cfg.Name) }

// Ready says whether the API has been told by this process, and last, that the Node is ready.
func (a *Agent) Ready() bool { return a.poster.Ready() }

// Reached implements poster.Board.
func (p *posted) Reached() bool { return p.a.engine.reached() }

// Closed implements poster.Board.
func (p *posted) Closed() bool { return p.a.Closed() }

// Self implements poster.Board.
func (p *posted) Self() (*corev1.Node, bool) { return Self(p.a) }

// Seen implements poster.Board.
func (p *posted) Seen(n *corev1.Node) bool { return p.a.cfg.Seen != nil && p.a.cfg.Seen(n) }

// Look implements poster.Board.
func (p *posted) Look(ctx context.Context) (poster.Facts, error) {
	a := p.a
	before := a.usage.podTasks()
	sample, err := a.cfg.Machine.Sample()
	if err == nil {
		sample, err = sample.Since(a.outlook.last().sample)
	}
	if err != nil {
		return poster.Facts{}, fmt.Errorf("look at the board: %w", err)
	}
	a.usage.countTasks(before, sample)
	now := time.Now()
	f := poster.Facts{Sample: sample, Engine: "libcontainer://Unknown", Now: now, Handlers: nodeHandlers(!a.cfg.NoPodNetwork)}
	f.Pressure = a.evictor.Short()
	if a.engine.running() {
		info := a.engine.last()
		f.Engine = info.Name + "://" + info.Version
	}
	if err := a.engine.fault(now); err != nil {
		f.Faults = append(f.Faults, err.Error())
	}
	if err := a.cfg.Network.Ready(ctx); err != nil {
		f.Faults = append(f.Faults, "container runtime network not ready: "+err.Error())
	}
	f.Troubles = strings.Join(f.Faults, "; ")
	if msg := a.closed(); msg != "" {
		f.Faults = append(f.Faults, msg)
	}
	if msg := a.Held(); msg != "" {
		f.Faults = append(f.Faults, msg)
	}
	f.Images, _ = a.cfg.Images.List(ctx)
	if a.cfg.Conditions != nil {
		f.Extra = a.cfg.Conditions()
	}
	f.Extra = append(f.Extra, a.engine.condition(now))
	f.Devices, f.Plugins = a.cfg.Devices.Counts(), a.cfg.Plugins.Counts()
	var ips []string
	for _, ip := range a.cfg.Registration.PickIPs(sample.Addresses) {
		ips = append(ips, ip.String())
	}
	var none error
	if len(ips) == 0 {
		none = fmt.Errorf("asked for %v, the board has %v", a.cfg.Registration.NodeIPs, sample.Addresses)
	}
	p.noAddress.About("no address for this node; those it has stay", none, "node", a.cfg.Name)
	if !p.warned {
		p.warned = true
		a.warnOfSwap(sample, volume.CanKeepOffSwap())
	}
	a.outlook.set(sample, a.cfg.Status.Allocatable(sample), ips)
	return f, nil
}

// warnOfSwap is N-8.14: secrets in memory may reach the card after all.
func (a *Agent) warnOfSwap(s machine.Sample, canKeepOff bool) {
	if s.SwapOnDisk && !canKeepOff {
		a.nodeWarning("PossibleMemoryBackedVolumesOnDisk",
			"The tmpfs noswap option is not supported. Memory-backed volumes (e.g. secrets, emptyDirs, etc.) "+
				"might be swapped to disk and should no longer be considered secure.")
	}
}
