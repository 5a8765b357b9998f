package api

import (
	"net/netip"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// roundUp cuts quantities to thousandths, the finest step Kubernetes keeps.
func roundUp(list corev1.ResourceList) {
	for name, q := range list {
		q.RoundUp(resource.Milli)
		list[name] = q
	}
}

func setDefault[T any](p **T, v T) {
	if *p == nil {
		*p = &v
	}
}

func setEmpty[T ~string](p *T, v T) {
	if *p == "" {
		*p = v
	}
}

// sameIP lets podIP and podIPs be compared whatever way an address was spelled.
func sameIP(a, b string) bool {
	x, errA := netip.ParseAddr(a)
	y, errB := netip.ParseAddr(b)
	return a == b || errA == nil && errB == nil && x.Unmap() == y.Unmap()
}
