package local

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"

	"ledge/api"
	"ledge/storage"
)

// apply is a server-side apply: it merges a manager's configuration into the object, or makes the object from it, in
// one transaction (N-11.33).
func (c *Client) apply(ctx context.Context, kind *api.Kind, namespace, name string, data []byte, opts api.WriteOptions) (out api.Object,
	err error) {
	config, err := readConfiguration(kind, namespace, name, data, opts)
	if err != nil {
		return nil, err
	}
	if opts.Subresource != "" && (opts.Subresource != api.StatusSub || !kind.HasStatus()) {
		return nil, noSubresource(kind, opts.Subresource)
	}
	made, events := false, 0
	var was api.Object
	revision := ""
	err = c.write(ctx, opts.DryRun, func(tx *storage.Tx) error {
		old, err := get(tx, kind, namespace, name)
		if made = apierrors.IsNotFound(err) && opts.Subresource == ""; made {
			if opts.NoCreate != nil {
				return opts.NoCreate
			}
			events, was = 0, nil
			out, err = c.applyNew(ctx, tx, kind, config, opts, &events)
			return err
		}
		if err != nil {
			return err
		}
		was, revision = old, old.GetResourceVersion()
		obj, err := c.fields.Apply(kind, old, config, opts.Subresource, opts.Manager, opts.Force)
		if err != nil {
			return err
		}
		out, err = c.update(ctx, tx, kind, obj, old, how{sub: opts.Subresource, manager: opts.Manager, applied: true})
		return err
	})
	if err != nil {
		return nil, status(err, "apply %s %q", kind.Singular, name)
	}
	if opts.DryRun {
		out.SetResourceVersion(revision)
	} else {
		c.collector.written(out, was)
	}
	if made && !opts.DryRun && kind == api.Events {
		c.events.made(ctx, out, events)
	}
	if opts.Made != nil {
		*opts.Made = made
	}
	return out, nil
}

// applyNew makes an object out of a configuration.
func (in *inTx) applyNew(ctx context.Context, tx *storage.Tx, kind *api.Kind, config map[string]any, opts api.WriteOptions,
	events *int) (api.Object, error) {
	if meta, ok := config["metadata"].(map[string]any); ok && meta["uid"] != nil {
		return nil, conflict(kind, opts.Manager, "uid mismatch: the provided object specified uid %v, and no existing object was found",
			meta["uid"])
	}
	obj, err := in.fields.Apply(kind, kind.New(), config, "", opts.Manager, opts.Force)
	if err != nil {
		return nil, err
	}
	managers := obj.GetManagedFields()
	prepare(kind, obj, in.now())
	obj.SetManagedFields(managers)
	return obj, in.create(ctx, tx, kind, obj, how{manager: opts.Manager, applied: true, events: events})
}

// readConfiguration reads an applied configuration and checks that it is about the object it was sent to.
func readConfiguration(kind *api.Kind, namespace, name string, data []byte, opts api.WriteOptions) (map[string]any, error) {
	if opts.Manager == "" {
		return nil, apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("PatchOptions").GroupKind(), "", field.ErrorList{
			field.Required(field.NewPath("fieldManager"), "is required for apply patch")})
	}
	var config map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &config); err != nil || config == nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding the applied configuration: %v", err))
	}
	if err := api.CheckAmounts(data, kind.New()); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding the applied configuration: %v", err))
	}
	if config["apiVersion"] != kind.APIVersion() || config["kind"] != kind.Name {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("the applied configuration is a %v of %v, a %s of %s was expected",
			config["kind"], config["apiVersion"], kind.Name, kind.APIVersion()))
	}
	meta, ok := config["metadata"].(map[string]any)
	if !ok {
		meta = map[string]any{}
		config["metadata"] = meta
	}
	if !kind.Namespaced {
		delete(meta, "namespace")
	}
	for _, m := range []struct{ key, want string }{{"name", name}, {"namespace", namespace}} {
		switch got, set := meta[m.key]; {
		case !set && m.want != "":
			meta[m.key] = m.want
		case set && got != m.want:
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the %s of the object (%v) does not match the %s on the URL (%s)", m.key, got, m.key,
				m.want))
		}
	}
	return config, nil
}
