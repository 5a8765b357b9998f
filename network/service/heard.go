package service

import (
	"net/netip"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
)

// MostServices and MostSlices are what a board keeps; the kernel is given fewer. A namespace gets no more than what is left for others;
// what it has it keeps, changed or not.
const MostServices, MostSlices = 10_000, 20_000

// Heard is what a board was told of Services and of what is behind them. Whoever reads holds RLock for as long as one answer takes, and
// changes nothing of what he is given. It is safe for concurrent use.
type Heard struct {
	sync.RWMutex
	services   map[types.NamespacedName]*Service
	slices     map[types.NamespacedName]held
	behind     map[types.NamespacedName][]*Slice // by Service
	namespaces map[string]int                    // with how many Services
	sliced     map[string]int                    // with how many slices
	addressed  map[netip.Addr]*Service           // by ClusterIP
	holders    map[netip.Addr][]*Slice           // of slices that may be of a headless Service

	told [2]chan struct{} // closed once it is known which Services, which slices there are
}

// held is a slice with the Service it is of, which it names in one string.
type held struct {
	of types.NamespacedName
	*Slice
}

// NewHeard has heard of nothing.
func NewHeard() *Heard {
	return &Heard{services: map[types.NamespacedName]*Service{}, slices: map[types.NamespacedName]held{},
		behind: map[types.NamespacedName][]*Slice{}, namespaces: map[string]int{}, sliced: map[string]int{}, addressed: map[netip.Addr]*Service{},
		holders: map[netip.Addr][]*Slice{}, told: [2]chan struct{}{make(chan struct{}), make(chan struct{})}}
}

// What is known of.
const (
	OfServices = iota
	OfSlices
)

// Told says that it is known which there are.
func (h *Heard) Told(what int) {
	h.Lock()
	defer h.Unlock()
	select {
	case <-h.told[what]:
	default:
		close(h.told[what])
	}
}

// Known is closed once it is known which there are.
func (h *Heard) Known(what int) <-chan struct{} { return h.told[what] }

// Whole says that a Service, or an endpoint, that is not here is nowhere.
func (h *Heard) Whole() bool {
	for _, told := range h.told {
		select {
		case <-told:
		default:
			return false
		}
	}
	return true
}

// SetService takes a Service, new or changed; false: there is no room for it.
func (h *Heard) SetService(s *Service) bool {
	h.Lock()
	defer h.Unlock()
	n := Key(s.Name)
	_, had := h.services[n]
	h.dropService(n)
	if !had && !h.room(OfServices, n.Namespace) {
		return false
	}
	h.services[n] = s
	h.namespaces[n.Namespace]++
	for _, a := range s.ClusterIPs {
		h.addressed[a] = s
	}
	return true
}

// Room says whether a namespace may have one more.
func (h *Heard) Room(what int, namespace string) bool {
	h.RLock()
	defer h.RUnlock()
	return h.room(what, namespace)
}

func (h *Heard) room(what int, namespace string) bool {
	if what == OfServices {
		return h.namespaces[namespace] < MostServices-len(h.services)
	}
	return h.sliced[namespace] < MostSlices-len(h.slices)
}

// DeleteService forgets a Service.
func (h *Heard) DeleteService(n types.NamespacedName) {
	h.Lock()
	defer h.Unlock()
	h.dropService(n)
}

func (h *Heard) dropService(n types.NamespacedName) {
	old := h.services[n]
	if old == nil {
		return
	}
	for _, a := range old.ClusterIPs {
		if h.addressed[a] == old {
			delete(h.addressed, a)
		}
	}
	delete(h.services, n)
	if h.namespaces[n.Namespace]--; h.namespaces[n.Namespace] == 0 {
		delete(h.namespaces, n.Namespace)
	}
}

// SetSlice takes a slice, new or changed, or forgets it (nil). It says which Services are other than before: it may have passed from one
// to another. ok: there is room for it.
func (h *Heard) SetSlice(n types.NamespacedName, s *Slice) (changed []types.NamespacedName, ok bool) {
	h.Lock()
	defer h.Unlock()
	was, had := h.dropSlice(n)
	if had {
		changed = append(changed, was)
	}
	if s == nil {
		return changed, true
	}
	if !had && !h.room(OfSlices, n.Namespace) {
		return changed, false
	}
	of := Key(s.Service)
	h.slices[n] = held{of, s}
	h.sliced[n.Namespace]++
	h.behind[of] = append(h.behind[of], s)
	if s.Headless || s.ByHand {
		for _, e := range s.Endpoints {
			if !slices.Contains(h.holders[e.Addr], s) {
				h.holders[e.Addr] = append(h.holders[e.Addr], s)
			}
		}
	}
	return append(changed, of), true
}

func (h *Heard) dropSlice(n types.NamespacedName) (of types.NamespacedName, had bool) {
	old, had := h.slices[n]
	if !had {
		return of, false
	}
	delete(h.slices, n)
	if h.sliced[n.Namespace]--; h.sliced[n.Namespace] == 0 {
		delete(h.sliced, n.Namespace)
	}
	without(h.behind, old.of, old.Slice)
	if old.Headless || old.ByHand {
		for _, e := range old.Endpoints {
			without(h.holders, e.Addr, old.Slice)
		}
	}
	return old.of, true
}

// without takes a slice out of one of the lists, and the list with its last one.
func without[K comparable](lists map[K][]*Slice, key K, s *Slice) {
	lists[key] = slices.DeleteFunc(lists[key], func(o *Slice) bool { return o == s })
	if len(lists[key]) == 0 {
		delete(lists, key)
	}
}

// Keep forgets the Services, or the slices, that there does not have: they went while nobody listened.
func (h *Heard) Keep(what int, there map[types.NamespacedName]bool) {
	h.Lock()
	defer h.Unlock()
	if what == OfServices {
		for n := range h.services {
			if !there[n] {
				h.dropService(n)
			}
		}
		return
	}
	for n := range h.slices {
		if !there[n] {
			h.dropSlice(n)
		}
	}
}

// Has says whether a Service, or a slice, is kept.
func (h *Heard) Has(what int, n types.NamespacedName) bool {
	h.RLock()
	defer h.RUnlock()
	if what == OfServices {
		return h.services[n] != nil
	}
	return h.slices[n].Slice != nil
}

// Service is one of them; nil: there is none.
func (h *Heard) Service(n types.NamespacedName) *Service { return h.services[n] }

// Services are all of them.
func (h *Heard) Services() map[types.NamespacedName]*Service { return h.services }

// Slice is one of them; nil: there is none.
func (h *Heard) Slice(n types.NamespacedName) *Slice { return h.slices[n].Slice }

// EachSlice calls do for every one.
func (h *Heard) EachSlice(do func(types.NamespacedName, *Slice)) {
	for n, s := range h.slices {
		do(n, s.Slice)
	}
}

// Behind are the slices of a Service.
func (h *Heard) Behind(n types.NamespacedName) []*Slice { return h.behind[n] }

// Inhabited says whether a namespace has a Service.
func (h *Heard) Inhabited(namespace string) bool { return h.namespaces[namespace] > 0 }

// At is the Service that has a ClusterIP; nil: none.
func (h *Heard) At(a netip.Addr) *Service { return h.addressed[a] }

// Holders are the slices that have an address and may be of a headless Service.
func (h *Heard) Holders(a netip.Addr) []*Slice { return h.holders[a] }
