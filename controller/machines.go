package controller

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// Machine is what there is behind a Node.
type Machine string

// What a Lister may answer.
const (
	MachineExists   Machine = "exists"
	MachineShutdown Machine = "shutdown" // there, and switched off
	MachineGone     Machine = "gone"
)

// ParseMachine reads a lister's word.
func ParseMachine(word string) (Machine, error) {
	switch m := Machine(word); m {
	case MachineExists, MachineShutdown, MachineGone:
		return m, nil
	}
	return "", fmt.Errorf("a machine is %s, %s or %s, not %q", MachineExists, MachineShutdown, MachineGone, word)
}

// Lister knows the machines of a fleet, as a cloud knows its own (N-3.62).
type Lister interface {
	// Machine may be called again before it has answered.
	Machine(ctx context.Context, node, providerID string) (Machine, error)
}

// taintMachineOff is what a node has whose machine is switched off.
const taintMachineOff = "node.cloudprovider.kubernetes.io/shutdown"

// askTime is how long a lister may think about one machine.
const askTime = 10 * time.Second

// askAtOnce is of how many machines a lister is asked at the same time: a shed that has lost its power is gone through in little
// time though nobody answers, and as many programs are not too many for a small board.
const askAtOnce = 4

// Machines removes the Nodes of machines that are gone and marks those of machines that are switched off (N-3.61).
type Machines struct {
	w       *World
	nodes   Of[*corev1.Node]
	events  Recorder
	list    Lister
	period  time.Duration
	changed <-chan struct{}
	next    time.Time // to ask
	grumble grumble
}

// NewMachines prepares the loop; call it before the World runs.
func NewMachines(w *World, events Recorder, cfg Config) *Machines {
	period := cfg.Health.Period
	if period == 0 {
		period = 5 * time.Second
	}
	return &Machines{w: w, nodes: w.nodes(), events: events, list: cfg.Machines, period: period, changed: listen(w.nodes())}
}

// Run asks until ctx ends.
func (m *Machines) Run(ctx context.Context) error { return loop(ctx, m.changed, m.pass, m.nodes) }

func (m *Machines) pass(ctx context.Context, now time.Time) time.Duration {
	ask := !now.Before(m.next)
	if ask {
		m.next = now.Add(m.period)
	}
	nodes := m.nodes.List()
	failed := make([]error, len(nodes)) // in their order, that the same trouble is told in the same words
	var asking errgroup.Group
	asking.SetLimit(askAtOnce)
	for i, n := range nodes {
		switch ready := readyOf(n); {
		case ready == corev1.ConditionTrue:
			failed[i] = m.mark(ctx, n, false)
		case ask && n.DeletionTimestamp == nil:
			asking.Go(func() error {
				failed[i] = m.look(ctx, n)
				return nil
			})
		}
	}
	_ = asking.Wait() // they have written down what went wrong
	m.grumble.about(ctx, "cannot keep nodes in step with their machines", errors.Join(failed...))
	return max(time.Until(m.next), 0)
}

// look asks about one node that is not ready. Without an answer nothing is done.
func (m *Machines) look(ctx context.Context, n *corev1.Node) error {
	asked, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	state, err := m.list.Machine(asked, n.Name, n.Spec.ProviderID)
	if err != nil {
		return fmt.Errorf("ask for the machine of node %s: %w", n.Name, err)
	}
	switch state {
	case MachineGone:
		slog.Warn("deleting a node whose machine is gone", "node", n.Name)
		m.events.Event(n, corev1.EventTypeNormal, "DeletingNode",
			fmt.Sprintf("Deleting node %s because it does not exist in the cloud provider", n.Name))
		_, err := m.w.Client.Delete(ctx, api.Nodes, "", n.Name, api.DeleteOptions{UID: &n.UID})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return nil
		}
		return fmt.Errorf("delete node %s: %w", n.Name, err)
	case MachineShutdown:
		return m.mark(ctx, n, true)
	}
	return nil
}

// mark puts the taint on a node, or takes it away.
func (m *Machines) mark(ctx context.Context, n *corev1.Node, off bool) error {
	_, _, err := amend(ctx, m.w.Client, api.Nodes, n, "", func(n *corev1.Node) bool {
		i := slices.IndexFunc(n.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == taintMachineOff && t.Effect == corev1.TaintEffectNoSchedule
		})
		switch {
		case off == (i >= 0):
			return false
		case off:
			now := metav1.Now()
			n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: taintMachineOff, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now})
		default:
			n.Spec.Taints = slices.Delete(n.Spec.Taints, i, i+1)
		}
		return true
	})
	return err
}

// readyOf is the status of a node's Ready condition; one that was never told is Unknown.
func readyOf(n *corev1.Node) corev1.ConditionStatus {
	if c := api.NodeCondition(n, corev1.NodeReady); c != nil {
		return c.Status
	}
	return corev1.ConditionUnknown
}
