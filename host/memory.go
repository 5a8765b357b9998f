package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/shirou/gopsutil/v3/common"
	"github.com/shirou/gopsutil/v3/mem"
	"golang.org/x/sys/unix"
)

// Memory is RAM and swap, in bytes.
type Memory struct{ Total, Available, SwapTotal, SwapFree int64 }

// Memory reads it. Total is MemTotal (N-6.5); Available is the kernel's estimate of what can be had without swapping,
// which counts page cache that can be dropped (pains 13).
func (h *Host) Memory() (Memory, error) {
	ctx := context.WithValue(context.Background(), common.EnvKey, common.EnvMap{common.HostProcEnvKey: h.cfg.Proc})
	m, err := mem.VirtualMemoryWithContext(ctx)
	if err != nil {
		return Memory{}, fmt.Errorf("read memory: %w", err)
	}
	if m.Total == 0 {
		return Memory{}, errors.New("read memory: meminfo has no MemTotal")
	}
	return Memory{Total: int64(m.Total), Available: int64(m.Available), SwapTotal: int64(m.SwapTotal), SwapFree: int64(m.SwapFree)}, nil
}

// MemoryAvailable returns Total and Available of Memory at a tenth of the cost, for callers that ask often. mapped is
// the part of available that processes have mapped from files, mostly their programs. The kernel's figure for that
// includes shared memory, which is not available, so mapped is capped at the size of all file pages.
func (h *Host) MemoryAvailable() (available, mapped, total int64, err error) {
	data, err := h.meminfo.read(filepath.Join(h.cfg.Proc, "meminfo"))
	if err != nil {
		return 0, 0, 0, fmt.Errorf("read memory: %w", err)
	}
	known := false
	var files int64
	for len(data) > 0 && mapped == 0 { // which stands last
		var line []byte
		line, data, _ = bytes.Cut(data, []byte{'\n'})
		name, rest, _ := bytes.Cut(line, []byte{':'})
		var to *int64
		switch string(name) {
		case "MemTotal":
			to = &total
		case "MemAvailable":
			to, known = &available, true
		case "Active(file)", "Inactive(file)":
			to = &files
		case "Mapped":
			to = &mapped
		default:
			continue
		}
		kb, err := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(rest, []byte("kB")))), 10, 64)
		if err != nil {
			return 0, 0, 0, fmt.Errorf("read memory: %w", err)
		}
		*to += kb << 10
	}
	if total == 0 || !known {
		return 0, 0, 0, errors.New("read memory: meminfo has no MemTotal or no MemAvailable")
	}
	return available, min(mapped, files), total, nil
}

// gauge is a file of the kernel that is kept open: reading it anew gives what is so now.
type gauge struct {
	mu   sync.Mutex
	file *os.File
}

// read gives its beginning: what matters stands there.
func (g *gauge) read(path string) ([]byte, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.file == nil {
		f, err := os.Open(path)
		if err != nil {
			return nil, err
		}
		g.file = f
	}
	data := make([]byte, 1024)
	n, err := g.file.ReadAt(data, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		_ = g.file.Close() // opened anew the next time
		g.file = nil
		return nil, err
	}
	return data[:n], nil
}

// WorkingSet is what Kubernetes calls the memory in use: that of the root cgroup without inactive file pages
// (N-6.2 to N-6.4). It is an error where the memory controller is off.
func (h *Host) WorkingSet() (int64, error) {
	root := filepath.Join(h.cfg.Sys, "fs/cgroup")
	if stat, err := fields(filepath.Join(root, "memory.stat")); err == nil {
		return max(0, stat["anon"]+stat["file"]-stat["inactive_file"]), nil
	}
	usage, err := strconv.ParseInt(h.line(root, "memory/memory.usage_in_bytes"), 10, 64)
	if err != nil {
		return 0, errors.New("read working set: the kernel does not count the memory of cgroups; `ledge doctor` says how it does")
	}
	stat, err := fields(filepath.Join(root, "memory/memory.stat"))
	if err != nil {
		return 0, fmt.Errorf("read working set: %w", err)
	}
	return max(0, usage-stat["total_inactive_file"]), nil
}

// fields reads a file of "name number" lines.
func fields(path string) (map[string]int64, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	out := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) == 2 {
			if n, err := strconv.ParseInt(f[1], 10, 64); err == nil {
				out[f[0]] = n
			}
		}
	}
	return out, nil
}

// Pressure is how much time tasks lost for want of a resource (PSI): some of them, or all at once.
type Pressure struct{ Some, Full Stall }

// Stall has the share of time lost over the last 10, 60 and 300 seconds in percent, and the sum since the boot.
type Stall struct {
	Avg10, Avg60, Avg300 float64
	Total                time.Duration
}

// Pressure reads that of "memory", "cpu" or "io". A kernel that does not report it gives fs.ErrNotExist.
func (h *Host) Pressure(resource string) (Pressure, error) {
	data, err := os.ReadFile(filepath.Join(h.cfg.Proc, "pressure", resource))
	if errors.Is(err, unix.EOPNOTSUPP) { // compiled in, and switched off by a cgroup option
		err = os.ErrNotExist
	}
	if err != nil {
		return Pressure{}, fmt.Errorf("read %s pressure: %w", resource, err)
	}
	var p Pressure
	for line := range strings.Lines(string(data)) {
		kind, rest, _ := strings.Cut(line, " ")
		s, err := parseStall(rest)
		if err != nil {
			return Pressure{}, fmt.Errorf("read %s pressure: %w", resource, err)
		}
		switch kind {
		case "some":
			p.Some = s
		case "full":
			p.Full = s
		}
	}
	return p, nil
}

func parseStall(s string) (Stall, error) {
	var out Stall
	for _, f := range strings.Fields(s) {
		name, value, _ := strings.Cut(f, "=")
		n, err := strconv.ParseFloat(value, 64)
		if err != nil {
			return out, fmt.Errorf("%q: %w", f, err)
		}
		switch name {
		case "avg10":
			out.Avg10 = n
		case "avg60":
			out.Avg60 = n
		case "avg300":
			out.Avg300 = n
		case "total":
			out.Total = time.Duration(n) * time.Microsecond
		}
	}
	return out, nil
}

// HugePages are the bytes reserved for huge pages, by page size as Kubernetes writes it: 2Mi, 1Gi (N-1.55).
func (h *Host) HugePages() map[string]int64 {
	out := map[string]int64{}
	dirs, err := filepath.Glob(filepath.Join(h.cfg.Sys, "kernel/mm/hugepages/hugepages-*kB"))
	if err != nil {
		return out
	}
	for _, d := range dirs {
		name := strings.TrimSuffix(strings.TrimPrefix(filepath.Base(d), "hugepages-"), "kB")
		kb, err1 := strconv.ParseInt(name, 10, 64)
		pages, err2 := strconv.ParseInt(h.line(d, "nr_hugepages"), 10, 64)
		if err1 == nil && err2 == nil {
			out[binarySize(kb<<10)] = pages * kb << 10
		}
	}
	return out
}

func binarySize(n int64) string {
	for _, u := range []struct {
		shift int
		name  string
	}{{30, "Gi"}, {20, "Mi"}, {10, "Ki"}} {
		if n>>u.shift > 0 && n%(1<<u.shift) == 0 {
			return strconv.FormatInt(n>>u.shift, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// Swap is one place the kernel swaps to.
type Swap struct {
	Path string // /dev/zram0, /var/swap
	Size int64
}

// InMemory: what is swapped to it stays in memory, compressed.
func (s Swap) InMemory() bool { return strings.HasPrefix(s.Path, "/dev/zram") }

// Swaps lists them.
func (h *Host) Swaps() ([]Swap, error) {
	data, err := os.ReadFile(filepath.Join(h.cfg.Proc, "swaps"))
	if errors.Is(err, os.ErrNotExist) { // a kernel without swap
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read swaps: %w", err)
	}
	var out []Swap
	for line := range strings.Lines(string(data)) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] == "Filename" {
			continue
		}
		kb, err := strconv.ParseInt(f[2], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("read swaps: %w", err)
		}
		out = append(out, Swap{Path: f[0], Size: kb << 10})
	}
	return out, nil
}
