package keeper

import (
	"bytes"
	"fmt"
	"sync"
	"time"
)

const (
	// burst is how many seconds' worth of a rate may come at once: a start that tells a lot is no flood.
	burst = 10
	// spill is how many times faster than its rate a container's output is read. Output above the rate is dropped;
	// above spill times the rate the container has to wait, so that a flood cannot cost the board a core.
	spill = 8
	// longestRest keeps a stream listening, whatever its rate.
	longestRest = 50 * time.Millisecond
)

// limiter lets a container's lines through as fast as its rate allows and leaves the others out. Where some are
// missing the log says how many.
type limiter struct {
	rate int64 // bytes a second; 0: no limit

	mu           sync.Mutex
	begun        bool
	left         float64 // bytes that may pass now
	at           time.Time
	lines, bytes int64           // left out since the last note
	open         map[string]bool // streams whose last line in the log is part of one
}

// pass gives what is to be written of lines, all of one stream, and how long to wait before more is read.
func (m *limiter) pass(stream string, now time.Time, lines []byte) ([]byte, time.Duration) {
	if m.rate <= 0 || len(lines) == 0 {
		return lines, 0
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.take(now, len(lines)) {
		m.lines += int64(bytes.Count(lines, []byte{'\n'}))
		m.bytes += int64(len(lines))
		var closing []byte
		if m.open[stream] { // else the next line in the log would be taken for the rest of this one
			closing = appendLine(nil, now, stream, "")
			delete(m.open, stream)
		}
		return closing, min(longestRest, time.Duration(float64(len(lines))/float64(spill*m.rate)*float64(time.Second)))
	}
	out := lines
	if note := m.note(now); note != nil {
		out = append(note, lines...)
	}
	if m.open == nil {
		m.open = map[string]bool{}
	}
	m.open[stream] = endsInPart(lines)
	return out, 0
}

// end is the last note.
func (m *limiter) end(now time.Time) []byte {
	m.mu.Lock()
	defer m.mu.Unlock()
	note := m.note(now)
	if note != nil && m.open[nameStderr] {
		note = append(appendLine(nil, now, nameStderr, ""), note...)
	}
	return note
}

func (m *limiter) take(now time.Time, n int) bool {
	most := float64(m.rate * burst)
	if !m.begun {
		m.begun, m.left, m.at = true, most, now
	}
	m.left = min(most, m.left+now.Sub(m.at).Seconds()*float64(m.rate))
	m.at = now
	// Once dry it waits for a second's worth: otherwise every other line would be a note.
	if m.left < float64(n) || m.lines > 0 && m.left < min(most, float64(m.rate)) {
		return false
	}
	m.left -= float64(n)
	return true
}

func (m *limiter) note(now time.Time) []byte {
	if m.lines == 0 {
		return nil
	}
	text := fmt.Sprintf("ledge: %d lines (%d bytes) are left out here: the container wrote more than %d bytes a second", m.lines, m.bytes,
		m.rate)
	m.lines, m.bytes = 0, 0
	return appendLine(nil, now, nameStderr, text)
}

func appendLine(dst []byte, now time.Time, stream, text string) []byte {
	s := splitter{stream: stream}
	return s.line(dst, now, 'F', []byte(text))
}

// endsInPart reports whether the last of some lines is marked P.
func endsInPart(lines []byte) bool {
	last := lines[bytes.LastIndexByte(lines[:len(lines)-1], '\n')+1:]
	f := bytes.SplitN(last, []byte{' '}, 4)
	return len(f) == 4 && string(f[2]) == "P"
}
