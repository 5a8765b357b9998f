package local

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
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
		return c.listView(ctx, kind, opts)
	}
	if err := ctx.Err(); err != nil {
		return api.List{}, timeout(err)
	}
	if err := api.CheckFields(kind, opts.Fields); err != nil {
		return api.List{}, err
	}
	if !kind.Namespaced {
		opts.Namespace = ""
	}
	from, exact, err := moment(opts)
	if err != nil {
		return api.List{}, err
	}
	objs, rev, err := c.read(kind, opts.Selection)
	if err != nil {
		return api.List{}, err
	}
	if from.Revision > rev {
		return api.List{}, tooLarge(from.Revision, rev)
	}
	now := c.cfg.Now()
	if exact && from.After != "" && now.Sub(time.Unix(from.Time, 0)) > pageTime {
		return api.List{}, from.tooOld()
	}
	if exact && from.Revision < rev {
		objs, err = c.rewind(kind, objs, from.Revision, rev)
		switch {
		case err != nil && from.After != "" && apierrors.IsResourceExpired(err):
			return api.List{}, from.tooOld()
		case err != nil:
			return api.List{}, err
		}
		rev = from.Revision
	}
	if from.Time == 0 {
		from.Time = now.Unix()
	}
	return cut(kind, objs, page{rev, from.Time, from.After}, opts), nil
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

// read gives the objects that a selection may pick, and the revision that they are of. Who asks for one by its name (kubectl
// get -w of a pod, a board that follows its Node and what its pods name) does not have all others decoded.
func (c *Client) read(kind *api.Kind, sel api.Selection) (objs []api.Object, rev uint64, err error) {
	err = c.store.View(func(tx *storage.Tx) error {
		rev = tx.Revision()
		if name, one := oneOf(kind, sel); one {
			obj, err := tx.Get(kind, sel.Namespace, name)
			if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrDamaged) { // left out, as in a list of all
				return nil
			}
			if err == nil {
				kind.Stamp(obj)
				objs = []api.Object{obj}
			}
			return err
		}
		if node, one := nodeOf(kind, sel); one {
			keys, known, err := c.podsOn(node, rev)
			if err != nil {
				return err
			}
			if known {
				objs, err = getAll(tx, kind, sel.Namespace, keys)
				return err
			}
		}
		objs, err = list(tx, kind, sel.Namespace)
		return err
	})
	return objs, rev, status(err, "list %s", kind)
}

// nodeOf says whether a selection can pick only pods of one node, and which.
func nodeOf(kind *api.Kind, sel api.Selection) (node string, one bool) {
	if kind != api.Pods || sel.Fields == nil {
		return "", false
	}
	node, one = sel.Fields.RequiresExactMatch("spec.nodeName")
	return node, one && node != ""
}

// getAll reads those of some objects that are in a namespace, or all. What is damaged is left out, as in a list of all.
func getAll(tx *storage.Tx, kind *api.Kind, namespace string, keys []types.NamespacedName) (objs []api.Object, err error) {
	for _, key := range keys {
		if namespace != "" && key.Namespace != namespace {
			continue
		}
		obj, err := tx.Get(kind, key.Namespace, key.Name)
		if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrDamaged) {
			continue
		}
		if err != nil {
			return nil, err
		}
		kind.Stamp(obj)
		objs = append(objs, obj)
	}
	return objs, nil
}

// oneOf says whether a selection can pick only one object, and which.
func oneOf(kind *api.Kind, sel api.Selection) (name string, one bool) {
	if sel.Fields == nil || kind.Namespaced && sel.Namespace == "" {
		return "", false
	}
	return sel.Fields.RequiresExactMatch("metadata.name")
}

// rewind undoes, on what was read at revision now, every change after revision then.
func (c *Client) rewind(kind *api.Kind, objs []api.Object, then, now uint64) ([]api.Object, error) {
	tooOld := expired("The provided continue parameter or resource version is too old to display a consistent list result. " +
		"You must start a new list without it.")
	w, err := c.store.Watch(kind, then)
	if err != nil {
		return nil, tooOld
	}
	defer w.Close()
	was := map[types.NamespacedName]api.Object{} // as it was, by the first change after then; nil: it was not
	for {
		ch, err := w.Next(noWait)
		if errors.Is(err, context.Canceled) {
			break
		}
		if err != nil {
			return nil, tooOld
		}
		if ch.Rev > now {
			break
		}
		if _, seen := was[api.Key(ch.Object)]; !seen {
			was[api.Key(ch.Object)] = ch.Old
		}
	}
	objs = slices.DeleteFunc(objs, func(o api.Object) bool { _, changed := was[api.Key(o)]; return changed })
	for _, old := range was {
		if old != nil {
			objs = append(objs, clone(old))
		}
	}
	slices.SortFunc(objs, func(a, b api.Object) int { return compareKeys(keyOf(a), keyOf(b)) })
	return objs, nil
}

// noWait is a context that is over: a watch read with it gives what there is and does not wait for more.
var noWait = func() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}()

func keyOf(o api.Object) string { return o.GetNamespace() + "/" + o.GetName() }

func compareKeys(a, b string) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

// cut picks one page out of what there was at a revision.
func cut(kind *api.Kind, objs []api.Object, at page, opts api.ListOptions) api.List {
	out := api.List{Items: []api.Object{}, Revision: strconv.FormatUint(at.Revision, 10)}
	for i, o := range objs {
		if at.After != "" && keyOf(o) <= at.After || !opts.Matches(kind, o) {
			continue
		}
		if opts.Limit > 0 && int64(len(out.Items)) == opts.Limit {
			out.Continue = page{at.Revision, at.Time, keyOf(out.Items[len(out.Items)-1])}.token()
			if (opts.Labels == nil || opts.Labels.Empty()) && (opts.Fields == nil || opts.Fields.Empty()) {
				left := int64(0)
				for _, o := range objs[i:] {
					if opts.Matches(kind, o) {
						left++
					}
				}
				out.Remaining = &left
			}
			return out
		}
		kind.Stamp(o)
		out.Items = append(out.Items, o)
	}
	return out
}
