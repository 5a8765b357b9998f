package dns

import (
	"container/list"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	cacheBytes   = 1 << 20
	cacheEntries = 4096
	entryCost    = 256 // of an entry beside its message and its name

	longestKept  = time.Hour        // whatever a resolver says
	longestNot   = 5 * time.Minute  // that there is no such thing
	shortestNot  = 5 * time.Second  // where nobody says for how long
	longestStale = 24 * time.Hour   // after an answer has run out it may still be better than none
	staleTTL     = 30               // seconds, of an answer that has run out
	nobody       = 10 * time.Second // how long no resolver is waited for after none has answered, where there is a stale answer
)

// cache are answers of resolvers, as messages. It is bounded in bytes and number: who was not asked for longest goes first.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*list.Element
	recent  list.List // of *cached, newest first
	bytes   int
}

type cacheKey struct {
	name string
	kind dnsmessage.Type
}

type cached struct {
	key   cacheKey
	msg   []byte
	at    time.Time
	fresh time.Duration
}

func (e *cached) cost() int { return len(e.msg) + len(e.key.name) + entryCost }

// get gives an answer with the time that it has left; stale: it has none left.
func (c *cache) get(q dnsmessage.Question, now time.Time) (a Answer, stale, ok bool) {
	e := c.look(cacheKey{lower(q.Name), q.Type})
	if e == nil {
		return Answer{}, false, false
	}
	age := now.Sub(e.at)
	if age > e.fresh+longestStale {
		return Answer{}, false, false
	}
	var m dnsmessage.Message
	if err := m.Unpack(e.msg); err != nil {
		return Answer{}, false, false
	}
	stale = age >= e.fresh
	for _, section := range [][]dnsmessage.Resource{m.Answers, m.Authorities} {
		for i := range section {
			h := &section[i].Header
			h.TTL -= min(h.TTL, uint32(age/time.Second))
			if stale {
				h.TTL = staleTTL
			}
		}
	}
	return Answer{RCode: m.RCode, Records: m.Answers, Authority: m.Authorities}, stale, true
}

func (c *cache) look(key cacheKey) *cached {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := c.entries[key]
	if at == nil {
		return nil
	}
	c.recent.MoveToFront(at)
	return at.Value.(*cached)
}

// put keeps an answer for as long as it says.
func (c *cache) put(q dnsmessage.Question, a Answer, now time.Time) {
	keep := lifetime(a)
	if keep <= 0 {
		return
	}
	m := dnsmessage.Message{Header: dnsmessage.Header{Response: true, RCode: a.RCode}, Answers: a.Records, Authorities: a.Authority}
	msg, err := m.Pack()
	if err != nil || len(msg) > cacheBytes/16 {
		return
	}
	e := &cached{cacheKey{strings.Clone(lower(q.Name)), q.Type}, append(make([]byte, 0, len(msg)), msg...), now, keep}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[cacheKey]*list.Element{}
	}
	if old := c.entries[e.key]; old != nil {
		c.drop(old)
	}
	c.entries[e.key] = c.recent.PushFront(e)
	for c.bytes += e.cost(); c.bytes > cacheBytes || len(c.entries) > cacheEntries; {
		c.drop(c.recent.Back())
	}
}

func (c *cache) drop(at *list.Element) {
	e := c.recent.Remove(at).(*cached)
	delete(c.entries, e.key)
	c.bytes -= e.cost()
}

// lifetime is how long an answer counts.
func lifetime(a Answer) time.Duration {
	if len(a.Records) == 0 || a.RCode != dnsmessage.RCodeSuccess {
		for _, r := range a.Authority {
			if soa, ok := r.Body.(*dnsmessage.SOAResource); ok {
				return min(time.Duration(min(soa.MinTTL, r.Header.TTL))*time.Second, longestNot)
			}
		}
		return shortestNot
	}
	least := longestKept
	for _, r := range a.Records {
		least = min(least, time.Duration(r.Header.TTL)*time.Second)
	}
	return least
}
