package main

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// ledger is what the guest's clients were told, over all boots of one disk. The guest says, each with an "@" before it:
//
//	try N KIND NAME VALUE    it asks for a change ("-": the object is to go)
//	ack N REVISION           the node has said yes
//	have KIND NAME VALUE     after a boot: this is there
//	revision N               and this is the store's revision
type ledger struct {
	objects  map[string]*entry
	open     map[string]change // tried in this boot and not acknowledged
	highest  uint64            // revision that anybody was told
	before   uint64            // the same, when the boot began
	acked    int               // changes, in this boot
	have     map[string]string
	broken   []string // lines that are none: the console lost something
	revision uint64   // lowest that the boot told
}

// entry is what may be there: the value of the last acknowledged change, or one of those tried after it.
type entry struct{ allowed []string }

type change struct{ object, value string }

const absent = "-"

func newLedger() *ledger {
	l := &ledger{objects: map[string]*entry{}}
	l.boot()
	return l
}

// boot begins the account of the next boot.
func (l *ledger) boot() {
	l.open, l.have, l.acked, l.revision, l.broken, l.before = map[string]change{}, map[string]string{}, 0, 0, nil, l.highest
}

func (l *ledger) entry(object string) *entry {
	e := l.objects[object]
	if e == nil {
		e = &entry{allowed: []string{absent}}
		l.objects[object] = e
	}
	return e
}

// line takes one line; ok is false when it is about something else.
func (l *ledger) line(word string, args []string) (ok bool) {
	switch {
	case word == "try" && len(args) == 4:
		c := change{args[1] + "/" + args[2], args[3]}
		l.open[args[0]] = c
		e := l.entry(c.object)
		e.allowed = append(e.allowed, c.value)
	case word == "ack" && len(args) == 2:
		c, known := l.open[args[0]]
		n, err := strconv.ParseUint(args[1], 10, 64)
		if !known || err != nil {
			l.broken = append(l.broken, strings.Join(args, " "))
			return true
		}
		delete(l.open, args[0])
		l.entry(c.object).allowed = []string{c.value}
		l.acked++
		l.highest = max(l.highest, n)
	case word == "have" && len(args) == 3:
		l.have[args[0]+"/"+args[1]] = args[2]
	case word == "revision" && len(args) == 1:
		n, err := strconv.ParseUint(args[0], 10, 64)
		if err != nil {
			l.broken = append(l.broken, args[0])
		}
		if l.revision == 0 || n < l.revision {
			l.revision = n
		}
	default:
		return false
	}
	return true
}

// compare finds what of a boot does not agree with what was acknowledged before. What is there counts as
// acknowledged from now on: somebody has seen it.
func (l *ledger) compare() (wrong []string) {
	for _, object := range slices.Sorted(maps.Keys(l.objects)) {
		e := l.objects[object]
		have, ok := l.have[object]
		if !ok {
			have = absent
		}
		if !slices.Contains(e.allowed, have) {
			wrong = append(wrong, fmt.Sprintf("%s is %s, acknowledged is %s", object, have, strings.Join(e.allowed, " or ")))
		}
		e.allowed = []string{have}
	}
	for _, object := range slices.Sorted(maps.Keys(l.have)) {
		if l.objects[object] == nil {
			wrong = append(wrong, object+" is there and nobody made it")
			l.entry(object).allowed = []string{l.have[object]}
		}
	}
	if l.revision < l.before {
		wrong = append(wrong, fmt.Sprintf("the store is at revision %d, %d was told", l.revision, l.before))
	}
	l.highest = max(l.highest, l.revision)
	for _, line := range l.broken {
		wrong = append(wrong, "not understood: "+line)
	}
	l.open, l.broken = map[string]change{}, nil
	return wrong
}
