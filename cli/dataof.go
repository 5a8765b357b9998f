package cli

import (
	"ledge/brain/place"
	"ledge/config"
)

const dataDirUsage = "the node's data directory; empty: as it was last run, of the machine's own node " + config.DefaultDataDir

// dataOf is the data directory of the node that a verb means: the one that was given, or else what the node left in its
// run directory. A run directory that says nothing names none, unless it is that of the machine's own node.
func (c *Command) dataOf(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	info, err := place.ReadInfo(c.RunDir)
	if err != nil || info.DataDir != "" {
		return info.DataDir, err
	}
	if c.RunDir != config.DefaultRunDir {
		return "", config.Usagef("%s does not say where its node keeps its data (none has run there since the machine started): give --data-dir",
			c.RunDir)
	}
	return config.DefaultDataDir, nil
}
