// Package stats reads what pods use, from their cgroups: one pass over all of them each interval, which everybody who
// asks shares. It knows cgroup v1 and v2 and keeps nothing but the last pass.
package stats

import (
	"path"
	"sync"
	"time"
)

// Pod is one to be looked at.
type Pod struct {
	UID, Namespace, Name string
	Labels               map[string]string
	Cgroup               string // below the root of all pods, as the engine has it
	HostNetwork          bool
	StartedAt            time.Time
	Containers           []Container
}

// Container is a running container of a pod.
type Container struct {
	ID, Name  string
	Image     string // as its pod names it
	Pid       int
	StartedAt time.Time
}

// Usage is what one cgroup uses. A nil part is one that the kernel does not count here.
type Usage struct {
	At     time.Time
	CPU    *CPU
	Memory *Memory
	Pids   *int64
	Stalls map[string]Pressure // PSI by "cpu", "memory", "io"; cgroup v2 only
}

// CPU is time on processors: all of it, and how much a second since the last pass.
type CPU struct {
	Total     time.Duration
	NanoCores int64
	Window    time.Duration // what NanoCores was measured over; 0: this is the first pass
}

// Memory is in bytes. On a kernel without a memory controller it is the resident memory of the cgroup's processes.
// WorkingSet is what Kubernetes calls memory in use: without inactive file pages (N-6.4).
type Memory struct {
	Usage, WorkingSet, RSS  int64
	Needed                  int64 // without any file pages: what cannot be had by dropping page cache
	PageFaults, MajorFaults int64
	Swap, SwapLimit         *int64
}

// Traffic is what went over a network interface of a pod.
type Traffic struct {
	Name                                 string
	RxBytes, RxErrors, TxBytes, TxErrors int64
}

// PodUsage is one pod of a pass.
type PodUsage struct {
	Pod
	Usage
	Network    []Traffic
	Containers []ContainerUsage
}

// ContainerUsage is one container of a pass.
type ContainerUsage struct {
	Container
	Usage
	// OOMKills is how many of its processes the kernel has killed for want of memory since it began.
	OOMKills int64
}

// Pass is everything of one moment.
type Pass struct {
	At   time.Time
	Node Usage
	Pods []PodUsage
}

// Config says where cgroups stand. Zero values are the machine's.
type Config struct {
	Mount string // of cgroups: /sys/fs/cgroup
	Proc  string // /proc
}

// Collector makes passes.
type Collector struct {
	cfg Config

	mu   sync.Mutex
	last Pass
	cpu  map[string]mark // of the last pass, by cgroup
	buf  []byte
}

type mark struct {
	at    time.Time
	total time.Duration
}

// New prepares a collector.
func New(cfg Config) *Collector {
	if cfg.Mount == "" {
		cfg.Mount = "/sys/fs/cgroup"
	}
	if cfg.Proc == "" {
		cfg.Proc = "/proc"
	}
	return &Collector{cfg: cfg, cpu: map[string]mark{}, buf: make([]byte, 0, 8<<10)}
}

// Last is the newest pass; its time is zero before the first.
func (c *Collector) Last() Pass {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.last
}

// Read makes a pass over the board and its pods. version and root come from the engine: the cgroup version, and the
// cgroup that the pods' cgroups are in. Pods that ended meanwhile are left out.
func (c *Collector) Read(now time.Time, version int, root string, pods []Pod) Pass {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := reader{mount: c.cfg.Mount, proc: c.cfg.Proc, v2: version == 2, buf: c.buf}
	before := c.cpu
	c.cpu = make(map[string]mark, len(before))
	out := Pass{At: now, Node: c.usage(&r, now, "/", before)}
	for _, p := range pods {
		dir := path.Join("/", root, p.Cgroup)
		pu := PodUsage{Pod: p, Usage: c.usage(&r, now, dir, before)}
		var parts map[string]*Memory
		if pu.Memory == nil {
			pu.Memory, parts = r.resident(dir)
		}
		for _, k := range p.Containers {
			u := c.usage(&r, now, path.Join(dir, k.ID), before)
			if u.Memory == nil {
				u.Memory = parts[k.ID]
			}
			if u.CPU == nil && u.Memory == nil {
				continue // gone
			}
			pu.Containers = append(pu.Containers, ContainerUsage{Container: k, Usage: u, OOMKills: r.oomKills(path.Join(dir, k.ID))})
			if pu.Network == nil && !p.HostNetwork {
				pu.Network = r.traffic(k.Pid)
			}
		}
		if pu.CPU == nil && pu.Memory == nil {
			continue
		}
		out.Pods = append(out.Pods, pu)
	}
	c.buf = r.buf
	c.last = out
	return out
}

// unlimited is from where on a limit is none (N-6.5).
const unlimited = 1 << 62

// Group reads the memory of one cgroup now, and how much it may have; false where there is no limit, or no such cgroup.
func (c *Collector) Group(version int, dir string) (m Memory, limit int64, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := reader{mount: c.cfg.Mount, proc: c.cfg.Proc, v2: version == 2, buf: c.buf}
	defer func() { c.buf = r.buf }()
	file := "memory.max"
	if !r.v2 {
		file = "memory.limit_in_bytes"
	}
	limit, ok = r.number(r.path("memory", dir, file)) // "max" is no number
	if !ok || limit <= 0 || limit > unlimited {
		return Memory{}, 0, false
	}
	found := r.memory(dir)
	if found == nil {
		return Memory{}, 0, false
	}
	return *found, limit, true
}

// Tasks is how many processes and threads are in a cgroup now; false where the kernel does not count them, or no such cgroup is.
func (c *Collector) Tasks(version int, dir string) (int64, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r := reader{mount: c.cfg.Mount, proc: c.cfg.Proc, v2: version == 2, buf: c.buf}
	defer func() { c.buf = r.buf }()
	if n := r.pids(dir); n != nil {
		return *n, true
	}
	return 0, false
}

func (c *Collector) usage(r *reader, now time.Time, dir string, before map[string]mark) Usage {
	u := Usage{At: now, Memory: r.memory(dir), Pids: r.pids(dir), Stalls: r.stalls(dir)}
	total, ok := r.cpu(dir)
	if !ok {
		return u
	}
	u.CPU = &CPU{Total: total}
	// A cgroup that was made anew under the same name begins again from nothing.
	if m, ok := before[dir]; ok && now.After(m.at) && total >= m.total {
		u.CPU.Window = now.Sub(m.at)
		u.CPU.NanoCores = int64(float64(total-m.total) / u.CPU.Window.Seconds())
	}
	c.cpu[dir] = mark{now, total}
	return u
}
