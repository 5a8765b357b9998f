package controller

import (
	"context"
	"maps"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"ledge/api"
)

// networksRetry is when what could not be written is written again.
const networksRetry = 5 * time.Second

// Networks tells boards where each other's pods are, by one ConfigMap: a node may not look at other Nodes, and a watch of
// all Nodes by all boards would carry every heartbeat to everybody.
type Networks struct {
	w       *World
	changed <-chan struct{}
	told    *Follow[*corev1.ConfigMap]
	grumble grumble
}

// NewNetworks prepares the loop; call it before the World runs.
func NewNetworks(w *World) *Networks {
	sel := api.Selection{Namespace: metav1.NamespaceSystem, Fields: fields.OneTermEqualSelector("metadata.name", api.PodNetworksName)}
	told := &Follow[*corev1.ConfigMap]{View: api.NewView[*corev1.ConfigMap](w.Client, api.ConfigMaps, sel)}
	return &Networks{w: w, changed: listen(w.Nodes, told), told: told}
}

// Run tells until ctx ends.
func (n *Networks) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.told.Run(ctx) })
	g.Go(func() error {
		select {
		case <-ctx.Done():
			return nil
		case <-n.told.Synced():
		}
		return loop(ctx, n.w, n.changed, n.pass)
	})
	return g.Wait()
}

func (n *Networks) pass(ctx context.Context, _ time.Time) time.Duration {
	want := api.PodNetworksOf(n.w.Nodes.List())
	err := n.tell(ctx, want)
	n.grumble.about(ctx, "cannot tell boards where each other's pods are", err)
	if err != nil {
		return networksRetry
	}
	return idle
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
	_, _, err := amend(ctx, n.w.Client, old, "", func(c *corev1.ConfigMap) bool {
		if maps.Equal(c.Data, want) {
			return false
		}
		c.Data = want
		return true
	})
	return err
}
