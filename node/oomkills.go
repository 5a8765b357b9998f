package node

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/node/stats"
)

// survivors remembers by container what the kernel has killed in it for want of memory, as of the last pass, and how much of
// that has been told.
type survivors map[string]struct{ seen, told int64 }

// survival is a container that has outlived processes of its own.
type survival struct {
	pod, container string // UID and name
	kills          int64
}

// look takes a pass. A container that runs on one pass later has outlived what was killed: one that has died of it is told of
// by its own end. The first pass of all tells nothing, as a brain before this one may have.
func (s survivors) look(pass stats.Pass) (survivors, []survival) {
	next, out := survivors{}, []survival(nil)
	for _, p := range pass.Pods {
		for _, c := range p.Containers {
			k, known := s[c.ID]
			switch {
			case s == nil:
				k.told = c.OOMKills
			case known && k.seen > k.told:
				out = append(out, survival{p.UID, c.Name, k.seen - k.told})
				k.told = k.seen
			}
			k.seen = c.OOMKills
			next[c.ID] = k
		}
	}
	return next, out
}

// tellSurvivals has the pods tell what a kubelet does not: that a part of them is gone, and why.
func (u usage) tellSurvivals(list []survival) {
	for _, s := range list {
		w := u.a.roster.of(types.UID(s.pod))
		if w == nil {
			continue
		}
		pod := w.current()
		message := fmt.Sprintf("Processes that the kernel killed for want of memory while the container goes on: %d", s.kills)
		if c := api.ContainerNamed(pod, s.container); c != nil {
			if limit, ok := c.Resources.Limits[corev1.ResourceMemory]; ok {
				message += fmt.Sprintf(" (its limit is %s)", limit.String())
			}
		}
		u.a.containerEvent(pod, s.container, corev1.EventTypeWarning, "ProcessOOMKilled", message)
	}
}

// oomMetrics is cAdvisor's counter, by the kernel's own count.
func (u usage) oomMetrics(t *stats.Text) {
	const name = "container_oom_events_total"
	t.Head(name, "counter", "Count of out of memory events observed for the container")
	for _, p := range u.lastPass().Pods {
		for _, c := range p.Containers {
			t.Line(name, float64(c.OOMKills), "container", c.Name, "namespace", p.Namespace, "pod", p.Name)
		}
	}
}
