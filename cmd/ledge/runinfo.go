package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// runInfo is what a serving node leaves in its run directory for verbs that come when it is gone.
type runInfo struct {
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	DataDir    string `json:"dataDir"`
}

const runInfoFile = "node.json"

func (b *board) writeRunInfo() error {
	data, err := json.Marshal(runInfo{Bridge: b.bridge, CgroupRoot: b.cgroupRoot, DataDir: b.dataDir})
	if err != nil {
		return err
	}
	tmp := filepath.Join(b.runDir, runInfoFile+".tmp")
	if err := os.WriteFile(tmp, data, 0o600); err != nil {
		return fmt.Errorf("write run state: %w", err)
	}
	return os.Rename(tmp, filepath.Join(b.runDir, runInfoFile))
}

// readRunInfo gives the defaults of serve where there is no file.
func readRunInfo(runDir string) (runInfo, error) {
	info := runInfo{Bridge: "ledge0"}
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
