package main

import (
	"context"
	"log/slog"
	"os"
	"runtime/debug"
	"time"

	"ledge/host"
)

// settleEvery is how often memory is given back, and settleFirst how soon after a start. It costs some 10 ms of CPU time.
const (
	settleFirst = 15 * time.Second
	settleEvery = time.Minute
)

// settle keeps the memory of a process that runs for months, and does nothing most of that time, at what it needs: what
// a start or a busy hour took does not stay.
func settle(ctx context.Context) {
	for wait := settleFirst; ; wait = settleEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if os.Getenv("GOGC") == "" {
			// With 1 or 2 MB alive the default lets garbage pile up to 4 MB; a start is quicker with it.
			debug.SetGCPercent(50)
		}
		debug.FreeOSMemory()
		if _, err := host.GiveBack(); err != nil {
			slog.Debug("memory was not given back", "err", err) // a kernel without smaps
			return
		}
	}
}
