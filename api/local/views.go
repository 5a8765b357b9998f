package local

import (
	"context"
	"encoding/json"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// Kinds that show the objects of another kind: what comes in is turned into that, and what goes out back.

func show(kind *api.Kind, obj api.Object, err error) (api.Object, error) {
	if err != nil || obj == nil {
		return nil, err
	}
	out := kind.View.Show(obj)
	kind.Stamp(out)
	return out, nil
}

func viewSelection(kind *api.Kind, s api.Selection) (api.Selection, error) {
	if err := api.CheckFields(kind, s.Fields); err != nil || s.Fields == nil {
		return s, err
	}
	return kind.View.OverOf(s)
}

func listView(ctx context.Context, c *Client, kind *api.Kind, opts api.ListOptions) (list api.List, err error) {
	if opts.Selection, err = viewSelection(kind, opts.Selection); err != nil {
		return list, err
	}
	if list, err = c.List(ctx, kind.View.Of, opts); err != nil {
		return list, err
	}
	for i, obj := range list.Items {
		list.Items[i] = kind.View.Show(obj)
		kind.Stamp(list.Items[i])
	}
	return list, nil
}

func watchView(ctx context.Context, c *Client, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	var err error
	if opts.Selection, err = viewSelection(kind, opts.Selection); err != nil {
		return nil, err
	}
	w, err := c.Watch(ctx, kind.View.Of, opts)
	if err != nil {
		return nil, err
	}
	return viewWatch{w, kind}, nil
}

// viewWatch shows each event's object; a bookmark's carries nothing but its metadata.
type viewWatch struct {
	api.Watch
	kind *api.Kind
}

func (w viewWatch) Next() (api.Event, error) {
	e, err := w.Watch.Next()
	if err == nil && e.Object != nil {
		e.Object = w.kind.View.Show(e.Object)
		w.kind.Stamp(e.Object)
	}
	return e, err
}

func (c *Client) patchView(ctx context.Context, kind *api.Kind, namespace, name string, patch api.Patch, opts api.WriteOptions) (api.Object,
	error) {
	of := kind.View.Of
	if patch.Type == types.ApplyYAMLPatchType {
		return c.applyView(ctx, kind, namespace, name, patch.Data, opts)
	}
	obj, err := c.modify(ctx, of, namespace, name, opts, func(old api.Object) (api.Object, error) {
		obj, err := patched(ctx, kind, namespace, name, kind.View.Show(old), patch, opts)
		if err != nil {
			return nil, err
		}
		return kind.View.Read(obj), nil
	})
	return show(kind, obj, err)
}

// applyView applies a configuration under the names that its fields have in the object that is kept. Managers own fields
// under those names, as those of the other version.
func (c *Client) applyView(ctx context.Context, kind *api.Kind, namespace, name string, data []byte, opts api.WriteOptions) (api.Object,
	error) {
	config, err := readConfiguration(kind, namespace, name, data, opts)
	if err != nil {
		return nil, err
	}
	of := kind.View.Of
	for _, old := range kind.View.Renamed {
		if _, there := config[old]; there {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the applied configuration does not fit: .%s: field not declared in schema", old))
		}
	}
	for is, was := range kind.View.Renamed {
		if v, there := config[is]; there {
			config[was] = v
			delete(config, is)
		}
	}
	if configure := kind.View.Configure; configure != nil {
		if err := configure(config); err != nil {
			return nil, apierrors.NewBadRequest(fmt.Sprintf("the applied configuration does not fit: %v", err))
		}
	}
	config["apiVersion"], config["kind"] = of.APIVersion(), of.Name
	if data, err = json.Marshal(config); err != nil {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("error decoding the applied configuration: %v", err))
	}
	obj, err := c.apply(ctx, of, namespace, name, data, opts)
	return show(kind, obj, err)
}
