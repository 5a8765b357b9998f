package controller

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/api"
	"ledge/api/policy"
)

const (
	// evictionForgotten is how long an evicted pod may still be seen without a mark of it before it counts again.
	evictionForgotten = 2 * time.Minute
	budgetRetry       = 5 * time.Second
)

// Budgets keeps the status of disruption budgets: how many of their pods may be evicted now. Evictions (api/local) spend
// what it says. It also takes back marks of disruptions that have not come.
type Budgets struct {
	w        *World
	budgets  Of[*policyv1.PodDisruptionBudget]
	pods     Of[*corev1.Pod]
	scalable map[*api.Kind]*api.View[api.Object] // what pods may belong to
	sees     []follow                            // all of it
	events   Recorder
	changed  <-chan struct{}
	told     map[types.UID]string // the last event about each
	doubles  map[types.UID]string // pods that several budgets match -> the budget that the event named
	grumble  grumble
}

// NewBudgets prepares the loop; call it before the World runs.
func NewBudgets(w *World, events Recorder) *Budgets {
	b := &Budgets{w: w, budgets: w.budgets(), pods: w.pods(), scalable: map[*api.Kind]*api.View[api.Object]{}, events: events,
		told: map[types.UID]string{}}
	b.sees = []follow{b.budgets, b.pods}
	for _, k := range w.kinds.Kept {
		if k.HasScale() {
			b.scalable[k] = w.view(k, api.Selection{})
			b.sees = append(b.sees, b.scalable[k])
		}
	}
	b.changed = listen(b.sees...)
	return b
}

// Run counts until ctx ends.
func (b *Budgets) Run(ctx context.Context) error { return loop(ctx, b.changed, b.pass, b.sees...) }

func (b *Budgets) pass(ctx context.Context, now time.Time) time.Duration {
	budgets := b.budgets.List()
	present := map[types.UID]bool{}
	for _, one := range budgets {
		present[one.UID] = true
	}
	for uid := range b.told {
		if !present[uid] {
			delete(b.told, uid)
		}
	}
	all := b.pods.List()
	wake, failed := b.unmark(ctx, all, now)
	if failed != nil {
		wake = budgetRetry
	}
	pods := map[string][]*corev1.Pod{}
	if len(budgets) > 0 {
		for _, p := range all {
			pods[p.Namespace] = append(pods[p.Namespace], p)
		}
	}
	b.tellDoubles(budgets, pods)
	for _, one := range budgets {
		again, err := b.settle(ctx, one, pods[one.Namespace], now)
		if err != nil {
			failed, again = errors.Join(failed, err), budgetRetry
		}
		wake = min(wake, again)
	}
	b.grumble.about(ctx, "cannot write which pods may be evicted", failed)
	return wake
}

// settle writes what one budget comes to, and tells when it should be looked at again.
func (b *Budgets) settle(ctx context.Context, one *policyv1.PodDisruptionBudget, pods []*corev1.Pod, now time.Time) (time.Duration, error) {
	selector := policy.BudgetSelector(one)
	pods = slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool { return !selector.Matches(labels.Set(p.Labels)) })
	var v verdict
	_, _, err := amend(ctx, b.w.Client, policy.PodDisruptionBudgets, one, "status", func(fresh *policyv1.PodDisruptionBudget) bool {
		v = judge(fresh, pods, b.scale, now)
		if apiequality.Semantic.DeepEqual(fresh.Status, v.status) {
			return false
		}
		fresh.Status = v.status
		return true
	})
	if err != nil {
		return 0, err
	}
	for _, p := range v.stayed {
		b.events.Event(p, corev1.EventTypeWarning, "NotDeleted",
			fmt.Sprintf("Pod was expected by PDB %s to be deleted but it wasn't", api.Key(one)))
	}
	if b.told[one.UID] != v.message {
		b.told[one.UID] = v.message
		if v.message != "" {
			b.events.Event(one, v.eventType, v.reason, v.message)
		}
	}
	return v.again, nil
}

// scaled is what wants a pod, and how many it wants in all; ok is false where its controller is of no kind that says so, or gone. Two
// ReplicaSets of a Deployment that rolls out are one: it is the Deployment that wants pods.
type scaled func(*corev1.Pod) (by types.UID, n int32, ok bool)

// scale is a scaled.
func (b *Budgets) scale(p *corev1.Pod) (by types.UID, n int32, ok bool) {
	var from api.Object = p
	for range ownersAbove {
		kind, owner := b.controllerOf(from)
		if owner == nil {
			break
		}
		from, by, n, ok = owner, owner.GetUID(), kind.Replicas(owner), true
	}
	return by, n, ok
}

// ownersAbove is how far up owners are asked for their scale: owners may own each other in a circle.
const ownersAbove = 4

func (b *Budgets) controllerOf(o api.Object) (*api.Kind, api.Object) {
	of := metav1.GetControllerOf(o)
	if of == nil {
		return nil, nil
	}
	kind := b.w.kinds.ByGVK(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
	if kind == nil || !kind.HasScale() {
		return nil, nil
	}
	owner, ok := b.scalable[kind].Get(o.GetNamespace(), of.Name)
	if !ok || owner.GetUID() != of.UID {
		return nil, nil
	}
	return kind, owner
}

// verdict is what a budget comes to.
type verdict struct {
	status                     policyv1.PodDisruptionBudgetStatus
	eventType, reason, message string        // what is to be told about it, once
	stayed                     []*corev1.Pod // evicted, and not deleted
	again                      time.Duration // when to look again
}

// judge counts the pods of a budget, by Kubernetes' rules.
func judge(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, scale scaled, now time.Time) verdict {
	v := verdict{again: idle, status: *b.Status.DeepCopy()}
	s := &v.status
	if len(pods) == 0 {
		v.eventType, v.reason, v.message = corev1.EventTypeNormal, "NoPods", "No matching pods found"
	}
	expected, desired, unmanaged, err := expect(b, pods, scale)
	if err != nil {
		v.eventType, v.reason = corev1.EventTypeWarning, "CalculateExpectedPodCountFailed"
		v.message = "Failed to calculate the number of expected pods: " + err.Error()
		s.DisruptionsAllowed = 0
		apimeta.SetStatusCondition(&s.Conditions, metav1.Condition{Type: policyv1.DisruptionAllowedCondition, Status: metav1.ConditionFalse,
			Reason: policyv1.SyncFailedReason, Message: err.Error(), ObservedGeneration: s.ObservedGeneration,
			LastTransitionTime: metav1.NewTime(now)})
		return v
	}
	if unmanaged {
		v.eventType, v.reason = corev1.EventTypeWarning, "UnmanagedPods"
		v.message = fmt.Sprintf("Pods selected by this PodDisruptionBudget (selector: %s) were found to be unmanaged. As a result, the status of the PDB "+
			"cannot be calculated correctly, which may result in undefined behavior. To account for these pods please set \".spec.minAvailable\" "+
			"field of the PDB to an integer value.", metav1.FormatLabelSelector(b.Spec.Selector))
	}
	v.look(pods, now)
	s.ExpectedPods, s.DesiredHealthy = expected, desired
	s.DisruptionsAllowed = 0
	if expected > 0 { // a budget that has no pods yet must not let the first ones go before it has counted them
		s.DisruptionsAllowed = max(s.CurrentHealthy-desired, 0)
	}
	s.ObservedGeneration = b.Generation
	policy.SetDisruptionAllowed(s, now)
	return v
}

// look counts who is healthy, and who is on the way out without showing it yet.
func (v *verdict) look(pods []*corev1.Pod, now time.Time) {
	s := &v.status
	evicted := s.DisruptedPods
	s.CurrentHealthy, s.DisruptedPods = 0, nil
	for _, p := range pods {
		if p.DeletionTimestamp != nil {
			continue
		}
		at, leaving := evicted[p.Name]
		if left := at.Add(evictionForgotten).Sub(now); leaving && left > 0 {
			if s.DisruptedPods == nil {
				s.DisruptedPods = map[string]metav1.Time{}
			}
			s.DisruptedPods[p.Name] = at
			v.again = min(v.again, left)
			continue
		}
		if leaving {
			v.stayed = append(v.stayed, p)
		}
		if api.PodReady(p) {
			s.CurrentHealthy++
		}
	}
}

// expect is how many pods there should be, and how many of them ready.
func expect(b *policyv1.PodDisruptionBudget, pods []*corev1.Pod, scale scaled) (expected, desired int32, unmanaged bool, err error) {
	least, most := b.Spec.MinAvailable, b.Spec.MaxUnavailable
	if !policy.ByScale(b) {
		if least == nil {
			return 0, 0, false, nil
		}
		return int32(len(pods)), least.IntVal, false, nil
	}
	seen := map[types.UID]bool{}
	for _, p := range pods {
		if metav1.GetControllerOf(p) == nil {
			unmanaged = true
			continue
		}
		by, wanted, ok := scale(p)
		if !ok {
			return 0, 0, false, fmt.Errorf("found no controllers for pod %q", p.Name)
		}
		if !seen[by] {
			expected += wanted
		}
		seen[by] = true
	}
	amount := least
	if most != nil {
		amount = most
	}
	n, err := intstr.GetScaledValueFromIntOrPercent(amount, int(expected), true)
	if err != nil {
		return 0, 0, false, err
	}
	if most != nil {
		n = max(int(expected)-n, 0)
	}
	return expected, int32(n), unmanaged, nil
}
