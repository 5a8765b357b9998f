package local

import (
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/storage"
)

// buryFormer ends the pods that the agent of a former Node of this name had taken up: what they ran stood on a machine
// that may not be this one (N-1.35). A pod that no agent had touched has lost nothing and stays bound.
func (c *Client) buryFormer(tx *storage.Tx, n *corev1.Node) error {
	pods, err := list(tx, api.Pods, "")
	if err != nil {
		return err
	}
	now := int64(0)
	for _, o := range pods {
		p := o.(*corev1.Pod)
		if p.Spec.NodeName != n.Name || p.Status.StartTime == nil {
			continue
		}
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			p.Status.Phase = corev1.PodFailed
			p.Status.Conditions = setCondition(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
				Status: corev1.ConditionTrue, Reason: "DeletionByPodGC", Message: "PodGC: node no longer exists"}, c.now())
		}
		if err := put(tx, api.Pods, p, false); err != nil {
			return err
		}
		if err := c.markOrDrop(tx, api.Pods, p, &now); err != nil {
			return err
		}
		if err := c.leaveNamespace(tx, api.Pods, p); err != nil {
			return err
		}
	}
	return nil
}

// dropLease removes a deleted node's Lease with it, if it is its own (N-3.50).
func (c *Client) dropLease(tx *storage.Tx, n *corev1.Node) error {
	l, err := tx.Get(api.Leases, corev1.NamespaceNodeLease, n.Name)
	if err != nil {
		return nil // there is none, or it cannot be read: the collector looks again
	}
	for _, o := range l.GetOwnerReferences() {
		if o.UID == n.UID {
			return c.markOrDrop(tx, api.Leases, l, nil)
		}
	}
	return nil
}
