package api

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"

	"ledge/api/table"
)

// The comments of these types and fields are what kubectl explain says of them. Their schemas are called as Kubernetes
// calls its own.
//
// +k8s:openapi-model-package=io.k8s.metrics.pkg.apis.metrics.v1beta1

// NodeMetrics is what a node uses, as measured last.
type NodeMetrics struct {
	metav1.TypeMeta `json:",inline"`
	// Standard metadata: the name is the node's.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// When it was measured.
	Timestamp metav1.Time `json:"timestamp"`
	// How long before that rates, such as those of cpu, were measured over.
	Window metav1.Duration `json:"window"`
	// What is used of each resource: of memory the working set.
	Usage corev1.ResourceList `json:"usage"`
}

// PodMetrics is what a pod uses, as measured last.
type PodMetrics struct {
	metav1.TypeMeta `json:",inline"`
	// Standard metadata: name and namespace are the pod's.
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// When it was measured.
	Timestamp metav1.Time `json:"timestamp"`
	// How long before that rates, such as those of cpu, were measured over.
	Window metav1.Duration `json:"window"`
	// What each of its containers uses, all over the same time.
	// +listType=atomic
	Containers []ContainerMetrics `json:"containers"`
}

// ContainerMetrics is what one container of a pod uses.
type ContainerMetrics struct {
	// The container's name in the pod.
	Name string `json:"name"`
	// What is used of each resource: of memory the working set.
	Usage corev1.ResourceList `json:"usage"`
}

// DeepCopyObject implements Object.
func (m *NodeMetrics) DeepCopyObject() k8sruntime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Usage = m.Usage.DeepCopy()
	return &out
}

// DeepCopyObject implements Object.
func (m *PodMetrics) DeepCopyObject() k8sruntime.Object {
	out := *m
	m.ObjectMeta.DeepCopyInto(&out.ObjectMeta)
	out.Containers = nil
	for _, c := range m.Containers {
		out.Containers = append(out.Containers, ContainerMetrics{c.Name, c.Usage.DeepCopy()})
	}
	return &out
}

// The kinds that are measured, not kept: no Client has them.
var (
	MetricsOfNodes = Define(Kind{Group: "metrics.k8s.io", Version: "v1beta1", Name: "NodeMetrics", Resource: "nodes", Measured: true},
		Rules[*NodeMetrics]{
			New:     func() *NodeMetrics { return &NodeMetrics{} },
			Columns: measuredColumns,
			Cells: func(m *NodeMetrics, _ table.Look) []any {
				return measuredCells(m.Name, m.Usage.Cpu().MilliValue(), m.Usage.Memory().Value(), m.Window)
			},
		})
	MetricsOfPods = Define(Kind{Group: "metrics.k8s.io", Version: "v1beta1", Name: "PodMetrics", Resource: "pods", Namespaced: true,
		Measured: true},
		Rules[*PodMetrics]{
			New:     func() *PodMetrics { return &PodMetrics{} },
			Columns: measuredColumns,
			Cells: func(m *PodMetrics, _ table.Look) []any {
				var cpu, memory int64
				for _, c := range m.Containers {
					cpu += c.Usage.Cpu().MilliValue()
					memory += c.Usage.Memory().Value()
				}
				return measuredCells(m.Name, cpu, memory, m.Window)
			},
		})
)

var measuredColumns = table.Columns{
	table.Name,
	table.Column("cpu", "string", "How much of a processor it uses."),
	table.Column("memory", "string", "The memory that it uses and could not be taken from it."),
	table.Column("Window", "string", "What time this was measured over."),
}

func measuredCells(name string, milliCPU, memory int64, window metav1.Duration) []any {
	return []any{name, fmt.Sprintf("%dm", milliCPU), fmt.Sprintf("%dMi", memory>>20), window.Duration.String()}
}

// Metrics is what is known of a board's use, in the forms in which others ask for it. All of it is of the last
// measurement; before the first there is nothing.
type Metrics interface {
	NodeMetrics(ctx context.Context) []*NodeMetrics
	PodMetrics(ctx context.Context) []*PodMetrics
	// Node is the name of the node that Page speaks of.
	Node() string
	// Page is what a kubelet serves at a path such as /metrics/resource: its content type and text. ok is false where
	// it serves nothing.
	Page(ctx context.Context, path string) (contentType string, body []byte, ok bool, err error)
}
