package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sort"
	"strconv"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/storage"
)

// shape is how objects are handed out.
type shape[T any] struct {
	stored func(*storage.Stored) (T, error) // one of the store
	shared func(api.Object) (T, error)      // one that others hold, too
	change func(storage.Change) (T, error)  // one as a change has left it
}

// decoded objects belong to whoever gets them.
var decoded = shape[api.Object]{
	stored: (*storage.Stored).Object,
	shared: func(o api.Object) (api.Object, error) { return clone(o), nil },
	change: func(ch storage.Change) (api.Object, error) { return clone(ch.Object), nil },
}

// asJSON is what the store holds: nothing is decoded, and nothing encoded again.
var asJSON = shape[[]byte]{
	stored: func(o *storage.Stored) ([]byte, error) { return bytes.Clone(o.JSON()), nil },
	shared: func(o api.Object) ([]byte, error) { return json.Marshal(o) },
	change: storage.Change.JSON,
}

// look reads the objects that a selection picks. Who asks for one by its name (kubectl get -w of a pod, a board that follows its
// Node and what its pods name) does not have all others read.
type look[T any] struct {
	kind   *api.Kind
	sel    api.Selection
	picker *api.Picker
	as     shape[T]
	after  string // the key before the first
	limit  int    // how many are wanted; 0: all
	exact  uint64 // the revision that they must be of; 0: any

	rev   uint64 // that they are of
	items []picked[T]
	more  int64 // that there are beyond the limit; 1 may mean many where the selection is not of all
}

type picked[T any] struct {
	key   string
	value T
}

func newLook[T any](kind *api.Kind, sel api.Selection, as shape[T]) *look[T] {
	return &look[T]{kind: kind, sel: sel, picker: sel.Picker(kind), as: as}
}

// late says that what was read has changed since the moment that is asked for.
func (l *look[T]) late() bool { return l.exact > 0 && l.exact < l.rev }

func (l *look[T]) read(c *Client) error {
	err := c.store.View(func(tx *storage.Tx) error {
		l.rev = tx.Revision()
		if name, one := oneOf(l.kind, l.sel); one {
			return l.one(tx, l.sel.Namespace, name)
		}
		if node, one := nodeOf(l.kind, l.sel); one {
			keys, known, err := c.references.podsOn(node, l.rev)
			if err != nil {
				return err
			}
			for _, key := range keys {
				if err := l.one(tx, key.Namespace, key.Name); err != nil {
					return err
				}
			}
			if known {
				return nil
			}
		}
		return tx.Each(l.kind, l.sel.Namespace, l.after, l.take)
	})
	if errors.Is(err, errEnough) {
		err = nil
	}
	return status(err, "list %s", l.kind)
}

// one takes an object by its name. One that is damaged is left out, as in a list of all.
func (l *look[T]) one(tx *storage.Tx, namespace, name string) error {
	err := tx.Look(l.kind, namespace, name, l.take)
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrDamaged) {
		return nil
	}
	return err
}

// errEnough ends a look that has found what it was for.
var errEnough = errors.New("enough")

func (l *look[T]) take(o *storage.Stored) error {
	if string(o.Key()) <= l.after && l.after != "" || !l.picker.Picks(o.Key(), o.JSON()) {
		return nil
	}
	if l.limit > 0 && len(l.items) == l.limit && !l.late() {
		l.more++
		if !l.picker.Whole() {
			return errEnough
		}
		return nil
	}
	v, err := l.as.stored(o)
	if err == nil {
		l.items = append(l.items, picked[T]{string(o.Key()), v})
	}
	return err
}

// rewind undoes, on what was read, every change after the revision that is asked for.
func (l *look[T]) rewind(store *storage.Store) error {
	tooOld := expired("The provided continue parameter or resource version is too old to display a consistent list result. " +
		"You must start a new list without it.")
	w, err := store.Watch(l.kind, l.exact)
	if err != nil {
		return tooOld
	}
	defer w.Close()
	was := map[string]api.Object{} // as it was, by the first change after then; nil: it was not
	for {
		ch, err := w.Next(noWait)
		if errors.Is(err, context.Canceled) || err == nil && ch.Rev > l.rev {
			break
		}
		if err != nil {
			return tooOld
		}
		if _, seen := was[keyOf(ch.Object)]; !seen {
			was[keyOf(ch.Object)] = ch.Old
		}
	}
	l.items = slices.DeleteFunc(l.items, func(i picked[T]) bool { _, changed := was[i.key]; return changed })
	for key, old := range was {
		if old == nil || key <= l.after && l.after != "" || !l.sel.Matches(l.kind, old) {
			continue
		}
		v, err := l.as.shared(old)
		if err != nil {
			return apierrors.NewInternalError(err)
		}
		l.items = append(l.items, picked[T]{key, v})
	}
	sort.Slice(l.items, func(i, j int) bool { return l.items[i].key < l.items[j].key })
	l.rev = l.exact
	if over := len(l.items) - l.limit; l.limit > 0 && over > 0 {
		l.items, l.more = l.items[:l.limit], int64(over)
	}
	return nil
}

// page is what was found, and where to go on.
func (l *look[T]) page(begun int64) api.Page[T] {
	out := api.Page[T]{Items: make([]T, 0, len(l.items)), Revision: strconv.FormatUint(l.rev, 10)}
	for _, i := range l.items {
		out.Items = append(out.Items, i.value)
	}
	if l.more > 0 {
		out.Continue = page{l.rev, begun, l.items[len(l.items)-1].key}.token()
		if l.picker.Whole() {
			out.Remaining = &l.more
		}
	}
	return out
}
