package controller

import (
	"context"
	"errors"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/policy"
	"ledge/scheduler"
)

// staleDisruption is how long a pod may be marked as about to be deleted without being that.
const staleDisruption = 2 * time.Minute

// stale says when a mark of a disruption that has not come is to be taken back; !ok: there is none. What an agent has marked it
// ends itself, in its own time.
func stale(pod *corev1.Pod, now time.Time) (in time.Duration, ok bool) {
	if pod.DeletionTimestamp != nil || scheduler.Terminal(pod) {
		return 0, false
	}
	for i := range pod.Status.Conditions {
		if c := &pod.Status.Conditions[i]; c.Type == corev1.DisruptionTarget {
			marked := c.Status == corev1.ConditionTrue && c.Reason != corev1.PodReasonTerminationByKubelet
			return max(staleDisruption-now.Sub(c.LastTransitionTime.Time), 0), marked
		}
	}
	return 0, false
}

// unmark takes stale marks back, and tells when it should look again.
func (b *Budgets) unmark(ctx context.Context, pods []*corev1.Pod, now time.Time) (time.Duration, error) {
	wake := idle
	var errs []error
	for _, p := range pods {
		in, marked := stale(p, now)
		if marked && in > 0 {
			wake = min(wake, in)
		}
		if !marked || in > 0 {
			continue
		}
		_, _, err := amend(ctx, b.w.Client, api.Pods, p, "status", func(p *corev1.Pod) bool {
			in, marked := stale(p, now)
			return marked && in == 0 && setCondition(p, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionFalse}, now)
		})
		errs = append(errs, err)
	}
	return wake, errors.Join(errs...)
}

// tellDoubles says of pods that more than one budget is about them, once: evictions of these fail.
func (b *Budgets) tellDoubles(budgets []*policyv1.PodDisruptionBudget, pods map[string][]*corev1.Pod) {
	in := map[string][]*policyv1.PodDisruptionBudget{}
	for _, one := range budgets {
		in[one.Namespace] = append(in[one.Namespace], one)
	}
	doubles := map[types.UID]string{}
	for namespace, budgets := range in {
		if len(budgets) < 2 {
			continue
		}
		for _, p := range pods[namespace] {
			mine := policy.BudgetsOf(p, budgets)
			if len(mine) < 2 {
				continue
			}
			first := mine[0].Name
			for _, other := range mine {
				first = min(first, other.Name)
			}
			doubles[p.UID] = first
			if b.doubles[p.UID] != first {
				b.events.Event(p, corev1.EventTypeWarning, "MultiplePodDisruptionBudgets",
					fmt.Sprintf("Pod %q/%q matches multiple PodDisruptionBudgets.  Chose %q arbitrarily.", p.Namespace, p.Name, first))
			}
		}
	}
	b.doubles = doubles
}
