package local

import (
	"bytes"
	"context"
	"encoding/json"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/storage"
)

var _ api.Wire = (*Client)(nil)

// GetJSON implements api.Wire.
func (c *Client) GetJSON(ctx context.Context, kind *api.Kind, namespace, name string) (data []byte, err error) {
	if kind.View != nil {
		obj, err := c.Get(ctx, kind, namespace, name)
		if err != nil {
			return nil, err
		}
		return marshal(obj)
	}
	if err := ctx.Err(); err != nil {
		return nil, timeout(err)
	}
	err = c.store.View(func(tx *storage.Tx) error {
		return tx.Look(kind, namespace, name, func(o *storage.Stored) error {
			data = bytes.Clone(o.JSON())
			return nil
		})
	})
	if err != nil {
		return nil, status(storeError(err, kind, namespace, name), "read %s %q", kind.Singular, name)
	}
	return data, nil
}

// ListJSON implements api.Wire.
func (c *Client) ListJSON(ctx context.Context, kind *api.Kind, opts api.ListOptions) (out api.Page[[]byte], err error) {
	if kind.View == nil {
		return listAs(ctx, c, kind, opts, asJSON)
	}
	list, err := c.List(ctx, kind, opts)
	if err != nil {
		return out, err
	}
	out = api.Page[[]byte]{Items: make([][]byte, len(list.Items)), Revision: list.Revision, Continue: list.Continue, Remaining: list.Remaining}
	for i, obj := range list.Items {
		if out.Items[i], err = marshal(obj); err != nil {
			return out, err
		}
	}
	return out, nil
}

// WatchJSON implements api.Wire.
func (c *Client) WatchJSON(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watcher[[]byte], error) {
	if kind.View == nil {
		return watchAs(ctx, c, kind, opts, asJSON)
	}
	w, err := c.Watch(ctx, kind, opts)
	if err != nil {
		return nil, err
	}
	return marshaled{w}, nil
}

// marshaled is a watch whose objects are encoded for each who watches.
type marshaled struct{ api.Watch }

func (w marshaled) Next() (e api.EventOf[[]byte], err error) {
	decoded, err := w.Watch.Next()
	if err == nil {
		e.Type = decoded.Type
		e.Object, err = marshal(decoded.Object)
	}
	return e, err
}

func marshal(obj api.Object) ([]byte, error) {
	data, err := json.Marshal(obj)
	if err != nil {
		return nil, apierrors.NewInternalError(err)
	}
	return data, nil
}
