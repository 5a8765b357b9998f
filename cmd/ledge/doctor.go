package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"text/tabwriter"
	"time"

	"ledge/host"
	"ledge/network/bridge"
)

func doctorFlags(c *command) {
	var dataDir string
	c.flags.StringVar(&dataDir, "data-dir", "", "where the node would keep its data; empty: as it was last run, else "+defaultDataDir)
	c.opts = &dataDir
}

// errUnfit is doctor's exit code: something that ledge needs is missing.
var errUnfit = errors.New("this board lacks something ledge needs; see FAIL above")

// doctor prints every check, and what to do about those that did not pass.
func doctor(ctx context.Context, c *command) error {
	dataDir := *c.opts.(*string)
	if dataDir == "" {
		was, err := readRunInfo(c.runDir)
		if err != nil {
			return err
		}
		dataDir = firstNonEmpty(was.DataDir, defaultDataDir) // of a board that has no node yet too
	}
	cfg := host.DoctorConfig{DataDir: dataDir, Floor: clockFloor(dataDir), Now: time.Now()}
	if os.Geteuid() == 0 { // trying says more than looking, and needs root
		for _, t := range bridge.Try() {
			cfg.Probes = append(cfg.Probes, host.Probe{Name: t.Name, Err: t.Err, Remedy: t.Remedy, Fatal: t.Name != "connection tracking"})
		}
	}
	cfg.Probes = append(cfg.Probes, c.runDirProbe()...)
	cfg.Probes = append(append(cfg.Probes, c.shutdownProbe(ctx, "/")), c.safeModeProbe(ctx)...)
	checks := host.New(host.Config{}).Doctor(cfg)
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	failed := false
	for _, k := range checks {
		fmt.Fprintf(w, "%s\t%s\t%s\n", k.Verdict, k.Name, k.Detail)
		if k.Remedy != "" {
			fmt.Fprintf(w, "\t\t-> %s\n", k.Remedy)
		}
		failed = failed || k.Verdict == host.Fail
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if failed {
		return errUnfit
	}
	return nil
}
