package local

import (
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/storage"
)

// systemNamespaces always exist (N-2.10). All but the last cannot be deleted (N-11.41).
var systemNamespaces = []string{metav1.NamespaceDefault, metav1.NamespaceSystem, metav1.NamespacePublic, corev1.NamespaceNodeLease}

func isSystemNamespace(name string) bool { return slices.Contains(systemNamespaces, name) }

// EnsureSystem makes the namespaces and priority classes that always exist, where they are missing. When none
// is, nothing is written.
func (c *Client) EnsureSystem() error {
	missing := false
	look := func(tx *storage.Tx, kind *api.Kind, name string) (bool, error) {
		_, err := tx.Get(kind, "", name)
		if errors.Is(err, storage.ErrNotFound) {
			return true, nil
		}
		return false, storeError(err, kind, "", name)
	}
	err := c.store.View(func(tx *storage.Tx) error {
		for _, name := range systemNamespaces {
			gone, err := look(tx, api.Namespaces, name)
			if err != nil {
				return err
			}
			missing = missing || gone
		}
		for _, pc := range api.SystemPriorityClasses() {
			gone, err := look(tx, api.PriorityClasses, pc.Name)
			if err != nil {
				return err
			}
			missing = missing || gone
		}
		return nil
	})
	if err != nil || !missing {
		return status(err, "look for the system's objects")
	}
	err = c.store.Update(func(tx *storage.Tx) error {
		for _, name := range systemNamespaces {
			if gone, err := look(tx, api.Namespaces, name); err != nil {
				return err
			} else if gone {
				if err := c.makeNamespace(tx, name); err != nil {
					return err
				}
			}
		}
		for _, pc := range api.SystemPriorityClasses() {
			if gone, err := look(tx, api.PriorityClasses, pc.Name); err != nil {
				return err
			} else if gone {
				c.prepare(pc)
				if err := put(tx, api.PriorityClasses, pc, false); err != nil {
					return err
				}
			}
		}
		return nil
	})
	return status(err, "make the system's objects")
}

func (c *Client) makeNamespace(tx *storage.Tx, name string) error {
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	c.prepare(ns)
	api.Default(ns)
	return put(tx, api.Namespaces, ns, false)
}

// deleteNamespace marks a namespace, deletes what is in it, and removes it when it is empty: at once, or with
// the pod or finalizer it waited for (N-11.41).
func (c *Client) deleteNamespace(tx *storage.Tx, ns *corev1.Namespace) error {
	if isSystemNamespace(ns.Name) && ns.Name != corev1.NamespaceNodeLease {
		return forbidden(api.Namespaces, ns.Name, "this namespace may not be deleted")
	}
	if ns.DeletionTimestamp == nil {
		now := c.now()
		ns.DeletionTimestamp = &now
		ns.Status.Phase = corev1.NamespaceTerminating
		if err := put(tx, api.Namespaces, ns, false); err != nil {
			return err
		}
	}
	for _, kind := range api.Kinds {
		if !kind.Namespaced {
			continue
		}
		objs, err := list(tx, kind, ns.Name)
		if err != nil {
			return err
		}
		for _, obj := range objs {
			if err := c.markOrDrop(tx, kind, obj, nil); err != nil {
				return fmt.Errorf("delete %s %s/%s: %w", kind.Singular, ns.Name, obj.GetName(), err)
			}
		}
	}
	return finishNamespace(tx, ns)
}

// leaveNamespace is called when an object may have gone: the namespace it left may be waiting for that.
func leaveNamespace(tx *storage.Tx, kind *api.Kind, obj api.Object) error {
	if !kind.Namespaced {
		return nil
	}
	found, err := tx.Get(api.Namespaces, "", obj.GetNamespace())
	if err != nil || found.GetDeletionTimestamp() == nil {
		return nil //nolint:nilerr // an object may outlive a damaged namespace
	}
	return finishNamespace(tx, found.(*corev1.Namespace))
}

// finishNamespace removes a namespace that is going and has nothing left in it.
func finishNamespace(tx *storage.Tx, ns *corev1.Namespace) error {
	if ns.DeletionTimestamp == nil || len(ns.Finalizers) > 0 {
		return nil
	}
	for _, kind := range api.Kinds {
		if !kind.Namespaced {
			continue
		}
		objs, err := list(tx, kind, ns.Name)
		if err != nil || len(objs) > 0 {
			return err
		}
	}
	return drop(tx, api.Namespaces, ns)
}
