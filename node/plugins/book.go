// Package plugins has device plugins, as their vendors ship them for Kubernetes, give devices to the pods of a board.
//
//	plugin --Register--> kubelet.sock       Plugins ----ListAndWatch, Allocate----> the plugin's own socket
//	                                           |
//	                                         Book: who has which device (pure), kept in a file
package plugins

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"ledge/node/devices"
)

// Gift is what one container has of one resource, as long as its pod lives.
type Gift struct {
	Pod       string   `json:"pod"` // its UID
	Container string   `json:"container"`
	Init      bool     `json:"init,omitempty"` // it ends before the pod's main containers begin, which may have the same
	Resource  string   `json:"resource"`
	IDs       []string `json:"ids"`
	Answer    Answer   `json:"answer"`
	Boot      string   `json:"boot,omitempty"` // in which the plugin answered; empty: it has not yet
	PreStart  bool     `json:"preStart,omitempty"`
}

func (g Gift) of(a Ask, resource string) bool {
	return g.Pod == a.Pod && g.Container == a.Container && g.Resource == resource
}

// Ask is a container that wants devices.
type Ask struct {
	Pod, Container string
	Init           bool
}

// Source is a resource, and the devices that its plugin has.
type Source struct {
	Devices map[string]bool // whether each is healthy
	Gone    time.Time       // since when there is no plugin; zero: it is there
}

// forgotten is how long devices are counted whose plugin has gone: it is replaced by a newer one, as a rule.
const forgotten = 5 * time.Minute

// Book is who has which device.
type Book struct {
	Sources map[string]Source // by resource
	Gifts   []Gift
}

// Counts are what a Node says of all resources.
func (b Book) Counts(now time.Time) map[string]devices.Count {
	out := map[string]devices.Count{}
	for name, s := range b.Sources {
		var n devices.Count
		if s.Gone.IsZero() || now.Sub(s.Gone) < forgotten {
			n.Capacity = int64(len(s.Devices))
		}
		if s.Gone.IsZero() {
			for _, healthy := range s.Devices {
				if healthy {
					n.Allocatable++
				}
			}
		}
		out[name] = n
	}
	return out
}

// find is the gift that a container has of a resource; -1: none.
func (b Book) find(a Ask, resource string) int {
	return slices.IndexFunc(b.Gifts, func(g Gift) bool { return g.of(a, resource) })
}

// free are the healthy devices that a container may have, sorted; first are those that it is to take before others, since they are its
// pod's already.
func (b Book) free(a Ask, resource string) (free, first []string) {
	taken, ours := map[string]bool{}, map[string]bool{}
	for _, g := range b.Gifts {
		for _, id := range g.IDs {
			switch {
			case g.Resource != resource:
			case g.Pod == a.Pod && g.Init: // it has ended; a sidecar, which has not, is no such one
				ours[id] = true
			default:
				taken[id] = true
			}
		}
	}
	for _, id := range slices.Sorted(maps.Keys(b.Sources[resource].Devices)) {
		if b.Sources[resource].Devices[id] && !taken[id] {
			if free = append(free, id); ours[id] {
				first = append(first, id)
			}
		}
	}
	return free, first
}

// Give chooses n devices of a resource for a container that has none yet: those of its pod that cost nothing more, then those that the
// plugin prefers, then any.
func (b Book) Give(a Ask, resource string, n int, preferred []string) (Gift, error) {
	s, known := b.Sources[resource]
	free, first := b.free(a, resource)
	switch {
	case !known || !s.Gone.IsZero():
		return Gift{}, fmt.Errorf("cannot allocate unregistered device %s: its device plugin is not there, or has not registered yet", resource)
	case len(free) < n:
		return Gift{}, fmt.Errorf("requested number of devices unavailable for %s. Requested: %d, Available: %d", resource, n, len(free))
	}
	rank := map[string]int{} // the lower, the sooner
	for _, id := range preferred {
		rank[id] = -1
	}
	for _, id := range first {
		rank[id] = -2
	}
	slices.SortStableFunc(free, func(x, y string) int { return cmp.Compare(rank[x], rank[y]) })
	ids := slices.Clone(free[:n])
	slices.Sort(ids)
	return Gift{Pod: a.Pod, Container: a.Container, Init: a.Init, Resource: resource, IDs: ids}, nil
}

// Again says whether the plugin may be asked anew for what a container has, as after a boot.
func (b Book) Again(g Gift) error {
	s := b.Sources[g.Resource]
	if !s.Gone.IsZero() {
		return fmt.Errorf("it waits for the device plugin of %s, which has not registered", g.Resource)
	}
	for _, id := range g.IDs {
		if !s.Devices[id] {
			return fmt.Errorf("it waits for device %s of %s, which is not there or not healthy: "+
				"delete the pod so that the next one gets another", id, g.Resource)
		}
	}
	return nil
}

// Prune lets go of what pods had that are no more.
func (b Book) Prune(lives func(pod string) bool) Book {
	b.Gifts = slices.DeleteFunc(slices.Clone(b.Gifts), func(g Gift) bool { return !lives(g.Pod) })
	return b
}
