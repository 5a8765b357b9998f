package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// auditLog keeps the lines of the audit log in two files, of which the older goes when the newer is full, so that both
// together stay below a size. On a card lines are gathered and written together; in memory each is written at once.
//
// A log that cannot be written stops nothing: a board whose card is full must be told what to delete. What was lost is
// counted and said.
type auditLog struct {
	path string
	max  int64         // bytes of both files
	wait time.Duration // 0: write each line at once

	mu      sync.Mutex
	file    *os.File
	size    int64
	waiting bytes.Buffer
	lost    int
	why     error
}

// What is gathered before it is written: a power cut takes that with it.
const (
	auditWait   = 30 * time.Second
	auditGather = 32 << 10
)

// Write takes one line.
func (l *auditLog) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Write(line)
	if l.wait == 0 || l.waiting.Len() >= auditGather {
		l.flush()
	}
	return len(line), nil
}

// Run writes what has gathered, from time to time, and says when something could not be written.
func (l *auditLog) Run(ctx context.Context) error {
	tick := time.NewTicker(auditWait)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		l.mu.Lock()
		l.flush()
		lost, why := l.lost, l.why
		l.lost = 0
		l.mu.Unlock()
		if lost > 0 {
			slog.Warn("lines of the audit log are lost", "path", l.path, "lines", lost, "err", why)
		}
	}
}

// Close writes the rest, when nobody writes lines any more.
func (l *auditLog) Close() error {
	if l == nil {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.flush()
	if l.file == nil {
		return nil
	}
	err := l.file.Close()
	l.file = nil
	return err
}

// flush writes what is waiting, or counts it as lost.
func (l *auditLog) flush() {
	if l.waiting.Len() == 0 {
		return
	}
	if err := l.write(l.waiting.Bytes()); err != nil {
		l.lost += bytes.Count(l.waiting.Bytes(), []byte{'\n'})
		l.why = err
		if l.file != nil {
			l.file.Close()
			l.file = nil // it is opened anew: whatever was wrong may have passed
		}
	}
	l.waiting.Reset()
}

func (l *auditLog) write(data []byte) error {
	if l.file != nil && l.size+int64(len(data)) > l.max/2 {
		if err := l.file.Close(); err != nil {
			return err
		}
		l.file = nil
		if err := os.Rename(l.path, l.path+".1"); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
		if l.size > 0 && l.size+int64(len(data)) > l.max/2 {
			return l.write(data)
		}
	}
	n, err := l.file.Write(data)
	l.size += int64(n)
	return err
}

// open goes on behind what is there; a line that a power cut tore is ended first.
func (l *auditLog) open() error {
	if err := os.MkdirAll(filepath.Dir(l.path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(l.path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return err
	}
	l.file = f
	if l.size, err = f.Seek(0, io.SeekEnd); err != nil || l.size == 0 {
		return err
	}
	last := make([]byte, 1)
	if _, err := f.ReadAt(last, l.size-1); err != nil {
		return err
	}
	if last[0] != '\n' {
		n, err := f.Write([]byte{'\n'})
		l.size += int64(n)
		return err
	}
	return nil
}

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

// log makes the audit log that is configured; nil when there is none.
func (c auditConfig) log(dataDir, runDir string) (*auditLog, error) {
	l := &auditLog{}
	otherwise := int64(defaultAuditDisk)
	switch c.Medium {
	case "":
		if c.TotalSize != "" {
			return nil, errors.New("audit.totalSize says nothing without audit.medium (disk or memory)")
		}
		return nil, nil
	case "disk":
		l.path, l.wait = filepath.Join(dataDir, "audit", "audit.log"), auditWait
	case "memory":
		l.path, otherwise = filepath.Join(runDir, "audit", "audit.log"), defaultAuditMemory
	default:
		return nil, fmt.Errorf("audit.medium: %q is neither disk nor memory", c.Medium)
	}
	var err error
	if l.max, err = size("audit.totalSize", c.TotalSize, otherwise); err != nil {
		return nil, err
	}
	if l.max < leastAudit {
		return nil, errors.New("audit.totalSize must be at least 128Ki")
	}
	return l, nil
}
