package dns

import (
	"net/netip"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// mostResolvers is how many of a resolv.conf count, as for a C library.
	mostResolvers = 3
	// lookEvery is how long a resolv.conf counts before it is read again: uplinks change.
	lookEvery = 2 * time.Second
)

// Resolvers gives the name servers of the resolv.conf at path, which may be another one each time, but never self: who asks himself
// waits for himself. A resolver on the board's loopback, such as a dnsmasq, is asked only if there is no other: behind
// systemd-resolved's stub there may be ourselves.
func Resolvers(path func() string, self netip.Addr) func() []netip.AddrPort {
	var mu sync.Mutex
	var list []netip.AddrPort
	var at time.Time
	return func() []netip.AddrPort {
		mu.Lock()
		defer mu.Unlock()
		if at.IsZero() || time.Since(at) > lookEvery {
			text, _ := os.ReadFile(path()) // none: nobody is asked
			list, at = resolversOf(string(text), self), time.Now()
		}
		return list
	}
}

func resolversOf(text string, self netip.Addr) []netip.AddrPort {
	var others, loopback []netip.AddrPort
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "nameserver" {
			continue
		}
		a, err := netip.ParseAddr(f[1])
		if a = a.Unmap(); err != nil || a == self || a.IsMulticast() {
			continue
		}
		at := netip.AddrPortFrom(a, 53)
		if a.IsLoopback() || a.IsUnspecified() {
			loopback = append(loopback, at)
		} else {
			others = append(others, at)
		}
	}
	if len(others) == 0 {
		others = loopback
	}
	return others[:min(len(others), mostResolvers)]
}
