package main

import (
	"fmt"
	"slices"
	"time"

	"ledge/host"
)

// needed are doctor's checks without which no pod can run, whatever else is right. What pods can do without (a
// bridge, if none is wanted) is not among them.
var needed = []string{"kernel", "privileges", "namespaces", "cgroups", "overlayfs"}

// preflight refuses to start on a machine that cannot run a pod, in one line and before anything is made.
func (b *board) preflight() error {
	checks := host.New(host.Config{}).Doctor(host.DoctorConfig{DataDir: b.dataDir, Floor: clockFloor(b.dataDir), Now: time.Now()})
	for _, c := range checks {
		if c.Verdict == host.Fail && slices.Contains(needed, c.Name) {
			return fmt.Errorf("this machine cannot run pods: %s: %s; %s", c.Name, c.Detail, c.Remedy)
		}
	}
	return nil
}
