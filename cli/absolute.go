package cli

import (
	"flag"
	"fmt"
	"path/filepath"
	"slices"

	"ledge/config"
)

// placeFlags name what is looked for long after the flags are read, by other processes too.
var placeFlags = []string{"run-dir", "data-dir", "config", "config-dir", "boot-state"}

// absolute has directories mean the same in every process, and in the kernel's list of mounts. Those that are relative are where this
// process was started.
func (c *Command) absolute() (err error) {
	if c.RunDir == "" {
		return config.Usagef("--run-dir is empty: name a directory, or leave it out for %s", config.DefaultRunDir)
	}
	c.Flags.VisitAll(func(f *flag.Flag) {
		if err != nil || f.Value.String() == "" || !slices.Contains(placeFlags, f.Name) {
			return
		}
		path, aerr := filepath.Abs(f.Value.String())
		if aerr == nil {
			aerr = f.Value.Set(path)
		}
		if aerr != nil {
			err = fmt.Errorf("find --%s %s: %w", f.Name, f.Value, aerr)
		}
	})
	return err
}
