package dns

import (
	"math/rand/v2"
	"strings"

	"golang.org/x/net/dns/dnsmessage"
)

const (
	plainSize = 512  // of an answer over UDP to who says nothing of a size
	ednsSize  = 1232 // of one to who does, and what we take from resolvers: it fits into every network's packets
	tcpSize   = 65535
)

// query is a question with what its answer needs.
type query struct {
	dnsmessage.Question
	head  dnsmessage.Header
	edns  bool
	size  int              // of the answer over UDP
	fault dnsmessage.RCode // not RCodeSuccess: it is answered with that
}

// parse reads a message. false: it gets no answer, since it is none of a client or has not even a whole header.
func parse(msg []byte) (q query, ok bool) {
	var p dnsmessage.Parser
	var err error
	if q.head, err = p.Start(msg); err != nil || q.head.Response {
		return q, false
	}
	q.size = plainSize
	if q.head.OpCode != 0 {
		q.fault = dnsmessage.RCodeNotImplemented
		return q, true
	}
	q.fault = dnsmessage.RCodeFormatError
	if q.Question, err = p.Question(); err != nil {
		return q, true
	}
	if _, err = p.Question(); err != dnsmessage.ErrSectionDone { //nolint:errorlint // it says so
		return q, true
	}
	if !q.options(&p) {
		return q, true
	}
	q.fault = dnsmessage.RCodeSuccess
	if q.Class != dnsmessage.ClassINET || q.Type == dnsmessage.TypeAXFR || q.Type == typeIXFR {
		q.fault = dnsmessage.RCodeRefused
	}
	return q, true
}

const typeIXFR = dnsmessage.Type(251)

// options reads what the rest of the message says; false: it cannot be read.
func (q *query) options(p *dnsmessage.Parser) bool {
	if p.SkipAllAnswers() != nil || p.SkipAllAuthorities() != nil {
		return false
	}
	for {
		h, err := p.AdditionalHeader()
		if err == dnsmessage.ErrSectionDone { //nolint:errorlint // it says so
			return true
		}
		if err != nil || h.Type == dnsmessage.TypeOPT && q.edns {
			return false
		}
		if h.Type == dnsmessage.TypeOPT {
			q.edns, q.size = true, min(max(int(h.Class), plainSize), ednsSize)
		}
		if p.SkipAdditional() != nil {
			return false
		}
	}
}

// pack writes the answer to a query in at most most bytes. Over UDP it leaves out what does not fit, and says so: a client that wants all
// of it asks over TCP, and one that cannot has the rest.
func pack(q query, a Answer, most int) ([]byte, error) {
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: q.head.ID, Response: true, OpCode: q.head.OpCode, Authoritative: a.Authoritative,
		RecursionDesired: q.head.RecursionDesired, RecursionAvailable: true, CheckingDisabled: q.head.CheckingDisabled, RCode: a.RCode},
		Answers: a.Records, Authorities: a.Authority}
	if q.Name.Length > 0 {
		m.Questions = []dnsmessage.Question{q.Question}
	}
	extras := [][]dnsmessage.Resource{a.Extra, nil}
	if len(a.Extra) == 0 {
		extras = extras[1:]
	}
	var out []byte
	var err error
	for _, extra := range extras {
		m.Additionals = q.opt(extra)
		if out, err = m.AppendPack(make([]byte, 0, plainSize)); err != nil || len(out) <= most {
			return out, err
		}
	}
	m.Truncated, m.Authorities = true, nil
	for few, many := 0, len(a.Records); few < many; { // the largest number that fits is between the two
		n := (few + many) / 2
		m.Answers = a.Records[:n]
		if fits, err := m.Pack(); err != nil || len(fits) > most {
			many = n
			continue
		}
		few = n + 1
		m.Answers = a.Records[:n]
		if out, err = m.Pack(); err != nil {
			return nil, err
		}
	}
	if len(out) > most {
		m.Answers = nil
		return m.Pack()
	}
	return out, nil
}

// opt adds to the records what answers an EDNS0 question.
func (q query) opt(extra []dnsmessage.Resource) []dnsmessage.Resource {
	if !q.edns {
		return extra
	}
	return append(extra[:len(extra):len(extra)], optRecord())
}

func optRecord() dnsmessage.Resource {
	h := dnsmessage.ResourceHeader{Name: dnsmessage.MustNewName("."), Type: dnsmessage.TypeOPT, Class: ednsSize}
	return dnsmessage.Resource{Header: h, Body: &dnsmessage.OPTResource{}}
}

// shuffle gives each who asks other addresses first. CNAMEs stay in front, in their order.
func shuffle(list []dnsmessage.Resource) {
	first := 0
	for first < len(list) && list[first].Header.Type == dnsmessage.TypeCNAME {
		first++
	}
	rest := list[first:]
	rand.Shuffle(len(rest), func(i, j int) { rest[i], rest[j] = rest[j], rest[i] })
}

// below is what is left of a name in front of a domain.
func below(n, domain string) (rest string, ok bool) {
	rest, ok = strings.CutSuffix(n, "."+domain)
	return rest, ok && rest != ""
}
