package local

import (
	"context"
	"fmt"
	"math"

	"ledge/api"
	"ledge/storage"
)

// All namespaces and boards share the space of the store. Each may hold a multiple of what is still free: one namespace alone gets
// three quarters of the space, each of two gets three sevenths, and whoever holds little can always write. What a board writes counts
// as the board's, not as that of a namespace.
const (
	namespaceTimes  = 3
	boardDivisor    = 4
	boardAlways     = 1 << 20   // a board that runs many pods tells of them in this
	boardPods       = 1024      // that a board shows
	boardObject     = 256 << 10 // its Node or Lease
	boardEvent      = 8 << 10   // there are MaxEvents of them
	finalizerGrowth = 4 << 10   // what a client may add of its own when it takes away a finalizer
)

// shares holds those who write to their share of the space.
type shares struct{ references *references }

// put writes an object and takes it back when that gives somebody more than their share of the space. old is nil for a new one.
func (s shares) put(ctx context.Context, tx *storage.Tx, kind *api.Kind, obj, old api.Object, sub string, lazy bool) error {
	_, known := api.UserFrom(ctx)
	node, isNode := nodeIdentity(ctx)
	unbound := old != nil && old.GetDeletionTimestamp() != nil && len(obj.GetFinalizers()) < len(old.GetFinalizers())
	if own := !known && sub == api.StatusSub; own || unbound || isNode && old != nil && old.GetDeletionTimestamp() != nil {
		tx.SpendReserve() // without these nothing ends
	}
	before := tx.Held(obj.GetNamespace())
	if err := put(tx, kind, obj, lazy); err != nil {
		return err
	}
	grew := tx.Held(obj.GetNamespace()) - before
	switch {
	case grew <= 0:
		return nil
	case isNode:
		return s.board(tx, node, kind, obj, old == nil, grew)
	case !kind.Namespaced, !known && sub == api.StatusSub, unbound && grew <= finalizerGrowth:
		return nil
	}
	space := tx.Space()
	if share := tx.Share(obj.GetNamespace(), space); share > namespaceTimes*space.Free {
		return forbidden(kind, obj.GetName(), "namespace %q holds %s of the %s that there are for all objects, and %s are left: "+
			"delete objects there, or in other namespaces, before it can have more", obj.GetNamespace(), mib(share), mib(space.All),
			mib(max(0, space.Free)))
	}
	return nil
}

// board is put for a board.
func (s shares) board(tx *storage.Tx, node string, kind *api.Kind, obj api.Object, made bool, grew int) error {
	most := boardObject
	if kind == api.Events {
		most = boardEvent
	}
	switch o, sized := obj.(interface{ Size() int }); {
	case kind == api.Pods:
	case sized && o.Size() > most:
		return forbidden(kind, obj.GetName(), "node %q may not write %s of more than %d bytes", node, kind, most)
	default:
		return nil
	}
	pods, bytes, err := s.references.heldOn(node)
	if err != nil {
		return err
	}
	if made && pods >= boardPods {
		return forbidden(kind, obj.GetName(), "node %q has %d pods already: no more are shown of it", node, pods)
	}
	if space := tx.Space(); bytes+grew > max(boardAlways, space.Free/boardDivisor) {
		return forbidden(kind, obj.GetName(), "the pods of node %q hold %s of the %s that there are for all objects, and %s are left: "+
			"delete pods there before it can write more of them", node, mib(bytes), mib(space.All), mib(max(0, space.Free)))
	}
	return nil
}

func mib(bytes int) string { return fmt.Sprintf("%.1f MiB", float64(bytes)/(1<<20)) }

// heldOn is how many pods a node has, and about what they weigh. What is being committed with this write is not in it.
func (r *references) heldOn(node string) (pods, bytes int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.catchUp(math.MaxUint64); err != nil {
		return 0, 0, fmt.Errorf("look for the pods of node %q: %w", node, err)
	}
	for key := range r.nodes[node] {
		bytes += r.pods[key].size
	}
	return len(r.nodes[node]), bytes, nil
}
