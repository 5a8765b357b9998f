package stats

import (
	"bytes"
	"path/filepath"
	"strconv"
	"time"
)

// Pressure is how much time tasks lost for want of something (PSI): some of them, or all at once.
type Pressure struct{ Some, Full Stall }

// Stall has the share of time lost over the last 10, 60 and 300 seconds in percent, and the sum.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// stalls reads a cgroup's PSI, or for the root the board's. Nil where there is none.
func (r *reader) stalls(dir string) map[string]Pressure {
	var out map[string]Pressure
	for _, what := range []string{"cpu", "memory", "io"} {
		path := filepath.Join(r.mount, dir, what+".pressure")
		switch {
		case dir == "/":
			path = filepath.Join(r.proc, "pressure", what)
		case !r.v2:
			return nil
		}
		p, ok := parsePressure(r.file(path))
		if !ok {
			continue
		}
		if out == nil {
			out = make(map[string]Pressure, 3)
		}
		out[what] = p
	}
	return out
}

func parsePressure(data []byte) (p Pressure, ok bool) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte{'\n'})
		f := bytes.Fields(line)
		if len(f) < 2 {
			continue
		}
		to := &p.Some
		switch string(f[0]) {
		case "some":
		case "full":
			to = &p.Full
		default:
			continue
		}
		for _, kv := range f[1:] {
			key, value, _ := bytes.Cut(kv, []byte{'='})
			n, err := strconv.ParseFloat(string(value), 64)
			if err != nil {
				return Pressure{}, false
			}
			switch string(key) {
			case "avg10":
				to.Avg10 = n
			case "avg60":
				to.Avg60 = n
			case "avg300":
				to.Avg300 = n
			case "total":
				to.Total = time.Duration(n) * time.Microsecond
			}
		}
		ok = true
	}
	return p, ok
}
