package images

import (
	"cmp"
	"slices"
	"sort"
	"time"
)

// GCPolicy says when images that nobody uses are removed. The zero value is a kubelet's default (N-6.24).
type GCPolicy struct {
	High, Low int           // percent of the disk: above High images are removed until it is below Low; 0: 85 and 80
	MinAge    time.Duration // younger ones stay, for their pod may be about to start; 0: 2 minutes
	MaxIdle   time.Duration // longer unused ones go in any case; 0: no limit
}

func (p GCPolicy) withDefaults() GCPolicy {
	p.High, p.Low, p.MinAge = cmp.Or(p.High, 85), cmp.Or(p.Low, 80), cmp.Or(p.MinAge, 2*time.Minute)
	return p
}

// GCInput is all that a plan depends on.
type GCInput struct {
	Images    []GCImage
	Layers    map[string]int64 // what each layer takes, by chain ID
	Capacity  int64            // of the disk
	Available int64
	All       bool // the disk is nearly full: everything that nobody uses goes
}

// GCImage is an image as a plan sees it.
type GCImage struct {
	ID       string
	Layers   []string
	Blobs    int64         // its compressed layers, if they are kept
	Needed   bool          // pinned, built in, or a container stands on it
	Age      time.Duration // since it came
	Idle     time.Duration // since it was last used, as far as this process has seen
	LastUsed uint64        // grows with every use of any image; 0: never
}

// GCRemoval is an image that is to go.
type GCRemoval struct {
	ID    string
	Bytes int64 // that this frees, with those before it gone
	Aged  bool  // it has been idle for too long; else the space is needed
}

// PlanGC says which images go, in order: those idle for too long, and then, if the disk is too full, the least
// recently used, until it is not. short is what cannot be freed of what should be. An image that is needed never goes.
func PlanGC(in GCInput, p GCPolicy) (plan []GCRemoval, short int64) {
	p = p.withDefaults()
	refs := map[string]int{}
	for _, img := range in.Images {
		for _, l := range distinct(img.Layers) {
			refs[l]++
		}
	}
	list := slices.Clone(in.Images)
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(cmp.Compare(list[i].LastUsed, list[j].LastUsed), cmp.Compare(list[i].ID, list[j].ID)) < 0
	})
	var need, freed int64
	if in.Capacity > 0 && in.Capacity-in.Available >= in.Capacity/100*int64(p.High) {
		need = max(in.Capacity/100*int64(100-p.Low)-in.Available, 0)
	}
	stale := func(img GCImage) bool { return p.MaxIdle > 0 && img.Idle > p.MaxIdle }
	remove := func(img GCImage) {
		r := GCRemoval{ID: img.ID, Bytes: img.Blobs, Aged: stale(img)}
		for _, l := range distinct(img.Layers) {
			if refs[l]--; refs[l] == 0 {
				r.Bytes += in.Layers[l]
			}
		}
		freed += r.Bytes
		plan = append(plan, r)
	}
	var rest []GCImage
	for _, img := range list {
		switch {
		case img.Needed || img.Age < p.MinAge:
		case in.All || stale(img):
			remove(img)
		default:
			rest = append(rest, img)
		}
	}
	for _, img := range rest {
		if freed >= need {
			break
		}
		remove(img)
	}
	return plan, max(need-freed, 0)
}

// distinct leaves out layers that an image has twice.
func distinct(layers []string) []string {
	out := slices.Clone(layers)
	slices.Sort(out)
	return slices.Compact(out)
}
