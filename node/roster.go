package node

import (
	"maps"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/node/podspec"
	"ledge/node/podstate"
)

// roster are the workers of the pods that are here.
type roster struct {
	mu      sync.Mutex
	workers map[types.UID]*worker
}

// of is the worker of a pod; nil for one that is not on this board.
func (r *roster) of(uid types.UID) *worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.workers[uid]
}

func (r *roster) all() []*worker {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.workers))
}

func (r *roster) add(w *worker) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers == nil {
		r.workers = map[types.UID]*worker{}
	}
	r.workers[w.uid] = w
}

// remove takes a worker out; false: it is not there any more.
func (r *roster) remove(w *worker) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.workers[w.uid] != w {
		return false
	}
	delete(r.workers, w.uid)
	return true
}

// poke has every worker look again.
func (r *roster) poke() {
	for _, w := range r.all() {
		w.poke()
	}
}

// turn says whether the board has decided about a pod, and if not, whether it is the pod's turn: nobody older waits.
func (r *roster) turn(w *worker) (decided, turn bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	mine := w.current()
	for _, o := range r.workers {
		if o != w && !o.decided && !o.isEnded() && olderThan(o.current(), mine) {
			return w.decided, false
		}
	}
	return w.decided, true
}

func olderThan(a, b *corev1.Pod) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.UID < b.UID
}

// decide ends the wait of a pod, and lets the next one be asked for.
func (r *roster) decide(w *worker, counted bool) {
	r.mu.Lock()
	w.decided, w.counted = true, counted
	r.mu.Unlock()
	r.pokeUndecided()
}

// pokeUndecided has waiting pods asked for again.
func (r *roster) pokeUndecided() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, w := range r.workers {
		if !w.decided {
			w.poke()
		}
	}
}

// beside are the pods that take something of the board, but for that of w.
func (r *roster) beside(w *worker) (pods []*corev1.Pod) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, o := range r.workers {
		if p := o.current(); o != w && o.counted && !o.isEnded() && !terminal(p.Status.Phase) {
			pods = append(pods, p)
		}
	}
	return pods
}

// fromFiles are the static pods among them.
func (r *roster) fromFiles() podspec.FromFiles {
	out := podspec.FromFiles{}
	for _, w := range r.all() {
		if w.static {
			out[w.uid] = true
		}
	}
	return out
}

// critical says whether a pod is not the first to go.
func (r *roster) critical(pod *corev1.Pod) bool {
	w := r.of(pod.UID)
	return podspec.IsCritical(pod, w != nil && w.static)
}

// claim has a pod end for a reason of the board's, if it does not already for another.
func (r *roster) claim(uid types.UID, stop podstate.Stop) bool {
	w := r.of(uid)
	return w != nil && w.claim(stop)
}

// hasten is another word on a pod's end, which is coming already.
func (r *roster) hasten(uid types.UID, stop podstate.Stop) {
	if w := r.of(uid); w != nil {
		w.stop(stop)
	}
}

// mayEvict: the pod is here, and nobody has put an end to it yet.
func (r *roster) mayEvict(uid types.UID) bool {
	w := r.of(uid)
	return w != nil && w.mayStop() && !w.isEnded()
}
