package cli

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/config"
)

type scaleOpts struct {
	namespace string
	replicas  int
}

func scaleFlags(c *Command) {
	o := &scaleOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.IntVar(&o.replicas, "replicas", -1, "how many pods there are to be")
	c.Opts = o
}

// scale sets how many pods an object is to have.
func scale(ctx context.Context, c *Command) error {
	o := c.Opts.(*scaleOpts)
	if len(c.args) == 0 || o.replicas < 0 {
		return config.Usagef("scale: say what, and how many: ledge scale deployment NAME --replicas 3")
	}
	kind, name, err := kindAndName(c.args)
	switch {
	case err != nil:
		return err
	case name == "":
		return config.Usagef("scale: name the %s", kind.Singular)
	case !kind.HasScale():
		return config.Usagef("scale: %s have no number of pods", kind.Resource)
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	patch := api.Patch{Type: types.MergePatchType, Data: fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, o.replicas)}
	opts := api.WriteOptions{Subresource: api.Scale, Manager: "ledge"}
	if _, err := cl.Patch(ctx, kind, o.namespace, name, patch, opts); err != nil {
		return fmt.Errorf("scale %s/%s: %w", kind.Singular, name, err)
	}
	_, err = say(c.out, "%s/%s scaled\n", kind.Singular, name)
	return err
}
