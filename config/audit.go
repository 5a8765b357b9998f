package config

import (
	"errors"
	"fmt"
	"path/filepath"

	"ledge/api/httpd/auditlog"
)

// auditConfig says where the audit log is kept; without a medium there is none.
type auditConfig struct {
	Medium    string `json:"medium,omitempty"`    // disk or memory
	TotalSize string `json:"totalSize,omitempty"` // of all its files
}

const (
	defaultAuditDisk   = 8 << 20
	defaultAuditMemory = 1 << 20
	leastAudit         = 128 << 10 // two files that each hold what has gathered
)

// Log makes the audit log that is configured; nil when there is none.
func (c auditConfig) Log(dataDir, runDir string) (*auditlog.Log, error) {
	l := &auditlog.Log{}
	otherwise := int64(defaultAuditDisk)
	switch c.Medium {
	case "":
		if c.TotalSize != "" {
			return nil, errors.New("audit.totalSize says nothing without audit.medium (disk or memory)")
		}
		return nil, nil
	case "disk":
		l.Path, l.Wait = filepath.Join(dataDir, "audit", "audit.log"), auditlog.CardPause
	case "memory":
		l.Path, otherwise = filepath.Join(runDir, "audit", "audit.log"), defaultAuditMemory
	default:
		return nil, fmt.Errorf("audit.medium: %q is neither disk nor memory", c.Medium)
	}
	var err error
	if l.Max, err = size("audit.totalSize", c.TotalSize, otherwise); err != nil {
		return nil, err
	}
	if l.Max < leastAudit {
		return nil, errors.New("audit.totalSize must be at least 128Ki")
	}
	return l, nil
}
