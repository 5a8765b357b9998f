package services

import (
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"ledge/network"
)

// Listener is a socket on which a process of the board waits for others.
type Listener struct {
	Protocol string
	At       netip.AddrPort
}

// crossings are the Services that take a port of the board on which a process listens: what comes from outside goes to the Service, and
// the process hears nothing. As on Kubernetes the Service has it; unlike there, it is told.
type crossings struct {
	teller
	why map[string]string // by Service
}

// look looks at Services that changed, or at all.
func (c *crossings) look(plans []network.Service, all bool, own []netip.Addr, listeners func() ([]Listener, error)) error {
	if all || c.why == nil {
		c.why = map[string]string{}
	}
	listeners = sync.OnceValues(listeners) // most Services take no port of the board
	for _, p := range plans {
		delete(c.why, p.Name)
		for _, f := range p.Forwards {
			if slices.Contains(p.ClusterIPs, f.To.Addr()) {
				continue
			}
			here, err := listeners()
			if err != nil {
				return err
			}
			if slices.ContainsFunc(here, func(l Listener) bool { return l.hears(f, own) }) {
				c.why[p.Name] = fmt.Sprintf("has a process that listens on %s port %d too: what comes from outside goes to this Service, and not to "+
					"the process; give one of them another port", f.Protocol, f.To.Port())
				break
			}
		}
	}
	c.say(c.why)
	return nil
}

// hears says whether, without the Service, a connection from outside would reach this socket.
func (l Listener) hears(f network.Forward, own []netip.Addr) bool {
	at, to := l.At.Addr(), f.To.Addr()
	if l.Protocol != f.Protocol || l.At.Port() != f.To.Port() || at.IsLoopback() {
		return false
	}
	switch {
	case !to.IsUnspecified() && !slices.Contains(own, to):
		return false // the address of another board
	case at.IsUnspecified():
		return at.Is4() == to.Is4() || at.Is6() // :: takes both families
	case to.IsUnspecified():
		return at.Is4() == to.Is4()
	}
	return at == to
}
