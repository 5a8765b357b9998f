package mdns

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
)

// TestFinder: what is known of a board may come in parts; whoever answers fills no memory.
func TestFinder(t *testing.T) {
	f := finder{all: map[string]*Board{}}
	say := func(list ...record) {
		m := newWriter(0, isResponse)
		for _, r := range list {
			m.record(answers, r)
		}
		f.hear(m.bytes())
	}
	kind, one, host := wire("_ledge._tcp.local"), wire("shed._ledge._tcp.local"), wire("shed.local")
	say(record{one, typeSRV, classIN, 120, srv(6443, host)}) // nobody has told of it
	say(record{kind, typePTR, classIN, 0, one})              // it is no more
	if len(f.all) > 0 {
		t.Errorf("%v", f.all)
	}
	say(record{kind, typePTR, classIN, 120, one})
	if q := text(t, Out{Msg: f.questions()}); q != "? _ledge._tcp.local. PTR\n? shed._ledge._tcp.local. ALL" {
		t.Error(q)
	}
	words := txt([]string{"version=" + strings.Repeat("9", 200), "state=Ready", "x"})
	say(record{one, typeSRV, classIN, 120, srv(6443, host)}, record{one, typeTXT, classIN, 120, words})
	if q := text(t, Out{Msg: f.questions()}); q != "? _ledge._tcp.local. PTR\n? shed.local. ALL" {
		t.Error(q)
	}
	for i := range 100 {
		say(record{host, typeA, classIN, 120, data("A", fmt.Sprintf("192.0.2.%d", i))})
	}
	list := f.boards()
	if len(list) != 1 || list[0].Name != "shed.local" || list[0].Port != 6443 || list[0].State != "Ready" || len(list[0].Version) != mostText ||
		len(list[0].Addresses) != MostAddresses || list[0].Addresses[0] != netip.MustParseAddr("192.0.2.0") {
		t.Errorf("%+v", list)
	}
	for i := range 2 * mostBoards {
		say(record{kind, typePTR, classIN, 120, wire(fmt.Sprintf("b%d._ledge._tcp.local", i))})
	}
	if q := f.questions(); len(f.all) != mostBoards || len(q) > mostSent {
		t.Errorf("%d boards, a question of %d bytes", len(f.all), len(q))
	}
}

// FuzzFinder: whatever answers, it is read.
func FuzzFinder(f *testing.F) {
	l := newLAN(&testing.T{}, 1)
	b := l.board("shed")
	l.run(10e9)
	for _, p := range l.heard {
		f.Add(p.Msg)
	}
	f.Add(b.Goodbye()[0].Msg)
	f.Fuzz(func(t *testing.T, msg []byte) {
		found := finder{all: map[string]*Board{}}
		found.hear(msg)
		found.hear(msg)
		for _, b := range found.boards() {
			if len(b.Name) > mostName || len(b.Version) > mostText || len(b.State) > mostText || len(b.Addresses) > MostAddresses {
				t.Errorf("%+v", b)
			}
		}
	})
}
