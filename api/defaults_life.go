package api

import (
	corev1 "k8s.io/api/core/v1"
)

// defaultLife fills in probes and lifecycle hooks (N-7.2).
func defaultLife(c *corev1.Container) {
	for _, p := range []*corev1.Probe{c.LivenessProbe, c.ReadinessProbe, c.StartupProbe} {
		if p == nil {
			continue
		}
		setZero(&p.TimeoutSeconds, 1)
		setZero(&p.PeriodSeconds, 10)
		setZero(&p.SuccessThreshold, 1)
		setZero(&p.FailureThreshold, 3)
		defaultHTTPGet(p.HTTPGet)
		if p.GRPC != nil {
			setDefault(&p.GRPC.Service, "")
		}
	}
	if c.Lifecycle == nil {
		return
	}
	for _, h := range []*corev1.LifecycleHandler{c.Lifecycle.PostStart, c.Lifecycle.PreStop} {
		if h != nil {
			defaultHTTPGet(h.HTTPGet)
		}
	}
}

func defaultHTTPGet(h *corev1.HTTPGetAction) {
	if h != nil {
		setEmpty(&h.Path, "/")
		setEmpty(&h.Scheme, corev1.URISchemeHTTP)
	}
}

func setZero(n *int32, v int32) {
	if *n == 0 {
		*n = v
	}
}
