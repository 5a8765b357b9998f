package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"ledge/api/board"
	"ledge/host"
	"ledge/node/claims"
	"ledge/shutdown"
)

const (
	shutdownCheck = "orderly shutdown"
	getLogind     = "install and start it (Debian: dbus, systemd; systemctl enable --now dbus systemd-logind); without it 'ledge shutdown' still stops pods in order"
)

// shutdownProbe is doctor's look at shutdowns: what a running node says of itself, or else what logind would grant.
func (c *Command) shutdownProbe(ctx context.Context, root string) host.Probe {
	if c.reachable() != nil {
		return judgeLogind(shutdown.AskLogind(ctx))(shutdown.SystemdRuns())
	}
	var r board.Shutdown
	resp, err := c.Raw(ctx, http.MethodGet, board.ShutdownPath, nil, "", nil)
	if err == nil {
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&r), resp.Body.Close())
	}
	if err != nil {
		return host.Probe{Name: shutdownCheck, Err: fmt.Errorf("ask the node: %w", err), Remedy: "look at its log"}
	}
	return judgeLock(r, shutdown.SystemdRuns(), shutdown.DelayFile(root))
}

// judgeLogind is for a board where no node runs.
func judgeLogind(delay time.Duration, err error) func(systemd bool) host.Probe {
	return func(systemd bool) host.Probe {
		p := host.Probe{Name: shutdownCheck}
		switch {
		case err != nil && systemd:
			p.Err, p.Remedy = fmt.Errorf("no logind: %w", err), getLogind
		case err != nil:
			p.Detail = "no logind: pods are stopped by 'ledge shutdown', the power key and SIGTERM"
		default:
			p.Detail = fmt.Sprintf("logind waits %s; a node raises that to what it needs", delay)
		}
		return p
	}
}

// judgeLock is for a board where a node runs; winner is the file that sets logind's delay.
func judgeLock(r board.Shutdown, systemd bool, winner string) host.Probe {
	p := host.Probe{Name: shutdownCheck}
	switch l := r.Lock; {
	case l.WantedSeconds == 0:
		p.Err = errors.New("a shutdown does not wait for the pods: shutdownGracePeriod is 0")
		p.Remedy = "set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the configuration, such as 30s and 10s"
	case l.Held && l.Error == "" && l.GrantedSeconds < l.WantedSeconds:
		p.Err = fmt.Errorf("logind waits %ds, %ds are wanted: the lowest priorities get no time", l.GrantedSeconds, l.WantedSeconds)
		p.Remedy = "look for InhibitDelayMaxSec in /etc/systemd/logind.conf.d and remove it, then restart ledge"
		if winner != "" && winner != shutdown.LogindDropIn {
			p.Remedy = "remove InhibitDelayMaxSec from " + winner + ", which beats " + shutdown.LogindDropIn + "; then restart ledge"
		}
	case l.Held && l.Error == "":
		p.Detail = fmt.Sprintf("logind waits %ds; shutdowns are heard of from: %s", l.GrantedSeconds, strings.Join(r.Sources, ", "))
	case !systemd:
		p.Detail = "no systemd; shutdowns are heard of from: " + strings.Join(r.Sources, ", ")
	case !l.Unit:
		p.Err = errors.New("the node was not started by systemd: a shutdown does not wait for its pods")
		p.Remedy = "start it by its unit: systemctl enable --now ledge-keeper ledge"
	default:
		p.Err, p.Remedy = errors.New("logind does not hold up a shutdown: "+l.Error), getLogind
	}
	return p
}

// runDirProbe is doctor's: where the run state cannot be written no pod starts. Of a run directory that is not there nothing is said.
func runDirProbe(c *Command) []host.Probe {
	has, err := host.New(host.Config{}).Filesystem(c.RunDir)
	if err != nil {
		return nil
	}
	p := host.Probe{Name: "run directory", Detail: fmt.Sprintf("%s: %d MB free", c.RunDir, has.Available/1e6)}
	if has.Available < 1<<20 || has.Inodes > 0 && has.InodesFree < 64 {
		p.Err = fmt.Errorf("%s is full: %d bytes and %d inodes are free", c.RunDir, has.Available, has.InodesFree)
		p.Remedy = "remove what fills it, such as files of other programs; until then no pod starts"
	}
	return []host.Probe{p}
}

// asideNamed bounds the directories put aside that doctor lists by name.
const asideNamed = 10

// asideProbe names what restores have put out of the way of claims, which takes room until somebody removes it.
func asideProbe(shelf *claims.Shelf) []host.Probe {
	p := host.Probe{Name: "restored claims"}
	if p.Err = shelf.Restoring(); p.Err != nil && !errors.Is(p.Err, fs.ErrPermission) {
		p.Fatal = true // no node starts
		return []host.Probe{p}
	}
	list, err := shelf.Aside()
	switch {
	case errors.Is(err, fs.ErrPermission), err == nil && len(list) == 0:
		return nil
	case err != nil:
		p.Err, p.Remedy = err, "look at "+shelf.Path("")
		return []host.Probe{p}
	}
	total, least := int64(0), ""
	var named []string
	for i, a := range list {
		size := megabytes(a.Bytes)
		if a.More {
			size, least = "at least "+size, "at least "
		}
		if total += a.Bytes; i < asideNamed {
			named = append(named, fmt.Sprintf("%s (%s)", a.Name, size))
		}
	}
	if more := len(list) - len(named); more > 0 {
		named = append(named, fmt.Sprintf("and %d more", more))
	}
	p.Err = fmt.Errorf("a restore has put aside what was in the place of %d claims, %s%s in all: %s", len(list), least, megabytes(total),
		strings.Join(named, ", "))
	p.Remedy = "when nobody needs it any more: rm -r " + shelf.Path(".old-*")
	return []host.Probe{p}
}

// foundProbe says by which names the board is found; nothing where none runs that is meant to be.
func foundProbe(ctx context.Context, c *Command) []host.Probe {
	if c.reachable() != nil {
		return nil
	}
	var s board.Status
	resp, err := c.Raw(ctx, http.MethodGet, board.StatusPath, nil, "", nil)
	if err == nil {
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&s), resp.Body.Close())
	}
	if err != nil || s.Found == nil { // other probes tell that a node does not answer
		return nil
	}
	return []host.Probe{judgeFound(*s.Found)}
}

func judgeFound(f board.Found) host.Probe {
	p := host.Probe{Name: "name on the network", Remedy: "see 'Finding a board' in the manual (finding.md); mdns: false has nobody look"}
	switch {
	case f.Trouble != "":
		p.Err = errors.New(f.Trouble)
	case len(f.Names) == 0:
		p.Detail = "others are asked whether it is free"
	default:
		p.Detail = strings.Join(f.Names, ", ")
	}
	if f.By != "" && p.Err == nil {
		p.Detail += " (announced by " + f.By + ", which has the port)"
	}
	return p
}
