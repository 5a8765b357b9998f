package node

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/node/evict"
	"ledge/node/podstate"
	"ledge/node/pressure"
)

// nodeReadWithin bounds the look at the Node's labels and taints: a pod must not wait for an API that does not answer.
const nodeReadWithin = 2 * time.Second

// admission decides whether this board takes a pod.
type admission struct{ a *Agent }

// admission is the node's own word on a pod (N-7.4): one that has not begun yet may be turned away, and is never
// tried again (N-7.7). Pods are asked for oldest first; later means that it is not this pod's turn yet, or that other
// pods have to end first.
func (w *worker) admission(ctx context.Context, in podstate.Input) (why *podstate.Stop, later bool) {
	a, pod := w.a, in.Pod
	decided, turn := a.roster.turn(w)
	begun := pod.Status.StartTime != nil || len(in.Seen.Containers) > 0
	switch {
	case decided:
		return nil, false
	case begun || in.Gone || in.Stop != nil || pod.DeletionTimestamp != nil:
		a.roster.decide(w, true)
		return nil, false
	case !turn:
		return nil, true
	}
	refused := a.admission.admitShort(pod)
	if refused == nil {
		refused = a.admission.admit(pod)
	}
	if a.closed() != "" { // N-5.30
		refused = &refusal{"NodeShutdown", "Pod was rejected as the node is shutting down."}
	}
	if refused == nil {
		if errs := api.Unsupported(pod); len(errs) > 0 { // another control plane may have let it through
			refused = &refusal{"PodFeatureUnsupported", errs.ToAggregate().Error()}
		}
	}
	if refused == nil {
		r := a.admission.room(ctx, w)
		var lack map[corev1.ResourceName]int64
		if refused, lack = r.refuses(pod); refused != nil {
			if victims := r.victims(pod, lack); len(victims) > 0 {
				a.admission.preempt(victims)
				return nil, true
			}
		}
	}
	if ctx.Err() != nil {
		return nil, true
	}
	a.roster.decide(w, refused == nil)
	if refused == nil {
		return nil, false
	}
	return a.admission.turnAway(pod, refused), false
}

// admitShort turns away what would make it worse (N-6.35).
func (d admission) admitShort(pod *corev1.Pod) *refusal {
	if d.a.roster.critical(pod) {
		return nil
	}
	if why := pressure.Admit(pod, d.a.evictor.Short()); why != "" {
		return &refusal{evict.Reason, why}
	}
	return nil
}

// room is what there is beside w.
func (d admission) room(ctx context.Context, w *worker) room {
	ctx, cancel := context.WithTimeout(ctx, nodeReadWithin)
	defer cancel()
	var r room
	if n, err := api.Get[*corev1.Node](ctx, d.a.cfg.Client, api.Nodes, "", d.a.cfg.Name); err == nil {
		r.node = n
	}
	r.allocatable, r.held, r.statics, r.pods = d.a.outlook.last().allocatable, d.a.grants.all(), d.a.roster.fromFiles(), d.a.roster.beside(w)
	r.plugins, r.pluginsYoung = d.a.cfg.Plugins.Counts(), d.a.cfg.Plugins.Young()
	r.devices, r.young = d.a.cfg.Devices.Counts(), d.a.cfg.Devices.Young()
	return r
}

// preempt puts an end to pods in favour of a critical one, which is asked for again when they have gone (N-7.6).
func (d admission) preempt(victims []*corev1.Pod) {
	const words = "Preempted in order to admit critical pod"
	for _, p := range victims {
		if d.a.roster.claim(p.UID, podstate.Stop{Reason: "Preempting", Message: words, Disruption: corev1.PodReasonTerminationByKubelet,
			Says: "Pod was preempted by Kubelet to accommodate a critical pod."}) {
			d.a.event(p, corev1.EventTypeWarning, "Preempting", words)
		}
	}
}
