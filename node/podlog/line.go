package podlog

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"strings"
	"time"
)

// line is one line of a CRI log: "<time> stdout F text".
type line struct {
	stamp   string
	at      time.Time
	partial bool
	text    []byte
}

func parseLine(raw []byte) (line, bool) {
	raw = bytes.TrimSuffix(raw, []byte("\n"))
	f := bytes.SplitN(raw, []byte(" "), 4)
	if len(f) < 4 {
		return line{}, false
	}
	at, err := time.Parse(time.RFC3339Nano, string(f[0]))
	if err != nil {
		return line{}, false
	}
	return line{stamp: string(f[0]), at: at, partial: bytes.HasPrefix(f[2], []byte("P")), text: f[3]}, true
}

// LastLines is the end of a log, for a termination message that was never written.
func LastLines(path string, lines int, most int64) string {
	const window = 32 << 10 // the longest line and as much again
	f, err := os.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Size() > window {
		if _, err := f.Seek(-window, io.SeekEnd); err != nil {
			return ""
		}
	}
	var out []string
	mid := false
	sc := bufio.NewScanner(io.LimitReader(f, window))
	for sc.Scan() {
		l, ok := parseLine(sc.Bytes())
		switch {
		case !ok:
			continue
		case mid:
			out[len(out)-1] += string(l.text)
		default:
			out = append(out, string(l.text))
		}
		if mid = l.partial; !mid {
			out[len(out)-1] += "\n"
		}
	}
	text := strings.Join(out[max(0, len(out)-lines):], "")
	return text[max(0, int64(len(text))-most):]
}
