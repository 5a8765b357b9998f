package node

import (
	"context"
	"log/slog"
	"path"
	"sort"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/podspec"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/runtime"
)

var _ api.Metrics = (*Agent)(nil)

const (
	// statsEvery is how often pods are measured: as often as metrics-server asks a kubelet.
	statsEvery = 15 * time.Second
	// statsFirst is the time to the second measurement: there is no rate before it.
	statsFirst = 2 * time.Second
)

// measure keeps the statistics of the board's pods up to date.
func (a *Agent) measure(ctx context.Context) error {
	if a.cfg.Stats == nil {
		return nil
	}
	rest := statsFirst
	var killed survivors
	for {
		if pass := a.readStats(); !pass.At.IsZero() {
			var news []survival
			killed, news = killed.look(pass)
			a.tellSurvivals(news)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(rest):
		}
		rest = statsEvery
	}
}

// readStats measures the pods now; while the engine is away, what was measured last must do.
func (a *Agent) readStats() stats.Pass {
	info := a.engine.last()
	if info.CgroupVersion == 0 {
		return a.cfg.Stats.Last()
	}
	return a.cfg.Stats.Read(time.Now(), info.CgroupVersion, info.CgroupRoot, a.statsPods())
}

// podsGroup is the cgroup that all pods stand in, for the statistics; false while it is not known, or nobody reads them.
func (a *Agent) podsGroup() (version int, dir string, ok bool) {
	info := a.engine.last()
	return info.CgroupVersion, path.Join("/", info.CgroupRoot, podspec.AllPods), a.cfg.Stats != nil && info.CgroupVersion != 0
}

// podMemory is what is left of the memory that all pods may have together (N-6.1, N-6.5). Page cache that the kernel could
// take back is left, as in the board's own figure.
func (a *Agent) podMemory(now time.Time) (pressure.Reading, bool) {
	version, dir, ok := a.podsGroup()
	if !ok {
		return pressure.Reading{}, false
	}
	m, limit, ok := a.cfg.Stats.Group(version, dir)
	if !ok {
		return pressure.Reading{}, false
	}
	used := m.Needed
	if a.cfg.Status.WorkingSet {
		used = m.WorkingSet
	}
	return pressure.Reading{Available: limit - used, Capacity: limit, At: now}, true
}

// statsPods are the pods that stand on this board.
func (a *Agent) statsPods() []stats.Pod {
	var out []stats.Pod
	for _, st := range a.engine.all() {
		uid := types.UID(st.Pod.UID)
		p := stats.Pod{UID: st.Pod.UID, Namespace: st.Pod.Namespace, Name: st.Pod.Name, Cgroup: st.Pod.Cgroup, HostNetwork: st.Pod.HostNetwork,
			StartedAt: st.CreatedAt}
		if w := a.worker(uid); w != nil {
			p.Labels = w.current().Labels
		}
		containers, _, _ := a.engine.held(uid)
		for _, c := range containers {
			if c.Phase == runtime.Running {
				p.Containers = append(p.Containers, stats.Container{ID: c.ID, Name: c.Name, Pid: c.Pid, StartedAt: c.StartedAt})
			}
		}
		sort.Slice(p.Containers, func(i, j int) bool { return p.Containers[i].Name < p.Containers[j].Name })
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool {
		a, b := out[i], out[j]
		return a.Namespace+"/"+a.Name+"/"+a.UID < b.Namespace+"/"+b.Name+"/"+b.UID
	})
	return out
}

func (a *Agent) lastPass() stats.Pass {
	if a.cfg.Stats == nil {
		return stats.Pass{}
	}
	return a.cfg.Stats.Last()
}

// Node implements api.Metrics.
func (a *Agent) Node() string { return a.cfg.Name }

// NodeMetrics implements api.Metrics.
func (a *Agent) NodeMetrics(ctx context.Context) []*api.NodeMetrics {
	m := stats.NodeMetrics(a.lastPass(), a.cfg.Name)
	if m == nil {
		return nil
	}
	m.Labels = a.labels(ctx)
	return []*api.NodeMetrics{m}
}

// labels are the Node's; a selector may ask for them.
func (a *Agent) labels(ctx context.Context) map[string]string {
	n, err := a.cfg.Client.Get(ctx, api.Nodes, "", a.cfg.Name)
	if err != nil {
		return nil
	}
	return n.GetLabels()
}

// PodMetrics implements api.Metrics.
func (a *Agent) PodMetrics(context.Context) []*api.PodMetrics { return stats.PodMetrics(a.lastPass()) }

// Page implements api.Metrics.
func (a *Agent) Page(_ context.Context, path string) (string, []byte, bool, error) {
	const text = "text/plain; version=0.0.4; charset=utf-8"
	switch path {
	case "/metrics":
		return text, a.metricsText(), true, nil
	case "/metrics/resource":
		return text, stats.ResourceText(a.lastPass()), true, nil
	case "/stats/summary":
		data, err := a.summary()
		return "application/json", data, true, err
	case "/healthz":
		return "text/plain; charset=utf-8", []byte("ok"), true, nil
	}
	return "", nil, false, nil
}

func (a *Agent) summary() ([]byte, error) {
	s, err := a.cfg.Board.Sample()
	if err != nil {
		return nil, api.NewInternal("look at the board: %v", err)
	}
	pass := a.lastPass()
	fs := s.NodeFS
	m := stats.Machine{Node: a.cfg.Name, MemoryUnknown: s.MemoryUnknown, MemoryAvailable: s.MemoryAvailable, MaxPID: s.PIDMax, CurPID: s.PIDUsed,
		FS: stats.FSUsage{Time: pass.At, AvailableBytes: fs.Available, CapacityBytes: fs.Capacity, UsedBytes: fs.Capacity - fs.Available,
			Inodes: fs.Inodes, InodesFree: fs.InodesFree, InodesUsed: fs.Inodes - fs.InodesFree}}
	data, err := stats.Summary(pass, m, a.places)
	if err != nil {
		slog.Debug("summary", "err", err)
		return nil, api.NewInternal("count the files of pods: %v", err)
	}
	return data, nil
}

// places says where the files are that count as a pod's own.
func (a *Agent) places(p stats.Pod) stats.Places {
	out := stats.Places{Rootfs: map[string]string{}, Logs: map[string]string{}, Volumes: map[string]string{}}
	w := a.worker(types.UID(p.UID))
	if w == nil {
		return out
	}
	pod := w.current()
	for _, c := range p.Containers {
		if a.cfg.Written != nil {
			out.Rootfs[c.Name] = a.cfg.Written(c.ID)
		}
		out.Logs[c.Name] = a.logs.Dir(pod, c.Name)
	}
	for name, dir := range a.volumes.Scratch(pod) {
		out.Volumes[name] = dir
	}
	return out
}
