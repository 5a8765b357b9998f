package stats

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// NodeMetrics is the board as metrics.k8s.io has it; nil until it can be told.
func NodeMetrics(p Pass, node string) *api.NodeMetrics {
	usage := quantities(p.Node)
	if usage == nil {
		return nil
	}
	out := &api.NodeMetrics{Timestamp: metav1.Time{Time: p.At}, Window: window(p.Node), Usage: usage}
	out.Name, out.CreationTimestamp = node, metav1.Time{Time: p.At}
	return out
}

// PodMetrics are the pods as metrics.k8s.io has them. One whose containers have not all been measured is left out: a
// part would be taken for the whole.
func PodMetrics(p Pass) []*api.PodMetrics {
	var out []*api.PodMetrics
	for _, pod := range p.Pods {
		m := &api.PodMetrics{Timestamp: metav1.Time{Time: p.At}}
		m.Name, m.Namespace, m.Labels, m.CreationTimestamp = pod.Name, pod.Namespace, pod.Labels, metav1.Time{Time: p.At}
		for _, c := range pod.Containers {
			if usage := quantities(c.Usage); usage != nil {
				m.Containers = append(m.Containers, api.ContainerMetrics{Name: c.Name, Usage: usage})
				m.Window = window(c.Usage)
			}
		}
		if len(m.Containers) > 0 && len(m.Containers) == len(pod.Containers) {
			out = append(out, m)
		}
	}
	return out
}

func window(u Usage) metav1.Duration {
	return metav1.Duration{Duration: u.CPU.Window.Round(time.Millisecond)}
}

// quantities is nil until a rate is known.
func quantities(u Usage) corev1.ResourceList {
	if u.CPU == nil || u.CPU.Window == 0 || u.Memory == nil {
		return nil
	}
	return corev1.ResourceList{
		corev1.ResourceCPU:    *resource.NewScaledQuantity(u.CPU.NanoCores, resource.Nano),
		corev1.ResourceMemory: *resource.NewQuantity(u.Memory.WorkingSet, resource.BinarySI),
	}
}

// ResourceText is a kubelet's /metrics/resource: its names, help texts and labels, which metrics-server and others
// read. Times are in milliseconds.
func ResourceText(p Pass) []byte {
	t := &Text{At: p.At}
	every := func(fn func(pod, container string, c ContainerUsage, p PodUsage)) {
		for _, pod := range p.Pods {
			for _, c := range pod.Containers {
				fn(pod.Name, c.Name, c, pod)
			}
		}
	}
	container := func(name, kind, help string, value func(ContainerUsage) (float64, bool)) {
		t.Head(name, kind, help)
		every(func(pod, container string, c ContainerUsage, p PodUsage) {
			if v, ok := value(c); ok {
				t.Line(name, v, "container", container, "namespace", p.Namespace, "pod", pod)
			}
		})
	}
	pod := func(name, kind, help string, value func(Usage) (float64, bool)) {
		t.Head(name, kind, help)
		for _, p := range p.Pods {
			if v, ok := value(p.Usage); ok {
				t.Line(name, v, "namespace", p.Namespace, "pod", p.Name)
			}
		}
	}
	node := func(name, kind, help string, value func(Usage) (float64, bool)) {
		t.Head(name, kind, help)
		if v, ok := value(p.Node); ok {
			t.Line(name, v)
		}
	}
	of := func(value func(Usage) (float64, bool)) func(ContainerUsage) (float64, bool) {
		return func(c ContainerUsage) (float64, bool) { return value(c.Usage) }
	}
	container("container_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the container in core-seconds",
		of(cpuSeconds))
	container("container_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the container in bytes", of(workingSet))
	t.Head("container_start_time_seconds", "gauge", "[STABLE] Start time of the container since unix epoch in seconds")
	every(func(pod, container string, c ContainerUsage, p PodUsage) {
		t.Line("container_start_time_seconds", float64(c.StartedAt.UnixMilli())/1000, "container", container, "namespace", p.Namespace, "pod",
			pod)
	})
	container("container_swap_limit_bytes", "gauge",
		"[ALPHA] Current amount of the container swap limit in bytes. Reported only on non-windows systems", of(swapLimit))
	container("container_swap_usage_bytes", "gauge",
		"[ALPHA] Current amount of the container swap usage in bytes. Reported only on non-windows systems", of(swap))
	node("node_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the node in core-seconds", cpuSeconds)
	node("node_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the node in bytes", workingSet)
	node("node_swap_usage_bytes", "gauge", "[ALPHA] Current swap usage of the node in bytes. Reported only on non-windows systems", swap)
	pod("pod_cpu_usage_seconds_total", "counter", "[STABLE] Cumulative cpu time consumed by the pod in core-seconds", cpuSeconds)
	pod("pod_memory_working_set_bytes", "gauge", "[STABLE] Current working set of the pod in bytes", workingSet)
	pod("pod_swap_usage_bytes", "gauge", "[ALPHA] Current amount of the pod swap usage in bytes. Reported only on non-windows systems", swap)
	failed := 0.0
	if p.At.IsZero() || p.Node.CPU == nil || p.Node.Memory == nil {
		failed = 1
	}
	t.Head("resource_scrape_error", "gauge", "[STABLE] 1 if there was an error while getting container metrics, 0 otherwise")
	t.At = time.Time{}
	t.Line("resource_scrape_error", failed)
	return []byte(t.String())
}

func cpuSeconds(u Usage) (float64, bool) {
	if u.CPU == nil {
		return 0, false
	}
	return u.CPU.Total.Seconds(), true
}

func workingSet(u Usage) (float64, bool) {
	if u.Memory == nil {
		return 0, false
	}
	return float64(u.Memory.WorkingSet), true
}

func swap(u Usage) (float64, bool) {
	if u.Memory == nil || u.Memory.Swap == nil {
		return 0, false
	}
	return float64(*u.Memory.Swap), true
}

func swapLimit(u Usage) (float64, bool) {
	if u.Memory == nil || u.Memory.SwapLimit == nil {
		return 0, false
	}
	return float64(*u.Memory.SwapLimit), true
}

// Text is Prometheus' text format.
type Text = api.MetricText
