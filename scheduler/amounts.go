package scheduler

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// amounts is a resource list as plain numbers, cpu in thousandths of a core: Quantity arithmetic is too slow for
// thousands of pods.
type amounts map[corev1.ResourceName]int64

func amountsOf(list corev1.ResourceList) amounts {
	out := make(amounts, len(list))
	for name, q := range list {
		if name == corev1.ResourceCPU {
			out[name] = q.MilliValue()
		} else {
			out[name] = q.Value()
		}
	}
	return out
}

func (a amounts) add(b amounts) {
	for name, v := range b {
		a[name] += v
	}
}

func (a amounts) sub(b amounts) {
	for name, v := range b {
		a[name] -= v
	}
}

func (a amounts) clone() amounts { return maps.Clone(a) }

// What a container that states no request is taken to need when nodes are compared (N-10.12). It never counts
// against allocatable.
var (
	assumedCPU    = resource.MustParse("100m")
	assumedMemory = resource.MustParse("200Mi")
)
