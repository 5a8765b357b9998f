package keeper

import (
	"maps"
	"slices"
	"sort"
	"sync"

	"ledge/runtime"
)

// holdings is the pods and containers there are, and who watches them. Its mutex is never held over an effect.
type holdings struct {
	mu    sync.Mutex
	pods  map[string]podRecord
	cons  map[string]*container
	watch map[*watcher]bool
}

func newHoldings() *holdings {
	return &holdings{pods: map[string]podRecord{}, cons: map[string]*container{}, watch: map[*watcher]bool{}}
}

func (h *holdings) pod(uid string) (podRecord, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	rec, ok := h.pods[uid]
	return rec, ok
}

func (h *holdings) setPod(uid string, rec podRecord) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.pods[uid] = rec
}

func (h *holdings) dropPod(uid string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.pods, uid)
}

func (h *holdings) container(id string) (*container, bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	c, ok := h.cons[id]
	return c, ok
}

// add makes a container known and tells of it.
func (h *holdings) add(c *container) {
	id := c.rec.Container.ID
	h.mu.Lock()
	defer h.mu.Unlock()
	h.cons[id] = c
	h.tell(id)
}

func (h *holdings) drop(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.cons, id)
}

func (h *holdings) containers() []*container {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Collect(maps.Values(h.cons))
}

// of is the containers of a pod.
func (h *holdings) of(uid string) []*container {
	return slices.DeleteFunc(h.containers(), func(c *container) bool { return c.rec.Container.PodUID != uid })
}

func (h *holdings) state() runtime.State {
	h.mu.Lock()
	defer h.mu.Unlock()
	var s runtime.State
	for _, p := range h.pods {
		s.Pods = append(s.Pods, p.Status)
	}
	for _, c := range h.cons {
		s.Containers = append(s.Containers, c.status())
	}
	sort.Slice(s.Pods, func(i, j int) bool { return s.Pods[i].Pod.UID < s.Pods[j].Pod.UID })
	sort.Slice(s.Containers, func(i, j int) bool { return s.Containers[i].ID < s.Containers[j].ID })
	return s
}

// watcher is one caller of Watch: the containers that changed since it was last told. States that follow each
// other faster than it listens are told as one, the last.
type watcher struct {
	dirty map[string]bool
	wake  chan struct{}
}

// changed is called after a container has changed.
func (h *holdings) changed(id string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.tell(id)
}

// tell is changed with mu held.
func (h *holdings) tell(id string) {
	for w := range h.watch {
		w.dirty[id] = true
		select {
		case w.wake <- struct{}{}:
		default:
		}
	}
}

// join adds a watcher, to whom every container is new.
func (h *holdings) join() *watcher {
	h.mu.Lock()
	defer h.mu.Unlock()
	w := &watcher{dirty: map[string]bool{}, wake: make(chan struct{}, 1)}
	for id := range h.cons {
		w.dirty[id] = true
	}
	h.watch[w] = true
	return w
}

func (h *holdings) leave(w *watcher) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.watch, w)
}

// news is the containers that changed since a watcher last asked, as they are now.
func (h *holdings) news(w *watcher) (list []runtime.Status) {
	h.mu.Lock()
	defer h.mu.Unlock()
	ids := slices.Sorted(maps.Keys(w.dirty))
	w.dirty = map[string]bool{}
	for _, id := range ids {
		if c, ok := h.cons[id]; ok {
			list = append(list, c.status())
		}
	}
	return list
}
