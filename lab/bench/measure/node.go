package measure

import (
	"context"
	"os"
	"strings"
	"time"
)

// NodeConfig is the configuration of a node that is measured: a developer's disk may be fuller than a board's should be,
// and what frees it then would be measured too.
const NodeConfig = "evictionHard: {nodefs.available: 100Mi, imagefs.available: 100Mi}\n"

// Rest waits as long as brain and keeper take to give back what they had while they worked: they do so once a minute.
func Rest(ctx context.Context) error { return Sleep(ctx, 75*time.Second) }

// Sleep waits, unless the context ends.
func Sleep(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(d):
		return nil
	}
}

// Load says how busy the machine is: a figure from a busy one means little.
func Load() string {
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
