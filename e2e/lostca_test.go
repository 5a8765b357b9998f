package e2e

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"ledge/brain"
)

// TestLostCASaysSoAndAsks: on a board whose pki/ was emptied.
func TestLostCASaysSoAndAsks(t *testing.T) {
	t.Parallel()
	onHost(t)
	b := newBoard(t)
	b.serve()
	b.endBy("stop")
	must(t, os.Rename(filepath.Join(b.data, "pki"), filepath.Join(b.data, "kept")))
	for range 2 { // it says so at each start
		b.serve()
		b.eventually("the Node says it", func() error {
			if got := b.condition(brain.AuthorityLost); got != "True" {
				return errors.New("AuthorityLost is " + got)
			}
			return nil
		})
		must(t, contains(b.ledge("get", "events"), "AuthorityLost"))
		must(t, contains(b.ledge("status"), "certificate authority"))
		must(t, contains(b.ledge("doctor"), "certificate authority"))
		if b.logged("level=ERROR", "certificate authority").IsZero() {
			t.Error("the log does not say it")
		}
		b.endBy("stop")
	}
	must(t, os.Rename(filepath.Join(b.data, "pki"), filepath.Join(b.data, "new")))
	must(t, os.Rename(filepath.Join(b.data, "kept"), filepath.Join(b.data, "pki")))
	b.serve()
	if out := b.ledge("status"); strings.Contains(out, "certificate authority") {
		t.Errorf("the old one is back: %s", out)
	}
	b.endBy("stop")
	must(t, os.RemoveAll(filepath.Join(b.data, "pki")))
	b.serve()
	must(t, contains(b.ledge("status"), "certificate authority"))
	b.must("resume")
	if out := b.ledge("status"); strings.Contains(out, "certificate authority") {
		t.Errorf("it was accepted: %s", out)
	}
	b.endBy("stop")
	b.serve()
	if out := b.ledge("status"); strings.Contains(out, "certificate authority") {
		t.Errorf("it was accepted before: %s", out)
	}
}
