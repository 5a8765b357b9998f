package service

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"sort"
	"strings"

	"ledge/network"
)

// Claim is what only one Service can have: a port of an address, or (without a port) an address.
type Claim struct {
	At       netip.AddrPort
	Protocol string
}

// String is a claim as a user reads it.
func (c Claim) String() string {
	switch a := c.At.Addr(); {
	case c.At.Port() == 0:
		return "address " + a.String()
	case a.IsUnspecified():
		return fmt.Sprintf("%s port %d of its own addresses", c.Protocol, c.At.Port())
	}
	return c.Protocol + " " + c.At.String()
}

// Claims of a Service.
func Claims(s network.Service) []Claim {
	var out []Claim
	for _, a := range s.ClusterIPs {
		out = append(out, Claim{At: netip.AddrPortFrom(a, 0)})
	}
	for _, f := range s.Forwards {
		out = append(out, Claim{f.To, f.Protocol})
	}
	return out
}

// MostElements bounds what the kernel is given, some 150 bytes each: 10,000 Services of two ports with two endpoints.
const MostElements = 200_000

// weight is how many elements a forward makes, about.
func weight(f network.Forward) int {
	n := 3 + len(f.Near) + len(f.Far) + len(f.Sources)
	if f.Sticky > 0 {
		n += len(f.Near) + len(f.Far)
	}
	return n
}

// Weight is how many elements a Service makes in the kernel, about.
func Weight(s network.Service) (n int) {
	for _, f := range s.Forwards {
		n += weight(f)
	}
	return n
}

// crowded is why a Service goes without that has to leave room. It says no figure that changes: who is told hears it once.
const crowded = "does not forward all ports of this Service: all Services together have more ports and endpoints than a board forwards, and the " +
	"namespaces that have most go without"

// Allot decides who has what several Services claim: the oldest of them. When all of them together want more than the kernel is given,
// those of the namespaces that want most go without. It tells the names of those that do not get all they want, and why: what the board
// does not do.
func Allot(all []network.Service) (standing []network.Service, short map[string]string) {
	standing = slices.Clone(all)
	sort.Slice(standing, func(i, j int) bool {
		return cmp.Or(standing[i].Created.Compare(standing[j].Created), cmp.Compare(standing[i].Name, standing[j].Name)) < 0
	})
	taken, total := map[Claim]string{}, 0
	short = map[string]string{}
	for i := range standing {
		s := &standing[i]
		free := func(c Claim) bool {
			of, had := taken[c]
			if !had {
				taken[c] = s.Name
			} else if of != s.Name && short[s.Name] == "" {
				short[s.Name] = fmt.Sprintf("does not forward %s to this Service: the older Service %s has it", c, of)
			}
			return !had
		}
		s.ClusterIPs = kept(s.ClusterIPs, func(a netip.Addr) bool { return free(Claim{At: netip.AddrPortFrom(a, 0)}) })
		s.Forwards = kept(s.Forwards, func(f network.Forward) bool { return free(Claim{f.To, f.Protocol}) })
		total += Weight(*s)
	}
	if total > MostElements {
		thin(standing, short)
	}
	return kept(standing, func(s network.Service) bool { return len(s.ClusterIPs)+len(s.Forwards) > 0 }), short
}

// thin leaves as much as the kernel is given, and notes who goes without. Each namespace has its oldest first, and no more of the others
// than what they leave when all get the same: one that makes thousands of Services takes room from itself.
func thin(all []network.Service, short map[string]string) {
	type place struct{ at, upTo int } // of a Service, and the weight of its namespace with it
	var order []place
	of := map[string]int{}
	for i, s := range all {
		namespace, _, _ := strings.Cut(s.Name, "/")
		of[namespace] += Weight(s)
		order = append(order, place{i, of[namespace]})
	}
	sort.SliceStable(order, func(i, j int) bool { return order[i].upTo < order[j].upTo })
	total := 0
	for _, p := range order {
		s := &all[p.at]
		s.Forwards = kept(s.Forwards, func(f network.Forward) bool {
			fits := total+weight(f) <= MostElements
			if fits {
				total += weight(f)
			} else if short[s.Name] == "" {
				short[s.Name] = crowded
			}
			return fits
		})
	}
}

// kept is a copy of what passes; the list itself if all do.
func kept[T any](list []T, pass func(T) bool) []T {
	var out []T
	for _, x := range list {
		if pass(x) {
			out = append(out, x)
		}
	}
	if len(out) == len(list) {
		return list
	}
	return out
}
