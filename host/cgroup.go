package host

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/containerd/cgroups/v3"
)

// CgroupMode is how the cgroup hierarchies are mounted.
type CgroupMode string

// The modes: version 2 alone, version 1 with version 2 beside it for systemd, version 1 alone, nothing.
const (
	Unified  CgroupMode = "unified"
	Hybrid   CgroupMode = "hybrid"
	Legacy   CgroupMode = "legacy"
	NoCgroup CgroupMode = "none"
)

// Cgroups describes the machine's means to bound pods.
type Cgroups struct {
	Mode        CgroupMode
	Controllers []string // that can be used, in the kernel's order
}

// Cgroups looks at the hierarchies.
func (h *Host) Cgroups() Cgroups {
	c := Cgroups{Mode: h.cgroupMode()}
	switch c.Mode {
	case Unified:
		c.Controllers = strings.Fields(h.line(h.cfg.Sys, "fs/cgroup/cgroup.controllers"))
	case Hybrid, Legacy:
		data, err := os.ReadFile(filepath.Join(h.cfg.Proc, "cgroups"))
		if err != nil {
			return c
		}
		for line := range strings.Lines(string(data)) {
			f := strings.Fields(line) // name, hierarchy (0: not mounted), groups, enabled
			if len(f) == 4 && f[1] != "0" && f[3] == "1" {
				c.Controllers = append(c.Controllers, f[0])
			}
		}
	}
	return c
}

func (h *Host) cgroupMode() CgroupMode {
	// To the library whatever is no version 2 is version 1, also where nothing is mounted.
	if h.cfg.Sys == "/sys" && h.cgroupModeByFiles() != NoCgroup {
		return map[cgroups.CGMode]CgroupMode{cgroups.Unified: Unified, cgroups.Hybrid: Hybrid, cgroups.Legacy: Legacy,
			cgroups.Unavailable: NoCgroup}[cgroups.Mode()]
	}
	return h.cgroupModeByFiles()
}

// cgroupModeByFiles tells the same from the files that a version 2 root always has; a directory tree has no file
// system types to ask for.
func (h *Host) cgroupModeByFiles() CgroupMode {
	root := filepath.Join(h.cfg.Sys, "fs/cgroup")
	has := func(name string) bool {
		_, err := os.Stat(filepath.Join(root, name))
		return err == nil
	}
	entries, err := os.ReadDir(root)
	switch {
	case errors.Is(err, fs.ErrNotExist) || len(entries) == 0:
		return NoCgroup
	case has("cgroup.controllers"):
		return Unified
	case has("unified/cgroup.controllers"):
		return Hybrid
	}
	return Legacy
}
