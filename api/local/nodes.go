package local

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/storage"
)

// The words of the collector of pods, which ends them too when no Node of that name comes back.
const (
	orphanReason  = "DeletionByPodGC"
	orphanMessage = "PodGC: node no longer exists"
)

// orphan marks the pods that the agent of a deleted Node had taken up: what they ran stood on a machine that the next Node
// of this name may not be. A pod that no agent had touched has lost nothing.
func orphan(tx *storage.Tx, n *corev1.Node, now metav1.Time) error {
	return eachPodOf(tx, n, func(p *corev1.Pod) error {
		if p.Status.StartTime == nil {
			return nil
		}
		p.Status.Conditions = setCondition(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
			Status: corev1.ConditionTrue, Reason: orphanReason, Message: orphanMessage}, now)
		return put(tx, api.Pods, p, false)
	})
}

// buryFormer ends the pods of a former Node of this name (N-1.35). Those that an agent has taken up before it had its Node
// are not: it can run pods while the API is away.
func (in *inTx) buryFormer(tx *storage.Tx, obj api.Object) error {
	n := obj.(*corev1.Node)
	now := int64(0)
	return eachPodOf(tx, n, func(p *corev1.Pod) error {
		if !slices.ContainsFunc(p.Status.Conditions, isOrphan) {
			return nil
		}
		if p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
			p.Status.Phase = corev1.PodFailed
		}
		if err := put(tx, api.Pods, p, false); err != nil {
			return err
		}
		if err := in.markOrDrop(tx, api.Pods, p, &now); err != nil {
			return err
		}
		return in.leaveNamespace(tx, api.Pods, p)
	})
}

func isOrphan(c corev1.PodCondition) bool {
	return c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == orphanReason
}

func eachPodOf(tx *storage.Tx, n *corev1.Node, do func(*corev1.Pod) error) error {
	pods, err := podsOf(tx, n.Name)
	for _, p := range pods {
		if err = do(p); err != nil {
			break
		}
	}
	return err
}

// podsOf are the pods that are bound to a node. Those of others are not decoded: each board that joins asks for its own.
func podsOf(tx *storage.Tx, node string) (pods []*corev1.Pod, err error) {
	sel := api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", node)}
	picker := sel.Picker(api.Pods)
	err = tx.Each(api.Pods, "", "", func(o *storage.Stored) error {
		if !picker.Picks(o.Key(), o.JSON()) {
			return nil
		}
		obj, err := o.Object()
		if p, ok := obj.(*corev1.Pod); err == nil && ok {
			pods = append(pods, p)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("list the pods of node %s: %w", node, err)
	}
	return pods, nil
}

// nodeDeleted takes with a Node what is its own.
func (in *inTx) nodeDeleted(tx *storage.Tx, obj api.Object) error {
	n := obj.(*corev1.Node)
	return errors.Join(in.dropLease(tx, n), orphan(tx, n, in.now()))
}

// dropLease removes a deleted node's Lease with it, if it is its own (N-3.50).
func (in *inTx) dropLease(tx *storage.Tx, n *corev1.Node) error {
	l, err := tx.Get(coordination.Leases, corev1.NamespaceNodeLease, n.Name)
	if err != nil {
		return nil // there is none, or it cannot be read: the collector looks again
	}
	for _, o := range l.GetOwnerReferences() {
		if o.UID == n.UID {
			return in.markOrDrop(tx, coordination.Leases, l, nil)
		}
	}
	return nil
}
