package pki

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// isRevoked: nothing is left that the board could do with its key.
func (s *shed) isRevoked(b *Identity, name string) {
	s.t.Helper()
	if err := s.j.Known(b.current().Leaf); err == nil || !strings.Contains(err.Error(), "was revoked on") {
		s.t.Errorf("its certificate: %v", err)
	}
	if _, err := s.sign(b, ""); err == nil || !strings.Contains(err.Error(), "was revoked on") {
		s.t.Errorf("it wants another: %v", err)
	}
	if ever, still := s.j.Revoked(name); !ever || !still {
		s.t.Errorf("it is not revoked: %v %v", ever, still)
	}
}

// TestRevoke: for good, under every name, in the next process, when an older store is restored, and when the file beside the CA is
// lost; another key gets the name as it gets that of any board.
func TestRevoke(t *testing.T) {
	s := newShed(t)
	tok := s.token(TokenTerms{Uses: 9, TTL: 90 * 24 * time.Hour})
	thief, other := s.board("pi1"), s.board("pi2")
	for _, b := range []*Identity{thief, other} {
		if _, err := s.sign(b, tok.Proof()); err != nil {
			t.Fatal(err)
		}
	}
	boards, tokens := maps.Clone(s.boards.rows), maps.Clone(s.tokens.rows)
	for range 2 { // once more changes nothing
		if info, err := s.j.Revoke("pi1"); err != nil || !info.Revoked.Equal(built) || info.Token != tok.ID() {
			t.Fatal(info, err)
		}
		s.clock.t = s.clock.t.Add(time.Hour)
	}
	s.isRevoked(thief, "pi1")
	s.refusedFor("the token that may be on its card", s.board("pi3"), tok.Proof(), "not one of this control plane")

	s.boards.rows, s.tokens.rows = maps.Clone(boards), maps.Clone(tokens)
	s.restart()
	s.isRevoked(thief, "pi1")
	s.refusedFor("the token, from an old backup", s.board("pi3"), tok.Proof(), "not one of this control plane")

	if _, err := s.j.Revoke("pi1"); err != nil { // so that this store says it too
		t.Fatal(err)
	}
	for _, damage := range []func(string) error{os.Remove, func(file string) error { return os.WriteFile(file, []byte("[{"), 0o600) }} {
		if err := damage(filepath.Join(s.a.dir, revokedFile)); err != nil {
			t.Fatal(err)
		}
		s.restart()
		s.isRevoked(thief, "pi1")
		s.boards.rows = maps.Clone(boards)
		s.restart() // the file is mended
		s.isRevoked(thief, "pi1")
		if _, err := s.j.Revoke("pi1"); err != nil {
			t.Fatal(err)
		}
	}

	fresh := s.token(TokenTerms{Uses: 9})
	again, err := OpenIdentity(IdentityConfig{Dir: thief.cfg.Dir, Node: "pi1", Now: s.clock.now})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.sign(again, fresh.Proof()); err == nil || !strings.Contains(err.Error(), "was revoked on") {
		t.Errorf("its key with a good token: %v", err)
	}
	next := s.board("pi1")
	s.refusedFor("another key, while the Node is there", next, fresh.Proof(), "delete that node first")
	s.nodes["pi1"] = false
	if _, err := s.sign(next, fresh.Proof()); err != nil {
		t.Fatal(err)
	}
	if ever, still := s.j.Revoked("pi1"); !ever || still || s.j.Known(next.current().Leaf) != nil {
		t.Errorf("who has its place: %v %v %v", ever, still, s.j.Known(next.current().Leaf))
	}
	if err := s.j.Known(thief.current().Leaf); err == nil {
		t.Error("the old one is let in again")
	}
	if ever, _ := s.j.Revoked("pi2"); ever || s.j.Known(other.current().Leaf) != nil {
		t.Error("another board is revoked too")
	}
	list := s.j.Boards()
	if len(list) != 3 || list[0].Revoked.IsZero() || !list[1].Revoked.IsZero() || list[1].Name != "pi1" || list[2].Name != "pi2" {
		t.Errorf("%+v", list)
	}
}

// TestRevokeRefused: who cannot be revoked, and a disk that takes nothing.
func TestRevokeRefused(t *testing.T) {
	s := newShed(t)
	for name, words := range map[string]string{"plane": "own board", "nobody": "ledge node ls"} {
		if _, err := s.j.Revoke(name); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v", name, err)
		}
	}
	b := s.board("pi1")
	if _, err := s.sign(b, s.token(TokenTerms{}).Proof()); err != nil {
		t.Fatal(err)
	}
	dir := s.a.dir
	s.a.dir = filepath.Join(dir, "none")
	if _, err := s.j.Revoke("pi1"); err == nil || s.j.Known(b.current().Leaf) != nil {
		t.Errorf("half revoked: %v", err)
	}
	s.a.dir, s.boards.fail = dir, os.ErrPermission
	if _, err := s.j.Revoke("pi1"); err == nil {
		t.Error("the store failed, and nobody hears of it")
	}
	s.boards.fail = nil
	s.restart()
	s.isRevoked(b, "pi1")
}

// TestOneNamePerKey: a key that has joined gets no second name by any token.
func TestOneNamePerKey(t *testing.T) {
	s := newShed(t)
	tok := s.token(TokenTerms{Uses: 9})
	b, twin := s.board("pi1"), s.board("pi2")
	if _, err := s.sign(b, tok.Proof()); err != nil {
		t.Fatal(err)
	}
	twin.key = b.key
	for range 2 {
		s.refusedFor("a second name", twin, tok.Proof(), `has joined as "pi1"`)
		s.nodes["pi1"] = false
		s.restart()
	}
	if _, err := s.sign(b, ""); err != nil {
		t.Errorf("its own name: %v", err)
	}
}

// TestRevokeTwins: a store may have a key under two names from before that was refused. Whichever is revoked, both are, in this process
// and the next, and stay so when another board takes one of the names.
func TestRevokeTwins(t *testing.T) {
	for _, again := range []bool{false, true} {
		s := newShed(t)
		tok := s.token(TokenTerms{Uses: 9})
		thief := s.board("pi1")
		if _, err := s.sign(thief, tok.Proof()); err != nil {
			t.Fatal(err)
		}
		s.boards.rows["pi2"] = s.boards.rows["pi1"]
		s.restart()
		if got := s.j.Names("pi2"); !slices.Equal(got, []string{"pi1", "pi2"}) {
			t.Errorf("names: %q", got)
		}
		if _, err := s.j.Revoke("pi1"); err != nil {
			t.Fatal(err)
		}
		if again {
			s.restart()
		}
		for _, name := range []string{"pi1", "pi2"} {
			s.isRevoked(thief, name)
		}
		if list := s.j.Boards(); len(list) != 2 || list[0].Revoked.IsZero() || list[1].Revoked.IsZero() {
			t.Errorf("%+v", list)
		}
		s.nodes["pi2"] = false
		if _, err := s.sign(s.board("pi2"), s.token(TokenTerms{}).Proof()); err != nil {
			t.Fatal(err)
		}
		if ever, still := s.j.Revoked("pi2"); !ever || still {
			t.Errorf("the name had by another: %v %v", ever, still)
		}
		s.isRevoked(thief, "pi1")
	}
}
