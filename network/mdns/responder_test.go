package mdns

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestComesUp: a name is asked for three times, and told twice; then all is quiet.
func TestComesUp(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	l.run(time.Hour)
	probe := "? shed.local. ALL\n? shed._ledge._tcp.local. ALL\n? shed._workstation._tcp.local. ALL\nprobe shed A 192.0.2.1; " +
		"shed._ledge._tcp SRV shed:6443; shed._ledge._tcp TXT version=v0.2.0,state=Ready; shed._workstation._tcp SRV shed:9; " +
		"shed._workstation._tcp TXT "
	announcement := "= _ledge._tcp PTR shed._ledge._tcp; _services._dns-sd._udp PTR _ledge._tcp; _services._dns-sd._udp PTR _workstation._tcp; " +
		"_workstation._tcp PTR shed._workstation._tcp; shed A! 192.0.2.1; shed._ledge._tcp SRV! shed:6443; " +
		"shed._ledge._tcp TXT! version=v0.2.0,state=Ready; shed._workstation._tcp SRV! shed:9; shed._workstation._tcp TXT! "
	said := l.since(0)
	if len(said) != 5 {
		t.Fatalf("%d packets: %q", len(said), said)
	}
	for i, p := range l.heard {
		got, want := said[i], probe
		if i >= 3 {
			got, want = strings.ReplaceAll(strings.Split(got, "\n+")[0], "\n", ""), announcement
		}
		if got != want {
			t.Errorf("packet %d at %s:\n%s\nwant\n%s", i, p.at, got, want)
		}
	}
	for i, gap := range []time.Duration{probeEvery, probeEvery, probeEvery, announceEvery} {
		if got := l.heard[i+1].at - l.heard[i].at; got != gap {
			t.Errorf("packet %d came %s after the one before, want %s", i+1, got, gap)
		}
	}
	if l.heard[0].at >= probeEvery || !b.Held() || !b.Next().IsZero() {
		t.Errorf("first at %s, held %v, next %v", l.heard[0].at, b.Held(), b.Next())
	}
}

// TestOneName: however many boards want one name, each gets another, in one order or all at once, and they stay with it.
func TestOneName(t *testing.T) {
	for seed := range uint64(40) {
		l := newLAN(t, seed)
		n := 2 + int(seed%4)
		for range n {
			l.board("shed")
			if seed%3 > 0 {
				l.run(time.Duration(l.rand.Int64N(int64(2 * time.Second))))
			}
		}
		l.run(time.Minute)
		var got []string
		for _, b := range l.boards {
			if !b.Held() {
				t.Errorf("seed %d: %v is not held", seed, b.Labels())
			}
			got = append(got, b.Labels()...)
		}
		slices.Sort(got)
		want := []string{"shed", "shed-2", "shed-3", "shed-4", "shed-5"}[:n]
		if !slices.Equal(got, want) {
			t.Errorf("seed %d: %v", seed, got)
		}
		n = len(l.heard)
		if l.run(time.Hour); len(l.heard) != n {
			t.Errorf("seed %d: they do not rest: %q", seed, l.since(n))
		}
	}
}

// TestFirstKeepsIt: who has a name keeps it, and two networks that become one find out.
func TestFirstKeepsIt(t *testing.T) {
	l := newLAN(t, 1)
	first := l.board("shed")
	l.run(time.Minute)
	second := l.board("shed")
	l.run(time.Minute)
	if first.Labels()[0] != "shed" || second.Labels()[0] != "shed-2" {
		t.Errorf("%v %v", first.Labels(), second.Labels())
	}
	third := l.board("other")
	third.deaf = true
	l.run(time.Minute)
	third.wants(Wanted{Label: "shed"})
	l.run(time.Minute)
	third.deaf = false // the networks are joined
	third.wants(Wanted{Label: "shed", State: "NotReady"})
	l.run(time.Minute)
	if got := first.Labels()[0] + " " + third.Labels()[0]; !slices.Contains([]string{"shed shed-3", "shed-3 shed"}, got) {
		t.Errorf("after networks became one: %s", got)
	}
}

// TestGoodbye: what was told is taken back, and what was not is not.
func TestGoodbye(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	if out := b.Goodbye(); len(out) > 0 {
		t.Errorf("before it had a name: %q", text(t, out[0]))
	}
	b.wants(Wanted{Label: "shed", Aliases: []Alias{{"web", []netip.Addr{netip.MustParseAddr("192.0.2.9"), netip.MustParseAddr("2001:db8::9")}}}})
	l.run(time.Minute)
	n := len(l.heard)
	b.wants(Wanted{Label: "shed"})
	if got := strings.Join(l.since(n), "\n\n"); got != "= no more web A 192.0.2.9; no more web AAAA 2001:db8::9" {
		t.Errorf("a name that is no more wanted: %s", got)
	}
	l.run(time.Minute)
	if out := b.Goodbye(); len(out) != 1 || strings.Count(text(t, out[0]), "no more ") != 9 {
		t.Errorf("at the end: %v", out)
	}
}

// TestChanges: an address that changes is told at once, a word of state at most once a second; a link that comes is probed alone.
func TestChanges(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	l.run(time.Minute)
	n := len(l.heard)
	b.links[0].Addresses = []netip.Prefix{netip.MustParsePrefix("192.0.2.77/24"), netip.MustParsePrefix("2001:db8::7/64")}
	b.wants(b.want)
	l.run(100 * time.Millisecond)
	if said := strings.Join(l.since(n), "\n"); !strings.Contains(said, "no more shed A 192.0.2.1") || !strings.Contains(said, "shed A! 192.0.2.77; ") ||
		!strings.Contains(said, "shed AAAA! 2001:db8::7") {
		t.Errorf("another address: %s", said)
	}
	if b.Held() {
		t.Error("the way of IPv6 is new, and held at once")
	}
	l.run(time.Minute)
	n = len(l.heard)
	for i := range 100 {
		w := b.want
		w.State = fmt.Sprint(i)
		b.wants(w)
		l.run(100 * time.Millisecond)
	}
	if told := len(slices.DeleteFunc(l.since(n), func(s string) bool { return strings.HasPrefix(s, "= no more") })); told > 2*(10+2) || told < 10 {
		t.Errorf("100 changes in ten seconds: told %d times", told)
	}
}

// TestPageIsOffered: a board with a page says so while it has one.
func TestPageIsOffered(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	l.run(time.Hour)
	ask := func() string {
		n := len(l.heard)
		l.send(b, b.Hear(l.now, Way{2, false}, netip.MustParseAddrPort("192.0.2.50:5353"), true, asked("_https._tcp.local PTR")))
		l.run(time.Second)
		return strings.Join(l.since(n), "\n")
	}
	if got := ask(); got != "" {
		t.Errorf("without a page: %s", got)
	}
	w := b.want
	w.Page = 8443
	b.wants(w)
	l.run(time.Hour)
	if got := ask(); !strings.Contains(got, "_https._tcp PTR shed._https._tcp") || !strings.Contains(got, "shed._https._tcp SRV! shed:8443") ||
		!strings.Contains(got, "TXT! path=/") {
		t.Errorf("with one: %s", got)
	}
	w.Page = 0
	b.wants(w)
	l.run(time.Hour)
	if got := ask(); got != "" {
		t.Errorf("after it: %s", got)
	}
}

// TestQuestions: who is answered, how, and with what.
func TestQuestions(t *testing.T) {
	const legacy, single = 40000, Port
	neighbour := "192.0.2.50"
	for _, c := range []struct {
		what, from string
		port       uint16
		parts      []string
		want       string // "" nothing
		late       bool   // not at once
	}{
		{"an address", neighbour, Port, []string{"shed.local A"}, "= shed A! 192.0.2.1\n+ shed NSEC!", false},
		{"in capitals", neighbour, Port, []string{"SHED.Local A"}, "= shed A! 192.0.2.1\n+ shed NSEC!", false},
		{"an address that it has not", neighbour, Port, []string{"shed.local AAAA"}, "= shed NSEC!", false},
		{"all", neighbour, Port, []string{"shed.local ANY"}, "= shed A! 192.0.2.1\n+ shed NSEC!", false},
		{"another's name", neighbour, Port, []string{"shed-2.local A"}, "", false},
		{"boards", neighbour, Port, []string{"_ledge._tcp.local PTR"}, "= _ledge._tcp PTR shed._ledge._tcp\n+ shed A! 192.0.2.1; shed NSEC!; " +
			"shed._ledge._tcp SRV! shed:6443; shed._ledge._tcp TXT! version=v0.2.0,state=Ready", true},
		{"boards, which it knows", neighbour, Port, []string{"_ledge._tcp.local PTR", "known _ledge._tcp.local PTR shed._ledge._tcp.local"}, "", false},
		{"boards, of which it knows another", neighbour, Port, []string{"_services._dns-sd._udp.local PTR",
			"known _services._dns-sd._udp.local PTR _ledge._tcp.local"}, "= _services._dns-sd._udp PTR _workstation._tcp", true},
		{"alone, for the first time in long", neighbour, Port, []string{"qu shed.local A"}, "= shed A! 192.0.2.1\n+ shed NSEC!", false},
		{"by a resolver that keeps no cache", neighbour, legacy, []string{"shed.local A"},
			"to 192.0.2.50:40000\n? shed.local. A\n= shed A 192.0.2.1\n+ shed NSEC", false},
		{"by two questions", neighbour, legacy, []string{"nobody.local A", "shed.local A"},
			"to 192.0.2.50:40000\n? shed.local. A\n= shed A 192.0.2.1\n+ shed NSEC", false},
		{"from elsewhere", "198.51.100.7", Port, []string{"shed.local A"}, "", false},
		{"from elsewhere, alone", "198.51.100.7", legacy, []string{"shed.local A"}, "", false},
		{"a probe of what it has", neighbour, Port, []string{"qu shed.local ANY", "probe shed.local A 192.0.2.50"}, "= shed A! 192.0.2.1\n+ shed NSEC!", false},
		{"with a part to come", neighbour, Port, []string{"shed.local A", "more"}, "= shed A! 192.0.2.1\n+ shed NSEC!", true},
		{"a dot in another's name", neighbour, Port, []string{"shed.local A"}, "= shed A! 192.0.2.1\n+ shed NSEC!", false},
	} {
		l := newLAN(t, 1)
		b := l.board("shed")
		l.run(time.Hour)
		msg := asked(c.parts...)
		if strings.HasPrefix(c.what, "a dot") {
			m := newWriter(0, 0)
			m.question(question{nameOf("Jane's TV (2.0)", "_airplay", "_tcp", "local"), typeSRV, classIN})
			m.question(question{nameOf("shed", "local"), typeA, classIN})
			msg = m.bytes()
		}
		n := len(l.heard)
		l.send(b, b.Hear(l.now, Way{2, false}, netip.AddrPortFrom(netip.MustParseAddr(c.from), c.port), c.port == Port, msg))
		if at := len(l.heard) > n; at == (c.late || c.want == "") {
			t.Errorf("%s: answered at once: %v", c.what, at)
		}
		l.run(time.Second)
		if got := strings.Join(l.since(n), "\n\n"); got != c.want {
			t.Errorf("%s:\n%s\nwant\n%s", c.what, got, c.want)
		}
	}
}

// TestAlone: who asks to be answered alone is, while others have the record by an announcement.
func TestAlone(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	l.run(10 * time.Second)
	n := len(l.heard)
	hear := func(toAll bool, parts ...string) {
		l.send(b, b.Hear(l.now, Way{2, false}, netip.MustParseAddrPort("192.0.2.50:5353"), toAll, asked(parts...)))
	}
	hear(true, "qu shed.local A")
	hear(false, "shed.local A") // a question to the board alone
	if got := l.since(n); len(got) != 2 || !strings.HasPrefix(got[0], "to 192.0.2.50:5353\n= shed A!") || got[1] != got[0] {
		t.Errorf("%q", got)
	}
	// The rest of a question may say that the answer is known.
	n = len(l.heard)
	hear(true, "_ledge._tcp.local PTR", "more")
	hear(true, "known _ledge._tcp.local PTR shed._ledge._tcp.local")
	l.run(time.Second)
	if got := l.since(n); len(got) != 0 {
		t.Errorf("%q", got)
	}
}

// TestFloods: whatever strangers ask, a record is told to all once a second, and single ones get a bounded number of packets; nothing
// that they send is kept.
func TestFloods(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	l.run(time.Hour)
	n := len(l.heard)
	for i := range 10_000 {
		from := netip.AddrPortFrom(netip.AddrFrom4([4]byte{192, 0, 2, byte(100 + i%100)}), uint16(5353+i%7))
		l.send(b, b.Hear(l.now, Way{2, false}, from, true, asked("shed.local A", "_ledge._tcp.local PTR", "qu _workstation._tcp.local PTR")))
		l.run(time.Millisecond)
	}
	bytes, all := 0, 0
	for _, p := range l.heard[n:] {
		bytes += len(p.Msg)
		if !p.To.IsValid() {
			all++
		}
	}
	if alone := len(l.heard) - n - all; all > 40 || alone > 12*mostSingle {
		t.Errorf("10,000 questions in ten seconds: %d answers to all, %d to single ones, %d bytes", all, alone, bytes)
	}
	for _, w := range b.ways {
		if len(w.sent) > len(w.records) || len(w.waiting) > len(w.records) {
			t.Errorf("%d and %d are kept for %d records", len(w.sent), len(w.waiting), len(w.records))
		}
	}
}

// TestObjections: a name that another claims is given up; one who claims every name makes the board slow, not busy, and no name grows
// without end. What is our own, brought back by a reflector, is no objection.
func TestObjections(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	l.run(10 * time.Second)
	from := netip.MustParseAddrPort("192.0.2.50:5353")
	object := func(msg []byte) { l.send(b, b.Hear(l.now, Way{2, false}, from, true, msg)) }
	object(told("shed.local", "A", "192.0.2.1", hostTTL))
	object(told("shed.local", "A", "192.0.2.9", 0))
	object(told("shed.local", "NSEC", "shed.local", hostTTL))
	if l.run(time.Second); !b.Held() {
		t.Error("it gave up a name that nobody wants")
	}
	n := len(l.heard)
	object(told("shed.local", "A", "192.0.2.1", 0))
	if l.run(2 * time.Second); len(l.heard) == n {
		t.Error("what another took back is not told again")
	}
	n = len(l.heard)
	for range 600 {
		object(told(b.Labels()[0]+".local", "A", "192.0.2.9", hostTTL))
		l.run(100 * time.Millisecond)
	}
	if sent := len(l.heard) - n; sent > 100 {
		t.Errorf("%d packets in a minute", sent)
	}
	if name := b.Labels()[0]; len(name) > 8 || name == "shed" {
		t.Errorf("it is called %s", name)
	}
	l.run(time.Minute)
	if !b.Held() {
		t.Error("it never has a name again")
	}
	long := strings.Repeat("x", 63)
	g := &group{label: long, try: mostTry}
	if got := g.has(); len(got) != 63 || !strings.HasSuffix(got, "x-999") {
		t.Errorf("%s", got)
	}
}

// TestNextName: a board that gives up its name on one link takes it back on the others, and takes none that another of its own names has.
func TestNextName(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	b.links = append(b.links, Link{Index: 3, Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24")}})
	b.wants(Wanted{Label: "shed", Port: 6443, Aliases: []Alias{{Label: "shed-2", Addresses: []netip.Addr{b.addr}}}})
	l.run(10 * time.Second)
	for range 8 { // until it no longer insists
		l.send(b, b.Hear(l.now, Way{2, false}, netip.MustParseAddrPort("192.0.2.50:5353"), true, told("shed.local", "A", "192.0.2.9", hostTTL)))
		l.run(time.Millisecond)
	}
	goodbyes := 0
	for _, p := range l.heard {
		if p.Way.Index == 3 && strings.Contains(text(t, p.Out), "no more _ledge._tcp PTR shed._ledge._tcp") {
			goodbyes++
		}
	}
	if goodbyes == 0 {
		t.Error("nobody on the other link hears that the name is gone")
	}
	l.run(time.Minute)
	labels := b.Labels()
	slices.Sort(labels)
	if !slices.Equal(labels, []string{"shed-2", "shed-3"}) {
		t.Errorf("names %q", labels)
	}
}

// TestNamesOfAnybody: whatever a label holds, a name made of it can be taken apart again.
func TestNamesOfAnybody(t *testing.T) {
	for _, l := range []string{"\xff", "\u0130", "a.b", strings.Repeat("\xff", 80), "A"} {
		want := strings.ReplaceAll(l[:min(len(l), 63)], "A", "a")
		if got := labels(nameOf(l, "local")); !slices.Equal(got, []string{want, "local"}) {
			t.Errorf("%q is %q", l, got)
		}
	}
}

// TestManyNames: as many names and addresses as there may be go out in packets that fit, and all are held.
func TestManyNames(t *testing.T) {
	l := newLAN(t, 1)
	b := l.board("shed")
	want := b.want
	for i := range 2 * MostAliases {
		a := Alias{Label: fmt.Sprintf("%s-%d", strings.Repeat("n", 50), i)}
		for j := range 2 * MostAddresses {
			a.Addresses = append(a.Addresses, netip.AddrFrom16([16]byte{0x20, 1, 15: byte(j)}))
		}
		want.Aliases = append(want.Aliases, a)
	}
	b.wants(want)
	l.run(time.Minute)
	if !b.Held() || len(b.Labels()) != MostAliases+1 {
		t.Errorf("held %v, %d names", b.Held(), len(b.Labels()))
	}
	told := map[string]bool{}
	for _, p := range l.heard {
		for _, r := range check(t, p.Out).Answers {
			told[resource(r)] = true
		}
	}
	if len(told) != 9+MostAliases*MostAddresses {
		t.Errorf("%d records were told", len(told))
	}
}

// FuzzHear: whatever a neighbour sends, at any time, costs a bounded answer that can be read.
func FuzzHear(f *testing.F) {
	for _, m := range [][]byte{asked("shed.local A"), asked("_ledge._tcp.local PTR", "known _ledge._tcp.local PTR shed._ledge._tcp.local", "more"),
		asked("qu shed.local ANY", "probe shed.local A 192.0.2.50"), told("shed.local", "A", "192.0.2.9", hostTTL),
		told("shed._ledge._tcp.local", "SRV", "shed.local", 0), {0, 0, 0x84, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0xc0, 12},
		append(asked(), 0xc0, 0xff), asked("web.local AAAA", "probe web.local A 192.0.2.50")} {
		for _, port := range []uint16{Port, 40000} {
			f.Add(m, port, uint16(700))
			f.Add(m, port, uint16(5000))
		}
	}
	f.Fuzz(func(t *testing.T, msg []byte, port, after uint16) {
		l := newLAN(t, 1)
		b := l.board("shed")
		b.wants(Wanted{Label: "shed", Aliases: []Alias{{"web", []netip.Addr{netip.MustParseAddr("192.0.2.9")}}}})
		l.run(time.Duration(after) * time.Millisecond)
		from := netip.AddrPortFrom(netip.MustParseAddr("192.0.2.50"), port)
		out := b.Hear(l.now, Way{2, false}, from, true, msg)
		out = append(out, b.Hear(l.now, Way{2, false}, from, true, msg)...)
		if len(out) > 4 {
			t.Errorf("%d packets", len(out))
		}
		l.send(b, out)
		l.run(20 * time.Second)
		if !b.Held() || !b.Next().IsZero() {
			t.Errorf("held %v, next %v", b.Held(), b.Next())
		}
	})
}
