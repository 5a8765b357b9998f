package stats

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// reader reads the files of cgroups into one buffer.
type reader struct {
	mount, proc string
	v2          bool
	buf         []byte
}

// file gives a file's content, good until the next call; nil if it cannot be read. Plain system calls: a pass opens
// hundreds of files, and os.File would have each of them known to the poller and to the collector of garbage.
func (r *reader) file(path string) []byte {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer unix.Close(fd)
	r.buf = r.buf[:0]
	for {
		if len(r.buf) == cap(r.buf) {
			r.buf = append(r.buf, 0)[:len(r.buf)]
		}
		n, err := unix.Read(fd, r.buf[len(r.buf):cap(r.buf)])
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return nil
		}
		if n == 0 {
			return r.buf
		}
		r.buf = r.buf[:len(r.buf)+n]
	}
}

func (r *reader) number(path string) (int64, bool) {
	n, err := strconv.ParseInt(string(bytes.TrimSpace(r.file(path))), 10, 64)
	return n, err == nil
}

// path is where a file of a cgroup stands. On v1 each controller has a tree of its own.
func (r *reader) path(controller, dir, file string) string {
	if r.v2 {
		return filepath.Join(r.mount, dir, file)
	}
	return filepath.Join(r.mount, controller, dir, file)
}

func (r *reader) cpu(dir string) (time.Duration, bool) {
	if !r.v2 {
		n, ok := r.number(r.path("cpuacct", dir, "cpuacct.usage"))
		return time.Duration(n), ok
	}
	var us int64 = -1
	pairs(r.file(r.path("", dir, "cpu.stat")), func(key []byte, n int64) {
		if string(key) == "usage_usec" {
			us = n
		}
	})
	return time.Duration(us) * time.Microsecond, us >= 0
}

// memory reads memory.stat once, and what is used before and after it: on a busy board a moment between two reads may be long, and
// the file pages that came or went in it would count as needed. The root cgroup of v2 has no memory.current: there the sum of its
// parts is taken.
func (r *reader) memory(dir string) *Memory {
	var m Memory
	usage, swap, limit := "memory.current", "memory.swap.current", "memory.swap.max"
	if !r.v2 {
		usage, swap, limit = "memory.usage_in_bytes", "", ""
	}
	before, known := r.number(r.path("memory", dir, usage))
	var anon, file, inactive, active int64
	stat := r.file(r.path("memory", dir, "memory.stat"))
	if stat == nil {
		return nil
	}
	pairs(stat, func(key []byte, n int64) {
		switch string(key) {
		case "anon", "total_rss":
			anon = n
		case "file", "total_cache":
			file = n
		case "inactive_file":
			if r.v2 {
				inactive = n
			}
		case "total_inactive_file":
			inactive = n
		case "active_file":
			if r.v2 {
				active = n
			}
		case "total_active_file":
			active = n
		case "pgfault", "total_pgfault":
			m.PageFaults = n
		case "pgmajfault", "total_pgmajfault":
			m.MajorFaults = n
		}
	})
	var ok bool
	switch m.Usage, ok = r.number(r.path("memory", dir, usage)); {
	case !ok:
		m.Usage = anon + file
	case known:
		m.Usage = min(m.Usage, before)
	}
	if swap != "" {
		if n, ok := r.number(r.path("memory", dir, swap)); ok {
			m.Swap = &n
		}
		if n, ok := r.number(r.path("memory", dir, limit)); ok { // "max" is no limit
			m.SwapLimit = &n
		}
	}
	m.RSS, m.WorkingSet, m.Needed = anon, max(0, m.Usage-inactive), max(0, m.Usage-inactive-active)
	return &m
}

// resident is the memory of the processes in a cgroup and in each below it, for kernels that count none of cgroups: their anonymous
// pages, and of shared memory as much as the one with most of it has, for they share it. Nil: there is no such cgroup.
func (r *reader) resident(dir string) (all *Memory, parts map[string]*Memory) {
	trees := []string{""}
	if !r.v2 {
		trees = []string{"pids", "cpuacct"}
	}
	for _, tree := range trees {
		base := r.path(tree, dir, "")
		anon, shared, ok := r.processes(base, false)
		if !ok {
			continue
		}
		parts = map[string]*Memory{}
		sum := anon + shared
		entries, _ := os.ReadDir(base) // one that is gone has nothing
		for _, e := range entries {
			if !e.IsDir() {
				continue
			}
			if anon, shared, ok := r.processes(filepath.Join(base, e.Name()), true); ok {
				parts[e.Name()] = plainly(anon + shared)
				sum += anon + shared
			}
		}
		return plainly(sum), parts
	}
	return nil, nil
}

func plainly(n int64) *Memory { return &Memory{Usage: n, WorkingSet: n, RSS: n, Needed: n} }

// processes adds up those of one directory of cgroups; deep: of all below it too.
func (r *reader) processes(dir string, deep bool) (anon, shared int64, ok bool) {
	list := r.file(filepath.Join(dir, "cgroup.procs"))
	if list == nil {
		return 0, 0, false
	}
	for _, pid := range strings.Fields(string(list)) { // a copy: the buffer is wanted for each
		var most int64
		for line := range bytes.Lines(r.file(filepath.Join(r.proc, pid, "status"))) {
			name, rest, _ := bytes.Cut(line, []byte{':'})
			switch string(name) {
			case "RssAnon":
				anon += kilobytes(rest)
			case "RssShmem":
				most = kilobytes(rest)
			}
		}
		shared = max(shared, most)
	}
	if !deep {
		return anon, shared, true
	}
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		if e.IsDir() {
			a, s, _ := r.processes(filepath.Join(dir, e.Name()), true)
			anon, shared = anon+a, max(shared, s)
		}
	}
	return anon, shared, true
}

// kilobytes is a figure of /proc/PID/status, in bytes.
func kilobytes(text []byte) int64 {
	n, _ := strconv.ParseInt(string(bytes.TrimSpace(bytes.TrimSuffix(bytes.TrimSpace(text), []byte("kB")))), 10, 64)
	return n << 10
}

func (r *reader) oomKills(dir string) (kills int64) {
	file := "memory.events"
	if !r.v2 {
		file = "memory.oom_control"
	}
	pairs(r.file(r.path("memory", dir, file)), func(key []byte, n int64) {
		if string(key) == "oom_kill" {
			kills = n
		}
	})
	return kills
}

func (r *reader) pids(dir string) *int64 {
	if n, ok := r.number(r.path("pids", dir, "pids.current")); ok {
		return &n
	}
	return nil
}

// pairs calls fn for each line of "name number".
func pairs(data []byte, fn func(key []byte, n int64)) {
	for len(data) > 0 {
		var line []byte
		line, data, _ = bytes.Cut(data, []byte{'\n'})
		key, value, ok := bytes.Cut(line, []byte{' '})
		if !ok {
			continue
		}
		if n, err := strconv.ParseInt(string(value), 10, 64); err == nil {
			fn(key, n)
		}
	}
}

// traffic reads the counters of a pod's interfaces, as a process in it sees them. The loopback stays in the pod.
func (r *reader) traffic(pid int) []Traffic {
	if pid <= 0 {
		return nil
	}
	data := r.file(filepath.Join(r.proc, strconv.Itoa(pid), "net", "dev"))
	var out []Traffic
	if data == nil {
		return out
	}
	for _, line := range bytes.Split(data, []byte{'\n'}) {
		name, rest, ok := bytes.Cut(line, []byte{':'})
		f := bytes.Fields(rest)
		if !ok || len(f) < 16 {
			continue
		}
		t := Traffic{Name: string(bytes.TrimSpace(name))}
		if t.Name == "lo" {
			continue
		}
		for i, to := range map[int]*int64{0: &t.RxBytes, 2: &t.RxErrors, 8: &t.TxBytes, 10: &t.TxErrors} {
			*to, _ = strconv.ParseInt(string(f[i]), 10, 64) // what is no number counts nothing
		}
		out = append(out, t)
	}
	return out
}
