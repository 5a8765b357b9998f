package main

import (
	"fmt"
	"os"

	"ledge/host"
)

// preflight refuses to start on a machine that cannot run a pod, in one line and before anything is made.
func (b *board) preflight() error {
	for _, c := range host.New(host.Config{}).Essentials(b.dataDir) {
		if c.Verdict == host.Fail {
			return fmt.Errorf("this machine cannot run pods: %s: %s; %s", c.Name, c.Detail, c.Remedy)
		}
	}
	if b.watchdogDevice != "" { // it is armed last
		if _, err := os.Stat(b.watchdogDevice); err != nil {
			return fmt.Errorf("--watchdog: %w; load the driver of the machine's watchdog, or softdog", err)
		}
	}
	return nil
}
