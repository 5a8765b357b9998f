package local

import (
	"cmp"
	"fmt"
	"net/http"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/policy"
	"ledge/storage"
)

// maxDisrupted bounds the evictions of one budget that its controller has not seen yet.
const maxDisrupted = 2000

// spend takes the eviction of a pod off the budget that is about it, or says why it may not go now (N-11.3). Budget and
// pod are written in one transaction: an eviction that fails has cost nothing.
func spend(tx *storage.Tx, pod *corev1.Pod, now metav1.Time) error {
	switch pod.Status.Phase {
	case corev1.PodSucceeded, corev1.PodFailed, corev1.PodPending:
		return nil // N-11.2: its end disrupts nobody
	}
	if pod.DeletionTimestamp != nil {
		return nil
	}
	objs, err := list(tx, policy.PodDisruptionBudgets, pod.Namespace)
	if err != nil {
		return err
	}
	all := make([]*policyv1.PodDisruptionBudget, len(objs))
	for i, o := range objs {
		all[i] = o.(*policyv1.PodDisruptionBudget)
	}
	mine := policy.BudgetsOf(pod, all)
	switch {
	case len(mine) == 0:
		return nil
	case len(mine) > 1:
		return &apierrors.StatusError{ErrStatus: metav1.Status{Status: metav1.StatusFailure, Code: http.StatusInternalServerError,
			Reason:  metav1.StatusReasonInternalError,
			Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."}}
	}
	b := mine[0]
	if !api.PodReady(pod) && unreadyMayGo(b) {
		return nil
	}
	if err := mayDisrupt(b); err != nil {
		return err
	}
	if b.Status.DisruptionsAllowed--; b.Status.DisruptionsAllowed == 0 {
		policy.SetDisruptionAllowed(&b.Status, now.Time)
	}
	if b.Status.DisruptedPods == nil {
		b.Status.DisruptedPods = map[string]metav1.Time{}
	}
	b.Status.DisruptedPods[pod.Name] = now
	return put(tx, policy.PodDisruptionBudgets, b, false)
}

// unreadyMayGo says whether a pod may go that is not ready. It does not count as available, so its end takes nothing from the budget. But
// a budget can ask to keep it where pods are missing, since it may still become ready.
func unreadyMayGo(b *policyv1.PodDisruptionBudget) bool {
	if p := b.Spec.UnhealthyPodEvictionPolicy; p != nil && *p == policyv1.AlwaysAllow {
		return true
	}
	return b.Status.DesiredHealthy > 0 && b.Status.CurrentHealthy >= b.Status.DesiredHealthy
}

func mayDisrupt(b *policyv1.PodDisruptionBudget) error {
	s := &b.Status
	switch {
	case s.ObservedGeneration < b.Generation:
		return notNow(10, fmt.Sprintf("The disruption budget %s is still being processed by the server.", b.Name))
	case len(s.DisruptedPods) > maxDisrupted:
		return forbidden(policy.PodDisruptionBudgets, b.Name, "DisruptedPods map too big - too many evictions not confirmed by PDB controller")
	case s.DisruptionsAllowed > 0:
		return nil
	}
	why := fmt.Sprintf("The disruption budget %s does not allow evicting pods currently", b.Name)
	cond := cmp.Or(apimeta.FindStatusCondition(s.Conditions, policyv1.DisruptionAllowedCondition), &metav1.Condition{})
	told := cond.Status == metav1.ConditionFalse && cond.Message != ""
	switch {
	case told && cond.Reason == policyv1.SyncFailedReason:
		why += " because it failed sync: " + cond.Message
	case s.CurrentHealthy <= s.DesiredHealthy:
		why = fmt.Sprintf("The disruption budget %s needs %d healthy pods and has %d currently", b.Name, s.DesiredHealthy, s.CurrentHealthy)
	case told:
		why += fmt.Sprintf(" (%s): %s", cond.Reason, cond.Message)
	}
	return notNow(0, why)
}

// notNow is the refusal that drains wait for the end of (N-11.10).
func notNow(retryAfter int, why string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", retryAfter)
	err.ErrStatus.Details.Causes = append(err.ErrStatus.Details.Causes, metav1.StatusCause{Type: policyv1.DisruptionBudgetCause, Message: why})
	return err
}
