package httpd

import (
	"context"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// contest is one pool as those see it who want something of it.
type contest struct {
	name string
	not  []rank // who never gets as far as this pool
	many bool   // it has places for a whole fleet
	// enter takes a place that is kept until it is lost; nil for pools where one waits.
	enter func(who party, lose func()) (*place, error)
	// hold waits for a place and keeps it for as long as it can, want for as long as it must.
	hold, want func(ctx context.Context, who party) error
	first      bool // higher ranks go first, and lower ones may wait for as long as those come
	// slow is how long a newcomer may have to wait for others of his own rank or of a higher one.
	slow time.Duration
}

// contests are all pools, and how to be the worst in each.
func contests(l *limits) []contest {
	noStrangers, people := []rank{strangers}, []rank{strangers, boards}
	conns := newCapped(nil).places
	streams := newStreams()
	return []contest{
		{name: "connections", many: true, not: []rank{root}, enter: func(who party, lose func()) (*place, error) {
			pl, err := conns.enter(strangerAt(who.name), lose)
			if err == nil && who.rank != strangers {
				if err = pl.move(who); err != nil {
					pl.leave()
				}
			}
			return pl, err
		}},
		{name: "requests", not: noStrangers, enter: l.calls.enter}, // a stranger's are a few bytes, which nobody can make slow,
		{name: "watches", many: true, not: noStrangers, enter: l.watches.enter},
		{name: "followed logs", not: people, enter: l.logs.enter},
		{name: "sessions", not: people, enter: l.sessions.enter},
		{name: "streams to a board", not: people, enter: streams.enter},
		work("token checks", []rank{users, boards, administrators, root}, l.tokens, 1, 5*time.Millisecond), // they have certificates
		first(work("lists", noStrangers, l.looks, 1, 20*time.Millisecond)),
		first(work("decodes", noStrangers, l.decodes, maxDecoding/2, 20*time.Millisecond)),
		first(bodiesContest(l)),
		first(answersContest(l)),
	}
}

func first(c contest) contest {
	c.first = true
	return c
}

// work is a pool of what nobody can make slow: a processor works at it.
func work(name string, not []rank, p *pool, n int, takes time.Duration) contest {
	do := func(ctx context.Context, who party) error {
		pl, err := p.wait(ctx, who, n, nil)
		if err != nil {
			return err
		}
		time.Sleep(takes)
		pl.leave()
		return nil
	}
	return contest{name: name, not: not, hold: do, want: do, slow: time.Second}
}

// bodiesContest: one sends a body that does not come.
func bodiesContest(l *limits) contest {
	const length = 60 << 10
	in := &intake{l}
	send := func(ctx context.Context, who party, w *lazy, body io.Reader) error {
		r := httptest.NewRequest("POST", "/", body).WithContext(withParty(ctx, who))
		r.ContentLength = length
		awaitBody(w, r)
		_, done, err := in.readBody(w, &request{Request: r}, boundSmall.bytes)
		if err == nil {
			done()
		}
		return err
	}
	return contest{name: "bodies", not: []rank{strangers}, slow: bodyTime, hold: func(ctx context.Context, who party) error {
		w := newLazy()
		return send(ctx, who, w, w)
	}, want: func(ctx context.Context, who party) error {
		return send(ctx, who, newLazy(), strings.NewReader(strings.Repeat("x", length)))
	}}
}

// answersContest: one reads each piece of an endless answer at the last moment.
func answersContest(l *limits) contest {
	do := func(ctx context.Context, who party, read func(*lazy, *response)) error {
		conn := newLazy()
		w := &response{ResponseWriter: conn, places: l.answers, party: who}
		defer w.finish()
		if err := l.answers.enter(ctx, w); err != nil {
			return err
		}
		read(conn, w)
		return nil
	}
	return contest{name: "large answers", not: []rank{strangers}, slow: waitTime, hold: func(ctx context.Context, who party) error {
		return do(ctx, who, func(conn *lazy, w *response) {
			for ctx.Err() == nil {
				begun := time.Now()
				w.extend()
				if conn.write.wait(100 * time.Millisecond); time.Since(begun) < hurryTime/2 {
					return // it had no time for this piece
				}
			}
		})
	}, want: func(ctx context.Context, who party) error {
		return do(ctx, who, func(*lazy, *response) {})
	}}
}

// lazy is a connection from which nothing comes before its deadline.
type lazy struct {
	httptest.ResponseRecorder
	read, write deadline
}

func newLazy() *lazy {
	return &lazy{read: deadline{moved: make(chan struct{}, 1)}, write: deadline{moved: make(chan struct{}, 1)}}
}

func (c *lazy) SetReadDeadline(t time.Time) error  { return c.read.set(t) }
func (c *lazy) SetWriteDeadline(t time.Time) error { return c.write.set(t) }

func (c *lazy) Read([]byte) (int, error) {
	c.read.wait(0)
	return 0, os.ErrDeadlineExceeded
}

type deadline struct {
	mu    sync.Mutex
	at    time.Time
	moved chan struct{}
}

func (d *deadline) set(t time.Time) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.at = t
	select {
	case d.moved <- struct{}{}:
	default:
	}
	return nil
}

// wait waits until shortly before the deadline, wherever it moves.
func (d *deadline) wait(before time.Duration) {
	for {
		d.mu.Lock()
		left := time.Until(d.at) - before
		d.mu.Unlock()
		if left <= 0 {
			return
		}
		select {
		case <-d.moved:
		case <-time.After(left):
		}
	}
}

// TestPools: of every pool callers of one rank take all that they can get, in the worst way that they can, and come again for ever.
// Then somebody of each rank comes and gets something: at once or within a second, if he is root, an administrator or a board and
// they have a lower rank. Of bodies and large answers, which are given out one after the other, one waits for those of one's own rank
// who have no more than oneself; a single one of them, such as one stolen board, keeps nobody waiting for longer than a second.
func TestPools(t *testing.T) {
	for i, c := range contests(anyLimits()) {
		t.Run(strings.ReplaceAll(c.name, " ", "-"), func(t *testing.T) {
			for holder := range ranks {
				if slices.Contains(c.not, holder) {
					continue
				}
				row := ""
				for newcomer := range ranks {
					if slices.Contains(c.not, newcomer) || newcomer == root && holder == root || c.first && newcomer < holder {
						continue // root is one
					}
					if newcomer == holder {
						synctest.Test(t, func(t *testing.T) {
							waited, _, err := contested(t, contests(anyLimits())[i], holder, newcomer, 1)
							row += fmt.Sprintf("  one of his rank %.2f s", waited.Seconds())
							if err != nil || waited > time.Second {
								t.Errorf("%s: one of %s holds all he can, another waits %s: %v", c.name, holder, waited, err)
							}
						})
					}
					synctest.Test(t, func(t *testing.T) {
						waited, lost, err := contested(t, contests(anyLimits())[i], holder, newcomer, 6)
						row += fmt.Sprintf("  %s %.2f s", newcomer, waited.Seconds())
						if lost > 0 {
							row += fmt.Sprintf(" (%d lost)", lost)
						}
						most := time.Second
						if newcomer == holder {
							most = max(most, c.slow)
						}
						if err != nil || waited > most {
							t.Errorf("%s: %s hold all they can, one of %s waits %s: %v", c.name, holder, newcomer, waited, err)
						}
					})
				}
				t.Logf("%-18s held by %-16s%s", c.name, holder, row)
			}
		})
	}
}

func anyLimits() *limits {
	l := newLimits(Config{})
	return &l
}

// contested has holders take what they can, and says how long a newcomer waits, and how many places were lost for that. Where nothing is
// taken back one leaves half to the next, so that it takes more than six names to fill it.
func contested(t *testing.T, c contest, holder, newcomer rank, names int) (waited time.Duration, lost int, err error) {
	switch {
	case names == 1:
	case holder == root:
		names = 1
	case c.many && (holder == boards || holder == strangers):
		names = 300
	}
	var all []party
	for i := range names {
		all = append(all, party{holder, fmt.Sprintf("198.51.%d.%d", 100+i/100, i%100)})
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	again := func() {}
	if c.enter != nil {
		again = func() { fill(c, all, &lost) }
		again()
		lost = 0
		c.want = func(_ context.Context, who party) error {
			cut := false
			pl, err := c.enter(who, func() { cut = true })
			if err != nil {
				return err
			}
			if again(); cut {
				return io.ErrUnexpectedEOF // they took it back
			}
			pl.leave()
			return nil
		}
	} else {
		defer crowdOf(ctx, c, all)()
		time.Sleep(2*time.Second + time.Second/3)
	}
	who := party{newcomer, "203.0.113.1"}
	start := time.Now()
	ctx, giveUp := context.WithTimeout(ctx, 2*waitTime)
	defer giveUp()
	for err = c.want(ctx, who); err != nil && time.Since(start) < 2*waitTime; err = c.want(ctx, who) {
		time.Sleep(100 * time.Millisecond)
		again()
	}
	waited = time.Since(start)
	cancel()
	return waited, lost, err
}

// fill has parties take places, each in turn, until none finds one. A place that is lost is asked for again, but not without end.
func fill(c contest, all []party, lost *int) {
	for refused, tries := 0, 0; refused < len(all) && tries < 12_000 && *lost < 1000; tries++ {
		if _, err := c.enter(all[tries%len(all)], func() { *lost++ }); err != nil {
			refused++
		} else {
			refused = 0
		}
	}
}

// crowdOf is a dozen requests of each party, that come again and again; what comes back waits for their end.
func crowdOf(ctx context.Context, c contest, all []party) (end func()) {
	var wg sync.WaitGroup
	for _, who := range all {
		for range 8 {
			wg.Go(func() {
				for ctx.Err() == nil {
					if c.hold(ctx, who) != nil {
						select {
						case <-time.After(time.Second):
						case <-ctx.Done():
						}
					}
				}
			})
		}
	}
	return wg.Wait
}
