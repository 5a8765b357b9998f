package dns

import (
	"bytes"
	"fmt"
	"net/netip"
	"testing"

	"golang.org/x/net/dns/dnsmessage"
)

func addrs(texts ...string) (out []netip.Addr) {
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

// asked is a question as a client packs it.
func asked(t testing.TB, change func(*dnsmessage.Message)) []byte {
	t.Helper()
	m := dnsmessage.Message{Header: dnsmessage.Header{ID: 7, RecursionDesired: true}, Questions: []dnsmessage.Question{question("a.b.", "A")}}
	change(&m)
	out, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func optOf(size uint16) dnsmessage.Resource {
	o := optRecord()
	o.Header.Class = dnsmessage.Class(size)
	return o
}

// TestMalformed: what each message is answered with; what is no question of a client with nothing.
func TestMalformed(t *testing.T) {
	good := asked(t, func(*dnsmessage.Message) {})
	for _, c := range []struct {
		what   string
		msg    []byte
		fault  dnsmessage.RCode
		silent bool
	}{
		{"a question", good, dnsmessage.RCodeSuccess, false},
		{"nothing", nil, 0, true},
		{"half a header", good[:11], 0, true},
		{"an answer", asked(t, func(m *dnsmessage.Message) { m.Response = true }), 0, true},
		{"half a question", good[:len(good)-2], dnsmessage.RCodeFormatError, false},
		{"none", asked(t, func(m *dnsmessage.Message) { m.Questions = nil }), dnsmessage.RCodeFormatError, false},
		{"two", asked(t, func(m *dnsmessage.Message) { m.Questions = append(m.Questions, m.Questions[0]) }), dnsmessage.RCodeFormatError, false},
		{"an update", asked(t, func(m *dnsmessage.Message) { m.OpCode = 5 }), dnsmessage.RCodeNotImplemented, false},
		{"another class", asked(t, func(m *dnsmessage.Message) { m.Questions[0].Class = 3 }), dnsmessage.RCodeRefused, false},
		{"a transfer", asked(t, func(m *dnsmessage.Message) { m.Questions[0].Type = dnsmessage.TypeAXFR }), dnsmessage.RCodeRefused, false},
		{"two sizes", asked(t, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{optOf(900), optOf(900)} }),
			dnsmessage.RCodeFormatError, false},
		{"a name that leads to itself", append(bytes.Clone(good[:12]), 0xc0, 12, 0, 1, 0, 1), dnsmessage.RCodeFormatError, false},
		{"a label that is too long", append(append(bytes.Clone(good[:12]), 63), make([]byte, 20)...), dnsmessage.RCodeFormatError, false},
	} {
		q, ok := parse(c.msg)
		if ok == c.silent || ok && q.fault != c.fault {
			t.Errorf("%s: answered %v with %v", c.what, ok, q.fault)
		}
	}
	// A name that is compressed is a name all the same.
	packed := append(bytes.Clone(good[:12]), 1, 'a', 0xc0, 4, 0, 1, 0, 1) // leads to the count of questions: 0, the root
	if q, ok := parse(packed); !ok || q.fault != 0 || q.Name.String() != "a." {
		t.Errorf("%v %+v", ok, q)
	}
}

// TestSizes: an answer fits where it goes, says so when it does not, and has then as much as fits.
func TestSizes(t *testing.T) {
	for _, c := range []struct {
		size  uint16 // of EDNS0; 0: none
		limit int
	}{{0, 512}, {100, 512}, {700, 700}, {1232, 1232}, {65535, 1232}} {
		q, ok := parse(asked(t, func(m *dnsmessage.Message) {
			if c.size > 0 {
				m.Additionals = []dnsmessage.Resource{optOf(c.size)}
			}
		}))
		if !ok || q.size != c.limit {
			t.Fatalf("%d: %+v", c.size, q)
		}
		for _, n := range []int{0, 1, 10, 30, 40, 75, 76, 77, 300, 4000} {
			var a Answer
			for i := range n {
				a.Records = append(a.Records, addressRecords(q.Name, addrs(fmt.Sprintf("10.0.%d.%d", i>>8, i&255)), 0)...)
			}
			a.Extra = addressRecords(q.Name, addrs("fd00::1"), 0)
			out, err := pack(q, a, q.size)
			var m dnsmessage.Message
			if err == nil {
				err = m.Unpack(out)
			}
			if err != nil || len(out) > c.limit || m.ID != 7 || !m.RecursionAvailable || m.Truncated != (len(m.Answers) < n) {
				t.Fatalf("%d records in %d bytes: %d bytes with %d, %v", n, c.limit, len(out), len(m.Answers), err)
			}
			if m.Truncated && len(out) < c.limit-40 {
				t.Errorf("%d records in %d bytes: only %d are used", n, c.limit, len(out))
			}
			if edns := len(m.Additionals) > 0 && m.Additionals[len(m.Additionals)-1].Header.Type == dnsmessage.TypeOPT; edns != (c.size > 0) {
				t.Errorf("EDNS0 %v of %d", edns, c.size)
			}
			if whole, err := pack(q, a, tcpSize); err != nil || len(whole) > tcpSize || n < 4000 && m.Unpack(whole) == nil && len(m.Answers) != n {
				t.Errorf("%d records over TCP: %d bytes, %v", n, len(whole), err)
			}
		}
	}
}

// FuzzParse: whatever comes, the answer to it is a message that fits, or none.
func FuzzParse(f *testing.F) {
	f.Add(asked(f, func(*dnsmessage.Message) {}))
	f.Add(asked(f, func(m *dnsmessage.Message) { m.Additionals = []dnsmessage.Resource{optOf(4096)} }))
	f.Add(asked(f, func(m *dnsmessage.Message) { m.Questions[0] = question("x.headless.default.svc.cluster.local.", "SRV") }))
	z := spec(f)
	searches := []string{"default.svc.cluster.local.", "svc.cluster.local."}
	f.Fuzz(func(t *testing.T, msg []byte) {
		q, ok := parse(msg)
		if !ok {
			return
		}
		a := Answer{RCode: q.fault}
		if q.fault == dnsmessage.RCodeSuccess {
			var err error
			if a, err = z.find(q.Question, searches, (&world{}).ask); err != nil {
				t.Fatal(err)
			}
		}
		out, err := pack(q, a, q.size)
		if err != nil {
			return // a name that can be read and not be written
		}
		var m dnsmessage.Message
		if err := m.Unpack(out); err != nil || len(out) > q.size || m.ID != q.head.ID || !m.Response {
			t.Fatalf("%x: %x, %v", msg, out, err)
		}
	})
}

// FuzzAccept: whatever a resolver sends, it is an answer to this question or it is not taken.
func FuzzAccept(f *testing.F) {
	q := question("www.example.com.", "A")
	f.Add(asked(f, func(m *dnsmessage.Message) { m.Response, m.Questions[0] = true, q }))
	f.Fuzz(func(t *testing.T, msg []byte) {
		m, err := accept(msg, 7, q)
		if err == nil && (m.ID != 7 || !m.Response || !same(m.Questions[0], q)) {
			t.Fatalf("%x was taken", msg)
		}
		if err == nil {
			var c cache
			c.put(q, Answer{RCode: m.RCode, Records: m.Answers}, zero)
			c.get(q, zero)
		}
	})
}
