package place

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// Info is what a serving node leaves in its run directory for verbs that come when it is gone.
type Info struct {
	Bridge     string `json:"bridge"`
	CgroupRoot string `json:"cgroupRoot"`
	DataDir    string `json:"dataDir"`
	Kubernetes bool   `json:"kubernetes,omitempty"` // it works with what it has joined as a node of Kubernetes
}

// InfoFile is where it leaves it.
const InfoFile = "node.json"

// OverlayFile, in the run directory, says where overlayfs works in this life of the machine.
const OverlayFile = "overlay"

// ReadInfo gives nothing where no node has run since the machine started.
func ReadInfo(runDir string) (info Info, err error) {
	data, err := os.ReadFile(filepath.Join(runDir, InfoFile))
	if errors.Is(err, fs.ErrNotExist) {
		return info, nil
	}
	if err != nil {
		return info, fmt.Errorf("read run state: %w", err)
	}
	if err := json.Unmarshal(data, &info); err != nil {
		return info, fmt.Errorf("read run state %s: %w", InfoFile, err)
	}
	return info, nil
}
