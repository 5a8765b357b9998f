package httpd

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// pool is a share of something, and who has it at the moment. There are three kinds: of those whose places can be taken back
// (takenBack) the greediest party's oldest idle one goes when there is no room; of others one waits for a place (wait); of the
// rest one is refused.
type pool struct {
	what      string // there can be too many of
	retry     int    // seconds after which one may ask again
	takenBack bool

	mu sync.Mutex
	share
	held    map[party]map[*place]bool
	clock   uint64 // counts uses
	waiters []*waiter
	queue   *pool // where those who wait have places of their own; nil: as many as come
}

func newPool(what string, common int, t [ranks]terms) *pool {
	return &pool{what: what, retry: 5, share: newShare(common, t), held: map[party]map[*place]bool{}}
}

// place is what somebody has of a pool.
type place struct {
	of    *pool
	party party
	n     int
	used  uint64 // when it was used last
	busy  int    // uses that go on; but for a stranger's it is not taken back
	gone  bool
	// lose is called when the place has been taken back, without the lock. Of a pool where one waits, press is called instead,
	// with it, and says for how long those who wait bear with the holder; 0: as long as it takes.
	lose  func()
	press func(left time.Duration)
}

// waiter is somebody who waits for a place.
type waiter struct {
	place *place
	ready chan struct{} // closed when it has it
}

// enter takes a place, or says why there is none. lose hears that it has been taken back; nil where that is not done.
func (p *pool) enter(who party, lose func()) (*place, error) {
	pl := &place{of: p, party: who, n: 1, lose: lose}
	p.mu.Lock()
	loser, err := p.admit(pl)
	p.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if loser != nil {
		loser.lose()
	}
	return pl, nil
}

// admit lets a place in if there is room, or another loses its own for it. The caller holds mu.
func (p *pool) admit(pl *place) (loser *place, err error) {
	who := pl.party
	if !p.fits(who, pl.n) {
		if loser = p.idlest(who); loser == nil {
			return nil, p.refusal(who)
		}
		p.drop(loser)
	}
	p.put(pl)
	return loser, nil
}

func (p *pool) refusal(who party) error {
	if p.full(who, 1) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("%s has %d %s already, please close some", who, p.of[who], p.what), p.retry)
	}
	return apierrors.NewTooManyRequests("too many "+p.what+" at once, please try again", p.retry)
}

// idlest is the place that another loses to who, of the greediest party or of several that are as greedy; nil: none. The caller
// holds mu.
func (p *pool) idlest(who party) (out *place) {
	if !p.takenBack {
		return nil
	}
	for _, q := range p.greedy(who) {
		if out != nil && (q.rank != out.party.rank || p.of[q] < p.of[out.party]) {
			return out
		}
		for pl := range p.held[q] {
			if pl.busy > 0 && q.rank != strangers {
				continue
			}
			if out == nil || cmp.Or(cmp.Compare(min(pl.busy, 1), min(out.busy, 1)), cmp.Compare(pl.used, out.used)) < 0 {
				out = pl
			}
		}
	}
	return out
}

// put and drop: the caller holds mu.
func (p *pool) put(pl *place) {
	p.take(pl.party, pl.n)
	if p.held[pl.party] == nil {
		p.held[pl.party] = map[*place]bool{}
	}
	p.held[pl.party][pl] = true
	p.clock++
	pl.used = p.clock
}

func (p *pool) drop(pl *place) {
	pl.gone = true
	p.remove(pl)
}

func (p *pool) remove(pl *place) {
	p.give(pl.party, pl.n)
	if delete(p.held[pl.party], pl); len(p.held[pl.party]) == 0 {
		delete(p.held, pl.party)
	}
}

// wait waits for n until ctx ends. press hears when others begin to wait for what it got; nil: it cannot be quicker.
func (p *pool) wait(ctx context.Context, who party, n int, press func(left time.Duration)) (*place, error) {
	pl := &place{of: p, party: who, n: n, press: press}
	p.mu.Lock()
	if p.mayPass(who, n) {
		p.put(pl)
		p.mu.Unlock()
		return pl, nil
	}
	if p.queue != nil {
		standing, err := p.queue.enter(who, nil)
		if err != nil {
			p.mu.Unlock()
			return nil, err
		}
		defer standing.leave()
	}
	w := &waiter{pl, make(chan struct{})}
	p.waiters = append(p.waiters, w)
	p.pressAll(w)
	p.mu.Unlock()
	select {
	case <-w.ready:
		return pl, nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if i := slices.Index(p.waiters, w); i >= 0 {
		p.waiters = slices.Delete(p.waiters, i, i+1)
	} else {
		p.drop(pl) // it came too late
	}
	p.next()
	return nil, ctx.Err()
}

// tryWait is wait without waiting.
func (p *pool) tryWait(who party, press func(left time.Duration)) *place {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.mayPass(who, 1) {
		return nil
	}
	pl := &place{of: p, party: who, n: 1, press: press}
	p.put(pl)
	return pl
}

// mayPass says whether a newcomer need not wait. Nobody overtakes those of the same rank, and while higher ones wait all that is left
// is theirs, but for what is kept for others. The caller holds mu.
func (p *pool) mayPass(who party, n int) bool {
	for _, w := range p.waiters {
		switch r := w.place.party.rank; {
		case r == who.rank, r > who.rank && !p.kept(who, n):
			return false
		}
	}
	return p.fits(who, n)
}

// next lets in those who wait, as far as there is room: first the highest rank, of one rank the party that has the least, of one party
// who came first. The caller holds mu.
func (p *pool) next() {
	for {
		slices.SortStableFunc(p.waiters, func(a, b *waiter) int {
			x, y := a.place.party, b.place.party
			return cmp.Or(cmp.Compare(y.rank, x.rank), cmp.Compare(p.of[x], p.of[y]))
		})
		stuck := ranks // the lowest rank of which somebody must wait on
		i := slices.IndexFunc(p.waiters, func(w *waiter) bool {
			who, n := w.place.party, w.place.n
			if p.fits(who, n) && (stuck == ranks || who.rank < stuck && p.kept(who, n)) {
				return true
			}
			stuck = min(stuck, who.rank)
			return false
		})
		if i < 0 {
			return
		}
		p.put(p.waiters[i].place)
		close(p.waiters[i].ready)
		p.waiters = slices.Delete(p.waiters, i, i+1)
		p.pressAll(p.waiters...)
	}
}

// The time that a holder has when others wait for his place.
const (
	hurryTime = time.Second      // others of a higher rank, or of his own that would still have less
	turnTime  = 10 * time.Second // others of his rank
)

// patience is how long somebody who waits bears with a holder; 0: as long as it takes. The caller holds mu.
func (p *pool) patience(w *waiter, pl *place) time.Duration {
	switch who := w.place.party; {
	case who.rank < pl.party.rank || who == pl.party:
		return 0
	case who.rank > pl.party.rank || p.of[pl.party] > p.of[who]+w.place.n:
		return hurryTime
	}
	return turnTime
}

// pressAll has holders hear of those who wait. The caller holds mu.
func (p *pool) pressAll(waiters ...*waiter) {
	for _, held := range p.held {
		for pl := range held {
			if pl.press == nil {
				continue
			}
			for _, w := range waiters {
				pl.press(p.patience(w, pl))
			}
		}
	}
}

// awaited says whether others wait for what a place has, and how long they bear with its holder; 0: as long as it takes. Nobody
// waits for no place.
func (pl *place) awaited() (some bool, left time.Duration) {
	if pl == nil {
		return false, 0
	}
	pl.of.mu.Lock()
	defer pl.of.mu.Unlock()
	for _, w := range pl.of.waiters {
		some = true
		if p := pl.of.patience(w, pl); p > 0 && (left == 0 || p < left) {
			left = p
		}
	}
	return some, left
}

// leave gives a place back. It may be called again, and after the place was lost.
func (pl *place) leave() {
	p := pl.of
	p.mu.Lock()
	defer p.mu.Unlock()
	if !pl.gone {
		p.drop(pl)
		p.next()
	}
}

// lost says that a place has been taken back or given back.
func (pl *place) lost() bool {
	pl.of.mu.Lock()
	defer pl.of.mu.Unlock()
	return pl.gone
}

// use says that a place is being used, until done.
func (pl *place) use() (done func()) {
	p := pl.of
	count := func(by int) {
		p.mu.Lock()
		defer p.mu.Unlock()
		pl.busy += by
		p.clock++
		pl.used = p.clock
	}
	count(1)
	return func() { count(-1) }
}

// whose is the party that has a place.
func (pl *place) whose() party {
	pl.of.mu.Lock()
	defer pl.of.mu.Unlock()
	return pl.party
}

// move makes a place another party's, if that may have one more.
func (pl *place) move(to party) error {
	p := pl.of
	p.mu.Lock()
	if pl.gone {
		p.mu.Unlock()
		return nil
	}
	from := pl.party
	p.remove(pl)
	pl.party = to
	loser, err := p.admit(pl)
	if err != nil {
		pl.party = from
		p.put(pl)
	}
	p.mu.Unlock()
	if loser != nil {
		loser.lose()
	}
	return err
}
