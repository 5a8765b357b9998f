package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// TestPlaceByConfiguration: a board that was installed as one of its own joins a control plane by two lines in files, as its unit
// would have it: the token is gone then, and so is what it ran before; later starts need nothing.
func TestPlaceByConfiguration(t *testing.T) {
	s := newShed(t, "")
	b := s.board()
	b.launch("serve", "--listen", "127.0.0.1:6443")
	b.eventually("it is a node of its own", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
	b.apply(fleetPod("own", b.name))
	b.eventually("its own pod runs", func() error { return contains(b.ledge("get", "pods"), " Running ") })
	own := b.running("own")
	must(t, b.signal(syscall.SIGTERM))

	token := filepath.Join(filepath.Dir(b.config), "token")
	line := s.line()
	b.configure("server: https://10.99.0.1:1, " + line[1] + "\n") // nobody answers at the first
	must(t, os.WriteFile(token, []byte("ledge agent --server x --token "+line[3]+"\n"), 0o600))
	b.launch("serve")
	s.ready(b.name)
	if _, err := os.Stat(token); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the token is left: %v", err)
	}
	s.plane.apply(fleetPod("p1", b.name))
	s.says("p1", " Running ", s.pods)
	b.eventually("what it ran before is gone", func() error {
		if now := b.processes("/kubepods/"); len(now) != 1 || now[0] == own {
			return fmt.Errorf("processes %v, its own was %d", now, own)
		}
		return nil
	})
	pid := b.running("p1")
	_ = b.signal(syscall.SIGKILL)
	b.launch("serve")
	s.plane.apply(fleetPod("p2", b.name))
	s.says("p2", " Running ", s.pods)
	if now := b.running("p1"); now != pid {
		t.Errorf("the pod was restarted: %d, was %d", now, pid)
	}
}
