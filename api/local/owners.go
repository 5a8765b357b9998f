package local

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// Which objects own which, at one moment, and what follows from that. Pure.

// item is an object and its kind.
type item struct {
	kind *api.Kind
	obj  api.Object
}

// family is all objects at one moment with their owners and dependents.
type family struct {
	kinds   *api.Kinds
	there   map[types.UID]identity
	owned   []item             // name owners
	waiting map[types.UID]item // are deleted once those that block them are gone
	named   map[types.UID]bool // as owners
}

type identity struct {
	kind            *api.Kind
	namespace, name string
}

func newFamily(kinds *api.Kinds) *family {
	return &family{kinds: kinds, there: map[types.UID]identity{}, waiting: map[types.UID]item{}, named: map[types.UID]bool{}}
}

func (f *family) add(o item) {
	uid := o.obj.GetUID()
	f.there[uid] = identity{o.kind, o.obj.GetNamespace(), o.obj.GetName()}
	if refs := o.obj.GetOwnerReferences(); len(refs) > 0 {
		f.owned = append(f.owned, o)
		for _, r := range refs {
			f.named[r.UID] = true
		}
	}
	if o.obj.GetDeletionTimestamp() != nil && slices.Contains(o.obj.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		f.waiting[uid] = o
	}
}

// ownerKind is the kind that a reference to an owner names, or for a view the kind it shows; nil: this server does not know it.
func ownerKind(kinds *api.Kinds, r metav1.OwnerReference) *api.Kind {
	k := kinds.Shown(schema.FromAPIVersionAndKind(r.APIVersion, r.Kind))
	if k != nil && k.View != nil {
		return k.View.Of
	}
	return k
}

// link is what a reference to an owner comes to.
type link int

const (
	solid     link = iota // the owner is there; or of a kind that is not known here: it may be anywhere
	dangling              // there is no such owner
	astray                // it is there, in another namespace: there is no such owner for this object
	misplaced             // an object without a namespace names an owner that would be in one: nobody can tell which
	waits                 // the owner waits for this object to go first
)

func (f *family) link(o item, r metav1.OwnerReference) link {
	kind := ownerKind(f.kinds, r)
	switch {
	case kind == nil:
		return solid
	case kind.Namespaced && !o.kind.Namespaced:
		return misplaced
	}
	owner, ok := f.there[r.UID]
	if !ok || owner.kind != kind || owner.name != r.Name {
		return dangling
	}
	if kind.Namespaced && owner.namespace != o.obj.GetNamespace() {
		return astray
	}
	if _, ok := f.waiting[r.UID]; ok {
		return waits
	}
	return solid
}

// fate is what becomes of an object that names owners.
type fate struct {
	delete metav1.DeletionPropagation // it goes, and so its own dependents; "": it stays
	drop   []types.UID                // it stays without these owners
	wrong  []metav1.OwnerReference    // are to be told of: no owner of its namespace
}

// fate: an object is deleted when its last owner is gone. While another owner is left, the object loses its references to owners that
// are gone, and to owners whose deletion waits for it.
func (f *family) fate(o item) (out fate) {
	var left, unclear, waited bool
	var gone []types.UID
	for _, r := range o.obj.GetOwnerReferences() {
		is := f.link(o, r)
		switch is {
		case solid:
			left = true
			continue
		case misplaced:
			unclear = true
		case waits:
			waited = true
		}
		if is == misplaced || is == astray {
			out.wrong = append(out.wrong, r)
		}
		gone = append(gone, r.UID)
	}
	switch {
	case unclear || o.obj.GetDeletionTimestamp() != nil:
	case left:
		out.drop = gone
	case waited && f.named[o.obj.GetUID()]:
		out.delete = metav1.DeletePropagationForeground // what waits for it waits for all that is its own
	default:
		out.delete = metav1.DeletePropagationBackground // whatever the kind says to people
		if how := finalizedBy(o.obj); how != "" {
			out.delete = how
		}
	}
	return out
}

// ready are the owners under deletion that no dependent keeps. Owners in a circle, which wait only for each other, are ready too.
func (f *family) ready() []item {
	blocks := map[types.UID][]types.UID{} // an owner's dependents that it waits for
	for _, o := range f.owned {
		for _, r := range o.obj.GetOwnerReferences() {
			if r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion && f.link(o, r) == waits {
				blocks[r.UID] = append(blocks[r.UID], o.obj.GetUID())
			}
		}
	}
	c := circles{blocks: blocks, waiting: f.waiting, index: map[types.UID]int{}, circle: map[types.UID]int{}}
	for uid := range f.waiting {
		if c.index[uid] == 0 {
			c.visit(uid)
		}
	}
	var out []item
	for uid, o := range f.waiting {
		if !c.held[c.circle[uid]] {
			out = append(out, o)
		}
	}
	return out
}

// circles finds the circles of objects that wait for each other, by Tarjan's algorithm. An object in no circle is a circle of its own.
type circles struct {
	blocks  map[types.UID][]types.UID
	waiting map[types.UID]item
	index   map[types.UID]int // in which order they were visited, from 1
	circle  map[types.UID]int // number of the circle of each object that is done
	held    []bool            // by circle: it waits for something outside
	stack   []types.UID
}

// visit returns the lowest index that can be reached from one and is not done.
func (c *circles) visit(uid types.UID) (low int) {
	low = len(c.index) + 1
	c.index[uid] = low
	at := len(c.stack)
	c.stack = append(c.stack, uid)
	for _, next := range c.blocks[uid] {
		_, waits := c.waiting[next]
		_, done := c.circle[next]
		switch {
		case !waits || done:
		case c.index[next] == 0:
			low = min(low, c.visit(next))
		default:
			low = min(low, c.index[next])
		}
	}
	if low < c.index[uid] {
		return low
	}
	id := len(c.held)
	for _, member := range c.stack[at:] {
		c.circle[member] = id
	}
	c.held = append(c.held, slices.ContainsFunc(c.stack[at:], func(member types.UID) bool {
		return slices.ContainsFunc(c.blocks[member], func(next types.UID) bool {
			in, ok := c.circle[next]
			return !ok || in != id
		})
	}))
	c.stack = c.stack[:at]
	return low
}

// finalizedBy is the propagation that an object's finalizers ask for when it is deleted; "": none.
func finalizedBy(obj api.Object) metav1.DeletionPropagation {
	for _, f := range obj.GetFinalizers() {
		switch f {
		case metav1.FinalizerOrphanDependents:
			return metav1.DeletePropagationOrphan
		case metav1.FinalizerDeleteDependents:
			return metav1.DeletePropagationForeground
		}
	}
	return ""
}
