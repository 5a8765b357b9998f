package local

import (
	"slices"
	"sync"

	"ledge/api"
	"ledge/api/rbac"
	"ledge/storage"
)

// rights are the roles and bindings of the store, in memory: a decision does not read the store. The first request after a change
// reads that change from the store's ring, so a right that was taken away is gone for the next request.
type rights struct {
	store *storage.Store

	mu     sync.RWMutex
	policy *rbac.Policy
	tails  []*tail // one for each of rightKinds; nil: nothing is known
}

var rightKinds = []*api.Kind{rbac.ClusterRoles, rbac.Roles, rbac.ClusterRoleBindings, rbac.RoleBindings}

// Rights lends out who may do what, as of now. What is lent must not be kept, or changed.
func (c *Client) Rights(use func(*rbac.Policy)) error { return c.rights.lend(use) }

func (r *rights) lend(use func(*rbac.Policy)) error {
	r.mu.RLock()
	if r.quiet() {
		defer r.mu.RUnlock()
		use(r.policy)
		return nil
	}
	r.mu.RUnlock()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.learn(); err != nil {
		return status(err, "look for the rights of all")
	}
	use(r.policy)
	return nil
}

func (r *rights) quiet() bool {
	for _, t := range r.tails {
		if !t.quiet() {
			return false
		}
	}
	return r.tails != nil
}

// learn takes in what has happened; after too much of it, it begins anew. All four kinds are taken up to the same revision: a
// role as it was must not meet a binding that was made after the role had been narrowed.
func (r *rights) learn() error {
	now, ok := r.store.Revision(), r.tails != nil
	for _, t := range r.tails {
		ok = ok && t.take(now, func(ch storage.Change) {
			if ch.Type == api.Deleted {
				r.policy.Remove(ch.Object)
			} else {
				r.policy.Set(ch.Object)
			}
		})
	}
	if ok {
		return nil
	}
	r.tails, r.policy = nil, new(rbac.Policy)
	return r.store.View(func(tx *storage.Tx) error {
		var tails []*tail
		for _, kind := range rightKinds {
			if !slices.Contains(r.store.Kinds().Kept, kind) {
				continue
			}
			objs, err := tx.List(kind, "")
			if err != nil {
				return err
			}
			for _, o := range objs {
				r.policy.Set(o)
			}
			t, err := follow(r.store, kind, tx.Revision())
			if err != nil {
				return err
			}
			tails = append(tails, t)
		}
		r.tails = tails
		return nil
	})
}
