package main

import (
	"errors"
	"os"
	"strings"
	"syscall"
	"testing"
)

// resetsAll takes this board off the machine, by its run directory alone.
func (b *testBoard) resetsAll() {
	b.t.Helper()
	b.must("reset", "--data")
	if left := b.leftovers(); len(left) > 0 {
		b.t.Error("left:", left)
	}
	if _, err := os.Stat(b.data); !errors.Is(err, os.ErrNotExist) {
		b.t.Error("its data is still there:", err)
	}
}

// What verbs do to a node's data they do to that of the node that they find by its run directory, and no other.
func TestResetIsForOneNode(t *testing.T) {
	onHost(t)
	a, b := newBoard(t), newBoard(t)
	a.serve()
	b.serve("--cgroup-root", "/"+b.name+"/") // it means the same
	must(t, b.signal(syscall.SIGTERM))
	if out, err := b.try("reset", "--data", "--data-dir", a.data); err == nil || !strings.Contains(out, "stop it first") {
		t.Fatalf("a node that runs lost its data: %v %s", err, out)
	}
	b.resetsAll()
	for _, verb := range [][]string{{"reset", "--data"}, {"backup", "restore", a.config}, {"backup", "save", b.data}} {
		if out, err := b.try(verb...); err == nil || !strings.Contains(out, "--data-dir") {
			t.Errorf("%v: it is not said whose data is meant: %v %s", verb, err, out)
		}
	}
	b.must("reset") // that there is nothing is no mistake
	a.apply(webPod)
	a.running("web")
}

// Who fails at the last step of a start has made a bridge, a table and a keeper's run state by then: reset finds them.
func TestResetAfterAFailedStart(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	if text, err := b.refusesToStart("--watchdog", "/dev/null"); err == nil || !strings.Contains(text, "arm the watchdog") { // no watchdog
		t.Fatalf("%v %s", err, text)
	}
	b.resetsAll()
}
