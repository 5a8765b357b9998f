package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/lease"
)

// NodeHealth notices nodes that are no longer heard, and keeps taints and labels in step with their state.
type NodeHealth struct {
	w       *World
	nodes   Of[*corev1.Node]
	pods    Of[*corev1.Pod]
	leases  Of[*coordinationv1.Lease]
	events  Recorder
	monitor *lease.Monitor
	changed <-chan struct{}

	lost    map[string]bool    // nodes whose pods are still to be marked not ready
	bound   map[types.UID]bool // pods that were seen on a node; nil before the first look
	late    map[types.UID]bool // pods bound to a node that was not ready, still to be marked
	metrics *Metrics
	grumble grumble
}

// NewNodeHealth prepares the loop; call it before the World runs.
func NewNodeHealth(w *World, events Recorder, cfg Config) *NodeHealth {
	return &NodeHealth{w: w, nodes: w.nodes(), pods: w.pods(), leases: w.leases(), events: events, monitor: lease.NewMonitor(cfg.Health),
		changed: listen(w.nodes()), lost: map[string]bool{},
		late: map[types.UID]bool{}, metrics: cfg.Metrics}
}

// Run watches until ctx ends. Renewals do not wake it: it looks at leases when it looks at all.
func (h *NodeHealth) Run(ctx context.Context) error {
	return loop(ctx, h.changed, h.pass, h.nodes, h.pods, h.leases)
}

func (h *NodeHealth) pass(ctx context.Context, now time.Time) (wake time.Duration) {
	took, _ := timed(func() error { wake = h.look(ctx, now); return nil })
	h.metrics.note(func(m *Metrics) { m.all.Saw(took) })
	return wake
}

func (h *NodeHealth) look(ctx context.Context, now time.Time) time.Duration {
	leases := map[string]*coordinationv1.Lease{}
	for _, l := range h.leases.List() {
		leases[l.Name] = l
	}
	pass := h.monitor.Step(h.nodes.List(), leases, now)
	for _, name := range pass.Gone {
		delete(h.lost, name)
		h.events.Event(&corev1.Node{ObjectMeta: nodeMeta(name)}, corev1.EventTypeNormal, "RemovingNode",
			fmt.Sprintf("Node %s event: Removing Node %s from Controller", name, name))
	}
	var failed []error
	for i := range pass.Changes {
		took, err := timed(func() error { return h.write(ctx, &pass.Changes[i], now) })
		h.metrics.note(func(m *Metrics) { m.node.Saw(took) })
		failed = append(failed, err)
	}
	h.metrics.note(func(m *Metrics) { m.zones = pass.Zones })
	for _, z := range pass.Zones {
		if z.State != z.Was && z.Was != lease.ZoneInitial && z.Ready+z.NotReady > 1 { // of one node its own log says it
			slog.Info("zone changed state", "zone", z.Zone, "state", z.State, "ready", z.Ready, "not ready", z.NotReady)
		}
	}
	failed = append(failed, h.markPods(ctx, now))
	h.grumble.about(ctx, "cannot write node health", errors.Join(failed...))
	return pass.Wake
}

// write carries out one change: conditions, then taints (N-3.21).
func (h *NodeHealth) write(ctx context.Context, c *lease.Change, now time.Time) error {
	node, ok := h.nodes.Get("", c.Node)
	if !ok {
		return nil
	}
	if c.Added {
		h.events.Event(node, corev1.EventTypeNormal, "RegisteredNode",
			fmt.Sprintf("Node %s event: Registered Node %s in Controller", c.Node, c.Node))
	}
	if c.Silent {
		fresh, silenced, err := amend(ctx, h.w.Client, api.Nodes, node, "status", func(n *corev1.Node) bool { return c.Silence(n, now) })
		if err != nil {
			return err
		}
		if silenced {
			slog.Warn("node is no longer heard", "node", c.Node)
		}
		if silenced && c.Lost {
			h.events.Event(node, corev1.EventTypeNormal, "NodeNotReady", fmt.Sprintf("Node %s status is now: NodeNotReady", c.Node))
			h.lost[c.Node] = true
		}
		node = fresh
	}
	before := len(noExecute(node))
	fresh, changed, err := amend(ctx, h.w.Client, api.Nodes, node, "", func(n *corev1.Node) bool { return c.Apply(n, now) })
	if changed && (c.Execute == lease.ExecuteNotReady || c.Execute == lease.ExecuteUnreachable) && len(noExecute(fresh)) > before {
		h.metrics.note(func(m *Metrics) { m.tainted[lease.ZoneOf(fresh)]++ })
	}
	return err
}

// newcomers finds pods that were bound to a node that is not ready (N-3.13). The first look after a start counts only
// those on nodes that nobody hears: an agent that lives has said of its pods what there is to say.
func (h *NodeHealth) newcomers() {
	down := map[string]bool{}
	for _, n := range h.nodes.List() {
		for _, c := range n.Status.Conditions {
			if c.Type == corev1.NodeReady && (c.Status == corev1.ConditionUnknown || c.Status == corev1.ConditionFalse && h.bound != nil) {
				down[n.Name] = true
			}
		}
	}
	seen := map[types.UID]bool{}
	for _, p := range h.pods.List() {
		if p.Spec.NodeName == "" {
			continue
		}
		if seen[p.UID] = true; !h.bound[p.UID] && down[p.Spec.NodeName] {
			h.late[p.UID] = true
		}
	}
	h.bound = seen
}

// markPods turns the Ready condition of the pods on lost nodes False (N-3.12). What fails is left to the next pass.
func (h *NodeHealth) markPods(ctx context.Context, now time.Time) error {
	h.newcomers()
	if len(h.lost)+len(h.late) == 0 {
		return nil
	}
	var errs []error
	failed, late := map[string]bool{}, h.late
	h.late = map[types.UID]bool{}
	for _, p := range h.pods.List() {
		if !h.lost[p.Spec.NodeName] && !late[p.UID] {
			continue
		}
		_, marked, err := amend(ctx, h.w.Client, api.Pods, p, "status", func(p *corev1.Pod) bool {
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					c.Status = corev1.ConditionFalse
					c.LastTransitionTime.Time = now
					return true
				}
			}
			return false
		})
		if marked {
			h.events.Event(p, corev1.EventTypeWarning, "NodeNotReady", "Node is not ready")
		}
		if err != nil {
			errs = append(errs, err)
			if h.late[p.UID] = late[p.UID]; !late[p.UID] {
				failed[p.Spec.NodeName] = true
			}
		}
	}
	h.lost = failed
	return errors.Join(errs...)
}
