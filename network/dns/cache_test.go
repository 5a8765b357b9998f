package dns

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

var zero = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func lasting(q dnsmessage.Question, seconds uint32, addr string) Answer {
	out := addressRecords(q.Name, addrs(addr), q.Type)
	out[0].Header.TTL = seconds
	return Answer{Records: out}
}

// TestCacheKeepsTime: an answer has the time left that it has, is stale then, and gone after a day.
func TestCacheKeepsTime(t *testing.T) {
	q := question("www.example.com.", "A")
	not := Answer{RCode: dnsmessage.RCodeNameError, Authority: []dnsmessage.Resource{{Header: header(q.Name, dnsmessage.TypeSOA, 100),
		Body: &dnsmessage.SOAResource{NS: q.Name, MBox: q.Name, MinTTL: 30}}}}
	for _, c := range []struct {
		what      string
		a         Answer
		after     time.Duration
		ok, stale bool
		ttl       uint32
	}{
		{"at once", lasting(q, 60, "192.0.2.1"), 0, true, false, 60},
		{"later", lasting(q, 60, "192.0.2.1"), 20500 * time.Millisecond, true, false, 40},
		{"run out", lasting(q, 60, "192.0.2.1"), time.Minute, true, true, staleTTL},
		{"of yesterday", lasting(q, 60, "192.0.2.1"), 25 * time.Hour, false, false, 0},
		{"for ever", lasting(q, 1<<31, "192.0.2.1"), time.Hour, true, true, staleTTL},
		{"for once", lasting(q, 0, "192.0.2.1"), 0, false, false, 0},
		{"no such name", not, 29 * time.Second, true, false, 71},
		{"no such name, run out", not, 30 * time.Second, true, true, staleTTL},
		{"nobody says for how long", Answer{RCode: dnsmessage.RCodeNameError}, 4 * time.Second, true, false, 0},
		{"nobody said for how long", Answer{RCode: dnsmessage.RCodeNameError}, 5 * time.Second, true, true, 0},
	} {
		var k cache
		k.put(q, c.a, zero)
		a, stale, ok := k.get(question("WWW.example.COM.", "A"), zero.Add(c.after))
		if ok != c.ok || stale != c.stale || ok && a.RCode != c.a.RCode {
			t.Errorf("%s: %v, stale %v, %v", c.what, ok, stale, a.RCode)
		}
		for _, r := range append(a.Records, a.Authority...) {
			if r.Header.TTL != c.ttl {
				t.Errorf("%s: %d seconds, want %d", c.what, r.Header.TTL, c.ttl)
			}
		}
		if _, _, ok := k.get(question("www.example.com.", "AAAA"), zero); ok {
			t.Errorf("%s: another type was answered", c.what)
		}
	}
}

// TestCacheIsBounded: in number by many small answers, in bytes by large ones; who was asked for last stays.
func TestCacheIsBounded(t *testing.T) {
	large := lasting(question("x.", "A"), 60, "192.0.2.1")
	for i := range 20 {
		body := &dnsmessage.TXTResource{TXT: []string{strings.Repeat("x", 200)}}
		h := header(dnsmessage.MustNewName(fmt.Sprint(i, ".")), dnsmessage.TypeTXT, 60)
		large.Records = append(large.Records, dnsmessage.Resource{Header: h, Body: body})
	}
	for _, a := range []Answer{lasting(question("x.", "A"), 60, "192.0.2.1"), large} {
		var k cache
		kept := question("kept.", "A")
		k.put(kept, a, zero)
		for i := range cacheEntries + cacheEntries/8 {
			if k.put(question(fmt.Sprint("n", i, "."), "A"), a, zero); i%16 != 0 {
				continue
			}
			k.put(question(fmt.Sprint("n", i, "."), "A"), a, zero) // again
			if _, _, ok := k.get(kept, zero); !ok {
				t.Fatal("what is asked for was dropped after", i)
			}
			if k.bytes > cacheBytes || len(k.entries) > cacheEntries || k.recent.Len() != len(k.entries) {
				t.Fatalf("%d bytes, %d entries, %d in order", k.bytes, len(k.entries), k.recent.Len())
			}
		}
		if k.bytes < cacheBytes*3/4 && len(k.entries) < cacheEntries {
			t.Errorf("only %d bytes and %d entries are used", k.bytes, len(k.entries))
		}
		for k.recent.Len() > 0 {
			k.drop(k.recent.Back())
		}
		if k.bytes != 0 || len(k.entries) != 0 {
			t.Errorf("%d bytes are counted of nothing", k.bytes)
		}
	}
	huge := large
	for range 6 {
		huge.Records = append(huge.Records, huge.Records...)
	}
	var k cache
	k.put(question("x.", "A"), huge, zero)
	if len(k.entries) != 0 {
		t.Error("one answer took more than a sixteenth")
	}
}
