package door

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// room has things of namespaces, of which one namespace has at most as many as are left for others.
type room[T any] struct {
	most int
	of   map[types.NamespacedName]T
	has  map[string]int // each namespace
}

func newRoom[T any](most int) room[T] {
	return room[T]{most: most, of: map[types.NamespacedName]T{}, has: map[string]int{}}
}

// set takes something, new or changed; what is new and finds no room is left out.
func (r *room[T]) set(key types.NamespacedName, to T) {
	if _, had := r.of[key]; !had {
		if r.has[key.Namespace] >= r.most-len(r.of) {
			return
		}
		r.has[key.Namespace]++
	}
	r.of[key] = to
}

func (r *room[T]) drop(key types.NamespacedName) {
	if _, had := r.of[key]; !had {
		return
	}
	delete(r.of, key)
	if r.has[key.Namespace]--; r.has[key.Namespace] == 0 {
		delete(r.has, key.Namespace)
	}
}

// keep drops what is not there any more.
func (r *room[T]) keep(there []api.Object) {
	is := make(map[types.NamespacedName]bool, len(there))
	for _, o := range there {
		is[api.Key(o)] = true
	}
	for key := range maps.Clone(r.of) {
		if !is[key] {
			r.drop(key)
		}
	}
}
