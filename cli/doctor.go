package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"ledge/brain/place"
	"ledge/config"
	"ledge/host"
	"ledge/host/quota"
	"ledge/network/bridge"
	"ledge/network/fence"
	"ledge/network/proxy"
	"ledge/runtime"
	"ledge/runtime/keeper"
)

func doctorFlags(c *Command) {
	var dataDir string
	c.Flags.StringVar(&dataDir, "data-dir", "", "where the node would keep its data; empty: as it was last run, else "+config.DefaultDataDir)
	c.Opts = &dataDir
}

// errUnfit is doctor's exit code: something that ledge needs is missing.
var errUnfit = errors.New("this board lacks something ledge needs; see FAIL above")

// doctor prints every check, and what to do about those that did not pass.
func doctor(ctx context.Context, c *Command) error {
	was, err := place.ReadInfo(c.RunDir)
	if err != nil {
		return err
	}
	dataDir := cmp.Or(*c.Opts.(*string), was.DataDir, config.DefaultDataDir) // of a board that has no node yet too
	cfg := host.DoctorConfig{DataDir: dataDir, Floor: c.app.Build.ClockFloor(dataDir), Now: time.Now()}
	if os.Geteuid() == 0 { // trying says more than looking, and needs root
		for _, t := range bridge.Try() {
			cfg.Probes = append(cfg.Probes, host.Probe{Name: t.Name, Err: t.Err, Remedy: t.Remedy, Fatal: t.Fatal})
		}
		for _, t := range proxy.Try() {
			cfg.Probes = append(cfg.Probes, host.Probe{Name: t.Name, Err: t.Err, Remedy: t.Remedy})
		}
		for _, t := range fence.Try() {
			cfg.Probes = append(cfg.Probes, host.Probe{Name: t.Name, Err: t.Err, Remedy: t.Remedy})
		}
	}
	size := quota.Try(host.Existing(dataDir))
	cfg.Probes = append(cfg.Probes, host.Probe{Name: "sizes of claims", Err: size.Err, Detail: "the disk holds claims to them", Remedy: size.Remedy})
	cfg.Probes = append(cfg.Probes, asideProbe(shelfOf(dataDir))...)
	cfg.Probes = append(append(cfg.Probes, kubernetesProbe(c.app.Build, was, dataDir)...), runDirProbe(c)...)
	asked, cancel := context.WithTimeout(ctx, keeperAnswers)
	info, err := keeper.New(keeper.ClientConfig{RunDir: c.RunDir}).Info(asked)
	cancel()
	cfg.Probes = append(cfg.Probes, keeperProbe(info, err)...)
	cfg.Probes = append(append(cfg.Probes, c.shutdownProbe(ctx, "/")), c.safeModeProbe(ctx)...)
	cfg.Probes = append(append(cfg.Probes, foundProbe(ctx, c)...), diskProbes(ctx, c)...)
	checks := host.New(host.Config{}).Doctor(cfg)
	w := tabwriter.NewWriter(c.out, 0, 8, 2, ' ', 0)
	failed := false
	for _, k := range checks {
		row(w, k.Verdict, k.Name, k.Detail)
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

// keeperAnswers is how long a keeper that is well may take on a board that is busy.
const keeperAnswers = 5 * time.Second

// keeperProbe says whether the keeper answers, and what hangs in it; nothing where none runs.
func keeperProbe(info runtime.Info, err error) []host.Probe {
	p := host.Probe{Name: "containers", Detail: "the keeper answers, and nothing hangs",
		Remedy: "look at the pods named here; what hangs is ended after a minute"}
	var hang []string
	for _, l := range info.Late {
		hang = append(hang, fmt.Sprintf("%s of container %s in pod %s, for %s", l.What, cmp.Or(l.Container, "-"), l.PodUID,
			l.For.Round(time.Second)))
	}
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return nil // none, or none of ours
	case err != nil:
		p.Err, p.Remedy = err, "systemctl restart ledge-keeper, or end its process (kill -9): containers go on, and a new one takes them over"
	case len(hang) > 0:
		p.Err = fmt.Errorf("hangs in the keeper: %s", strings.Join(hang, "; "))
	}
	return []host.Probe{p}
}
