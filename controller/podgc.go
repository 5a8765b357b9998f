package controller

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/scheduler"
)

// The numbers of section 3.5 of the node semantics.
const (
	gcPeriod          = 20 * time.Second // N-3.45
	gcQuarantine      = 40 * time.Second // N-3.47
	keptPodsPerBoard  = 100              // N-3.46
	reasonEvicted     = "Evicted"
	reasonDeletedByGC = "DeletionByPodGC"
)

// Why a pod is deleted by force, as the metrics of N-3.49 tell it.
const (
	causeTerminated   = "terminated"
	causeOutOfService = "out-of-service"
	causeOrphaned     = "orphaned"
	causeUnscheduled  = "unscheduled"
)

// PodGC removes four sorts of pods that nobody will remove otherwise: ended pods beyond a number, pods on nodes that are out of service,
// pods of nodes that no longer exist, and pods that were deleted before they had a node. It also removes leases of nodes that are gone.
type PodGC struct {
	w       *World
	nodes   Of[*corev1.Node]
	pods    Of[*corev1.Pod]
	leases  Of[*coordinationv1.Lease]
	events  Recorder
	metrics *Metrics
	ignore  bool // the taint out-of-service
	keep    int
	missing map[string]time.Time // node names that pods have and no Node has, since when
	grumble grumble
}

// NewPodGC prepares the loop.
func NewPodGC(w *World, events Recorder, cfg Config) *PodGC {
	return &PodGC{w: w, nodes: w.nodes(), pods: w.pods(), leases: w.leases(), events: events, metrics: cfg.Metrics,
		ignore: cfg.OutOfService.Ignored,
		keep:   cmp.Or(cfg.TerminatedPods, keptPodsPerBoard), missing: map[string]time.Time{}}
}

// Run collects until ctx ends.
func (g *PodGC) Run(ctx context.Context) error {
	return loop(ctx, nil, func(ctx context.Context, now time.Time) time.Duration {
		g.grumble.about(ctx, "garbage collection of pods is incomplete", g.pass(ctx, now))
		return gcPeriod
	}, g.nodes, g.pods, g.leases)
}

// pass makes one round in the order of N-3.45. The first failure ends it; the next round begins again.
func (g *PodGC) pass(ctx context.Context, now time.Time) error {
	nodes, pods := map[string]*corev1.Node{}, g.pods.List()
	for _, n := range g.nodes.List() {
		nodes[n.Name] = n
	}
	for _, p := range surplus(pods, g.keep) {
		if err := g.remove(ctx, p, causeTerminated); err != nil {
			return err
		}
	}
	if err := g.outOfService(ctx, nodes, pods, now); err != nil {
		return err
	}
	gone, err := g.vanished(ctx, nodes, pods, now)
	if err != nil {
		return err
	}
	for _, p := range pods {
		var cause string
		switch {
		case gone[p.Spec.NodeName]:
			cause = causeOrphaned
		case p.Spec.NodeName == "" && p.DeletionTimestamp != nil:
			cause = causeUnscheduled
		default:
			continue
		}
		if err := g.bury(ctx, p, cause, now); err != nil {
			return err
		}
	}
	return g.collectLeases(ctx, nodes)
}

// surplus is the ended pods beyond keep on each node: evicted ones first, then the oldest (N-3.46).
func surplus(pods []*corev1.Pod, keep int) []*corev1.Pod {
	if keep < 0 {
		return nil
	}
	ended := map[string][]*corev1.Pod{}
	for _, p := range pods {
		if scheduler.Terminal(p) {
			ended[p.Spec.NodeName] = append(ended[p.Spec.NodeName], p)
		}
	}
	var out []*corev1.Pod
	for _, list := range ended {
		if len(list) > keep {
			slices.SortFunc(list, collectFirst)
			out = append(out, list[:len(list)-keep]...)
		}
	}
	return out
}

func collectFirst(a, b *corev1.Pod) int {
	rank := func(p *corev1.Pod) int {
		if p.Status.Phase == corev1.PodFailed && p.Status.Reason == reasonEvicted {
			return 0
		}
		return 1
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), a.CreationTimestamp.Compare(b.CreationTimestamp.Time),
		cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
}

// vanished is the nodes that pods name, that have not existed for the quarantine, and that the server itself does not
// know either (N-3.47).
func (g *PodGC) vanished(ctx context.Context, nodes map[string]*corev1.Node, pods []*corev1.Pod, now time.Time) (map[string]bool, error) {
	named := map[string]bool{}
	for _, p := range pods {
		if name := p.Spec.NodeName; name != "" && nodes[name] == nil {
			named[name] = true
			if _, ok := g.missing[name]; !ok {
				g.missing[name] = now
			}
		}
	}
	gone := map[string]bool{}
	for name, since := range g.missing {
		if !named[name] {
			delete(g.missing, name)
			continue
		}
		if now.Sub(since) < gcQuarantine {
			continue
		}
		switch _, err := g.w.Client.Get(ctx, api.Nodes, "", name); {
		case apierrors.IsNotFound(err):
			gone[name] = true
		case err != nil:
			return nil, fmt.Errorf("look for node %s: %w", name, err)
		default:
			delete(g.missing, name)
		}
	}
	return gone, nil
}

// bury marks a pod as failed, if it has not ended, and deletes it at once (N-3.47, N-3.48, N-4.3).
func (g *PodGC) bury(ctx context.Context, p *corev1.Pod, cause string, now time.Time) error {
	if !scheduler.Terminal(p) {
		_, _, err := amend(ctx, g.w.Client, api.Pods, p, "status", func(p *corev1.Pod) bool {
			p.Status.Phase = corev1.PodFailed
			if cause == causeOrphaned {
				setCondition(p, corev1.PodCondition{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue,
					Reason: reasonDeletedByGC, Message: "PodGC: node no longer exists"}, now)
			}
			return true
		})
		if err != nil {
			return err
		}
	}
	slog.Info("removing a pod that no board will ever finish", "pod", api.Key(p).String(), "node", p.Spec.NodeName, "cause", cause)
	return g.remove(ctx, p, cause)
}

func (g *PodGC) remove(ctx context.Context, p *corev1.Pod, cause string) error {
	err := remove(ctx, g.w.Client, p, force())
	g.metrics.forcedDelete(p.Namespace, cause, err)
	return err
}

// collectLeases removes those whose Node is gone, or is another one by now (N-2.3, N-3.50).
func (g *PodGC) collectLeases(ctx context.Context, nodes map[string]*corev1.Node) error {
	for _, l := range g.leases.List() {
		i := slices.IndexFunc(l.OwnerReferences, func(o metav1.OwnerReference) bool { return o.Kind == api.Nodes.Name })
		if i < 0 {
			continue
		}
		owner := l.OwnerReferences[i]
		if n := nodes[owner.Name]; n != nil && n.UID == owner.UID {
			continue
		}
		n, err := api.Get[*corev1.Node](ctx, g.w.Client, api.Nodes, "", owner.Name)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("look for node %s: %w", owner.Name, err)
		}
		if err == nil && n.UID == owner.UID {
			continue
		}
		if err := removeLease(ctx, g.w.Client, l); err != nil {
			return err
		}
	}
	return nil
}

func removeLease(ctx context.Context, c api.Client, l *coordinationv1.Lease) error {
	_, err := c.Delete(ctx, coordination.Leases, l.Namespace, l.Name, api.DeleteOptions{UID: &l.UID})
	if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return fmt.Errorf("delete lease of node %s: %w", l.Name, err)
}

// nodeMeta names a Node that is no more, for events about it.
func nodeMeta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, UID: types.UID(name)}
}
