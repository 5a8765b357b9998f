package controller

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// How a deletion that failed is tried again (N-3.26), and how long one that succeeded may take to be seen.
const (
	evictTries   = 5
	evictWait    = 10 * time.Millisecond
	evictedGrace = 5 * time.Second
)

// TaintEviction deletes pods from nodes with NoExecute taints, at once or when they have tolerated them for long
// enough.
type TaintEviction struct {
	w       *World
	nodes   Of[*corev1.Node]
	pods    Of[*corev1.Pod]
	events  Recorder
	changed <-chan struct{}
	timers  timers
	cfg     OutOfService
	metrics *Metrics
	grumble grumble
}

// NewTaintEviction prepares the loop; call it before the World runs.
func NewTaintEviction(w *World, events Recorder, cfg Config) *TaintEviction {
	return &TaintEviction{w: w, nodes: w.nodes(), pods: w.pods(), events: events, changed: listen(w.nodes(), w.pods()), timers: timers{},
		cfg: cfg.OutOfService, metrics: cfg.Metrics}
}

// Run evicts until ctx ends. A restart restarts the waits (N-3.24).
func (e *TaintEviction) Run(ctx context.Context) error {
	return loop(ctx, e.changed, e.pass, e.nodes, e.pods)
}

func (e *TaintEviction) pass(ctx context.Context, now time.Time) time.Duration {
	taints := map[string][]corev1.Taint{}
	for _, n := range e.nodes.List() {
		if t := e.cfg.evicting(n); len(t) > 0 {
			taints[n.Name] = t
		}
	}
	if len(taints) == 0 && len(e.timers) == 0 {
		return idle // the usual case, at every change of every pod
	}
	evict, spare, wake := e.timers.step(taints, e.pods.List(), now)
	for _, p := range spare {
		e.events.Event(p, corev1.EventTypeNormal, "TaintManagerEviction", fmt.Sprintf("Cancelling deletion of Pod %s", api.Key(p)))
	}
	var failed []error
	for _, p := range evict {
		e.events.Event(p, corev1.EventTypeNormal, "TaintManagerEviction", fmt.Sprintf("Marking for deletion Pod %s", api.Key(p)))
		took, err := timed(func() error { return e.delete(ctx, p) })
		if err == nil {
			e.metrics.note(func(m *Metrics) { m.evicted++; m.evict.Saw(took) })
		}
		failed = append(failed, err)
	}
	if len(evict) > 0 {
		e.grumble.about(ctx, "cannot evict pods", errors.Join(failed...))
	}
	return wake
}

// delete is an ordinary DELETE, not an eviction: budgets do not count (N-3.27).
func (e *TaintEviction) delete(ctx context.Context, p *corev1.Pod) (err error) {
	for range evictTries {
		err = disrupt(ctx, e.w.Client, p, "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")
		if err == nil || !sleep(ctx, evictWait) {
			return err
		}
	}
	return err
}

// evicting is the taints that no pod may ignore without tolerating them.
func (o OutOfService) evicting(n *corev1.Node) []corev1.Taint {
	out := noExecute(n)
	for _, t := range n.Spec.Taints {
		if o.NoScheduleEvicts && t.Key == corev1.TaintNodeOutOfService && t.Effect == corev1.TaintEffectNoSchedule {
			out = append(out, t)
		}
	}
	return out
}

func noExecute(n *corev1.Node) []corev1.Taint {
	return slices.DeleteFunc(slices.Clone(n.Spec.Taints), func(t corev1.Taint) bool { return t.Effect != corev1.TaintEffectNoExecute })
}

// timers says when each pod's toleration is used up, by the observer's clock.
type timers map[types.UID]timer

type timer struct {
	fire  time.Time
	fired bool // and the deletion may still be on its way to us
}

// step decides for all pods at one moment: who is deleted now, whose pending deletion is off, and when to look again.
// taints holds the NoExecute taints of nodes that have any.
func (t timers) step(taints map[string][]corev1.Taint, pods []*corev1.Pod, now time.Time) (evict, spare []*corev1.Pod, wake time.Duration) {
	wake = idle
	seen := make(map[types.UID]bool, len(t))
	for _, p := range pods {
		if p.Spec.NodeName == "" || p.DeletionTimestamp != nil {
			continue
		}
		old, pending := t[p.UID]
		wait, never := tolerates(p, taints[p.Spec.NodeName])
		switch {
		case never:
			if pending && !old.fired {
				spare = append(spare, p)
			}
			continue
		case wait <= 0 && !old.fired:
			old.fire = now // a toleration was taken away, or there never was one (N-3.25)
		case !pending:
			old.fire = now.Add(wait)
		}
		seen[p.UID] = true
		if !old.fire.After(now) {
			evict = append(evict, p)
			old = timer{fire: now.Add(evictedGrace), fired: true}
		}
		t[p.UID] = old
		wake = min(wake, old.fire.Sub(now))
	}
	for uid := range t {
		if !seen[uid] {
			delete(t, uid)
		}
	}
	byKey := func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(evict, byKey)
	slices.SortFunc(spare, byKey)
	return evict, spare, wake
}

// tolerates is how long a pod may stay under these taints (N-3.22, N-3.23): the shortest of the tolerations that it
// needs. A taint that none covers means not at all.
func tolerates(p *corev1.Pod, taints []corev1.Taint) (wait time.Duration, never bool) {
	never = true
	for i := range taints {
		used := api.Tolerated(p.Spec.Tolerations, &taints[i])
		if used == nil {
			return 0, false
		}
		if used.TolerationSeconds == nil {
			continue
		}
		d := time.Duration(max(*used.TolerationSeconds, 0)) * time.Second
		if never || d < wait {
			wait, never = d, false
		}
	}
	return wait, never
}
