package controller

import (
	"cmp"
	"context"
	"strconv"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// unknown asks whether the server knows nothing of an object.
func unknown[T api.Object](ctx context.Context, c api.Client, kind *api.Kind) func(T) bool {
	return func(obj T) bool {
		is, err := c.Get(ctx, kind, obj.GetNamespace(), obj.GetName())
		return apierrors.IsNotFound(err) || err == nil && is.GetUID() != obj.GetUID()
	}
}

// ownPods are the pods that a loop made and has not seen yet, and those that it deleted and has not seen go yet.
type ownPods struct {
	made  map[types.UID]wrote[*corev1.Pod]
	going map[types.UID]bool
}

func newOwnPods() ownPods {
	return ownPods{made: map[types.UID]wrote[*corev1.Pod]{}, going: map[types.UID]bool{}}
}

func (o *ownPods) clear() {
	clear(o.made)
	clear(o.going)
}

// note keeps a pod that was made.
func (o *ownPods) note(p *corev1.Pod, now time.Time) { o.made[p.UID] = wrote[*corev1.Pod]{p, now} }

// left keeps that a pod was deleted.
func (o *ownPods) left(p *corev1.Pod) {
	o.going[p.UID] = true
	delete(o.made, p.UID)
}

// over is what the view lists, with the pods just created and, as being deleted, those just deleted, though the watch does not show
// either yet.
func (o *ownPods) over(ctx context.Context, c api.Client, pods Of[*corev1.Pod], now time.Time) (list []*corev1.Pod, wake time.Duration) {
	list, wake = pods.List(), idle
	unseen := map[types.UID]bool{}
	for i, p := range list {
		delete(o.made, p.UID)
		if o.going[p.UID] && p.DeletionTimestamp == nil {
			unseen[p.UID] = true
			going := *p
			going.DeletionTimestamp = &metav1.Time{Time: now}
			list[i] = &going
		}
	}
	o.going = unseen
	gone := unknown[*corev1.Pod](ctx, c, api.Pods)
	for uid, m := range o.made {
		if now.Sub(m.at) >= madeDoubt && gone(m.obj) { // it may have come and gone between two looks
			delete(o.made, uid)
			continue
		}
		list = append(list, m.obj)
		wake = madeDoubt
	}
	return list, wake
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
