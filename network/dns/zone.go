package dns

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"golang.org/x/net/dns/dnsmessage"
	"k8s.io/apimachinery/pkg/types"

	"ledge/network/service"
)

// Zone knows the names of a cluster, by what the board heard of its Services.
type Zone struct {
	heard  *service.Heard
	domain string         // "cluster.local."
	board  string         // the Node's name
	self   netip.Addr     // where this is asked: the zone's name server
	ranges []netip.Prefix // of this board's pods: nobody else knows their names

	apex, server, master dnsmessage.Name // of the SOA
}

// name is an object's.
type name = types.NamespacedName

// NewZone makes the zone of what is heard. domain is such as cluster.local, self the address where it is asked, ranges those of the
// board's pods: for names of other addresses other resolvers are asked.
func NewZone(heard *service.Heard, domain, board string, self netip.Addr, ranges ...netip.Prefix) (*Zone, error) {
	z := &Zone{heard: heard, domain: strings.ToLower(strings.TrimSuffix(domain, ".")) + ".", board: board, self: self, ranges: ranges}
	for to, text := range map[*dnsmessage.Name]string{&z.apex: z.domain, &z.server: "ns.dns." + z.domain, &z.master: "hostmaster." + z.domain} {
		var err error
		if *to, err = dnsmessage.NewName(text); err != nil {
			return nil, fmt.Errorf("cluster domain %s: %w", domain, err)
		}
	}
	return z, nil
}

// Heard waits until it is known what there is, or until it has waited long enough: who asks before is told of a failure where the zone
// does not have the name.
func (z *Zone) Heard(ctx context.Context, within time.Duration) {
	late := time.NewTimer(within)
	defer late.Stop()
	for _, what := range []int{service.OfServices, service.OfSlices} {
		select {
		case <-z.heard.Known(what):
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// hides: where boards have one and the same network for pods, a pod of another board is left out: its address is that of some pod here.
func (z *Zone) hides(e service.Endpoint) bool {
	return service.Board{Name: z.board, Pods: z.ranges}.Hides(e)
}

// pods says that an address is of this board's pods.
func (z *Zone) pods(a netip.Addr) bool {
	return slices.ContainsFunc(z.ranges, func(p netip.Prefix) bool { return p.Contains(a.Unmap()) })
}

// label is what an endpoint is called below its Service.
func label(e service.Endpoint) string {
	if e.Host != "" {
		return e.Host
	}
	return strings.NewReplacer(".", "-", ":", "-").Replace(e.Addr.String())
}
