package controller

import (
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
)

// networksRetry is when what could not be written is written again.
const networksRetry = 5 * time.Second

// Networks tells boards where each other's pods are, by one ConfigMap: a node may not look at other Nodes, and a watch of
// all Nodes by all boards would carry every heartbeat to everybody. A Node with a network that is not its to have is left
// out of it, and told so by a condition and an event.
type Networks struct {
	w       *World
	events  Recorder
	cfg     NodeCIDRs
	changed <-chan struct{}
	nodes   Of[*corev1.Node]
	told    Of[*corev1.ConfigMap]
	grumble grumble
}

// NewNetworks prepares the loop; call it before the World runs.
func NewNetworks(w *World, events Recorder, cfg NodeCIDRs) *Networks {
	sel := api.Selection{Namespace: metav1.NamespaceSystem, Fields: fields.OneTermEqualSelector("metadata.name", api.PodNetworksName)}
	nodes, told := w.nodes(), Of[*corev1.ConfigMap]{w.view(api.ConfigMaps, sel)}
	return &Networks{w: w, events: events, cfg: cfg, changed: listen(nodes, told), nodes: nodes, told: told}
}

// Run tells until ctx ends.
func (n *Networks) Run(ctx context.Context) error {
	return loop(ctx, n.changed, n.pass, n.nodes, n.told)
}

func (n *Networks) pass(ctx context.Context, now time.Time) time.Duration {
	nodes := n.nodes.List()
	astray := strays(nodes, n.cfg)
	var rightful []*corev1.Node
	var errs []error
	for _, node := range nodes {
		why := astray[node.Name]
		if why == "" {
			rightful = append(rightful, node)
		}
		errs = append(errs, n.judge(ctx, node, why, now))
	}
	err := errors.Join(append(errs, n.tell(ctx, api.PodNetworksOf(rightful)))...)
	n.grumble.about(ctx, "cannot tell boards where each other's pods are", err)
	if err != nil {
		return networksRetry
	}
	return idle
}

// podNetworkConflict is the condition of a Node whose pod network does not count.
const podNetworkConflict = corev1.NodeConditionType("PodNetworkConflict")

// judge writes that condition where it differs. A Node that never had the condition gets none that says False.
func (n *Networks) judge(ctx context.Context, node *corev1.Node, why string, now time.Time) error {
	want := corev1.NodeCondition{Type: podNetworkConflict, Status: corev1.ConditionFalse, Reason: "PodCIDRAccepted",
		Message: "the pod network is the node's own"}
	if why != "" {
		want.Status, want.Reason = corev1.ConditionTrue, "PodCIDRConflict"
		want.Message = why + ": no other board is told of it; delete the node, which then registers again and is given one"
	}
	_, changed, err := amend(ctx, n.w.Client, api.Nodes, node, "status", func(node *corev1.Node) bool {
		i := slices.IndexFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool { return c.Type == podNetworkConflict })
		if i < 0 && why == "" {
			return false
		}
		if i < 0 {
			node.Status.Conditions = append(node.Status.Conditions, corev1.NodeCondition{})
			i = len(node.Status.Conditions) - 1
		}
		have := &node.Status.Conditions[i]
		if have.Status == want.Status && have.Message == want.Message {
			return false
		}
		want.LastHeartbeatTime, want.LastTransitionTime = metav1.NewTime(now), metav1.NewTime(now)
		*have = want
		return true
	})
	if changed && why != "" {
		n.events.Event(node, corev1.EventTypeWarning, want.Reason, want.Message)
	}
	return err
}

func (n *Networks) tell(ctx context.Context, want map[string]string) error {
	old, is := n.told.Get(metav1.NamespaceSystem, api.PodNetworksName)
	if !is {
		_, err := api.Create(ctx, n.w.Client, api.ConfigMaps, &corev1.ConfigMap{Data: want,
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceSystem, Name: api.PodNetworksName}})
		if apierrors.IsAlreadyExists(err) {
			return nil // made by the last look, and not seen yet
		}
		return err
	}
	_, _, err := amend(ctx, n.w.Client, api.ConfigMaps, old, "", func(c *corev1.ConfigMap) bool {
		if maps.Equal(c.Data, want) {
			return false
		}
		c.Data = want
		return true
	})
	return err
}
