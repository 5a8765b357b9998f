package node

import (
	"fmt"
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// grants are the resources of the board that each pod has been granted.
type grants struct {
	mu   sync.Mutex
	held map[types.UID]corev1.ResourceList
}

// grant asks whether the board has room for what a pod asks for beside what the others have been granted, and if so
// holds it for the pod.
func (g *grants) grant(pod *corev1.Pod, allocatable corev1.ResourceList) (reason, message string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	want := api.Requests(pod)
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		need, have := figure(want, name), figure(allocatable, name)
		if need > have {
			return corev1.PodReasonInfeasible, fmt.Sprintf("Node didn't have enough capacity: %s, requested: %d, capacity: %d", name, need, have)
		}
		used := int64(0)
		for uid, list := range g.held {
			if uid != pod.UID {
				used += figure(list, name)
			}
		}
		if used+need > have {
			return corev1.PodReasonDeferred, fmt.Sprintf("Node didn't have enough resource: %s, requested: %d, used: %d, capacity: %d",
				name, need, used, have)
		}
	}
	g.held[pod.UID] = want
	return "", ""
}

// figure is an amount as Kubernetes tells it: thousandths of CPUs, bytes.
func figure(list corev1.ResourceList, name corev1.ResourceName) int64 {
	q := list[name]
	if name == corev1.ResourceCPU {
		return q.MilliValue()
	}
	return q.Value()
}

// hold remembers what a pod has been granted.
func (g *grants) hold(pod *corev1.Pod) {
	if terminal(pod.Status.Phase) {
		g.release(pod.UID)
		return
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.held[pod.UID] = api.Requests(pod)
}

func (g *grants) release(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	delete(g.held, uid)
}

// holdNew is hold for every pod that is new here: after a restart none may be granted more before all are counted.
func (g *grants) holdNew(pods []*corev1.Pod) {
	known := g.all()
	for _, p := range pods {
		if _, ok := known[p.UID]; !ok {
			g.hold(api.WithResources(p, api.Granted(p)))
		}
	}
}

func (g *grants) all() map[types.UID]corev1.ResourceList {
	g.mu.Lock()
	defer g.mu.Unlock()
	return maps.Clone(g.held)
}
