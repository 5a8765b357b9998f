package controller

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
)

// outOfService ends the pods that are being deleted on nodes whose operator vouches, by a taint, that the machine is off:
// no agent will ever say that they have stopped (N-4.3). Tolerations do not matter here: they decide earlier, about who is
// marked for deletion at all (N-4.4). Volumes are let go in a step of its own (N-4.7).
func (g *PodGC) outOfService(ctx context.Context, nodes map[string]*corev1.Node, pods []*corev1.Pod, now time.Time) error {
	if g.ignore {
		return nil
	}
	dead := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if n := nodes[p.Spec.NodeName]; n != nil && p.DeletionTimestamp != nil && isOutOfService(n) {
			dead[n.Name] = append(dead[n.Name], p)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(dead)) {
		slices.SortFunc(dead[name], collectFirst)
		var names []string
		for _, p := range dead[name] {
			if err := g.bury(ctx, p, causeOutOfService, now); err != nil {
				return err
			}
			names = append(names, api.Key(p).String())
		}
		node := &corev1.Node{ObjectMeta: nodeMeta(name)}
		g.events.Event(node, corev1.EventTypeNormal, "OutOfServicePodsDeleted",
			fmt.Sprintf("Deleted by force, the node being out of service: %s", strings.Join(names, ", ")))
		if err := g.release(ctx, nodes[name]); err != nil {
			return err
		}
		g.events.Event(node, corev1.EventTypeNormal, "OutOfServiceVolumesReleased",
			fmt.Sprintf("Released the volumes of %d pods", len(names)))
	}
	return nil
}

// release takes from a dead node what it is said to hold, once no pod is left that could: another may have it now.
func (g *PodGC) release(ctx context.Context, n *corev1.Node) error {
	list, err := g.w.Client.List(ctx, api.Pods, api.ListOptions{Selection: api.Selection{
		Fields: fields.OneTermEqualSelector("spec.nodeName", n.Name)}})
	if err != nil {
		return fmt.Errorf("look for pods of node %s: %w", n.Name, err)
	}
	if len(list.Items) > 0 {
		return nil // some tolerate the taint, or are held by a finalizer
	}
	_, _, err = amend(ctx, g.w.Client, api.Nodes, n, "status", func(n *corev1.Node) bool {
		held := len(n.Status.VolumesAttached)+len(n.Status.VolumesInUse) > 0
		n.Status.VolumesAttached, n.Status.VolumesInUse = nil, nil
		return held
	})
	return err
}

// isOutOfService: the taint, whatever its effect and value, on a node that is not Ready. One that is ends its pods itself
// (N-4.6).
func isOutOfService(n *corev1.Node) bool {
	return !api.NodeReady(n) &&
		slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.Key == corev1.TaintNodeOutOfService })
}
