package cli

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/config"
)

func cordon(ctx context.Context, c *Command) error   { return c.cordon(ctx, true) }
func uncordon(ctx context.Context, c *Command) error { return c.cordon(ctx, false) }

func (c *Command) cordon(ctx context.Context, on bool) error {
	cl, err := c.Client()
	if err != nil {
		return err
	}
	node, err := c.node(ctx, cl)
	if err != nil {
		return err
	}
	return c.setCordon(ctx, cl, node, on)
}

// setCordon says whether new pods may come to a node.
func (c *Command) setCordon(ctx context.Context, cl api.Client, node *corev1.Node, on bool) error {
	done, value := "uncordoned", "null"
	if on {
		done, value = "cordoned", "true"
	}
	if node.Spec.Unschedulable == on {
		_, err := say(c.out, "node/%s already %s\n", node.Name, done)
		return err
	}
	patch := api.Patch{Type: types.MergePatchType, Data: []byte(`{"spec":{"unschedulable":` + value + `}}`)}
	if _, err := cl.Patch(ctx, api.Nodes, "", node.Name, patch, api.WriteOptions{Manager: "ledge"}); err != nil {
		return fmt.Errorf("change node %s: %w", node.Name, err)
	}
	_, err := say(c.out, "node/%s %s\n", node.Name, done)
	return err
}

// node is the node that is named, or the only one there is.
func (c *Command) node(ctx context.Context, cl api.Client) (*corev1.Node, error) {
	switch len(c.args) {
	case 1:
		return api.Get[*corev1.Node](ctx, cl, api.Nodes, "", c.args[0])
	case 0:
		list, err := cl.List(ctx, api.Nodes, api.ListOptions{})
		if err != nil {
			return nil, err
		}
		if len(list.Items) == 1 {
			return list.Items[0].(*corev1.Node), nil
		}
		return nil, config.Usagef("name the node: there are %d", len(list.Items))
	}
	return nil, config.Usagef("name one node")
}
