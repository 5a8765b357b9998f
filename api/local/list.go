package local

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// page is what a continue token holds: the moment that the list shows, when that was, and the last key that was given.
// Without a revision it goes on in whatever there is then.
type page struct {
	Revision uint64 `json:"rev,omitempty"`
	Time     int64  `json:"time,omitempty"`
	After    string `json:"after"`
}

// pageTime is how long a list may take to be paged through: as on Kubernetes, where older revisions are compacted away.
const pageTime = 5 * time.Minute

// tooOld is the answer to a page of a moment that is gone. The token in it goes on after the same key in what there is
// now, for who prefers an inconsistent list to a new one.
func (p page) tooOld() error {
	err := apierrors.NewResourceExpired("The provided continue parameter is too old to display a consistent list result. " +
		"You can start a new list without the continue parameter, or use the continue token in this response to retrieve the remainder " +
		"of the results. Continuing with the provided token results in an inconsistent list - objects that were created, " +
		"modified, or deleted between the time the first chunk was returned and now may show up in the list.")
	err.ErrStatus.ListMeta.Continue = page{After: p.After}.token()
	return err
}

func (p page) token() string {
	data, _ := json.Marshal(p) // a number and a string
	return base64.RawURLEncoding.EncodeToString(data)
}

func readToken(s string) (p page, err error) {
	data, err := base64.RawURLEncoding.DecodeString(s)
	if err == nil {
		err = json.Unmarshal(data, &p)
	}
	if err != nil || p.After == "" || p.Revision != 0 && p.Time == 0 {
		return page{}, apierrors.NewBadRequest("continue key is not valid")
	}
	return p, nil
}

// List implements api.Client. All pages of a list show one moment: what changed since is undone from the
// store's ring of changes, and when that no longer reaches back the answer is 410 (N-11.29).
func (c *Client) List(ctx context.Context, kind *api.Kind, opts api.ListOptions) (api.List, error) {
	if kind.View != nil {
		return listView(ctx, c, kind, opts)
	}
	return listAs(ctx, c, kind, opts, decoded)
}

func listAs[T any](ctx context.Context, c *Client, kind *api.Kind, opts api.ListOptions, as shape[T]) (none api.Page[T], err error) {
	if err := ctx.Err(); err != nil {
		return none, timeout(err)
	}
	if err := api.CheckFields(kind, opts.Fields); err != nil {
		return none, err
	}
	if !kind.Namespaced {
		opts.Namespace = ""
	}
	from, exact, err := moment(opts)
	if err != nil {
		return none, err
	}
	l := newLook(kind, opts.Selection, as)
	l.after, l.limit = from.After, max(0, int(opts.Limit))
	if exact {
		l.exact = from.Revision
	}
	if err := l.read(c); err != nil {
		return none, err
	}
	if from.Revision > l.rev {
		return none, tooLarge(from.Revision, l.rev)
	}
	now := c.cfg.Now()
	if exact && from.After != "" && now.Sub(time.Unix(from.Time, 0)) > pageTime {
		return none, from.tooOld()
	}
	if l.late() {
		switch err := l.rewind(c.store); {
		case err != nil && from.After != "" && apierrors.IsResourceExpired(err):
			return none, from.tooOld()
		case err != nil:
			return none, err
		}
	}
	if from.Time == 0 {
		from.Time = now.Unix()
	}
	return l.page(from.Time), nil
}

// moment reads which state of the store is asked for: at least, or exactly, a revision.
func moment(opts api.ListOptions) (from page, exact bool, err error) {
	if opts.Continue != "" {
		if opts.Revision != "" && opts.Revision != "0" {
			return page{}, false, apierrors.NewBadRequest("specifying resource version is not allowed when using continue")
		}
		from, err = readToken(opts.Continue)
		return from, from.Revision > 0, err
	}
	if from.Revision, err = revision(opts.Revision); err != nil {
		return page{}, false, err
	}
	exact = opts.Match == metav1.ResourceVersionMatchExact
	if exact && from.Revision == 0 {
		return page{}, false, apierrors.NewBadRequest(`resourceVersionMatch "Exact" needs a resourceVersion other than "0"`)
	}
	return from, exact, nil
}

func revision(s string) (uint64, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0, apierrors.NewBadRequest("Invalid value: resourceVersion " + strconv.Quote(s) + " is not a number")
	}
	return n, nil
}

// nodeOf says whether a selection can pick only pods of one node, and which.
func nodeOf(kind *api.Kind, sel api.Selection) (node string, one bool) {
	if kind != api.Pods || sel.Fields == nil {
		return "", false
	}
	node, one = sel.Fields.RequiresExactMatch("spec.nodeName")
	return node, one && node != ""
}

// oneOf says whether a selection can pick only one object, and which.
func oneOf(kind *api.Kind, sel api.Selection) (name string, one bool) {
	if sel.Fields == nil || kind.Namespaced && sel.Namespace == "" {
		return "", false
	}
	return sel.Fields.RequiresExactMatch("metadata.name")
}

// noWait is a context that is over: a watch read with it gives what there is and does not wait for more.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func keyOf(o api.Object) string { return o.GetNamespace() + "/" + o.GetName() }
