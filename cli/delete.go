package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/manifest"
	"ledge/config"
)

type deleteOpts struct {
	file, namespace string
	grace           int64
	force, wait     bool
	missingOK       bool
}

func deleteFlags(c *Command) {
	o := &deleteOpts{}
	c.Flags.StringVar(&o.file, "f", "", "file with objects, or - for standard input")
	namespaceFlag(c, &o.namespace)
	c.Flags.Int64Var(&o.grace, "grace-period", -1, "seconds a pod gets to end; -1: its own")
	c.Flags.BoolVar(&o.force, "force", false, "remove the object at once")
	c.Flags.BoolVar(&o.wait, "wait", true, "return when the objects are gone")
	c.Flags.BoolVar(&o.missingOK, "ignore-not-found", false, "an object that is not there is not an error")
	c.Opts = o
}

func del(ctx context.Context, c *Command) error {
	o := c.Opts.(*deleteOpts)
	targets, err := deleteTargets(c.args, o)
	if err != nil {
		return err
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	opts := api.DeleteOptions{Propagation: metav1.DeletePropagationBackground} // as kubectl says
	if o.force {
		o.grace = max(o.grace, 0)
	}
	if o.grace >= 0 {
		opts.Grace = &o.grace
	}
	var errs []error
	for _, t := range targets {
		if err := c.deleteOne(ctx, cl, t, opts, o); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

type target struct {
	kind            *api.Kind
	namespace, name string
}

func deleteTargets(args []string, o *deleteOpts) ([]target, error) {
	var out []target
	switch {
	case o.file != "" && len(args) == 0:
		objs, err := manifest.Read(o.file, o.namespace)
		if err != nil {
			return nil, err
		}
		for _, m := range objs {
			out = append(out, target{m.Kind, m.GetNamespace(), m.GetName()})
		}
	case o.file != "" || len(args) == 0:
		return nil, config.Usagef("delete: say what: ledge delete pod NAME, or -f FILE")
	default:
		kind, name, err := kindAndName(args[:1])
		if err != nil {
			return nil, err
		}
		names := args[1:]
		if name != "" {
			names = append(names, name)
		}
		if len(names) == 0 {
			return nil, config.Usagef("delete: name the %s to delete", kind.Resource)
		}
		for _, n := range names {
			t := target{kind: kind, name: n}
			if kind.Namespaced {
				t.namespace = o.namespace
			}
			out = append(out, t)
		}
	}
	return out, nil
}

func (c *Command) deleteOne(ctx context.Context, cl api.Client, t target, opts api.DeleteOptions, o *deleteOpts) error {
	obj, err := cl.Delete(ctx, t.kind, t.namespace, t.name, opts)
	if apierrors.IsNotFound(err) && o.missingOK {
		return nil
	}
	if err != nil {
		return fmt.Errorf("delete %s/%s: %w", t.kind.Singular, t.name, err)
	}
	say(c.out, "%s/%s deleted\n", t.kind.Singular, t.name)
	for o.wait && obj != nil {
		now, err := cl.Get(ctx, t.kind, t.namespace, t.name)
		if apierrors.IsNotFound(err) || err == nil && now.GetUID() != obj.GetUID() {
			return nil
		}
		if err != nil {
			return fmt.Errorf("wait for %s/%s to go: %w", t.kind.Singular, t.name, err)
		}
		time.Sleep(100 * time.Millisecond)
	}
	return nil
}
