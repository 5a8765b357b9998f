package lease

import (
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// Why a condition is Unknown (N-3.8). Only the control plane writes these.
const (
	reasonNever   = "NodeStatusNeverUpdated"
	reasonStopped = "NodeStatusUnknown"

	messageNever   = "Kubelet never posted node status."
	messageStopped = "Kubelet stopped posting node status."
)

// Health is what the observer remembers of one node. The zero value is a node it has never seen.
type Health struct {
	// Probe is when a sign of life was last seen, by the observer's clock.
	Probe     time.Time
	known     bool
	posted    bool        // the agent has posted a Ready condition
	heartbeat metav1.Time // of that condition
	renewed   *metav1.MicroTime
}

// Assess looks at one node (N-3.6 to N-3.8): what to remember of it, and whether it has been silent for longer than
// its grace while its Ready condition still says otherwise.
func Assess(h Health, node *corev1.Node, lease *coordinationv1.Lease, now time.Time, s Settings) (Health, bool) {
	ready := api.NodeCondition(node, corev1.NodeReady)
	// What this side wrote itself is no sign of life. A stopped heartbeat keeps its time, so only the condition
	// that was made from nothing has to be told apart.
	posted := ready != nil && ready.Reason != reasonNever
	var heartbeat metav1.Time
	if posted {
		heartbeat = ready.LastHeartbeatTime
	}
	alive := !h.known || posted != h.posted || !heartbeat.Equal(&h.heartbeat)
	h.known, h.posted, h.heartbeat = true, posted, heartbeat
	if lease != nil && lease.Spec.RenewTime != nil && !lease.Spec.RenewTime.Equal(h.renewed) {
		h.renewed, alive = lease.Spec.RenewTime, true
	}
	if alive {
		h.Probe = now
	}
	grace := s.Grace
	if ready == nil {
		grace = s.StartupGrace
	}
	return h, now.Sub(h.Probe) > grace && (ready == nil || ready.Status != corev1.ConditionUnknown)
}

// Silence turns the node's conditions Unknown, if they still are what the change was decided on: node may be a newer
// reading, and its agent may have been heard meanwhile. It says whether it did.
func (c *Change) Silence(node *corev1.Node, now time.Time) bool {
	ready := api.NodeCondition(node, corev1.NodeReady)
	if !c.Silent || (ready == nil) != (c.judged == nil) {
		return false
	}
	if ready != nil && (ready.Status != c.judged.Status || !ready.LastHeartbeatTime.Equal(&c.judged.LastHeartbeatTime)) {
		return false
	}
	node.Status.Conditions = unknown(node, now)
	return true
}

// unknown is the node's conditions with all that its agent vouches for turned Unknown (N-3.8). NetworkUnavailable
// belongs to the network side.
func unknown(node *corev1.Node, now time.Time) []corev1.NodeCondition {
	out := slices.Clone(node.Status.Conditions)
	for _, t := range []corev1.NodeConditionType{corev1.NodeReady, corev1.NodeMemoryPressure, corev1.NodeDiskPressure,
		corev1.NodePIDPressure} {
		i := slices.IndexFunc(out, func(c corev1.NodeCondition) bool { return c.Type == t })
		switch {
		case i < 0:
			out = append(out, corev1.NodeCondition{Type: t, Status: corev1.ConditionUnknown, Reason: reasonNever, Message: messageNever,
				LastHeartbeatTime: node.CreationTimestamp, LastTransitionTime: metav1.NewTime(now)})
		case out[i].Status != corev1.ConditionUnknown:
			out[i].Status, out[i].Reason, out[i].Message = corev1.ConditionUnknown, reasonStopped, messageStopped
			out[i].LastTransitionTime = metav1.NewTime(now)
		}
	}
	return out
}
