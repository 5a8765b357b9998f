package node

import (
	"cmp"
	"context"
	"encoding/json"
	"log/slog"
	"path"
	"slices"
	"sort"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/machine"
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

// usage measures what the pods of this board use, and tells the API. An Agent has it.
type usage struct{ a *Agent }

// measure keeps the statistics of the board's pods up to date.
func (u usage) measure(ctx context.Context) error {
	if u.a.cfg.Stats == nil {
		return nil
	}
	rest := statsFirst
	var killed survivors
	for {
		if pass := u.readStats(); !pass.At.IsZero() {
			var news []survival
			killed, news = killed.look(pass)
			u.tellSurvivals(news)
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
func (u usage) readStats() stats.Pass {
	info := u.a.engine.last()
	if info.CgroupVersion == 0 {
		return u.a.cfg.Stats.Last()
	}
	return u.a.cfg.Stats.Read(time.Now(), info.CgroupVersion, info.CgroupRoot, u.statsPods())
}

// podsGroup is the cgroup that all pods stand in, for the statistics; false while it is not known, or nobody reads them.
func (u usage) podsGroup() (version int, dir string, ok bool) {
	info := u.a.engine.last()
	return info.CgroupVersion, path.Join("/", info.CgroupRoot, podspec.AllPods), u.a.cfg.Stats != nil && info.CgroupVersion != 0
}

// podMemory is what is left of the memory that all pods may have together (N-6.1, N-6.5). Page cache that the kernel could
// take back is left, as in the board's own figure.
func (u usage) podMemory(now time.Time) (pressure.Reading, bool) {
	version, dir, ok := u.podsGroup()
	if !ok {
		return pressure.Reading{}, false
	}
	m, limit, ok := u.a.cfg.Stats.Group(version, dir)
	if !ok {
		return pressure.Reading{}, false
	}
	used := m.Needed
	if u.a.cfg.Status.WorkingSet {
		used = m.WorkingSet
	}
	return pressure.Reading{Available: limit - used, Capacity: limit, At: now}, true
}

// statsPods are the pods that stand on this board.
func (u usage) statsPods() []stats.Pod {
	var out []stats.Pod
	for _, st := range u.a.engine.all() {
		uid := types.UID(st.Pod.UID)
		p := stats.Pod{UID: st.Pod.UID, Namespace: st.Pod.Namespace, Name: st.Pod.Name, Cgroup: st.Pod.Cgroup, HostNetwork: st.Pod.HostNetwork,
			StartedAt: st.CreatedAt}
		images := map[string]string{}
		if w := u.a.roster.of(uid); w != nil {
			pod := w.current()
			p.Labels = pod.Labels
			for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
				images[c.Name] = c.Image
			}
		}
		containers, _, _ := u.a.engine.held(uid)
		for _, c := range containers {
			if c.Phase == runtime.Running {
				p.Containers = append(p.Containers, stats.Container{ID: c.ID, Name: c.Name, Image: images[c.Name], Pid: c.Pid,
					StartedAt: c.StartedAt})
			}
		}
		sort.Slice(p.Containers, func(i, j int) bool { return p.Containers[i].Name < p.Containers[j].Name })
		out = append(out, p)
	}
	sort.Slice(out, func(i, j int) bool {
		x, y := out[i], out[j]
		return x.Namespace+"/"+x.Name+"/"+x.UID < y.Namespace+"/"+y.Name+"/"+y.UID
	})
	return out
}

func (u usage) lastPass() stats.Pass {
	if u.a.cfg.Stats == nil {
		return stats.Pass{}
	}
	return u.a.cfg.Stats.Last()
}

// Node implements api.Metrics.
func (u usage) Node() string { return u.a.cfg.Name }

// NodeMetrics implements api.Metrics.
func (u usage) NodeMetrics(ctx context.Context) []*api.NodeMetrics {
	m := stats.NodeMetrics(u.lastPass(), u.a.cfg.Name)
	if m == nil {
		return nil
	}
	m.Labels = u.labels(ctx)
	return []*api.NodeMetrics{m}
}

// labels are the Node's; a selector may ask for them.
func (u usage) labels(ctx context.Context) map[string]string {
	n, err := u.a.cfg.Client.Get(ctx, api.Nodes, "", u.a.cfg.Name)
	if err != nil {
		return nil
	}
	return n.GetLabels()
}

// PodMetrics implements api.Metrics.
func (u usage) PodMetrics(context.Context) []*api.PodMetrics {
	return stats.PodMetrics(u.lastPass())
}

// Page implements api.Metrics.
func (u usage) Page(_ context.Context, path string) (string, []byte, bool, error) {
	const text = "text/plain; version=0.0.4; charset=utf-8"
	switch path {
	case "/metrics":
		return text, u.metricsText(), true, nil
	case "/metrics/resource":
		return text, stats.ResourceText(u.lastPass()), true, nil
	case "/metrics/cadvisor":
		return text, stats.CadvisorText(u.lastPass()), true, nil
	case "/metrics/probes":
		return text, u.probesText(), true, nil
	case "/configz":
		data, err := u.configz()
		return "application/json", data, true, err
	case "/pods":
		data, err := u.podList()
		return "application/json", data, true, err
	case "/stats/summary":
		data, err := u.summary()
		return "application/json", data, true, err
	case "/healthz":
		return "text/plain; charset=utf-8", []byte("ok"), true, nil
	}
	return "", nil, false, nil
}

// probesText is a kubelet's /metrics/probes: how often containers were asked, by what came of it.
func (u usage) probesText() []byte {
	t := &stats.Text{}
	t.Head("prober_probe_total", "counter",
		"[BETA] Cumulative number of a liveness, readiness or startup probe for a container by result.")
	pods := u.a.roster.all()
	slices.SortFunc(pods, func(a, b *worker) int {
		x, y := a.current(), b.current()
		return cmp.Or(cmp.Compare(x.Namespace, y.Namespace), cmp.Compare(x.Name, y.Name), cmp.Compare(x.UID, y.UID))
	})
	for _, w := range pods {
		pod := w.current()
		for _, c := range w.probes.Counts() {
			for _, r := range []struct {
				name string
				n    uint64
			}{{"failed", c.Failed}, {"successful", c.Successful}, {"unknown", c.Unknown}} {
				if r.n > 0 {
					t.Line("prober_probe_total", float64(r.n), "container", c.Container, "namespace", pod.Namespace, "pod", pod.Name,
						"pod_uid", string(pod.UID), "probe_type", string(c.Kind), "result", r.name)
				}
			}
		}
	}
	return []byte(t.String())
}

// podList is what a kubelet says of the pods that it has, with their statuses as it wrote them last.
func (u usage) podList() ([]byte, error) {
	list := corev1.PodList{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "PodList"}, Items: []corev1.Pod{}}
	for _, p := range slices.SortedFunc(slices.Values(u.a.Pods()), func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name), cmp.Compare(a.UID, b.UID))
	}) {
		list.Items = append(list.Items, *p)
	}
	return json.Marshal(list)
}

func (u usage) summary() ([]byte, error) {
	s, err := u.a.cfg.Machine.Sample()
	if err != nil {
		return nil, api.NewInternal("look at the board: %v", err)
	}
	pass := u.lastPass()
	fs := s.NodeFS
	m := stats.Machine{Node: u.a.cfg.Name, MemoryUnknown: s.MemoryUnknown, MemoryAvailable: s.MemoryAvailable, MaxPID: s.PIDMax,
		CurPID: s.PIDUsed,
		FS: stats.FSUsage{Time: pass.At, AvailableBytes: fs.Available, CapacityBytes: fs.Capacity, UsedBytes: fs.Capacity - fs.Available,
			Inodes: fs.Inodes, InodesFree: fs.InodesFree, InodesUsed: fs.Inodes - fs.InodesFree}}
	data, err := stats.Summary(pass, m, u.places)
	if err != nil {
		slog.Debug("summary", "err", err)
		return nil, api.NewInternal("count the files of pods: %v", err)
	}
	return data, nil
}

// places says where the files are that count as a pod's own.
func (u usage) places(p stats.Pod) stats.Places {
	out := stats.Places{Rootfs: map[string]string{}, Logs: map[string]string{}, Volumes: map[string]string{}}
	w := u.a.roster.of(types.UID(p.UID))
	if w == nil {
		return out
	}
	pod := w.current()
	for _, c := range p.Containers {
		if u.a.cfg.Written != nil {
			out.Rootfs[c.Name] = u.a.cfg.Written(c.ID)
		}
		out.Logs[c.Name] = u.a.logs.Dir(pod, c.Name)
	}
	for name, dir := range u.a.volumes.Scratch(pod) {
		out.Volumes[name] = dir
	}
	return out
}

// podTasks is how many processes all pods have now; -1 if that is not known.
func (u usage) podTasks() int64 {
	version, dir, ok := u.podsGroup()
	if !ok {
		return -1
	}
	if n, ok := u.a.cfg.Stats.Tasks(version, dir); ok {
		return n
	}
	return -1
}

// countTasks notes how many processes are not of pods, as often as that has changed by much. Pods had so many before the sample
// was taken; while they start or end hundreds, the board's own are rather counted too many.
func (u usage) countTasks(before int64, s machine.Sample) {
	ofPods := min(before, u.podTasks())
	if ofPods < 0 || s.PIDUsed <= ofPods {
		return
	}
	if own, few := s.PIDUsed-ofPods, podspec.SpareTasks(u.a.cfg.Status.Eviction, s.PIDMax)/4; u.a.outlook.setOwnTasks(own, few) {
		u.a.pokeGroups()
	}
}
