package cli

import (
	"context"
	"errors"

	"ledge/api/manifest"
	"ledge/config"
)

type applyOpts struct{ file, namespace string }

func applyFlags(c *Command) {
	o := &applyOpts{}
	c.Flags.StringVar(&o.file, "f", "", "file with objects, or - for standard input")
	namespaceFlag(c, &o.namespace)
	c.Opts = o
}

func apply(ctx context.Context, c *Command) error {
	o := c.Opts.(*applyOpts)
	if o.file == "" || len(c.args) > 0 {
		return config.Usagef("apply: say what: ledge apply -f FILE")
	}
	objs, bad := manifest.Read(o.file, o.namespace)
	if len(objs) == 0 {
		return bad
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	var errs []error
	for _, obj := range objs {
		what, err := manifest.Apply(ctx, cl, obj)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		say(c.out, "%s/%s %s\n", obj.Kind.Singular, obj.GetName(), what)
	}
	return errors.Join(append(errs, bad)...)
}
