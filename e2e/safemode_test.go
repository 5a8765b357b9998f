package e2e

import (
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
)

// TestSafeMode: a node that dies again and again comes up without touching its pods, says so wherever one looks, and
// goes on when told to.
func TestSafeMode(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.apply(webPod)
	pid := b.running("web")
	for range 2 {
		_ = b.signal(syscall.SIGKILL) // its verdict is the kill
		b.start("--safe-mode-after=2")
		b.eventually("the API answers", func() error { return contains(b.ledge("get", "pods"), "web") })
	}
	b.eventually("the node says that it holds its pods", func() error {
		return errors.Join(contains(b.ledge("get", "nodes"), " NotReady "), contains(b.ledge("get", "events"), "SafeMode"),
			contains(b.ledge("get", "node", b.name, "-o", "yaml"), "type: SafeMode"))
	})
	for _, verb := range []string{"status", "doctor"} {
		if out, _ := b.try(verb); !strings.Contains(out, "safe mode: the node has died 2 times in a row") { // doctor may find more
			t.Errorf("%s: %s", verb, out)
		}
	}
	b.apply(strings.Replace(webPod, "name: web", "name: late", 1))
	if got := b.processes("/kubepods/"); len(got) != 1 || got[0] != pid {
		t.Errorf("processes %v, was %d", got, pid)
	}
	b.must("resume")
	b.eventually("both pods run and the node is Ready", func() error {
		out := b.ledge("get", "pods")
		if strings.Count(out, " Running ") != 2 {
			return errors.New(out)
		}
		return contains(b.ledge("get", "nodes"), " Ready ")
	})
	if got := b.processes("/kubepods/"); len(got) != 2 || !slices.Contains(got, pid) { // a later one may have a smaller number
		t.Errorf("processes %v, was %d", got, pid)
	}
	if out := b.must("get", "node", b.name, "-o", "yaml"); strings.Contains(out, "type: SafeMode") {
		t.Error("the condition stays")
	}
	if out := b.must("resume"); !strings.Contains(out, "not in safe mode") {
		t.Error(out)
	}
	if err := b.signal(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
	b.serve("--safe-mode-after=1") // the last end was in order
	b.must("delete", "pod", "web", "late")
}
