package controller

import (
	"cmp"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
)

// latest is what a loop wrote, and its view does not show yet: a look at the world without it would do the same once more.
type latest[T api.Object] map[types.UID]wrote[T]

type wrote[T api.Object] struct {
	obj T
	at  time.Time
}

func (l latest[T]) note(obj T, now time.Time) { l[obj.GetUID()] = wrote[T]{obj, now} }

// over is what a view lists, as it is by now. gone asks the server for what does not show up.
func (l latest[T]) over(list []T, gone func(T) bool, now time.Time) []T {
	listed := map[types.UID]bool{}
	for i, obj := range list {
		w, ok := l[obj.GetUID()]
		switch {
		case !ok:
		case compareRevisions(obj, w.obj) >= 0:
			delete(l, obj.GetUID())
		default:
			list[i], listed[obj.GetUID()] = w.obj, true
		}
	}
	for uid, w := range l {
		switch {
		case listed[uid]:
		case now.Sub(w.at) >= madeDoubt && gone(w.obj): // it may have come and gone between two looks
			delete(l, uid)
		default:
			list = append(list, w.obj)
		}
	}
	return list
}

// compareRevisions says which of two versions of an object is newer. A revision is a number that only grows.
func compareRevisions(a, b api.Object) int {
	number := func(o api.Object) uint64 {
		n, err := strconv.ParseUint(o.GetResourceVersion(), 10, 64)
		if err != nil {
			return 0
		}
		return n
	}
	return cmp.Compare(number(a), number(b))
}
