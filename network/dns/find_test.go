package dns

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/dns/dnsmessage"

	"ledge/network/service"
)

// world is what resolvers know in these tests; each question to them is counted.
type world struct {
	knows map[string]string // "NAME TYPE" -> address, or "" for a name without one of that type
	asked []string
	dead  bool
}

func (w *world) ask(q dnsmessage.Question) (Answer, error) {
	kind := strings.TrimPrefix(q.Type.String(), "Type")
	w.asked = append(w.asked, q.Name.String()+" "+kind)
	if w.dead {
		return Answer{}, errNobody
	}
	addr, ok := w.knows[lower(q.Name)+" "+kind]
	switch {
	case !ok:
		soa := dnsmessage.Resource{Header: header(dnsmessage.MustNewName("."), dnsmessage.TypeSOA, 60), Body: &dnsmessage.SOAResource{
			NS: dnsmessage.MustNewName("."), MBox: dnsmessage.MustNewName("."), MinTTL: 60}}
		return Answer{RCode: dnsmessage.RCodeNameError, Authority: []dnsmessage.Resource{soa}}, nil
	case addr == "":
		return Answer{}, nil
	}
	return Answer{Records: addressRecords(q.Name, addrs(addr), q.Type)}, nil
}

// TestOneQuestionWalksTheList: the first question that a C library makes of a name is answered with what its last would find.
func TestOneQuestionWalksTheList(t *testing.T) {
	z := spec(t)
	searches := []string{"default.svc.cluster.local.", "svc.cluster.local.", "cluster.local.", "lan."}
	knows := map[string]string{"www.example.com. A": "192.0.2.53", "www.example.com. AAAA": "", "printer.lan. A": "192.0.2.9",
		"lonely. A": "192.0.2.8"}
	for _, c := range []struct {
		name, kind, want string
		asked            []string // of resolvers
	}{
		{"www.example.com.default.svc.cluster.local.", "A", "-> www.example.com. 192.0.2.53", []string{"www.example.com.lan. A", "www.example.com. A"}},
		{"www.example.com.default.svc.cluster.local.", "AAAA", "-> www.example.com.", []string{"www.example.com.lan. AAAA", "www.example.com. AAAA"}},
		{"printer.default.svc.cluster.local.", "A", "-> printer.lan. 192.0.2.9", []string{"printer.lan. A"}},
		{"lonely.default.svc.cluster.local.", "A", "-> lonely. 192.0.2.8", []string{"lonely.lan. A", "lonely. A"}},
		{"kubernetes.default.svc.cluster.local.", "A", "10.3.0.1", nil}, // there: nothing is walked
		{"kubernetes.default.svc.cluster.local.", "AAAA", "nothing of it", nil},
		{"kubernetes.default.default.svc.cluster.local.", "A", "-> kubernetes.default.svc.cluster.local. 10.3.0.1", nil},
		{"kubernetes.default.svc.default.svc.cluster.local.", "A", "-> kubernetes.default.svc.cluster.local. 10.3.0.1", nil},
		{"hop.other.default.svc.cluster.local.", "A",
			"-> hop.other.svc.cluster.local. -> kubernetes.default.svc.cluster.local. 10.3.0.1", nil},
		{"nothing.default.svc.cluster.local.", "A", "no such name", []string{"nothing.lan. A", "nothing. A"}},
		{"foo.default.svc.cluster.local.", "A", "-> www.example.com. 192.0.2.53", []string{"www.example.com. A"}}, // ExternalName
		{"foo.default.svc.cluster.local.", "CNAME", "-> www.example.com.", nil},
		{"loop.other.svc.cluster.local.", "A", "RCodeServerFailure", nil},
		// Not the first of the list, or no address: no walk.
		{"www.example.com.svc.cluster.local.", "A", "no such name", nil},
		{"www.example.com.default.svc.cluster.local.", "SRV", "no such name", nil},
		{"www.example.com.", "A", "192.0.2.53", []string{"www.example.com. A"}},
		{"default.svc.cluster.local.", "A", "nothing of it", nil},
	} {
		w := &world{knows: knows}
		a, err := z.find(question(c.name, c.kind), searches, w.ask)
		if got := said(a); err != nil || !sameWords(strings.Fields(got), strings.Fields(c.want)) {
			t.Errorf("%s %s: %s, %v; want %s", c.name, c.kind, got, err, c.want)
		}
		if !slices.Equal(w.asked, c.asked) {
			t.Errorf("%s %s: asked %q, want %q", c.name, c.kind, w.asked, c.asked)
		}
		if len(a.Records) > 0 && a.Records[0].Header.Name.String() != c.name {
			t.Errorf("%s: the answer is about %s", c.name, a.Records[0].Header.Name)
		}
	}
}

func sameWords(a, b []string) bool {
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// Without a list, or with one of another domain, a question is that question.
func TestListsThatAreNotWalked(t *testing.T) {
	for _, searches := range [][]string{nil, {"example.com.", "default.svc.cluster.local."}, {"cluster.local."}} {
		w := &world{knows: map[string]string{"www. A": "192.0.2.1"}}
		a, err := spec(t).find(question("www.default.svc.cluster.local.", "A"), searches, w.ask)
		if err != nil || said(a) != "no such name" || len(searches) == 0 && len(w.asked) > 0 {
			t.Errorf("%q: %s, %v, asked %q", searches, said(a), err, w.asked)
		}
	}
}

// What cannot be known now is no "no such name": the pod would take that for the truth.
func TestDeadResolversAreAFailure(t *testing.T) {
	searches := []string{"default.svc.cluster.local.", "svc.cluster.local.", "cluster.local."}
	w := &world{dead: true}
	if _, err := spec(t).find(question("www.example.com.default.svc.cluster.local.", "A"), searches, w.ask); !errors.Is(err, errNobody) {
		t.Error(err)
	}
	if a, err := spec(t).find(question("kubernetes.default.svc.cluster.local.", "A"), searches, w.ask); err != nil || said(a) != "10.3.0.1" {
		t.Error(said(a), err)
	}
	long := strings.Repeat("a.", 110) + "default.svc.cluster.local."
	w = &world{}
	if a, err := spec(t).find(question(long, "A"), append(searches, strings.Repeat("b.", 100)), w.ask); err != nil || said(a) != "no such name" {
		t.Error(said(a), err)
	}
}

// A board that has not heard from its control plane does not say of a Service that it does not exist; the names of others it finds.
func TestUnheardIsAFailure(t *testing.T) {
	searches := []string{"default.svc.cluster.local.", "svc.cluster.local.", "cluster.local."}
	for _, c := range []struct{ name, kind, unheard, heard string }{
		{"shop.default.svc.cluster.local.", "A", "RCodeServerFailure", "no such name"},
		{"shop.other.svc.cluster.local.", "AAAA", "RCodeServerFailure", "no such name"},
		{"_http._tcp.shop.default.svc.cluster.local.", "SRV", "RCodeServerFailure", "no such name"},
		{"9.0.42.10.in-addr.arpa.", "PTR", "RCodeServerFailure", "no such name"},
		{"www.example.com.default.svc.cluster.local.", "A", "-> www.example.com. 192.0.2.53", "-> www.example.com. 192.0.2.53"},
		{"www.example.com.", "A", "192.0.2.53", "192.0.2.53"},
		{"nothing.example.com.", "A", "no such name", "no such name"},
	} {
		z, w := newZone(t), &world{knows: map[string]string{"www.example.com. A": "192.0.2.53"}}
		see := func(when, want string) {
			t.Helper()
			if a, err := z.find(question(c.name, c.kind), searches, w.ask); err != nil || said(a) != want {
				t.Errorf("%s: %s %s: %s, %v; want %s", when, c.name, c.kind, said(a), err, want)
			}
		}
		see("nothing was heard", c.unheard)
		z.heard.Told(service.OfServices)
		see("Services were heard", c.unheard)
		z.heard.Told(service.OfSlices)
		see("all was heard", c.heard)
	}
}
