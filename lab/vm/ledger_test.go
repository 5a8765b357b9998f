package main

import (
	"strings"
	"testing"
)

// told plays a boot of lines: a ledger that does not see a loss would make every cut look harmless.
func told(l *ledger, lines string) {
	l.boot()
	for line := range strings.Lines(lines) {
		f := strings.Fields(line)
		if !l.line(f[0], f[1:]) {
			panic(line)
		}
	}
}

func TestLedger(t *testing.T) {
	const before = `try 1 configmaps a 1
ack 1 5
try 2 configmaps a 2
ack 2 6
try 3 configmaps b 1
try 4 pods p there
ack 4 7
try 5 pods p -
ack 5 9
try 6 images i there
ack 6 0
try 7 configmaps a 3`
	for name, c := range map[string]struct{ after, wrong string }{
		"all there, the open ones not": {"have configmaps a 2\nhave images i there\nrevision 9", ""},
		"all there, the open ones too": {"have configmaps a 3\nhave configmaps b 1\nhave images i there\nrevision 12", ""},
		"changes before the verdict":   {"have configmaps a 2\nhave images i there\nrevision 9\ntry 1 pods c there\nack 1 20\ntry 2 pods c -\nack 2 21", ""},
		"an older value":               {"have configmaps a 1\nhave images i there\nrevision 9", "configmaps/a is 1, acknowledged is 2 or 3"},
		"lost":                         {"have configmaps a 2\nrevision 9", "images/i is -, acknowledged is there"},
		"back from the dead": {"have configmaps a 2\nhave images i there\nhave pods p there\nrevision 9",
			"pods/p is there, acknowledged is -"},
		"nobody's": {"have configmaps a 2\nhave images i there\nhave pods q there\nrevision 9",
			"pods/q is there and nobody made it"},
		"a revision that goes back": {"have configmaps a 2\nhave images i there\nrevision 8", "the store is at revision 8, 9 was told"},
		"one of two lists from earlier": {"have configmaps a 2\nhave images i there\nrevision 11\nrevision 8",
			"the store is at revision 8, 9 was told"},
		"a console that drops lines": {"have configmaps a 2\nhave images i there\nrevision 9\nack 99 4", "not understood: 99 4"},
	} {
		l := newLedger()
		told(l, before)
		if l.acked != 5 || len(l.open) != 2 {
			t.Errorf("%s: %d acknowledged, %d open", name, l.acked, len(l.open))
		}
		told(l, c.after)
		if wrong := strings.Join(l.compare(), "; "); wrong != c.wrong {
			t.Errorf("%s: %q, want %q", name, wrong, c.wrong)
		}
	}
	// What was open and was seen after a boot has been told.
	l := newLedger()
	told(l, before)
	told(l, "have configmaps a 3\nhave images i there\nrevision 9")
	l.compare()
	told(l, "have configmaps a 2\nhave images i there\nrevision 9")
	if wrong := l.compare(); len(wrong) != 1 {
		t.Errorf("a value that was seen may go again: %q", wrong)
	}
}

func TestStages(t *testing.T) {
	orderly := func() podLogs {
		l := podLogs{}
		for i := range orderPods {
			p := i % priorities
			pod := "order-" + []string{"0", "10", "100", "1000"}[p] + "-" + string(rune('a'+i))
			at := int64(10000 * p)
			l[pod] = map[string]int64{"up": 1, "term": at + 10 + int64(i), "end": at + 1010 + int64(i), "terminated": 1}
			if i == 0 {
				l[pod] = map[string]int64{"up": 1, "term": at + 10, "here": at + 3000, "terminated": 1}
			}
		}
		return l
	}
	out, wrong := orderly().stages()
	if len(wrong) > 0 || len(out) != priorities || out[0].Deaf != 1 || out[1].From != 10001 || out[1].Took != 1016 || out[3].Pods != 5 {
		t.Errorf("%+v %q", out, wrong)
	}
	for want, spoil := range map[string]func(podLogs){
		"was not stopped in order":         func(l podLogs) { delete(l["order-100-c"], "terminated") },
		"19 pods in 4 priorities":          func(l podLogs) { delete(l, "order-100-c") },
		"before the end of priority 0":     func(l podLogs) { l["order-10-b"]["term"] = 1000 },
		"killed before its time":           func(l podLogs) { l["order-0-a"]["here"] = 1400 },
		"as if its pods were stopped one ": func(l podLogs) { l["order-1000-d"]["end"] = 36000 },
	} {
		l := orderly()
		spoil(l)
		if _, wrong := l.stages(); !strings.Contains(strings.Join(wrong, "\n"), want) {
			t.Errorf("no %q in %q", want, wrong)
		}
	}
}
