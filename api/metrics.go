package api

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	k8sruntime "k8s.io/apimachinery/pkg/runtime"
)

// NodeMetrics is what a node uses, as metrics.k8s.io/v1beta1 has it.
type NodeMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Timestamp         metav1.Time         `json:"timestamp"`
	Window            metav1.Duration     `json:"window"`
	Usage             corev1.ResourceList `json:"usage"`
}

// PodMetrics is what a pod uses, as metrics.k8s.io/v1beta1 has it.
type PodMetrics struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Timestamp         metav1.Time        `json:"timestamp"`
	Window            metav1.Duration    `json:"window"`
	Containers        []ContainerMetrics `json:"containers"`
}

// ContainerMetrics is what one container of a pod uses.
type ContainerMetrics struct {
	Name  string              `json:"name"`
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

// The kinds that are measured, not kept: they are no part of Kinds, and no Client has them.
var (
	MetricsOfNodes = &Kind{Group: "metrics.k8s.io", Version: "v1beta1", Name: "NodeMetrics", Resource: "nodes",
		New: func() Object { return &NodeMetrics{} }}
	MetricsOfPods = &Kind{Group: "metrics.k8s.io", Version: "v1beta1", Name: "PodMetrics", Resource: "pods", Namespaced: true,
		New: func() Object { return &PodMetrics{} }}
)

// Measured lists them.
var Measured = []*Kind{MetricsOfNodes, MetricsOfPods}

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
