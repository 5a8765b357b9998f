package main

import (
	"fmt"

	"ledge/host"
)

// preflight refuses to start on a machine that cannot run a pod, in one line and before anything is made.
func (b *board) preflight() error {
	for _, c := range host.New(host.Config{}).Essentials(b.dataDir) {
		if c.Verdict == host.Fail {
			return fmt.Errorf("this machine cannot run pods: %s: %s; %s", c.Name, c.Detail, c.Remedy)
		}
	}
	return nil
}
