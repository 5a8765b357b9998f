package local

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"

	"ledge/api"
	"ledge/api/scheduling"
	"ledge/storage"
)

// taintNotReady keeps pods off a node that nobody has seen ready yet (N-1.6).
func taintNotReady(n *corev1.Node) {
	taint := corev1.Taint{Key: corev1.TaintNodeNotReady, Effect: corev1.TaintEffectNoSchedule}
	for i := range n.Spec.Taints {
		if n.Spec.Taints[i].MatchTaint(&taint) {
			return
		}
	}
	n.Spec.Taints = append(n.Spec.Taints, taint)
}

// patience is for how many seconds pods wait for a node that went away.
type patience struct{ notReady, unreachable *int64 }

// add bounds how long a pod waits, unless it says so itself (N-3.29).
func (w patience) add(p *corev1.Pod) {
	for _, t := range []struct {
		key     string
		seconds *int64
	}{
		{corev1.TaintNodeNotReady, w.notReady},
		{corev1.TaintNodeUnreachable, w.unreachable},
	} {
		if !tolerates(p, t.key) {
			seconds := *t.seconds
			p.Spec.Tolerations = append(p.Spec.Tolerations, corev1.Toleration{Key: t.key, Operator: corev1.TolerationOpExists,
				Effect: corev1.TaintEffectNoExecute, TolerationSeconds: &seconds})
		}
	}
}

// nodeLocal marks a pod that belongs to its board as a daemon's would (N-10.25).
const nodeLocal = "ledge.dev/node-local"

// tolerateBoard gives such a pod the tolerations of a DaemonSet's: it runs on a cordoned board, and on one that is in
// trouble or not heard (N-10.24).
func tolerateBoard(p *corev1.Pod) {
	if p.Annotations[nodeLocal] != "true" {
		return
	}
	tolerate := func(effect corev1.TaintEffect, keys ...string) {
		for _, key := range keys {
			t := corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: effect}
			if !slices.ContainsFunc(p.Spec.Tolerations, func(o corev1.Toleration) bool { return o.MatchToleration(&t) }) {
				p.Spec.Tolerations = append(p.Spec.Tolerations, t)
			}
		}
	}
	tolerate(corev1.TaintEffectNoExecute, corev1.TaintNodeNotReady, corev1.TaintNodeUnreachable)
	tolerate(corev1.TaintEffectNoSchedule, corev1.TaintNodeDiskPressure, corev1.TaintNodeMemoryPressure,
		corev1.TaintNodePIDPressure, corev1.TaintNodeUnschedulable)
	if p.Spec.HostNetwork {
		tolerate(corev1.TaintEffectNoSchedule, corev1.TaintNodeNetworkUnavailable)
	}
}

func tolerates(p *corev1.Pod, key string) bool {
	for _, t := range p.Spec.Tolerations {
		if (t.Key == key || t.Key == "") && (t.Effect == corev1.TaintEffectNoExecute || t.Effect == "") {
			return true
		}
	}
	return false
}

// admitPriority turns the name of a class into its number, for good (N-10.17, N-10.18).
func admitPriority(tx *storage.Tx, p *corev1.Pod) error {
	class, err := classOf(tx, p)
	if err != nil {
		return err
	}
	value, policy := int32(0), corev1.PreemptLowerPriority
	if class != nil {
		p.Spec.PriorityClassName = class.Name
		value = class.Value
		if class.PreemptionPolicy != nil {
			policy = *class.PreemptionPolicy
		}
	}
	if given := p.Spec.Priority; given != nil && *given != value {
		return forbidden(api.Pods, p.Name, "the integer value of priority (%d) must not be provided in pod spec; "+
			"priority admission controller computed %d from the given PriorityClass name", *given, value)
	}
	if given := p.Spec.PreemptionPolicy; given != nil && *given != policy {
		return forbidden(api.Pods, p.Name, "the string value of PreemptionPolicy (%s) must not be provided in pod spec; "+
			"priority admission controller computed %s from the given PriorityClass name", *given, policy)
	}
	p.Spec.Priority, p.Spec.PreemptionPolicy = &value, &policy
	return nil
}

// classOf is the class a pod names, or the default one, or nil.
func classOf(tx *storage.Tx, p *corev1.Pod) (*schedulingv1.PriorityClass, error) {
	if name := p.Spec.PriorityClassName; name != "" {
		found, err := tx.Get(scheduling.PriorityClasses, "", name)
		if err != nil && !errors.Is(err, storage.ErrNotFound) {
			return nil, storeError(err, scheduling.PriorityClasses, "", name)
		}
		if err != nil {
			return nil, forbidden(api.Pods, p.Name, "no PriorityClass with name %s was found", name)
		}
		return found.(*schedulingv1.PriorityClass), nil
	}
	classes, err := list(tx, scheduling.PriorityClasses, "")
	if err != nil {
		return nil, err
	}
	var best *schedulingv1.PriorityClass
	for _, o := range classes {
		pc := o.(*schedulingv1.PriorityClass)
		if pc.GlobalDefault && (best == nil || pc.Value < best.Value) { // N-10.16: the smallest counts
			best = pc
		}
	}
	return best, nil
}

// keepSystemClasses: two classes always exist.
func keepSystemClasses(obj api.Object) error {
	if name := obj.GetName(); name == scheduling.SystemNodeCritical || name == scheduling.SystemClusterCritical {
		return forbidden(scheduling.PriorityClasses, name, "this is a system priority class and cannot be deleted")
	}
	return nil
}

// admitPriorityClass refuses a second global default (N-10.16).
func admitPriorityClass(_ *inTx, _ context.Context, tx *storage.Tx, a admission) error {
	pc := a.obj.(*schedulingv1.PriorityClass)
	if !pc.GlobalDefault {
		return nil
	}
	classes, err := list(tx, scheduling.PriorityClasses, "")
	if err != nil {
		return err
	}
	for _, o := range classes {
		if o.GetName() != pc.Name && o.(*schedulingv1.PriorityClass).GlobalDefault {
			return forbidden(scheduling.PriorityClasses, pc.Name, "PriorityClass %s is already marked as default. Only one default can exist",
				o.GetName())
		}
	}
	return nil
}

// list is everything of a kind in a namespace ("" means all).
func list(tx *storage.Tx, kind *api.Kind, namespace string) ([]api.Object, error) {
	objs, err := tx.List(kind, namespace)
	if err != nil {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	return objs, nil
}
