// Package mirror is a Client before a Client: it remembers what a board was told about its pods, and what they name, and
// says it again while the control plane cannot be asked. So pods come back after a reboot although the uplink is down.
//
// What is written goes through or fails, as ever: whoever writes tries again. What is read is remembered when it is read
// the way an agent does: a whole list of one selection, then a watch from there.
//
// Nobody loses pods because a server has forgotten them. A pod is gone when a watch says that it was deleted, or when a
// server that has seen at least what this board has seen does not list it. One that answers from an older state, such as
// after a restored backup, takes nothing away.
package mirror

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/networking"
	"ledge/storage"
)

// Config says what stands behind the mirror, whose pods are remembered, and where. All three are required.
type Config struct {
	Client api.Client
	Node   string
	Table  *storage.Table
	// Retry is how long a remembered answer stands before the server is asked again; 0 is 5 s.
	Retry time.Duration
}

// Client is an api.Client. It is safe for concurrent use.
type Client struct {
	api.Client // writes go through
	cfg        Config

	mu      sync.Mutex
	shelves map[string]*shelf // by selection
	tokens  map[string]token  // by pod and what it asked for
	seen    uint64            // the highest revision heard of pods
	away    bool              // as last logged
}

var _ api.Client = (*Client)(nil)

// New reads what is remembered.
func New(cfg Config) (*Client, error) {
	if cfg.Client == nil || cfg.Table == nil || cfg.Node == "" {
		return nil, errors.New("make mirror: a client, a node and a table are required")
	}
	if cfg.Retry == 0 {
		cfg.Retry = 5 * time.Second
	}
	c := &Client{Client: cfg.Client, cfg: cfg, shelves: map[string]*shelf{}, tokens: map[string]token{}}
	return c, c.load()
}

// mirrored are the kinds without which no pod can be made anew.
func mirrored(kind *api.Kind) bool {
	return kind == api.Pods || kind == api.ConfigMaps || kind == api.Secrets || everything(kind)
}

// everything are kinds of which a board that follows them is told all: a pod is connected only as its network policies say.
func everything(kind *api.Kind) bool {
	return kind == networking.NetworkPolicies || kind == api.Namespaces
}

// ours: the pods of this board, and single objects that they name. What somebody on the board looks at besides is his.
func (c *Client) ours(kind *api.Kind, sel api.Selection) bool {
	if everything(kind) {
		return sel == api.Selection{}
	}
	if sel.Fields == nil || sel.Labels != nil {
		return false
	}
	if kind == api.Pods {
		node, ok := sel.Fields.RequiresExactMatch("spec.nodeName")
		return ok && node == c.cfg.Node && sel.Namespace == "" && len(sel.Fields.Requirements()) == 1
	}
	name, ok := sel.Fields.RequiresExactMatch("metadata.name")
	return ok && sel.Namespace != "" && len(sel.Fields.Requirements()) == 1 && c.named()[kind.Resource+sel.Namespace+"/"+name]
}

// remembered is the revision of an answer from memory. A watch from it waits for the server.
const remembered = "0-remembered"

// List implements api.Client.
func (c *Client) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	out, err := c.Client.List(ctx, kind, opts)
	whole := opts.Limit == 0 && opts.Continue == "" && opts.Revision == "" && opts.Match == ""
	if !mirrored(kind) || !whole {
		return out, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.ours(kind, opts.Selection) {
		return out, err
	}
	if err == nil {
		c.heard()
		return c.replace(kind, opts.Selection, out), nil
	}
	s := c.shelves[shelfKey(kind, opts.Selection)]
	lost := everything(kind) && apierrors.IsNotFound(err) // such as an older control plane, that has no such kind
	if s == nil || !unreachable(err) && !lost || ctx.Err() != nil {
		return out, err
	}
	if !c.away && !lost {
		c.away = true
		slog.Warn("the control plane cannot be asked; this board goes on with what it was told last", "err", err)
	}
	return api.List{Items: s.list(), Revision: remembered}, nil
}

// Get implements api.Client. A claim and its volume are remembered that are asked for one by one, which is all that a node may ask of a
// Kubernetes: a pod's data is on the board although the uplink is down.
func (c *Client) Get(ctx context.Context, kind *api.Kind, namespace, name string) (api.Object, error) {
	out, err := c.Client.Get(ctx, kind, namespace, name)
	if kind != api.PersistentVolumeClaims && kind != api.PersistentVolumes {
		return out, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	at := types.NamespacedName{Namespace: namespace, Name: name}.String()
	key := shelfKey(kind, api.Selection{Namespace: namespace, Fields: fields.OneTermEqualSelector("metadata.name", name)})
	switch {
	case err == nil && c.named()[kind.Resource+at]:
		s := c.shelf(kind, key)
		c.put(key, s, s.rows, out)
	case c.shelves[key] == nil || err == nil:
	case apierrors.IsNotFound(err):
		delete(c.shelves[key].rows, at)
		c.remove(key, at)
	case unreachable(err) && ctx.Err() == nil:
		if r, ok := c.shelves[key].rows[at]; ok {
			return copyOf(r.obj), nil
		}
	}
	return out, err
}

func (c *Client) heard() {
	if c.away {
		c.away = false
		slog.Info("the control plane answers again")
	}
}

// unreachable: it says nothing about objects. A server that does not know this board (any more) is none to believe either.
func unreachable(err error) bool {
	return apierrors.IsServiceUnavailable(err) || apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) ||
		apierrors.IsTooManyRequests(err) ||
		apierrors.IsInternalError(err) || apierrors.IsUnauthorized(err) || apierrors.IsForbidden(err)
}

// replace is a whole new answer. An older server's lacks nothing: what it does not list is kept.
func (c *Client) replace(kind *api.Kind, sel api.Selection, list api.List) api.List {
	key := shelfKey(kind, sel)
	s := c.shelf(kind, key)
	old := s.rows
	s.rows = map[string]row{}
	for _, obj := range list.Items {
		c.put(key, s, old, obj)
	}
	older := kind == api.Pods && c.older(list.Revision)
	lost := 0
	for name, r := range old {
		if _, is := s.rows[name]; is {
			continue
		}
		if older && !r.Kept {
			r.Kept = true
			c.write(key, name, r)
			lost++
		}
		if r.Kept {
			s.rows[name] = r
			list.Items = append(list.Items, copyOf(r.obj))
			continue
		}
		c.remove(key, name)
	}
	if lost > 0 {
		slog.Error("the control plane answers from an older state and does not know pods of this board; they stay. To end one, make a pod of its "+
			"name there and delete it", "pods", lost, "revision", list.Revision, "seen", c.seen)
	}
	if kind == api.Pods {
		c.note(list.Revision)
		c.tidy()
	}
	return list
}

// older says whether a server has seen less than this board. Revisions of all Kubernetes' servers are numbers that grow.
func (c *Client) older(revision string) bool {
	n, err := strconv.ParseUint(revision, 10, 64)
	return err == nil && n < c.seen
}

// note remembers how far the server was. It is written down with the next pod.
func (c *Client) note(revision string) {
	if n, err := strconv.ParseUint(revision, 10, 64); err == nil && n > c.seen {
		c.seen = n
	}
}

// Watch implements api.Client.
func (c *Client) Watch(ctx context.Context, kind *api.Kind, opts api.WatchOptions) (api.Watch, error) {
	if mirrored(kind) && opts.Revision == remembered {
		ctx, cancel := context.WithTimeout(ctx, c.cfg.Retry)
		return &pause{ctx, cancel}, nil
	}
	w, err := c.Client.Watch(ctx, kind, opts)
	if err != nil || !mirrored(kind) || opts.Revision == "" || opts.Revision == "0" {
		return w, err
	}
	return &watch{Watch: w, c: c, kind: kind, sel: opts.Selection}, nil
}

// pause is a watch that says nothing until it is time to ask the server again.
type pause struct {
	ctx    context.Context
	cancel context.CancelFunc
}

func (p *pause) Next() (api.Event, error) {
	<-p.ctx.Done()
	return api.Event{}, apierrors.NewResourceExpired("the server is to be asked again")
}

func (p *pause) Close() { p.cancel() }

// watch remembers what goes by.
type watch struct {
	api.Watch
	c    *Client
	kind *api.Kind
	sel  api.Selection
}

func (w *watch) Next() (api.Event, error) {
	e, err := w.Watch.Next()
	if err != nil {
		return e, err
	}
	c := w.c
	c.mu.Lock()
	defer c.mu.Unlock()
	key := shelfKey(w.kind, w.sel)
	s := c.shelves[key]
	if s == nil {
		return e, nil // nobody listed it
	}
	if w.kind == api.Pods {
		c.note(e.Object.GetResourceVersion())
	}
	switch e.Type {
	case api.Added, api.Modified:
		c.put(key, s, s.rows, e.Object)
	case api.Deleted:
		name := api.Key(e.Object).String()
		delete(s.rows, name)
		c.remove(key, name)
		if w.kind == api.Pods {
			c.tidy()
		}
	}
	return e, nil
}

// Update implements api.Client. A pod of this board that the server does not find for its status is not gone by that: a
// list or a watch says when it is.
func (c *Client) Update(ctx context.Context, kind *api.Kind, obj api.Object, opts api.WriteOptions) (api.Object, error) {
	out, err := c.Client.Update(ctx, kind, obj, opts)
	if kind != api.Pods || opts.Subresource != "status" || !apierrors.IsNotFound(err) {
		return out, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, s := range c.shelves {
		if r, is := s.rows[api.Key(obj).String()]; is && s.kind == kind && r.obj.GetUID() == obj.GetUID() {
			return nil, apierrors.NewServiceUnavailable(fmt.Sprintf("the control plane does not know pod %s", api.Key(obj)))
		}
	}
	return out, err
}
