package local

import (
	"context"
	"errors"
	"log/slog"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// poweredOff is how the agent marks a pod that a power-off stopped: reason and message, today's and those of Kubernetes
// 1.21, which can be asked for (N-5.27, N-5.37).
var poweredOff = map[string]string{
	"Terminated": "Pod was terminated in response to imminent node shutdown.",
	"Shutdown":   "Node is shutting, evicting pods",
}

// Resume makes anew the pods of a node that an orderly power-off stopped: the old object goes, one of the same name
// and spec comes, under a new uid, in one transaction, so that no power cut can lose a pod in between. Nobody else
// would bring them back: pods with a controller owner are their owner's business, static pods their file's, and a
// pod with restartPolicy Never has had its one run. It says how many there were.
func (c *Client) Resume(node string) (n int, err error) {
	err = c.store.Update(func(tx *storage.Tx) error {
		n = 0
		pods, err := podsOf(tx, node)
		if err != nil {
			return err
		}
		for _, old := range pods {
			if !resumable(old) {
				continue
			}
			if _, err := tx.Delete(api.Pods, old.Namespace, old.Name); err != nil {
				return err
			}
			if err := tx.Put(api.Pods, again(old, c.now())); err != nil {
				return err
			}
			n++
		}
		return nil
	})
	if err != nil {
		return 0, status(err, "resume the pods of node %q", node)
	}
	if n > 0 {
		slog.Info("pods that the last power-off stopped are started again", "pods", n)
	}
	return n, nil
}

func resumable(p *corev1.Pod) bool {
	message, ok := poweredOff[p.Status.Reason]
	return p.Status.Phase == corev1.PodFailed && ok && p.Status.Message == message &&
		p.Spec.RestartPolicy != corev1.RestartPolicyNever && p.DeletionTimestamp == nil &&
		!api.IsMirror(p) && metav1.GetControllerOf(p) == nil
}

// again is a pod as it was first made. It stays on its node, as it does after a power cut.
func again(old *corev1.Pod, now metav1.Time) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: *old.ObjectMeta.DeepCopy(), Spec: *old.Spec.DeepCopy()}
	p.Spec.EphemeralContainers = nil // they came later, to look at what is no more
	prepare(api.Pods, p, now)
	p.ResourceVersion = ""
	p.Status.QOSClass = old.Status.QOSClass
	for _, cond := range old.Status.Conditions {
		if cond.Type == corev1.PodScheduled {
			p.Status.Conditions = append(p.Status.Conditions, cond)
		}
	}
	return p
}

// Restore puts a pod back that runs and that the store has lost, under its own uid. It is false when there is a newer pod
// of that name; an older one gives way. Owners that were lost with it take nobody along: it is nobody's then.
func (c *Client) Restore(_ context.Context, pod *corev1.Pod) (taken bool, err error) {
	err = c.store.Update(func(tx *storage.Tx) error {
		taken = false
		o, err := tx.Get(api.Pods, pod.Namespace, pod.Name)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return err
		}
		if have, ok := o.(*corev1.Pod); err == nil && ok {
			if pod.CreationTimestamp.Before(&have.CreationTimestamp) {
				return nil
			}
			if _, err := tx.Delete(api.Pods, pod.Namespace, pod.Name); err != nil {
				return err
			}
		}
		again := pod.DeepCopy()
		again.ResourceVersion = ""
		again.OwnerReferences = slices.DeleteFunc(again.OwnerReferences,
			func(r metav1.OwnerReference) bool { return c.collector.lost(tx, again, r) })
		taken = true
		return tx.Put(api.Pods, again)
	})
	if err != nil {
		return false, status(err, "restore pod %q", pod.Name)
	}
	return taken, nil
}
