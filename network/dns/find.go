package dns

import (
	"golang.org/x/net/dns/dnsmessage"
)

// mostCNAMEs is how far a name may lead on.
const mostCNAMEs = 8

// lookup asks those who know the names outside the cluster.
type lookup func(dnsmessage.Question) (Answer, error)

// find answers a question. Before the zone has heard what there is, a name that it does not have is a failure: "no such name" would be a
// lie that programs take as final.
func (z *Zone) find(q dnsmessage.Question, searches []string, ask lookup) (Answer, error) {
	known := z.heard.Whole() // before the zone is looked at
	a, err := z.walk(q, searches, ask)
	if err == nil && a.RCode == dnsmessage.RCodeNameError && a.Authoritative && !known {
		return Answer{RCode: dnsmessage.RCodeServerFailure}, nil
	}
	return a, err
}

// walk answers a question with what the zone and others know now. searches is the search list in the resolv.conf of who asks; nil if it
// is not known, or not to be walked. With ndots:5 a client asks for www.example.com.NS.svc.cluster.local first, and for the name itself
// last. If nothing has the first name, walk answers that question with what the last one would find, so that the client need not ask on.
// It does so for A and AAAA; others ask rarely.
func (z *Zone) walk(q dnsmessage.Question, searches []string, ask lookup) (Answer, error) {
	a, err := z.resolve(q, ask)
	if err != nil || a.RCode != dnsmessage.RCodeNameError || len(searches) == 0 ||
		q.Type != dnsmessage.TypeA && q.Type != dnsmessage.TypeAAAA {
		return a, err
	}
	rest, ok := below(lower(q.Name), searches[0])
	if _, ours := below(searches[0], z.domain); !ok || !ours {
		return a, nil
	}
	for _, s := range append(searches[1:len(searches):len(searches)], "") {
		next := rest + "." + s
		to, err := dnsmessage.NewName(next)
		if err != nil {
			continue // too long: the client's own C library leaves it out too
		}
		b, err := z.resolve(dnsmessage.Question{Name: to, Type: q.Type, Class: q.Class}, ask)
		if err != nil {
			return Answer{}, err
		}
		if b.RCode == dnsmessage.RCodeSuccess {
			alias := dnsmessage.Resource{Header: header(q.Name, dnsmessage.TypeCNAME, ttl), Body: &dnsmessage.CNAMEResource{CNAME: to}}
			b.Records = append([]dnsmessage.Resource{alias}, b.Records...)
			return b, nil
		}
	}
	return a, nil
}

// resolve answers a question as such, to the end of its CNAMEs.
func (z *Zone) resolve(q dnsmessage.Question, ask lookup) (Answer, error) {
	a, mine := z.Answer(q)
	if !mine {
		return ask(q)
	}
	for range mostCNAMEs {
		to, open := leads(a, q)
		if !open {
			return a, nil
		}
		next, ours := z.Answer(dnsmessage.Question{Name: to, Type: q.Type, Class: q.Class})
		if !ours {
			var err error
			if next, err = ask(dnsmessage.Question{Name: to, Type: q.Type, Class: q.Class}); err != nil {
				return Answer{}, err
			}
		}
		a.RCode, a.Authority, a.from = next.RCode, next.Authority, next.from
		a.Records = append(a.Records, next.Records...)
		if !ours {
			return a, nil // resolvers follow CNAMEs themselves
		}
	}
	return Answer{RCode: dnsmessage.RCodeServerFailure}, nil
}

// leads says that an answer ends with a CNAME, and where to.
func leads(a Answer, q dnsmessage.Question) (to dnsmessage.Name, open bool) {
	if len(a.Records) == 0 || q.Type == dnsmessage.TypeCNAME {
		return to, false
	}
	c, ok := a.Records[len(a.Records)-1].Body.(*dnsmessage.CNAMEResource)
	if !ok {
		return to, false
	}
	return c.CNAME, true
}
