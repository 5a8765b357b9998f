package lease

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Execute says what becomes of a node's two NoExecute health taints (N-3.16).
type Execute string

// The choices. The taints exclude each other.
const (
	ExecuteKeep        Execute = ""     // leave them as they are
	ExecuteNone        Execute = "none" // remove both
	ExecuteNotReady    Execute = corev1.TaintNodeNotReady
	ExecuteUnreachable Execute = corev1.TaintNodeUnreachable
)

// byCondition is N-3.14's table: which condition at which status stands for which NoSchedule taint.
var byCondition = []struct {
	condition corev1.NodeConditionType
	status    corev1.ConditionStatus
	taint     string
}{
	{corev1.NodeReady, corev1.ConditionFalse, corev1.TaintNodeNotReady},
	{corev1.NodeReady, corev1.ConditionUnknown, corev1.TaintNodeUnreachable},
	{corev1.NodeMemoryPressure, corev1.ConditionTrue, corev1.TaintNodeMemoryPressure},
	{corev1.NodeDiskPressure, corev1.ConditionTrue, corev1.TaintNodeDiskPressure},
	{corev1.NodePIDPressure, corev1.ConditionTrue, corev1.TaintNodePIDPressure},
	{corev1.NodeNetworkUnavailable, corev1.ConditionTrue, corev1.TaintNodeNetworkUnavailable},
}

// noSchedule says for each taint key of N-3.14 whether the node should have it with NoSchedule.
func noSchedule(node *corev1.Node) map[string]bool {
	want := map[string]bool{corev1.TaintNodeUnschedulable: node.Spec.Unschedulable}
	for _, row := range byCondition {
		c := condition(node, row.condition)
		want[row.taint] = want[row.taint] || (c != nil && c.Status == row.status)
	}
	if condition(node, corev1.NodeReady) == nil {
		// Admission put it there until the node is seen Ready (N-1.6); nobody has said anything yet.
		want[corev1.TaintNodeNotReady] = slices.ContainsFunc(node.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == corev1.TaintNodeNotReady && t.Effect == corev1.TaintEffectNoSchedule
		})
	}
	return want
}

// taints is what the node's taints should be: foreign keys and effects stay as and where they are (N-3.15).
func taints(node *corev1.Node, execute Execute, now time.Time) []corev1.Taint {
	missing := noSchedule(node)
	hasExecute := false
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if want, managed := missing[t.Key]; managed && t.Effect == corev1.TaintEffectNoSchedule {
			if !want {
				continue
			}
			missing[t.Key] = false
		}
		if healthTaint(&t) && execute != ExecuteKeep {
			if t.Key != string(execute) {
				continue
			}
			hasExecute = true
		}
		out = append(out, t)
	}
	added := metav1.NewTime(now) // N-3.18
	for _, key := range sortedKeys(missing) {
		if missing[key] {
			out = append(out, corev1.Taint{Key: key, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added})
		}
	}
	if (execute == ExecuteNotReady || execute == ExecuteUnreachable) && !hasExecute {
		out = append(out, corev1.Taint{Key: string(execute), Effect: corev1.TaintEffectNoExecute, TimeAdded: &added})
	}
	return out
}

// healthTaint: one of the two that the health monitor owns.
func healthTaint(t *corev1.Taint) bool {
	return t.Effect == corev1.TaintEffectNoExecute && (t.Key == corev1.TaintNodeNotReady || t.Key == corev1.TaintNodeUnreachable)
}

// executing is the NoExecute health taint a node has now, ExecuteNone if it has none.
func executing(node *corev1.Node) Execute {
	for i := range node.Spec.Taints {
		if healthTaint(&node.Spec.Taints[i]) {
			return Execute(node.Spec.Taints[i].Key)
		}
	}
	return ExecuteNone
}

// due is the NoExecute taint a Ready condition calls for; ExecuteKeep when there is no condition to go by.
func due(ready *corev1.NodeCondition) Execute {
	switch {
	case ready == nil:
		return ExecuteKeep
	case ready.Status == corev1.ConditionTrue:
		return ExecuteNone
	case ready.Status == corev1.ConditionFalse:
		return ExecuteNotReady
	}
	return ExecuteUnreachable
}

// betaLabels: old names that follow the stable ones (N-3.20).
var betaLabels = map[string]string{
	corev1.LabelOSStable:   "beta.kubernetes.io/os",
	corev1.LabelArchStable: "beta.kubernetes.io/arch",
}

// Apply makes of node what the change asks for, given the node's conditions as they are now: taints and labels, not
// status. It says whether anything changed. It may be called again on a newer reading of the same node.
func (c *Change) Apply(node *corev1.Node, now time.Time) bool {
	changed, execute := false, c.Execute
	if execute == ExecuteNotReady || execute == ExecuteUnreachable {
		execute = due(condition(node, corev1.NodeReady)) // it may have been heard meanwhile
	}
	if next := taints(node, execute, now); !slices.EqualFunc(next, node.Spec.Taints, sameTaint) {
		node.Spec.Taints, changed = next, true
	}
	for stable, beta := range betaLabels {
		if v, ok := node.Labels[stable]; ok && node.Labels[beta] != v {
			node.Labels[beta], changed = v, true
		}
	}
	return changed
}

func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}
