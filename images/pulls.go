package images

import (
	"slices"
	"sort"
	"sync"
)

// pulls is which pulls go on: what they stand on or load is not removed. It guards the fields of a pull that others read.
type pulls struct {
	mu  sync.Mutex
	all map[*pull]struct{}
}

func (t *pulls) add(p *pull) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.all[p] = struct{}{}
}

func (t *pulls) remove(p *pull) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.all, p)
}

// begun says that the turn of a pull has come.
func (t *pulls) begun(p *pull) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.waiting = false
}

// hold keeps layers in place until a pull ends.
func (t *pulls) hold(p *pull, layers []layerRef) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, l := range layers {
		p.chains = append(p.chains, l.Chain)
	}
}

func (t *pulls) load(p *pull, f *download) {
	t.mu.Lock()
	defer t.mu.Unlock()
	p.loads = append(p.loads, f)
}

// need says whether a pull that goes on, other than own, needs a layer.
func (t *pulls) need(chain string, own *pull) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.all {
		if p != own && slices.Contains(p.chains, chain) {
			return true
		}
	}
	return false
}

// loading says whether a pull, other than own, downloads a blob.
func (t *pulls) loading(digest string, own *pull) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for p := range t.all {
		if p != own && slices.ContainsFunc(p.loads, func(f *download) bool { return f.req.Digest == digest }) {
			return true
		}
	}
	return false
}

// status is what goes on, by reference.
func (t *pulls) status() []PullStatus {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]PullStatus, 0, len(t.all))
	for p := range t.all {
		st := PullStatus{Ref: p.ref.String(), Waiting: p.waiting}
		for _, f := range p.loads {
			st.Layers = append(st.Layers, f.status())
		}
		out = append(out, st)
	}
	sort.Slice(out, func(i, j int) bool { return out[i].Ref < out[j].Ref })
	return out
}
