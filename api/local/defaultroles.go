package local

import (
	"errors"
	"log/slog"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"ledge/api"
	"ledge/api/rbac"
	"ledge/storage"
)

// defaultRoles are those that a cluster has from the start.
type defaultRoles struct {
	store *storage.Store
	make  func(*storage.Tx, api.Object) error // as the system's
	made  bool                                // they are as they should be at a start
}

// rolesWait is how long after a start the default roles are compared, where they are there. It takes some milliseconds of a
// processor that others wait for.
const rolesWait = 2 * time.Second

// there tells whether a start has made the default roles before: all were written at once, and cluster-admin is one of them.
func (r *defaultRoles) there() bool {
	err := r.store.View(func(tx *storage.Tx) error {
		_, err := tx.Get(rbac.ClusterRoles, "", "cluster-admin")
		return err
	})
	return err == nil
}

// once is ensure for a start. A full card must not keep a board from starting: what finds no room is done later.
func (r *defaultRoles) once() {
	if r.made {
		return
	}
	err := r.ensure()
	if r.made = err == nil; !r.made {
		slog.Warn("the default roles are not all there; trying again in a minute", "err", err)
	}
}

// ensure makes the default roles that are missing, and adds what the others lack. It is called once for a start, or soon after it: as on
// Kubernetes, a default role that somebody deletes or narrows stays so until the next start.
func (r *defaultRoles) ensure() error {
	var all []api.Object
	for _, role := range rbac.DefaultClusterRoles() {
		all = append(all, role)
	}
	for _, role := range rbac.DefaultRoles() {
		all = append(all, role)
	}
	lacking := func(tx *storage.Tx, write bool) (lacks bool, err error) {
		for _, want := range all {
			l, err := r.ensureOne(tx, want, write)
			if err != nil {
				return false, err
			}
			lacks = lacks || l
		}
		return lacks, nil
	}
	var lacks bool
	err := r.store.View(func(tx *storage.Tx) (err error) {
		lacks, err = lacking(tx, false)
		return err
	})
	if err == nil && lacks {
		err = r.store.Update(func(tx *storage.Tx) error { _, err := lacking(tx, true); return err })
	}
	return status(err, "make the default roles")
}

// ensureOne says whether a default role lacks something, and writes it where it does.
func (r *defaultRoles) ensureOne(tx *storage.Tx, want api.Object, write bool) (lacks bool, err error) {
	kind, err := r.store.Kinds().Of(want)
	if err != nil {
		return false, err
	}
	have, err := tx.Get(kind, want.GetNamespace(), want.GetName())
	if errors.Is(err, storage.ErrNotFound) || errors.Is(err, storage.ErrDamaged) {
		if !write {
			return true, nil
		}
		return true, r.make(tx, clone(want))
	}
	if err != nil {
		return false, storeError(err, kind, want.GetNamespace(), want.GetName())
	}
	was := clone(have)
	rbac.Reconcile(have, want)
	if apiequality.Semantic.DeepEqual(was, have) {
		return false, nil
	}
	if write {
		err = put(tx, kind, have, false)
	}
	return true, err
}
