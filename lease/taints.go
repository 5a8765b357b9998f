package lease

import (
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
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

// noSchedule says whether the node should have a taint with NoSchedule; managed: that is for N-3.14 to say.
func noSchedule(node *corev1.Node, key string) (want, managed bool) {
	if key == corev1.TaintNodeUnschedulable {
		return node.Spec.Unschedulable, true
	}
	for i := range byCondition {
		if row := &byCondition[i]; row.taint == key {
			c := api.NodeCondition(node, row.condition)
			if c == nil && key == corev1.TaintNodeNotReady {
				// Admission put it there until the node is seen Ready (N-1.6); nobody has said anything yet.
				return hasNoSchedule(node.Spec.Taints, key), true
			}
			return c != nil && c.Status == row.status, true
		}
	}
	return false, false
}

func hasNoSchedule(taints []corev1.Taint, key string) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == key && t.Effect == corev1.TaintEffectNoSchedule })
}

// managedTaints are the keys of N-3.14, sorted.
var managedTaints = func() []string {
	out := []string{corev1.TaintNodeUnschedulable}
	for _, row := range byCondition {
		out = append(out, row.taint)
	}
	slices.Sort(out)
	return out
}()

// taints is what the node's taints should be: foreign keys and effects stay as and where they are (N-3.15).
func taints(node *corev1.Node, execute Execute, now time.Time) []corev1.Taint {
	hasExecute := false
	var out []corev1.Taint
	for _, t := range node.Spec.Taints {
		if want, managed := noSchedule(node, t.Key); managed && !want && t.Effect == corev1.TaintEffectNoSchedule {
			continue
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
	for _, key := range managedTaints {
		if want, _ := noSchedule(node, key); want && !hasNoSchedule(out, key) {
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

// label is a name of a label and the one it had before.
type label struct{ stable, beta string }

// betaLabels: old names that follow the stable ones (N-3.20).
var betaLabels = []label{
	{corev1.LabelOSStable, "beta.kubernetes.io/os"},
	{corev1.LabelArchStable, "beta.kubernetes.io/arch"},
}

func (l label) behind(node *corev1.Node) bool {
	v, ok := node.Labels[l.stable]
	return ok && node.Labels[l.beta] != v
}

// Apply makes of node what the change asks for, given the node's conditions as they are now: taints and labels, not
// status. It says whether anything changed. It may be called again on a newer reading of the same node.
func (c *Change) Apply(node *corev1.Node, now time.Time) bool {
	next, changed := c.taints(node, now)
	if changed {
		node.Spec.Taints = next
	}
	for _, l := range betaLabels {
		if l.behind(node) {
			node.Labels[l.beta], changed = node.Labels[l.stable], true
		}
	}
	return changed
}

// would says whether Apply would change anything, and changes nothing: nodes are many, and nearly always well.
func (c *Change) would(node *corev1.Node, now time.Time) bool {
	_, changed := c.taints(node, now)
	return changed || slices.ContainsFunc(betaLabels, func(l label) bool { return l.behind(node) })
}

// taints is what the node's taints should be, and whether that is news.
func (c *Change) taints(node *corev1.Node, now time.Time) ([]corev1.Taint, bool) {
	execute := c.Execute
	if execute == ExecuteNotReady || execute == ExecuteUnreachable {
		execute = due(api.NodeCondition(node, corev1.NodeReady)) // it may have been heard meanwhile
	}
	next := taints(node, execute, now)
	return next, !slices.EqualFunc(next, node.Spec.Taints, sameTaint)
}

func sameTaint(a, b corev1.Taint) bool {
	return a.Key == b.Key && a.Value == b.Value && a.Effect == b.Effect
}
