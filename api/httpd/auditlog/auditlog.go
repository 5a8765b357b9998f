// Package auditlog keeps the lines that say who changed what, in files of bounded size.
package auditlog

import (
	"bytes"
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// Log keeps the lines of the audit log in two files, of which the older goes when the newer is full, so that both
// together stay below a size. On a card lines are gathered and written together; in memory each is written at once.
//
// A log that cannot be written stops nothing: a board whose card is full must be told what to delete. What was lost is
// counted and said.
type Log struct {
	Path string
	Max  int64         // bytes of both files
	Wait time.Duration // 0: write each line at once

	mu      sync.Mutex
	file    *os.File
	size    int64
	waiting bytes.Buffer
	lost    int
	why     error
}

// What is gathered before it is written: a power cut takes that with it.
const (
	CardPause = 30 * time.Second
	gather    = 32 << 10
)

// Write takes one line.
func (l *Log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.waiting.Write(line)
	if l.Wait == 0 || l.waiting.Len() >= gather {
		l.flush()
	}
	return len(line), nil
}

// Run writes what has gathered, from time to time, and says when something could not be written.
func (l *Log) Run(ctx context.Context) error {
	tick := time.NewTicker(CardPause)
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
			slog.Warn("lines of the audit log are lost", "path", l.Path, "lines", lost, "err", why)
		}
	}
}

// Close writes the rest, when nobody writes lines any more.
func (l *Log) Close() error {
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
func (l *Log) flush() {
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

func (l *Log) write(data []byte) error {
	if l.file != nil && l.size+int64(len(data)) > l.Max/2 {
		if err := l.file.Close(); err != nil {
			return err
		}
		l.file = nil
		if err := os.Rename(l.Path, l.Path+".1"); err != nil {
			return err
		}
	}
	if l.file == nil {
		if err := l.open(); err != nil {
			return err
		}
		if l.size > 0 && l.size+int64(len(data)) > l.Max/2 {
			return l.write(data)
		}
	}
	n, err := l.file.Write(data)
	l.size += int64(n)
	return err
}

// open goes on behind what is there; a line that a power cut tore is ended first.
func (l *Log) open() error {
	if err := os.MkdirAll(filepath.Dir(l.Path), 0o700); err != nil {
		return err
	}
	f, err := os.OpenFile(l.Path, os.O_RDWR|os.O_CREATE|os.O_APPEND, 0o600)
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
