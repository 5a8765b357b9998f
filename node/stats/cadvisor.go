package stats

// CadvisorText is a kubelet's /metrics/cadvisor, as much of it as dashboards of pods read and is measured here: processor, memory and
// network, with cadvisor's names and labels. A line without a container's name is of the whole pod.
func CadvisorText(p Pass) []byte {
	t := &Text{At: p.At}
	head := func(name, kind, help string) func(pod PodUsage, c *ContainerUsage, v float64, more ...string) {
		t.Head(name, kind, help)
		return func(pod PodUsage, c *ContainerUsage, v float64, more ...string) {
			container, id, image := "", "", ""
			if c != nil {
				container, id, image = c.Name, c.ID, c.Image
			}
			labels := append([]string{"container", container, "id", "/" + pod.Cgroup, "image", image}, more...)
			t.Line(name, v, append(labels, "name", id, "namespace", pod.Namespace, "pod", pod.Name)...)
		}
	}
	each := func(name, kind, help string, value func(Usage) (float64, bool)) {
		line := head(name, kind, help)
		for _, pod := range p.Pods {
			if v, ok := value(pod.Usage); ok {
				line(pod, nil, v)
			}
			for _, c := range pod.Containers {
				if v, ok := value(c.Usage); ok {
					line(pod, &c, v)
				}
			}
		}
	}
	memory := func(of func(*Memory) int64) func(Usage) (float64, bool) {
		return func(u Usage) (float64, bool) {
			if u.Memory == nil {
				return 0, false
			}
			return float64(of(u.Memory)), true
		}
	}
	traffic := func(name, help string, of func(Traffic) int64) {
		line := head(name, "counter", help)
		for _, pod := range p.Pods {
			for _, n := range pod.Network {
				line(pod, nil, float64(of(n)), "interface", n.Name)
			}
		}
	}
	each("container_cpu_usage_seconds_total", "counter", "Cumulative cpu time consumed in seconds.", cpuSeconds)
	each("container_memory_rss", "gauge", "Size of RSS in bytes.", memory(func(m *Memory) int64 { return m.RSS }))
	each("container_memory_usage_bytes", "gauge", "Current memory usage in bytes, including all memory regardless of when it was accessed",
		memory(func(m *Memory) int64 { return m.Usage }))
	each("container_memory_working_set_bytes", "gauge", "Current working set in bytes.", workingSet)
	traffic("container_network_receive_bytes_total", "Cumulative count of bytes received", func(n Traffic) int64 { return n.RxBytes })
	traffic("container_network_receive_errors_total", "Cumulative count of errors encountered while receiving",
		func(n Traffic) int64 { return n.RxErrors })
	traffic("container_network_transmit_bytes_total", "Cumulative count of bytes transmitted", func(n Traffic) int64 { return n.TxBytes })
	traffic("container_network_transmit_errors_total", "Cumulative count of errors encountered while transmitting",
		func(n Traffic) int64 { return n.TxErrors })
	return []byte(t.String())
}
