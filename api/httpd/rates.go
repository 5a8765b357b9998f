package httpd

import (
	"sync"
	"time"

	"ledge/api"
	"ledge/api/coordination"
)

// pace is how many requests a caller may make: so many at once, so many a second in the long run.
type pace struct {
	burst, second float64
}

var (
	// An agent that comes back says the state of all its pods, and reads what they name, at once.
	paceNode = pace{1000, 100}
	// Its Lease, and the Node that says how it is, have a bucket of their own: a board that floods is not a lost one.
	paceBeat  = pace{30, 5}
	paceAdmin = pace{4000, 1000}
	// All pods of a namespace together.
	paceAccounts = pace{400, 100}
	// People who may only look, and strangers of one address.
	paceOther = pace{200, 50}
)

// paceOf is what a request counts against.
func paceOf(r *request, who party) (bucket string, p pace) {
	bucket = who.rank.String() + " " + who.name
	switch who.rank {
	case boards:
		if r.kind == coordination.Leases || r.kind == api.Nodes {
			return "beat of " + who.name, paceBeat
		}
		return bucket, paceNode
	case administrators, root:
		return bucket, paceAdmin
	case serviceAccounts:
		return bucket, paceAccounts
	}
	return bucket, paceOther
}

// rates are the token buckets of callers. A bucket that is full says nothing, so it need not be kept.
type rates struct {
	mu      sync.Mutex
	buckets map[string]bucket
	sweep   int // how many there may be before those that are full again are forgotten
}

type bucket struct {
	pace
	level float64
	at    time.Time // when it was at that level
}

func (b bucket) now(now time.Time) float64 {
	return min(b.burst, b.level+b.second*now.Sub(b.at).Seconds())
}

// fewBuckets are kept without looking whether they are full.
const fewBuckets = 64

// take takes one token, or returns how long to wait for one.
func (l *rates) take(name string, p pace, now time.Time) (wait time.Duration) {
	l.mu.Lock()
	defer l.mu.Unlock()
	b, ok := l.buckets[name]
	if !ok {
		b = bucket{level: p.burst, at: now}
		l.makeRoom(now)
	}
	b.pace = p
	b.level, b.at = b.now(now), now
	if b.level < 1 {
		wait = time.Duration((1 - b.level) / b.second * float64(time.Second))
	} else {
		b.level--
	}
	l.buckets[name] = b
	return wait
}

func (l *rates) makeRoom(now time.Time) {
	if l.buckets == nil {
		l.buckets, l.sweep = map[string]bucket{}, fewBuckets
	}
	if len(l.buckets) < l.sweep {
		return
	}
	for name, b := range l.buckets {
		if b.now(now) >= b.burst {
			delete(l.buckets, name)
		}
	}
	l.sweep = max(fewBuckets, 2*len(l.buckets)) // looked at seldom, whoever they are
}
