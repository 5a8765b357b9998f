package main

import (
	"context"
	"os"

	"ledge/boot"
	"ledge/brain"
	"ledge/cli"
	"ledge/config"
	"ledge/host"
	"ledge/host/heap"
)

// serve runs a board until it is told to stop, with its own control plane or, as agent, for one elsewhere.
func serve(ctx context.Context, c *cli.Command) error {
	host.SpareThreads(spareThreads)
	heap.Start()
	opts := c.Opts.(*config.Options)
	cli.LogTo(c.Err, opts.Verbose)
	t := brain.OpenTrial(opts.DataDir, os.Exit)
	return t.Ended(runOnTrial(ctx, c, t))
}

// spareThreads are half a dozen more than a brain has at rest (decision 79).
const spareThreads = 16

func runOnTrial(ctx context.Context, c *cli.Command, t *brain.Trial) error {
	s, err := c.Opts.(*config.Options).Resolve(c.Flags)
	if err != nil {
		return err
	}
	cfg := brain.Config{Settings: s, RunDir: c.RunDir, Build: build, Trial: t, UnderInit: boot.StartedByInit(), Launcher: boot.Launcher}
	machine := rims(s, c.RunDir)
	if cfg.UnderInit {
		machine.Power.Presses = boot.PressesFromInit()
	}
	return brain.New(cfg, machine).Run(ctx)
}

func firstbootVerb(ctx context.Context, c *cli.Command) error {
	cli.LogTo(c.Err, false)
	o := c.Opts.(*cli.FirstbootOptions)
	if o.Mend != "" {
		return boot.Mend(o.Mend)
	}
	return boot.SetUpSystemd(ctx, o.Boot, o.Data)
}
