package cli

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"ledge/runtime"
)

// TestKeeperProbe: doctor names a keeper that does not answer, and what hangs in one that does; of none it says nothing.
func TestKeeperProbe(t *testing.T) {
	hangs := runtime.Info{Late: []runtime.Late{{What: runtime.Starting, PodUID: "u", Container: "u.c.0", For: 40 * time.Second},
		{What: runtime.Removing, PodUID: "v", For: 50 * time.Second}}}
	for _, c := range []struct {
		name string
		info runtime.Info
		err  error
		want string // of the error; "-": no line at all
	}{
		{"well", runtime.Info{}, nil, ""},
		{"none", runtime.Info{}, fmt.Errorf("keeper: %w", unix.ENOENT), "-"},
		{"not root", runtime.Info{}, fmt.Errorf("keeper: %w", unix.EACCES), "-"},
		{"dead", runtime.Info{}, fmt.Errorf("keeper: nobody answers: %w", unix.ECONNREFUSED), "nobody answers"},
		{"frozen", runtime.Info{}, fmt.Errorf("keeper: its process 7 does not answer: %w", context.DeadlineExceeded),
			"process 7 does not answer"},
		{"hangs", hangs, nil, "start of container u.c.0 in pod u, for 40s; remove of container - in pod v, for 50s"},
	} {
		got := keeperProbe(c.info, c.err)
		switch {
		case c.want == "-":
			if got != nil {
				t.Errorf("%s: %+v", c.name, got)
			}
		case len(got) != 1 || (got[0].Err == nil) != (c.want == ""):
			t.Errorf("%s: %+v", c.name, got)
		case c.want != "" && (!strings.Contains(got[0].Err.Error(), c.want) || got[0].Remedy == ""):
			t.Errorf("%s: %+v", c.name, got[0])
		}
	}
}
