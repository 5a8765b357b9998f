package dns

import (
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/dns/dnsmessage"
)

// TestCounts: each question counts once, by where its answer came from.
func TestCounts(t *testing.T) {
	var dead atomic.Bool
	l := startServer(t, startResolver(t, func(m dnsmessage.Message, _ bool) []dnsmessage.Message {
		if dead.Load() {
			m.RCode = dnsmessage.RCodeServerFailure
			return []dnsmessage.Message{m}
		}
		return []dnsmessage.Message{with(m, "192.0.2.1", 60)}
	}))
	for _, network := range []string{"udp", "tcp"} {
		dead.Store(false)
		c := l.from(t, network, "127.0.0.8")
		is := func(kind, name string) {
			t.Helper()
			var before [kinds]uint64
			for i := range before {
				before[i] = l.cfg.Counts[i].Load()
			}
			ask(t, c, name, "A", 2*soon)
			for i := range before {
				want := uint64(0)
				if Kinds[i] == kind {
					want = 1
				}
				if got := l.cfg.Counts[i].Load() - before[i]; got != want {
					t.Errorf("%s %s: %d more are %s, want %d", network, name, got, Kinds[i], want)
				}
			}
		}
		is("cluster", "kubernetes.default.svc.cluster.local.")
		is("cluster", "nobody.default.svc.cluster.local.")
		is("outside", network+".example.com.")
		is("cached", network+".example.com.")
		l.out.age(time.Hour)
		dead.Store(true)
		is("stale", network+".example.com.")
		is("stale", network+".example.com.") // at once
		is("failed", network+".never.example.com.")
	}
	l.count(query{fault: dnsmessage.RCodeRefused}, Answer{RCode: dnsmessage.RCodeRefused})
	if n := l.cfg.Counts[refused].Load(); n != 1 {
		t.Errorf("%d are refused, want 1", n)
	}
}
