package dns

import (
	"cmp"
	"net/netip"
	"slices"
	"sort"
	"strconv"
	"strings"

	"golang.org/x/net/dns/dnsmessage"

	"ledge/network/service"
)

const (
	// ttl is that of the cluster's answers, also of the answer that a name does not exist. To ask again costs a pod next to nothing.
	ttl = 5
	// schema is the version of Kubernetes' DNS specification that is answered by.
	schema = "1.1.0"
)

// found are the records of one name.
type found struct {
	is    bool // the name is there, or another one below it
	addrs []netip.Addr
	srv   []target
	ptr   []string
	alias string
	txt   string
	apex  bool
}

// target is where an SRV record leads.
type target struct {
	host  string
	port  uint16
	addrs []netip.Addr
}

// Answer says what the zone knows; not mine: somebody else has to be asked. An answer that ends with a CNAME to a name of others is
// the caller's to complete.
func (z *Zone) Answer(q dnsmessage.Question) (a Answer, mine bool) {
	asked := lower(q.Name)
	z.heard.RLock()
	defer z.heard.RUnlock()
	f, mine := z.look(asked)
	if !mine {
		return Answer{}, false
	}
	a = Answer{Authoritative: true}
	if !f.is {
		a.RCode = dnsmessage.RCodeNameError
	}
	a.Records, a.Extra = z.records(q, f)
	if len(a.Records) == 0 {
		a.Authority = []dnsmessage.Resource{z.soa()}
	}
	return a, true
}

// look finds a name.
func (z *Zone) look(asked string) (f found, mine bool) {
	if addr, ok := reverse(asked); ok {
		return z.findAddress(addr)
	}
	if asked == z.domain {
		return found{is: true, apex: true}, true
	}
	rest, ok := strings.CutSuffix(asked, "."+z.domain)
	if !ok {
		return found{}, false
	}
	labels := strings.Split(rest, ".")
	slices.Reverse(labels)
	switch top, below := labels[0], labels[1:]; {
	case top == "svc":
		return z.findService(below), true
	case top == "pod":
		return findPod(below), true
	case top == "dns-version" && len(below) == 0:
		return found{is: true, txt: schema}, true
	case top == "dns" && len(below) == 0:
		return found{is: true}, true
	case top == "dns" && len(below) == 1 && below[0] == "ns":
		return found{is: true, addrs: []netip.Addr{z.self}}, true
	}
	return found{}, true
}

// findService walks down from svc: namespace, Service, and below it an endpoint or a protocol and a port.
func (z *Zone) findService(labels []string) found {
	switch len(labels) {
	case 0:
		return found{is: true}
	case 1:
		return found{is: z.heard.Inhabited(labels[0])}
	}
	n := name{Namespace: labels[0], Name: labels[1]}
	s := z.heard.Service(n)
	if s == nil {
		return found{}
	}
	switch below := labels[2:]; {
	case len(below) == 0:
		return z.whole(n, s)
	case s.Target != "" || len(below) > 2:
		return found{}
	case len(below) == 1 && !strings.HasPrefix(below[0], "_"):
		return z.endpoint(n, s, below[0])
	case len(below) == 1:
		proto := below[0][1:]
		return found{is: len(z.targets(n, s, func(p service.Port) bool { return strings.EqualFold(p.Protocol, proto) && p.Name != "" })) > 0}
	case strings.HasPrefix(below[0], "_") && strings.HasPrefix(below[1], "_"):
		srv := z.targets(n, s, func(p service.Port) bool {
			return strings.EqualFold(p.Protocol, below[0][1:]) && p.Name != "" && strings.EqualFold(p.Name, below[1][1:])
		})
		return found{is: len(srv) > 0, srv: srv}
	}
	return found{}
}

// whole is what a Service's own name leads to. An SRV question for it means all of its ports, named or not.
func (z *Zone) whole(n name, s *service.Service) found {
	if s.Target != "" {
		return found{is: true, alias: s.Target}
	}
	f := found{is: true, addrs: s.ClusterIPs, srv: z.targets(n, s, func(service.Port) bool { return true })}
	if s.Headless {
		z.eachEndpoint(n, s, func(_ *service.Slice, e service.Endpoint) { f.addrs = append(f.addrs, e.Addr) })
		f.addrs = once(f.addrs)
		f.is = len(f.addrs) > 0
	}
	return f
}

// endpoint is what the name of an endpoint of a headless Service leads to.
func (z *Zone) endpoint(n name, s *service.Service, asked string) (f found) {
	if !s.Headless {
		return found{}
	}
	z.eachEndpoint(n, s, func(_ *service.Slice, e service.Endpoint) {
		if label(e) == asked {
			f.addrs = append(f.addrs, e.Addr)
		}
	})
	f.addrs = once(f.addrs)
	f.is = len(f.addrs) > 0
	return f
}

// once has each address once: several slices may hold it.
func once(addrs []netip.Addr) []netip.Addr {
	sort.Slice(addrs, func(i, j int) bool { return addrs[i].Less(addrs[j]) })
	return slices.Compact(addrs)
}

// eachEndpoint calls do for those that may be told.
func (z *Zone) eachEndpoint(n name, s *service.Service, do func(*service.Slice, service.Endpoint)) {
	for _, sl := range z.heard.Behind(n) {
		for _, e := range sl.Endpoints {
			if (e.Ready || s.Unready) && !z.hides(e) {
				do(sl, e)
			}
		}
	}
}

// targets are where the wanted ports of a Service are: at the Service, or at each of its endpoints.
func (z *Zone) targets(n name, s *service.Service, wanted func(service.Port) bool) (out []target) {
	host := n.Name + "." + n.Namespace + ".svc." + z.domain
	if !s.Headless {
		for _, p := range s.Ports {
			if wanted(p) {
				out = append(out, target{host, p.Port, s.ClusterIPs})
			}
		}
		return out
	}
	at := map[landing]int{}
	z.eachEndpoint(n, s, func(sl *service.Slice, e service.Endpoint) {
		ports := sl.Ports
		if sl.AllPorts {
			ports = s.Ports
		}
		for _, p := range ports {
			if !wanted(p) {
				continue
			}
			key := landing{label(e), p.Port}
			i, there := at[key]
			if !there {
				i = len(out)
				at[key] = i
				out = append(out, target{host: key.label + "." + host, port: p.Port})
			}
			out[i].addrs = append(out[i].addrs, e.Addr) // one host name may have several
		}
	})
	return out
}

// landing tells the SRV records of a headless Service apart.
type landing struct {
	label string
	port  uint16
}

// findPod reads the address out of a-b-c-d.NAMESPACE.pod, of whatever address it speaks.
func findPod(labels []string) found {
	switch len(labels) {
	case 0, 1:
		return found{is: true}
	case 2:
		a, err := netip.ParseAddr(strings.ReplaceAll(labels[1], "-", "."))
		if err != nil {
			a, err = netip.ParseAddr(strings.ReplaceAll(labels[1], "-", ":"))
		}
		if err == nil && a.Zone() == "" {
			return found{is: true, addrs: []netip.Addr{a.Unmap()}}
		}
	}
	return found{}
}

// findAddress says what an address is called. One of the cluster that has no name is nobody else's to name.
func (z *Zone) findAddress(addr netip.Addr) (f found, mine bool) {
	if s := z.heard.At(addr); s != nil {
		return found{is: true, ptr: []string{z.nameOf(s)}}, true
	}
	for _, sl := range z.heard.Holders(addr) {
		s := z.heard.Service(service.Key(sl.Service))
		if s == nil || !s.Headless {
			continue
		}
		for _, e := range sl.Endpoints {
			ptr := label(e) + "." + z.nameOf(s)
			if e.Addr == addr && (e.Ready || s.Unready) && !z.hides(e) && !slices.Contains(f.ptr, ptr) {
				f.is, f.ptr = true, append(f.ptr, ptr)
			}
		}
	}
	return f, f.is || z.pods(addr)
}

// nameOf is a Service's own name.
func (z *Zone) nameOf(s *service.Service) string {
	n := service.Key(s.Name)
	return n.Name + "." + n.Namespace + ".svc." + z.domain
}

// records are those of the type that is asked for.
func (z *Zone) records(q dnsmessage.Question, f found) (out, extra []dnsmessage.Resource) {
	add := func(t dnsmessage.Type, body dnsmessage.ResourceBody) {
		out = append(out, dnsmessage.Resource{Header: header(q.Name, t, ttl), Body: body})
	}
	if f.alias != "" {
		if to, err := dnsmessage.NewName(f.alias); err == nil {
			add(dnsmessage.TypeCNAME, &dnsmessage.CNAMEResource{CNAME: to})
		}
		return out, nil
	}
	switch q.Type {
	case dnsmessage.TypeA, dnsmessage.TypeAAAA:
		return addressRecords(q.Name, f.addrs, q.Type), nil
	case dnsmessage.TypePTR:
		for _, p := range f.ptr {
			if to, err := dnsmessage.NewName(p); err == nil {
				add(dnsmessage.TypePTR, &dnsmessage.PTRResource{PTR: to})
			}
		}
	case dnsmessage.TypeTXT:
		if f.txt != "" {
			add(dnsmessage.TypeTXT, &dnsmessage.TXTResource{TXT: []string{f.txt}})
		}
	case dnsmessage.TypeSRV:
		return srvRecords(q.Name, f.srv)
	case dnsmessage.TypeSOA:
		if f.apex {
			return []dnsmessage.Resource{z.soa()}, nil
		}
	case dnsmessage.TypeNS:
		if f.apex {
			add(dnsmessage.TypeNS, &dnsmessage.NSResource{NS: z.server})
			extra = addressRecords(z.server, []netip.Addr{z.self}, dnsmessage.TypeA)
		}
	}
	return out, extra
}

// addressRecords are those of one family; of a type that is neither: of both.
func addressRecords(n dnsmessage.Name, addrs []netip.Addr, t dnsmessage.Type) (out []dnsmessage.Resource) {
	for _, a := range addrs {
		switch {
		case !a.IsValid():
		case a.Is4() && t != dnsmessage.TypeAAAA:
			out = append(out, dnsmessage.Resource{Header: header(n, dnsmessage.TypeA, ttl), Body: &dnsmessage.AResource{A: a.As4()}})
		case a.Is6() && t != dnsmessage.TypeA:
			out = append(out, dnsmessage.Resource{Header: header(n, dnsmessage.TypeAAAA, ttl), Body: &dnsmessage.AAAAResource{AAAA: a.As16()}})
		}
	}
	return out
}

// srvRecords lead to all targets alike.
func srvRecords(n dnsmessage.Name, to []target) (out, extra []dnsmessage.Resource) {
	told := map[string]bool{}
	for _, t := range to {
		host, err := dnsmessage.NewName(t.host)
		if err != nil {
			continue
		}
		out = append(out, dnsmessage.Resource{Header: header(n, dnsmessage.TypeSRV, ttl),
			Body: &dnsmessage.SRVResource{Weight: 100, Port: t.port, Target: host}})
		if !told[t.host] {
			told[t.host] = true
			extra = append(extra, addressRecords(host, once(slices.Clone(t.addrs)), 0)...)
		}
	}
	return out, extra
}

func (z *Zone) soa() dnsmessage.Resource {
	return dnsmessage.Resource{Header: header(z.apex, dnsmessage.TypeSOA, ttl), Body: &dnsmessage.SOAResource{
		NS: z.server, MBox: z.master, Serial: 1, Refresh: 7200, Retry: 1800, Expire: 86400, MinTTL: ttl}}
}

// reverse reads the address out of a name below in-addr.arpa or ip6.arpa.
func reverse(asked string) (netip.Addr, bool) {
	if rest, ok := strings.CutSuffix(asked, ".in-addr.arpa."); ok {
		parts := strings.Split(rest, ".")
		slices.Reverse(parts)
		a, err := netip.ParseAddr(strings.Join(parts, "."))
		return a, err == nil && a.Is4()
	}
	rest, ok := strings.CutSuffix(asked, ".ip6.arpa.")
	digits := strings.Split(rest, ".")
	if !ok || len(digits) != 32 {
		return netip.Addr{}, false
	}
	var raw [16]byte
	for i, d := range digits {
		v, err := strconv.ParseUint(cmp.Or(d, "x"), 16, 4)
		if err != nil || len(d) != 1 {
			return netip.Addr{}, false
		}
		at := 31 - i
		raw[at/2] |= byte(v) << (4 * (1 - at%2))
	}
	return netip.AddrFrom16(raw), true
}
