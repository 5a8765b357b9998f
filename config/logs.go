package config

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/node/podlog"
)

// loggingConfig says where containers' logs are kept. The word is Kubernetes' (where it is about the kubelet's own
// log), what is in it is ledge's.
type loggingConfig struct {
	Medium    string `json:"medium,omitempty"`    // disk or memory
	TotalSize string `json:"totalSize,omitempty"` // of all containers; 0: no limit
	Rate      string `json:"rate,omitempty"`      // bytes a second of each container; 0: no limit
}

const (
	defaultLogSize   = 10 << 20 // containerLogMaxSize and containerLogMaxFiles as the kubelet has them
	defaultLogFiles  = 5
	defaultLogDisk   = 512 << 20
	defaultLogMemory = 32 << 20
	defaultLogRate   = 1 << 20
)

// Logs reads how containers' logs are kept.
func (c File) Logs() (out podlog.Config, err error) {
	total := int64(defaultLogDisk)
	switch c.Logging.Medium {
	case "", "disk":
	case "memory":
		out.Memory, total = true, defaultLogMemory
	default:
		return out, fmt.Errorf("logging.medium: %q is neither disk nor memory", c.Logging.Medium)
	}
	if out.Total, err = size("logging.totalSize", c.Logging.TotalSize, total); err != nil {
		return out, err
	}
	if out.Rate, err = size("logging.rate", c.Logging.Rate, defaultLogRate); err != nil {
		return out, err
	}
	if out.Total != 0 && out.Total < 64<<10 {
		return out, fmt.Errorf("logging.totalSize: %s must be at least 64Ki, or 0 for no limit", c.Logging.TotalSize)
	}
	file := int64(defaultLogSize)
	if out.Total != 0 {
		file = min(file, out.Total/8) // one container's rotation must not cost all the others their logs
	}
	if out.MaxBytes, err = size("containerLogMaxSize", c.ContainerLogMaxSize, file); err != nil {
		return out, err
	}
	switch {
	case out.MaxBytes == 0:
		return out, fmt.Errorf("containerLogMaxSize: %s must be positive", c.ContainerLogMaxSize)
	case out.Total != 0 && out.MaxBytes > out.Total:
		return out, fmt.Errorf("containerLogMaxSize %d is more than logging.totalSize %d: one log would be all there is", out.MaxBytes, out.Total)
	}
	out.MaxFiles = defaultLogFiles
	if n := c.ContainerLogMaxFiles; n != nil {
		if *n < 2 {
			return out, fmt.Errorf("containerLogMaxFiles: %d must be greater than 1", *n)
		}
		out.MaxFiles = int(*n)
	}
	return out, nil
}

func size(name, text string, otherwise int64) (int64, error) {
	if text == "" {
		return otherwise, nil
	}
	q, err := resource.ParseQuantity(text)
	if err != nil || q.Sign() < 0 {
		return 0, fmt.Errorf("%s: %q is not a size such as 10Mi", name, text)
	}
	return q.Value(), nil
}
