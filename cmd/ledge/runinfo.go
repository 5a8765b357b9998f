package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"ledge/config"
)

// runInfo is what a serving node leaves in its run directory for verbs that come when it is gone.
type runInfo struct {
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	DataDir    string `json:"dataDir"`
}

const runInfoFile = "node.json"

const dataDirUsage = "the node's data directory; empty: as it was last run, of the machine's own node " + config.DefaultDataDir

func (b *brain) writeRunInfo(context.Context) error {
	data, err := json.Marshal(runInfo{Bridge: b.Bridge, CgroupRoot: b.CgroupRoot, DataDir: b.DataDir})
	if err != nil {
		return err
	}
	path := filepath.Join(b.runDir, runInfoFile)
	if was, err := os.ReadFile(path); err == nil && bytes.Equal(was, data) {
		return nil
	}
	if err := os.WriteFile(path+".tmp", data, 0o600); err != nil {
		_ = os.Remove(path + ".tmp") // what there is of it
		return fmt.Errorf("write run state: %w", err)
	}
	return os.Rename(path+".tmp", path)
}

// dataOf is the data directory of the node that a verb means: the one that was given, or else what the node left in its
// run directory. A run directory that says nothing names none, unless it is that of the machine's own node.
func (c *command) dataOf(given string) (string, error) {
	if given != "" {
		return given, nil
	}
	info, err := readRunInfo(c.runDir)
	if err != nil || info.DataDir != "" {
		return info.DataDir, err
	}
	if c.runDir != config.DefaultRunDir {
		return "", config.Usagef("%s does not say where its node keeps its data (none has run there since the machine started): give --data-dir", c.runDir)
	}
	return config.DefaultDataDir, nil
}

// readRunInfo gives nothing where no node has run since the machine started.
func readRunInfo(runDir string) (info runInfo, err error) {
	data, err := os.ReadFile(filepath.Join(runDir, runInfoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil
	}
	if err != nil {
		return info, fmt.Errorf("read run state: %w", err)
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("read run state %s: %w", runInfoFile, err)
	}
	return info, nil
}
