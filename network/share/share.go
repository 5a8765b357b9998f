// Package share divides what there is only so much of among those who ask, by their addresses: places for connections, for questions and
// for requests. Each may have as much as is still free: one alone gets half, two a third each, and there is always something left for one
// more, however much the others want. It remembers nobody who has nothing.
package share

import (
	"net/netip"
	"sync"
)

// Places are shared. Make them with New.
type Places struct {
	most int

	mu    sync.Mutex
	taken int
	by    map[netip.Addr]int
}

// New has that many places to give.
func New(most int) *Places { return &Places{most: most, by: map[netip.Addr]int{}} }

// Take says whether who asks may have one; then Give has to follow.
func (p *Places) Take(who netip.Addr) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.by[who] >= p.most-p.taken {
		return false
	}
	p.taken++
	p.by[who]++
	return true
}

// Taken is how many places somebody has.
func (p *Places) Taken() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Give takes a place back.
func (p *Places) Give(who netip.Addr) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken--
	if p.by[who]--; p.by[who] == 0 {
		delete(p.by, who)
	}
}
