package local

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/networking"
	"ledge/api/scheduling"
	"ledge/storage"
)

// systemNamespaces always exist (N-2.10). All but the last cannot be deleted (N-11.41).
var systemNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

func isSystemNamespace(name string) bool { return slices.Contains(systemNamespaces, name) }

// systemObjects are what always exists, as they are made where they are missing, in the order of need.
func (in *inTx) systemObjects() []api.Object {
	var all []api.Object
	for _, name := range systemNamespaces {
		all = append(all, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
	}
	for _, pc := range scheduling.SystemPriorityClasses() {
		all = append(all, pc)
	}
	if slices.Contains(in.store.Kinds().Kept, networking.IngressClasses) {
		all = append(all, ownIngressClass())
	}
	return all
}

// EnsureSystem makes the objects that always exist, where they are missing. When none is, nothing is written.
func (c *Client) EnsureSystem() error {
	lacks := false
	err := c.store.View(func(tx *storage.Tx) error {
		missing, err := c.missing(tx)
		if err != nil || len(missing) > 0 {
			lacks = true
			return err
		}
		if lacks, err = ensureAPI(c.inTx, tx, false); err != nil || lacks {
			return err
		}
		lacks, err = ensureClass(c.inTx, tx, false)
		return err
	})
	if err != nil || !lacks {
		return status(err, "look for the system's objects")
	}
	err = c.store.Update(func(tx *storage.Tx) error {
		missing, err := c.missing(tx)
		if err != nil {
			return err
		}
		for _, obj := range missing {
			if err := c.makeSystem(tx, obj); err != nil {
				return err
			}
		}
		if _, err = ensureAPI(c.inTx, tx, true); err != nil {
			return err
		}
		_, err = ensureClass(c.inTx, tx, true)
		return err
	})
	return status(err, "make the system's objects")
}

func (in *inTx) missing(tx *storage.Tx) ([]api.Object, error) {
	var out []api.Object
	all := in.systemObjects()
	namespaces, err := list(tx, api.Namespaces, "")
	if err != nil {
		return nil, err
	}
	for _, ns := range namespaces {
		if ns.GetDeletionTimestamp() == nil {
			all = append(all, in.accounts.namespaceObjects(ns.GetName())...)
		}
	}
	for _, want := range all {
		kind, err := in.store.Kinds().Of(want)
		if err != nil {
			return nil, err
		}
		have, err := tx.Get(kind, want.GetNamespace(), want.GetName())
		switch {
		case errors.Is(err, storage.ErrNotFound):
			out = append(out, want)
		case err != nil:
			return nil, storeError(err, kind, want.GetNamespace(), want.GetName())
		case in.accounts.otherCA(have):
			out = append(out, want)
		}
	}
	return out, nil
}

// makeSystem writes one of the system's objects, which nobody asked for: no admission applies.
func (in *inTx) makeSystem(tx *storage.Tx, obj api.Object) error {
	kind, err := in.store.Kinds().Of(obj)
	if err != nil {
		return err
	}
	prepare(kind, obj, in.now())
	if r, ok := obj.(*networkingv1.ServiceCIDR); ok {
		setRangeReady(in, r)
	}
	kind.Default(obj)
	if err := put(tx, kind, obj, false); err != nil || kind != api.Namespaces {
		return err
	}
	return in.furnish(tx, obj.GetName())
}

func (in *inTx) makeNamespace(tx *storage.Tx, name string) error {
	return in.makeSystem(tx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}})
}

// deleteNamespace marks a namespace, deletes what is in it, and removes it when it is empty: at once, or with
// the pod or finalizer it waited for (N-11.41).
func (in *inTx) deleteNamespace(tx *storage.Tx, ns *corev1.Namespace) error {
	if isSystemNamespace(ns.Name) && ns.Name != corev1.NamespaceNodeLease {
		return forbidden(api.Namespaces, ns.Name, "this namespace may not be deleted")
	}
	if ns.DeletionTimestamp == nil {
		now := in.now()
		ns.DeletionTimestamp = &now
		ns.Status.Phase = corev1.NamespaceTerminating
		if err := put(tx, api.Namespaces, ns, false); err != nil {
			return err
		}
	}
	return in.terminate(tx, ns)
}

// namespaceUpdated: its last finalizer may just have gone.
func (in *inTx) namespaceUpdated(tx *storage.Tx, ns api.Object) error {
	return in.terminate(tx, ns.(*corev1.Namespace))
}

// free writes an object, or drops it where nothing keeps it any more.
func (in *inTx) free(tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	if err := putOrDrop(in, tx, kind, obj); err != nil {
		return err
	}
	return in.leaveNamespace(tx, kind, obj)
}

// few is how many objects of a kind may be left for a namespace that is going to look at all of them whenever one goes. While there are
// more it does so once a minute: each look reads them all.
const few = 16

// leaveNamespace is called when an object may have gone: the namespace it left may be waiting for that.
func (in *inTx) leaveNamespace(tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	if !kind.Namespaced {
		return nil
	}
	found, err := tx.Get(api.Namespaces, "", obj.GetNamespace())
	if err != nil || found.GetDeletionTimestamp() == nil {
		return nil //nolint:nilerr // an object may outlive a damaged namespace
	}
	left := 0
	err = tx.Each(kind, obj.GetNamespace(), "", func(*storage.Stored) error {
		if left++; left > few {
			return errEnough
		}
		return nil
	})
	switch {
	case errors.Is(err, errEnough):
		return nil
	case err != nil:
		return err
	}
	return in.terminate(tx, found.(*corev1.Namespace))
}

// endNamespaces goes on with the end of all that are going.
func endNamespaces(ctx context.Context, c *Client) error {
	var going []string
	err := c.store.Update(func(tx *storage.Tx) error { // a View would not see the transaction that asked for this
		going = nil
		all, err := list(tx, api.Namespaces, "")
		for _, ns := range all {
			if ns.GetDeletionTimestamp() != nil {
				going = append(going, ns.GetName())
			}
		}
		return err
	})
	for _, name := range going {
		err = errors.Join(err, endNamespace(ctx, c, name))
	}
	return status(err, "end namespaces")
}

// endNamespace walks through all of a namespace that is going, in as many transactions as it takes: others write in between.
func endNamespace(ctx context.Context, c *Client, name string) error {
	var at, next walk
	for ctx.Err() == nil {
		end := false
		err := c.store.Update(func(tx *storage.Tx) error { // it may be tried twice
			tx.SpendReserve()
			next = at.clone()
			ns, err := tx.Get(api.Namespaces, "", name)
			if end = err != nil || ns.GetDeletionTimestamp() == nil; end {
				return nil //nolint:nilerr // it has gone
			}
			end, err = c.walkOn(tx, ns.(*corev1.Namespace), &next)
			return err
		})
		if err != nil || end {
			return err
		}
		at = next
	}
	return nil // Run ends
}

// terminate goes on with the end of a namespace that is going, as far as one transaction should. Run does the rest.
func (in *inTx) terminate(tx *storage.Tx, ns *corev1.Namespace) error {
	if ns.DeletionTimestamp == nil {
		return nil
	}
	end, err := in.walkOn(tx, ns, &walk{})
	if !end && err == nil {
		soon(in.unended)
	}
	return err
}

// lookAtOnce is how many bytes of a namespace that is going one transaction reads, and so marks: nobody else writes meanwhile, and all of
// its pods may weigh more than a full store has room for.
const lookAtOnce = 512 << 10

// walk is how far a look at all of a namespace that is going has come, and what it has found to be left.
type walk struct {
	kinds int    // it has done with
	after string // the last key of the next kind that it has seen
	left  []remains
	later bool // it began in an earlier transaction
}

// remains is what is left of one kind in a namespace that is going.
type remains struct {
	kind       *api.Kind
	count      int
	finalizers map[string]int
}

func (w *walk) clone() walk {
	c := *w
	c.left = slices.Clone(w.left)
	for i, r := range c.left {
		c.left[i].finalizers = maps.Clone(r.finalizers)
	}
	return c
}

func (w *walk) leave(kind *api.Kind, obj api.Object) {
	if len(w.left) == 0 || w.left[len(w.left)-1].kind != kind {
		w.left = append(w.left, remains{kind, 0, map[string]int{}})
	}
	r := &w.left[len(w.left)-1]
	r.count++
	for _, f := range obj.GetFinalizers() {
		r.finalizers[f]++
	}
}

// walkOn goes on with a walk, and tells whether that has come to its end. It deletes, as far as grace and finalizers let it: the pods
// first, which may still need the rest, then the rest, then the namespace. What that waits for stands in its conditions.
func (in *inTx) walkOn(tx *storage.Tx, ns *corev1.Namespace, w *walk) (end bool, err error) {
	kinds := []*api.Kind{api.Pods}
	for _, kind := range in.store.Kinds().Kept {
		if kind.Namespaced && kind != api.Pods {
			kinds = append(kinds, kind)
		}
	}
	for room := lookAtOnce; w.kinds < len(kinds); w.kinds, w.after = w.kinds+1, "" {
		kind := kinds[w.kinds]
		podsFirst := kind != api.Pods && len(w.left) > 0 && w.left[0].kind == api.Pods
		objs, err := w.some(tx, kind, ns.Name, &room)
		if err != nil {
			return false, err
		}
		for _, obj := range objs {
			gone := false
			if !podsFirst {
				if gone, err = in.deleteIn(tx, kind, obj); err != nil {
					return false, fmt.Errorf("delete %s %s/%s: %w", kind.Singular, ns.Name, obj.GetName(), err)
				}
			}
			if !gone {
				w.leave(kind, obj)
			}
		}
		if room <= 0 {
			w.later = true
			return false, nil
		}
	}
	if w.later && len(w.left) == 0 {
		*w = walk{} // one transaction has to see that nothing is left
		return false, nil
	}
	return true, in.endOrTell(tx, ns, w.left)
}

// some reads the objects of a kind that come next, until there is no room for more.
func (w *walk) some(tx *storage.Tx, kind *api.Kind, namespace string, room *int) ([]api.Object, error) {
	var objs []api.Object
	err := tx.Each(kind, namespace, w.after, func(o *storage.Stored) error {
		if *room <= 0 {
			return errEnough
		}
		w.after = string(o.Key())
		*room -= len(o.JSON())
		obj, err := o.Object()
		if err == nil {
			objs = append(objs, obj)
		}
		return err
	})
	if err != nil && !errors.Is(err, errEnough) {
		return nil, fmt.Errorf("list %s: %w", kind, err)
	}
	return objs, nil
}

// deleteIn deletes an object of a namespace that is going, and tells whether that has gone.
func (in *inTx) deleteIn(tx *storage.Tx, kind *api.Kind, obj api.Object) (gone bool, err error) {
	background := api.DeleteOptions{Propagation: metav1.DeletePropagationBackground} // nothing stays for an owner's sake
	if err := in.propagateAndMark(tx, kind, obj, background); err != nil {
		return false, err
	}
	err = tx.Look(kind, obj.GetNamespace(), obj.GetName(), func(*storage.Stored) error { return nil })
	return errors.Is(err, storage.ErrNotFound), nil
}

// endOrTell removes a namespace of which nothing is left, or tells what is.
func (in *inTx) endOrTell(tx *storage.Tx, ns *corev1.Namespace, left []remains) error {
	held := slices.ContainsFunc(ns.Spec.Finalizers, func(f corev1.FinalizerName) bool { return f != corev1.FinalizerKubernetes })
	if len(left) == 0 && len(ns.Finalizers) == 0 && !held {
		return dropObject(in, tx, api.Namespaces, ns)
	}
	was := ns.DeepCopy()
	tellRemains(ns, left, in.now())
	if apiequality.Semantic.DeepEqual(was, ns) {
		return nil
	}
	return put(tx, api.Namespaces, ns, false)
}

// tellRemains writes into a namespace's conditions what its end waits for, in Kubernetes' words.
func tellRemains(ns *corev1.Namespace, left []remains, now metav1.Time) {
	var content, finalizers []string
	byFinalizer := map[string]int{}
	for _, r := range left {
		content = append(content, fmt.Sprintf("%s has %d resource instances", r.kind.GR(), r.count))
		for f, n := range r.finalizers {
			byFinalizer[f] += n
		}
	}
	for _, f := range slices.Sorted(maps.Keys(byFinalizer)) {
		finalizers = append(finalizers, fmt.Sprintf("%s in %d resource instances", f, byFinalizer[f]))
	}
	set := func(kind corev1.NamespaceConditionType, is bool, good, goodText, bad, badText string) {
		cond := corev1.NamespaceCondition{Type: kind, Status: corev1.ConditionFalse, Reason: good, Message: goodText, LastTransitionTime: now}
		if is {
			cond.Status, cond.Reason, cond.Message = corev1.ConditionTrue, bad, badText
		}
		for i, have := range ns.Status.Conditions {
			if have.Type == kind {
				if have.Status == cond.Status {
					cond.LastTransitionTime = have.LastTransitionTime
				}
				ns.Status.Conditions[i] = cond
				return
			}
		}
		ns.Status.Conditions = append(ns.Status.Conditions, cond)
	}
	set(corev1.NamespaceDeletionDiscoveryFailure, false, "ResourcesDiscovered", "All resources successfully discovered", "", "")
	set(corev1.NamespaceDeletionGVParsingFailure, false, "ParsedGroupVersions", "All legacy kube types successfully parsed", "", "")
	set(corev1.NamespaceDeletionContentFailure, false, "ContentDeleted",
		"All content successfully deleted, may be waiting on finalization", "", "")
	set(corev1.NamespaceContentRemaining, len(content) > 0, "ContentRemoved", "All content successfully removed",
		"SomeResourcesRemain", "Some resources are remaining: "+strings.Join(content, ", "))
	set(corev1.NamespaceFinalizersRemaining, len(finalizers) > 0, "ContentHasNoFinalizers", "All content-preserving finalizers finished",
		"SomeFinalizersRemain", "Some content in the namespace has finalizers remaining: "+strings.Join(finalizers, ", "))
}
