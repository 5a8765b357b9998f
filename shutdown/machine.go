package shutdown

import (
	"context"
	"log/slog"
	"os"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
)

// SystemdRuns says whether systemd runs this machine (sd_booted(3)).
func SystemdRuns() bool {
	info, err := os.Lstat("/run/systemd/system")
	return err == nil && info.IsDir()
}

// MachineGoingDown says whether the machine, and not just this process, is on its way down: systemd is stopping or has
// a job that leads there, OpenRC has left for a runlevel that ends there, or this process is PID 1. When systemd cannot be asked the answer
// is no: pods that run on can still be stopped by whoever ends the machine, but pods stopped at a mere restart of ledge were stopped for
// nothing.
func MachineGoingDown(ctx context.Context) bool {
	if os.Getpid() == 1 {
		return true
	}
	if !SystemdRuns() {
		level, _ := os.ReadFile(openrcLevel) // without OpenRC there is none
		return endLevels[strings.TrimSpace(string(level))]
	}
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	// systemd's own socket, not the bus: the bus may be down already when the machine is.
	conn, err := dbus.NewSystemdConnectionContext(ctx)
	if err != nil {
		slog.Warn("cannot ask systemd whether the machine is going down", "err", err)
		return false
	}
	defer conn.Close()
	state, err := conn.SystemStateContext(ctx)
	if err != nil {
		slog.Warn("cannot ask systemd whether the machine is going down", "err", err)
		return false
	}
	jobs, err := conn.ListJobsContext(ctx)
	if err != nil {
		slog.Warn("cannot ask systemd for its jobs", "err", err)
	}
	// A property's text is a D-Bus variant, in quotes.
	return goingDown(strings.Trim(state.Value.String(), `"`), jobs)
}

// openrcLevel is where OpenRC says which runlevel it is in, or on its way to.
const openrcLevel = "/run/openrc/softlevel"

// endLevels are OpenRC's runlevels that end the machine; Debian stops its services on the way to off.
var endLevels = map[string]bool{"shutdown": true, "reboot": true, "off": true}

// endTargets are the units whose start is the end of the machine.
var endTargets = map[string]bool{
	"shutdown.target": true, "poweroff.target": true, "reboot.target": true, "halt.target": true, "kexec.target": true,
	"soft-reboot.target": true,
}

func goingDown(state string, jobs []dbus.JobStatus) bool {
	if state == "stopping" {
		return true
	}
	for _, j := range jobs {
		if endTargets[j.Unit] && j.JobType == "start" {
			return true
		}
	}
	return false
}
