package local

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/storage"
)

// Objects that belong to others, by ownerReferences, go with them: in the background soon after, or, where the one who
// deletes says so, before them, or not at all.

// collectWait gathers the deletions of a moment, so that many cost one look at everything.
const collectWait = 200 * time.Millisecond

// collector deletes what belonged to objects that are gone.
type collector struct {
	store  *storage.Store
	client api.Client // by which it deletes, and writes events
	now    func() metav1.Time
	free   func(tx *storage.Tx, kind *api.Kind, obj api.Object) error // writes an object, which may have nothing left to wait for
	asked  chan struct{}                                              // capacity 1: something was deleted that others may have belonged to

	wrongOwners map[wrongOwner]bool // that were told of
}

// soon has Run look for objects whose owners are gone.
func (c *collector) soon() { soon(c.asked) }

// soon has Run do something. c has room for one: asked twice before that is asked once.
func soon(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// written is called after a write is durable. It has Run look for garbage if the write removed an object, or left one with an owner that
// does not exist: one client can make an object while another deletes its owner. old is nil for a new object.
func (c *collector) written(obj, old api.Object) {
	if finished(obj) {
		c.soon()
		return
	}
	sameOwner := func(a, b metav1.OwnerReference) bool { return a.UID == b.UID }
	if owners := obj.GetOwnerReferences(); len(owners) == 0 || old != nil && slices.EqualFunc(owners, old.GetOwnerReferences(), sameOwner) {
		return
	}
	err := c.store.View(func(tx *storage.Tx) error {
		if slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return c.lost(tx, obj, r) }) {
			c.soon()
		}
		return nil
	})
	if err != nil {
		c.soon() // it cannot be told: that is for who looks at everything
	}
}

// lost says whether an owner of an object does not exist. An owner of a kind that this server does not know counts as existing.
func (c *collector) lost(tx *storage.Tx, obj api.Object, owner metav1.OwnerReference) bool {
	kind := ownerKind(c.store.Kinds(), owner)
	if kind == nil {
		return false
	}
	namespace := ""
	if kind.Namespaced {
		namespace = obj.GetNamespace()
	}
	is, err := tx.Get(kind, namespace, owner.Name)
	return errors.Is(err, storage.ErrNotFound) || err == nil && is.GetUID() != owner.UID
}

// collect deletes objects that have lost all their owners, removes references to lost owners from the others, and finishes the deletion
// of owners that waited for their dependents. It repeats until there is nothing to do.
func (c *collector) collect(ctx context.Context) error {
	for {
		did, err := c.once(ctx)
		if err != nil || !did {
			return err
		}
	}
}

func (c *collector) once(ctx context.Context) (did bool, err error) {
	f, err := c.family()
	if err != nil {
		return false, status(err, "look for objects whose owners are gone")
	}
	c.tellWrong(ctx, f)
	var deeds []func() (bool, error)
	for _, o := range f.owned {
		switch fate := f.fate(o); {
		case fate.delete != "":
			deeds = append(deeds, func() (bool, error) { return c.one(ctx, o, fate.delete) })
		case len(fate.drop) > 0:
			deeds = append(deeds, func() (bool, error) { return c.disown(o, fate.drop) })
		}
	}
	freed, err := together(deeds)
	deeds = nil
	for _, o := range f.ready() {
		deeds = append(deeds, func() (bool, error) { return c.release(o) })
	}
	released, rerr := together(deeds)
	return freed || released, errors.Join(err, rerr)
}

// together does what the collector found, each for itself, and says whether anything was done.
func together(deeds []func() (bool, error)) (bool, error) {
	var some errgroup.Group
	some.SetLimit(api.WritersAtOnce)
	var did atomic.Bool
	errs := make([]error, len(deeds))
	for i, deed := range deeds {
		some.Go(func() error {
			done, err := deed()
			if done {
				did.Store(true)
			}
			errs[i] = err
			return nil
		})
	}
	_ = some.Wait() // each error is in errs
	return did.Load(), errors.Join(errs...)
}

func (c *collector) family() (*family, error) {
	f := newFamily(c.store.Kinds())
	err := c.store.View(func(tx *storage.Tx) error {
		for _, kind := range f.kinds.Kept {
			if kind == api.Events {
				continue // they have no owners, and expire
			}
			objs, err := list(tx, kind, "")
			if err != nil {
				return err
			}
			for _, obj := range objs {
				f.add(item{kind, obj})
			}
		}
		return nil
	})
	return f, err
}

// one deletes an object if it is as it was seen. One that has changed is looked at again.
func (c *collector) one(ctx context.Context, o item, how metav1.DeletionPropagation) (did bool, err error) {
	uid, rev := o.obj.GetUID(), o.obj.GetResourceVersion()
	opts := api.DeleteOptions{UID: &uid, Revision: &rev, Propagation: how}
	_, err = c.client.Delete(ctx, o.kind, o.obj.GetNamespace(), o.obj.GetName(), opts)
	switch {
	case apierrors.IsConflict(err):
		c.soon()
		return false, nil
	case apierrors.IsNotFound(err):
		return false, nil
	}
	return err == nil, err
}

// disown takes owners from an object.
func (c *collector) disown(o item, owners []types.UID) (did bool, err error) {
	return c.amend(o, func(tx *storage.Tx, obj api.Object) error {
		leave(obj, owners...)
		return put(tx, o.kind, obj, false)
	})
}

func leave(obj api.Object, owners ...types.UID) {
	obj.SetOwnerReferences(slices.DeleteFunc(obj.GetOwnerReferences(),
		func(r metav1.OwnerReference) bool { return slices.Contains(owners, r.UID) }))
}

// release removes the finalizer of an owner that has no dependents left to wait for.
func (c *collector) release(o item) (did bool, err error) {
	return c.amend(o, func(tx *storage.Tx, obj api.Object) error {
		obj.SetFinalizers(slices.DeleteFunc(obj.GetFinalizers(), func(f string) bool { return f == metav1.FinalizerDeleteDependents }))
		return c.free(tx, o.kind, obj)
	})
}

// amend changes an object if it is as it was seen. One that has changed is looked at again.
func (c *collector) amend(o item, change func(tx *storage.Tx, obj api.Object) error) (did bool, err error) {
	err = c.store.Update(func(tx *storage.Tx) error {
		did = false
		tx.SpendReserve()
		obj, err := get(tx, o.kind, o.obj.GetNamespace(), o.obj.GetName())
		if err != nil {
			return err
		}
		if obj.GetUID() != o.obj.GetUID() || obj.GetResourceVersion() != o.obj.GetResourceVersion() {
			c.soon()
			return nil
		}
		did = true
		return change(tx, obj)
	})
	if apierrors.IsNotFound(err) {
		return false, nil
	}
	return did && err == nil, status(err, "free %s %q of its owners or of what it owns", o.kind.Singular, o.obj.GetName())
}

// tellWrong writes an event, once, for each reference to an owner that is not in the namespace of the object.
func (c *collector) tellWrong(ctx context.Context, f *family) {
	told := map[wrongOwner]bool{}
	for _, o := range f.owned {
		for _, r := range f.fate(o).wrong {
			wrong := wrongOwner{o.obj.GetUID(), r.UID}
			told[wrong] = true
			if c.wrongOwners[wrong] {
				continue
			}
			c.wrongEvent(ctx, o, r)
		}
	}
	c.wrongOwners = told
}

type wrongOwner struct{ object, owner types.UID }

func (c *collector) wrongEvent(ctx context.Context, o item, r metav1.OwnerReference) {
	const component = "garbage-collector-controller"
	now := c.now()
	ref := corev1.ObjectReference{APIVersion: o.kind.APIVersion(), Kind: o.kind.Name, Namespace: o.obj.GetNamespace(), Name: o.obj.GetName(),
		UID: o.obj.GetUID()}
	e := &corev1.Event{ObjectMeta: metav1.ObjectMeta{Namespace: cmp.Or(ref.Namespace, metav1.NamespaceDefault), GenerateName: "owner-"},
		InvolvedObject: ref, Type: corev1.EventTypeWarning, Reason: "OwnerRefInvalidNamespace",
		Message: fmt.Sprintf("ownerRef [%s/%s, namespace: %s, name: %s, uid: %s] does not exist in namespace %q",
			r.APIVersion, r.Kind, ref.Namespace, r.Name, r.UID, ref.Namespace),
		Count: 1, FirstTimestamp: now, LastTimestamp: now, Source: corev1.EventSource{Component: component}, ReportingController: component}
	if _, err := c.client.Create(ctx, api.Events, e, api.WriteOptions{}); err != nil {
		slog.Debug("event not written", "reason", e.Reason, "object", ref.Name, "err", err) // its namespace is going away, or the disk is full
	}
}

// dependents are the objects that name an owner.
func (c *collector) dependents(tx *storage.Tx, kind *api.Kind, owner api.Object) ([]item, error) {
	var out []item
	for _, k := range c.store.Kinds().Kept {
		if k == api.Events || kind.Namespaced && !k.Namespaced {
			continue
		}
		objs, err := list(tx, k, owner.GetNamespace())
		if err != nil {
			return nil, err
		}
		for _, obj := range objs {
			if slices.ContainsFunc(obj.GetOwnerReferences(), func(r metav1.OwnerReference) bool { return r.UID == owner.GetUID() }) {
				out = append(out, item{k, obj})
			}
		}
	}
	return out, nil
}

// propagate decides what a deletion does with the dependents: with Orphan they lose their reference to the owner now, with Foreground
// the owner gets a finalizer and waits for them. The request decides; if it does not say, a finalizer of the object does; and if there is
// none, the kind's default. While a pod has grace left, a second deletion does not change what the first one said.
func (c *collector) propagate(tx *storage.Tx, kind *api.Kind, obj api.Object, asked metav1.DeletionPropagation) error {
	if held := obj.GetDeletionGracePeriodSeconds(); obj.GetDeletionTimestamp() != nil && held != nil && *held > 0 {
		return nil
	}
	how := cmp.Or(asked, finalizedBy(obj), kind.Propagation)
	obj.SetFinalizers(slices.DeleteFunc(slices.Clone(obj.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
	}))
	if how != metav1.DeletePropagationOrphan && how != metav1.DeletePropagationForeground {
		return nil
	}
	of, err := c.dependents(tx, kind, obj)
	if err != nil || len(of) == 0 {
		return err
	}
	if how == metav1.DeletePropagationForeground {
		obj.SetFinalizers(append(obj.GetFinalizers(), metav1.FinalizerDeleteDependents))
		return nil
	}
	for _, o := range of {
		leave(o.obj, obj.GetUID())
		if err := put(tx, o.kind, o.obj, false); err != nil {
			return err
		}
	}
	return nil
}
