package pki

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// table is a Rows in memory that can be made to fail.
type table struct {
	rows map[string][]byte
	fail error
}

func newTable() *table { return &table{rows: map[string][]byte{}} }

func (t *table) All() (map[string][]byte, []string, error) { return maps.Clone(t.rows), nil, t.fail }

func (t *table) Put(key string, value []byte) error {
	if t.fail == nil {
		t.rows[key] = value
	}
	return t.fail
}

func (t *table) Delete(key string) error {
	delete(t.rows, key)
	return t.fail
}

// shed is a control plane and the boards around it.
type shed struct {
	t              *testing.T
	clock          *clock
	a              *Authority
	j              *Joins
	tokens, boards *table
	nodes, alive   map[string]bool
}

func newShed(t *testing.T) *shed {
	s := &shed{t: t, clock: &clock{built}, tokens: newTable(), boards: newTable(), nodes: map[string]bool{}, alive: map[string]bool{}}
	s.a = open(t, t.TempDir(), s.clock)
	s.restart()
	return s
}

// restart is the next process over the same tables.
func (s *shed) restart() {
	s.t.Helper()
	var err error
	if s.j, err = s.a.Joins(JoinsConfig{Tokens: s.tokens, Boards: s.boards, Own: "plane"}); err != nil {
		s.t.Fatal(err)
	}
}

func (s *shed) token(terms TokenTerms) JoinToken {
	s.t.Helper()
	if terms.Uses == 0 {
		terms.Uses = 1
	}
	if terms.TTL == 0 {
		terms.TTL = time.Hour
	}
	tok, err := s.j.Create(terms)
	if err != nil {
		s.t.Fatal(err)
	}
	return tok
}

func (s *shed) board(name string) *Identity {
	s.t.Helper()
	i, err := OpenIdentity(IdentityConfig{Dir: filepath.Join(s.t.TempDir(), "board"), Node: name, Now: s.clock.now})
	if err != nil {
		s.t.Fatal(err)
	}
	return i
}

func (s *shed) taken(node string) (is, alive bool, err error) {
	return s.nodes[node] || s.alive[node], s.alive[node], nil
}

func (s *shed) sign(i *Identity, proof string) ([]byte, error) {
	s.t.Helper()
	req, err := i.Request()
	if err != nil {
		s.t.Fatal(err)
	}
	cert, node, err := s.j.Sign(req, proof, s.taken)
	if err == nil {
		s.nodes[node] = true // its agent registers it
		err = i.Accept(cert, s.a.Pin(), []*x509.Certificate{s.a.ca.Leaf})
	}
	return cert, err
}

// refusedFor wants a refusal in which these words stand, and nothing left of the try.
func (s *shed) refusedFor(what string, i *Identity, proof, words string) {
	s.t.Helper()
	boards, tokens := maps.Clone(s.boards.rows), maps.Clone(s.tokens.rows)
	_, err := s.sign(i, proof)
	if r, ok := errors.AsType[*Refusal](err); !ok || !strings.Contains(r.Why, words) || strings.Contains(r.Why, "\n") {
		s.t.Errorf("%s: %v, want a refusal with %q", what, err, words)
	}
	if i.Joined() && proof != "" {
		s.t.Errorf("%s: the board has a certificate", what)
	}
	if !maps.EqualFunc(boards, s.boards.rows, bytes.Equal) || !maps.EqualFunc(tokens, s.tokens.rows, bytes.Equal) {
		s.t.Errorf("%s: something is left of the try", what)
	}
}

func TestJoin(t *testing.T) {
	s := newShed(t)
	tok := s.token(TokenTerms{Uses: 2, Node: ""})
	b := s.board("pi1")
	if _, err := s.sign(b, tok.Proof()); err != nil {
		t.Fatal(err)
	}
	leaf := b.current().Leaf
	if leaf.Subject.CommonName != "system:node:pi1" || !slices.Equal(leaf.Subject.Organization, []string{"system:nodes"}) ||
		!slices.Equal(leaf.DNSNames, []string{"node_pi1"}) || len(leaf.IPAddresses) > 0 || leaf.IsCA {
		t.Errorf("the certificate says %v %v %v", leaf.Subject, leaf.DNSNames, leaf.IPAddresses)
	}
	if err := s.j.Known(leaf); err != nil {
		t.Error(err)
	}
	for _, row := range s.tokens.rows { // hashed at rest
		if bytes.Contains(row, tok.secret[:]) || bytes.Contains(row, []byte(tok.Proof())) {
			t.Errorf("the token can be read in %s", row)
		}
	}
	// The answer was lost: the board asks again, with the same key, and no second use is counted.
	if _, err := s.sign(b, tok.Proof()); err != nil {
		t.Error(err)
	}
	list, err := s.j.List()
	if err != nil || len(list) != 1 || list[0].Used != 1 || list[0].ID != tok.ID() {
		t.Errorf("%+v %v", list, err)
	}
	s.restart()
	if err := s.j.Known(leaf); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if _, err := s.sign(s.board("pi2"), tok.Proof()); err != nil {
		t.Errorf("the second use: %v", err)
	}
	s.refusedFor("the third use", s.board("pi3"), tok.Proof(), "used up (2 of 2)")
}

func TestJoinRefused(t *testing.T) {
	s := newShed(t)
	tok, named := s.token(TokenTerms{Uses: 9}), s.token(TokenTerms{Node: "pi9"})
	if _, err := s.sign(s.board("pi1"), tok.Proof()); err != nil {
		t.Fatal(err)
	}
	other := newShed(t).token(TokenTerms{})
	tampered := tok
	tampered.secret[3] ^= 1
	s.refusedFor("no token", s.board("pi2"), "", "no token was given")
	s.refusedFor("another control plane's", s.board("pi2"), other.Proof(), "not one of this control plane")
	s.refusedFor("tampered", s.board("pi2"), tampered.Proof(), "not one of this control plane")
	s.refusedFor("no token at all", s.board("pi2"), "admin", "not one of this control plane")
	s.refusedFor("another's", s.board("pi2"), named.Proof(), `for a board named "pi9", this one is "pi2"`)
	s.refusedFor("the control plane's own name", s.board("plane"), tok.Proof(), "control plane's own board")
	s.refusedFor("two boards with one name", s.board("pi1"), tok.Proof(), `another board has joined as "pi1"`)
	s.refusedFor("and without a token", s.board("pi1"), "", `another board has joined as "pi1"`)
	s.clock.t = s.clock.t.Add(time.Hour)
	s.refusedFor("expired", s.board("pi2"), tok.Proof(), "expired at 2026-11-01T13:00:00Z")
	if err := s.j.Delete(tok.ID()); err != nil {
		t.Fatal(err)
	}
	s.refusedFor("deleted", s.board("pi2"), tok.Proof(), "not one of this control plane (any more)")
	if err := s.j.Delete(tok.ID()); err == nil || !strings.Contains(err.Error(), "no token") {
		t.Errorf("deleted twice: %v", err)
	}

	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	big, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	request := func(cn string, key *ecdsa.PrivateKey) []byte {
		der, err := x509.CreateCertificateRequest(rand.Reader,
			&x509.CertificateRequest{Subject: pkix.Name{CommonName: cn, Organization: []string{"system:masters"}}}, key)
		if err != nil {
			t.Fatal(err)
		}
		return der
	}
	torn := request("system:node:pi5", key)
	torn[len(torn)-1] ^= 1
	good := s.token(TokenTerms{Uses: 99})
	for what, req := range map[string][]byte{"an admin": request("ledge-admin", key), "no name": request("system:node:", key),
		"a path": request("system:node:../x", key), "another kind of key": request("system:node:pi5", big), "a bad signature": torn,
		"nothing": nil} {
		if cert, _, err := s.j.Sign(req, good.Proof(), nil); cert != nil || !errors.As(err, new(*Refusal)) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// What a request asks for beside its name is not given.
	cert, _, err := s.j.Sign(request("system:node:pi5", key), good.Proof(), s.taken)
	if err != nil {
		t.Fatal(err)
	}
	i := &Identity{cfg: IdentityConfig{Dir: t.TempDir(), Node: "pi5", Now: s.clock.now}, key: key}
	if err := i.Accept(cert, s.a.Pin(), []*x509.Certificate{s.a.ca.Leaf}); err != nil ||
		!slices.Equal(i.cert.Leaf.Subject.Organization, []string{"system:nodes"}) {
		t.Errorf("%v %v", i.cert.Leaf.Subject, err)
	}
}

// TestJoinFullDisk: what cannot be remembered is not given.
func TestJoinFullDisk(t *testing.T) {
	s := newShed(t)
	tok := s.token(TokenTerms{})
	for _, rows := range []*table{s.tokens, s.boards} {
		rows.fail = errors.New("disk full")
		if cert, err := s.sign(s.board("pi1"), tok.Proof()); cert != nil || err == nil || errors.As(err, new(*Refusal)) {
			t.Errorf("a certificate that is not remembered: %v", err)
		}
		rows.fail = nil
		if len(s.boards.rows) > 0 {
			t.Errorf("remembered all the same: %v", s.boards.rows)
		}
	}
	if _, err := s.j.Create(TokenTerms{}); err == nil {
		t.Error("a token without terms")
	}
}

// TestReplaceBoard: a name becomes free with its Node, and who had it is turned away.
func TestReplaceBoard(t *testing.T) {
	s := newShed(t)
	tok := s.token(TokenTerms{Uses: 9})
	old, next := s.board("pi1"), s.board("pi1")
	if _, err := s.sign(old, tok.Proof()); err != nil {
		t.Fatal(err)
	}
	s.nodes["pi1"] = false
	if _, err := s.sign(old, ""); err != nil {
		t.Errorf("its Node was deleted, and nobody else has come: %v", err)
	}
	s.nodes["pi1"] = false
	if _, err := s.sign(next, tok.Proof()); err != nil {
		t.Fatal(err)
	}
	if err := s.j.Known(next.current().Leaf); err != nil {
		t.Error(err)
	}
	if err := s.j.Known(old.current().Leaf); err == nil || !strings.Contains(err.Error(), "another board has joined") {
		t.Errorf("the old board: %v", err)
	}
	s.refusedFor("it wants a certificate", old, "", "another board has joined")
	admin, err := s.a.Client(AdminUser, nil)
	if err != nil || s.j.Known(admin.Leaf) != nil {
		t.Errorf("who is no board: %v", err)
	}
	stray, err := s.a.Client("system:node:nobody", []string{"system:nodes"})
	if err != nil || s.j.Known(stray.Leaf) == nil {
		t.Errorf("a board that never joined counts (%v)", err)
	}
}

// TestNameOfALiveNode: a Node that somebody made by hand waits for a board with a token (N-1.12). A Node that is alive does not: another
// board works under its name. That one joined by a kubeconfig, or nothing is known of it any more.
func TestNameOfALiveNode(t *testing.T) {
	s := newShed(t)
	tok := s.token(TokenTerms{Uses: 9})
	s.alive["pi1"], s.nodes["pi2"] = true, true
	s.refusedFor("the name of a live Node", s.board("pi1"), tok.Proof(), `another board has joined as "pi1"`)
	if _, err := s.sign(s.board("pi2"), tok.Proof()); err != nil {
		t.Errorf("a Node that was made by hand: %v", err)
	}
	s.alive["pi1"], s.nodes["pi1"] = false, true
	b := s.board("pi1")
	if _, err := s.sign(b, tok.Proof()); err != nil {
		t.Errorf("it has been silent since: %v", err)
	}
	s.alive["pi1"] = true
	if _, err := s.sign(b, ""); err != nil {
		t.Errorf("it is itself that is alive: %v", err)
	}
	// What was kept of it is lost, and it is still at work.
	delete(s.boards.rows, "pi1")
	s.restart()
	s.refusedFor("the record is lost", s.board("pi1"), s.token(TokenTerms{}).Proof(), `another board has joined as "pi1"`)
	cannot := errors.New("cannot look")
	req, err := s.board("pi3").Request()
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = s.j.Sign(req, s.token(TokenTerms{}).Proof(), func(string) (is, alive bool, err error) { return false, false, cannot })
	if !errors.Is(err, cannot) {
		t.Errorf("nobody could look: %v", err)
	}
}

// TestRenewal: by the key alone, also a while after the end, with the same key only.
func TestRenewal(t *testing.T) {
	s := newShed(t)
	b := s.board("pi1")
	if _, err := s.sign(b, s.token(TokenTerms{}).Proof()); err != nil {
		t.Fatal(err)
	}
	if got, want := b.RenewIn(), 2*clientLife/3; got != want {
		t.Errorf("renewed after %v, want %v", got, want)
	}
	s.clock.t = built.Add(2 * clientLife / 3)
	if b.RenewIn() != 0 {
		t.Errorf("not yet: %v", b.RenewIn())
	}
	first := b.current().Leaf
	if _, err := s.sign(b, ""); err != nil || !b.current().Leaf.NotAfter.After(first.NotAfter) || b.RenewIn() == 0 {
		t.Errorf("renewed: until %v %v", b.current().Leaf.NotAfter, err)
	}
	s.clock.t = b.current().Leaf.NotAfter.Add(renewalGrace - time.Minute)
	if _, err := s.sign(b, ""); err != nil {
		t.Errorf("nearly a year in a drawer: %v", err)
	}
	s.clock.t = b.current().Leaf.NotAfter.Add(renewalGrace + time.Minute)
	s.refusedFor("more than a year in a drawer", b, "", "join again with a new token")
	if _, err := s.sign(b, s.token(TokenTerms{}).Proof()); err != nil {
		t.Errorf("with a token: %v", err)
	}
}

func TestJoinTokenText(t *testing.T) {
	tok := newShed(t).token(TokenTerms{})
	text := tok.String()
	if got, err := ParseJoinToken(text); err != nil || got != tok {
		t.Fatalf("%v %v", got, err)
	}
	for i := range text {
		c := byte('A')
		if text[i] == c {
			c = 'B'
		}
		if _, err := ParseJoinToken(text[:i] + string(c) + text[i+1:]); err == nil {
			t.Errorf("character %d may be another", i)
		}
		if _, err := ParseJoinToken(text[:i]); err == nil {
			t.Errorf("%d characters are enough", i)
		}
	}
	if strings.Contains(tok.Proof(), "ledge1") || len(tok.Proof()) >= len(text)/2 {
		t.Errorf("the proof %q holds more than it must", tok.Proof())
	}
}

func FuzzParseJoinToken(f *testing.F) {
	f.Add("ledge1.")
	f.Add(JoinToken{}.String())
	f.Add("ledge1.AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAN\raNt_Q")
	f.Fuzz(func(t *testing.T, s string) {
		if tok, err := ParseJoinToken(s); err == nil && tok.String() != s {
			t.Errorf("%q is read as %q", s, tok)
		}
		_, _, _ = parseProof(s)
	})
}

func FuzzSign(f *testing.F) {
	a, err := Open(Config{Dir: f.TempDir()})
	if err != nil {
		f.Fatal(err)
	}
	j, err := a.Joins(JoinsConfig{Tokens: newTable(), Boards: newTable()})
	if err != nil {
		f.Fatal(err)
	}
	i, err := OpenIdentity(IdentityConfig{Dir: f.TempDir(), Node: "pi1"})
	if err != nil {
		f.Fatal(err)
	}
	req, err := i.Request()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(req, "")
	f.Add(req, JoinToken{}.Proof())
	f.Fuzz(func(t *testing.T, request []byte, proof string) {
		if cert, _, err := j.Sign(request, proof, nil); cert != nil || !errors.As(err, new(*Refusal)) {
			t.Errorf("without a token: %v", err)
		}
	})
}

// meet lets a board connect to a server of an authority and says what it found.
func meet(t *testing.T, a *Authority, board *tls.Config) (tls.ConnectionState, error) {
	t.Helper()
	conf, err := a.ServerTLS([]string{ServerIdentity}, nil)
	if err != nil {
		t.Fatal(err)
	}
	conf.ClientAuth = tls.VerifyClientCertIfGiven // as behind httpd's WithTokens
	return connect(t, conf, board)
}

func TestPinnedHandshake(t *testing.T) {
	s := newShed(t)
	pin := s.a.Pin()
	b := s.board("pi1")
	state, err := meet(t, s.a, b.Join(pin))
	if err != nil || pin.find(state.PeerCertificates) == nil {
		t.Fatalf("the control plane of the token: %v", err)
	}
	// A board whose clock says 1970 joins all the same: the CA was made after that.
	early := s.board("pi2")
	early.cfg.Now = func() time.Time { return time.Unix(60, 0) }
	if _, err := meet(t, s.a, early.Join(pin)); err != nil {
		t.Errorf("a board in 1970: %v", err)
	}
	if _, err := meet(t, newShed(t).a, b.Join(pin)); !errors.Is(err, ErrOtherCA) {
		t.Errorf("another control plane: %v", err)
	}
	if _, err := s.sign(b, s.token(TokenTerms{}).Proof()); err != nil {
		t.Fatal(err)
	}
	if state, err := meet(t, s.a, b.Client()); err != nil || len(state.VerifiedChains) > 0 {
		t.Errorf("joined: %v", err)
	}
	if _, err := meet(t, newShed(t).a, b.Client()); !errors.Is(err, ErrOtherCA) {
		t.Errorf("joined, and another answers: %v", err)
	}
	// A board is not the control plane, although its certificate is of the same CA and good for a server.
	l, err := tls.Listen("tcp", "127.0.0.1:0",
		&tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{b.cert.Leaf.Raw, s.a.ca.Leaf.Raw}, PrivateKey: b.key}}})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	go func() {
		if conn, err := l.Accept(); err == nil {
			_ = conn.(*tls.Conn).Handshake()
			conn.Close()
		}
	}()
	if conn, err := tls.Dial("tcp", l.Addr().String(), early.Join(pin)); err == nil || !errors.As(err, new(x509.HostnameError)) {
		if err == nil {
			conn.Close()
		}
		t.Errorf("a board in the place of the control plane: %v", err)
	}
	// After its end the certificate opens nothing, and its next one is got without showing it.
	s.clock.t = b.cert.Leaf.NotAfter.Add(time.Hour)
	if _, err := meet(t, s.a, b.Client()); err == nil {
		t.Error("an expired certificate was let in")
	}
	if _, err := meet(t, s.a, b.Join(pin)); err != nil {
		t.Errorf("to renew it: %v", err)
	}
}

func TestIdentityIsKept(t *testing.T) {
	s := newShed(t)
	b := s.board("pi1")
	dir := b.cfg.Dir
	again := func(name string) (*Identity, error) {
		return OpenIdentity(IdentityConfig{Dir: dir, Node: name, Now: s.clock.now})
	}
	if i, err := again("pi1"); err != nil || !i.key.Equal(b.key) || i.Joined() {
		t.Fatalf("the key of a board that has not joined: %v", err)
	}
	if _, err := s.sign(b, s.token(TokenTerms{}).Proof()); err != nil {
		t.Fatal(err)
	}
	for _, file := range []string{identityFile, identityCopy} {
		path := filepath.Join(dir, file)
		whole, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if st, err := os.Stat(path); err != nil || st.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v %v", file, st.Mode(), err)
		}
		for what, data := range map[string][]byte{"empty": nil, "torn": whole[:len(whole)/2], "cut": whole[:len(whole)-40],
			"more": append(slices.Clone(whole), "x"...)} {
			if err := os.WriteFile(path, data, 0o600); err != nil {
				t.Fatal(err)
			}
			if i, err := again("pi1"); err != nil || !i.Joined() || !i.cert.Leaf.Equal(b.cert.Leaf) {
				t.Errorf("%s %s: %v", file, what, err)
			}
		}
		if err := os.WriteFile(path, whole, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := again("pi2"); err == nil || !strings.Contains(err.Error(), "--hostname-override pi1") {
		t.Errorf("another name: %v", err)
	}
	for _, file := range []string{identityFile, identityCopy} {
		if err := os.WriteFile(filepath.Join(dir, file), []byte("x"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := again("pi1"); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("both copies: %v", err)
	}
	if err := b.Forget(); err != nil {
		t.Fatal(err)
	}
	if i, err := again("pi2"); err != nil || i.key.Equal(b.key) {
		t.Errorf("forgotten: %v", err)
	}
}

// TestAcceptRefuses what is not for this board.
func TestAcceptRefuses(t *testing.T) {
	s := newShed(t)
	one, two := s.board("pi1"), s.board("pi2")
	tok := s.token(TokenTerms{Uses: 9})
	cert, err := s.sign(one, tok.Proof())
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Accept(cert, s.a.Pin(), []*x509.Certificate{s.a.ca.Leaf}); err == nil || two.Joined() {
		t.Errorf("another's certificate: %v", err)
	}
	other := newShed(t)
	for what, err := range map[string]error{
		"nothing":  one.Accept([]byte("x"), s.a.Pin(), []*x509.Certificate{s.a.ca.Leaf}),
		"no CA":    one.Accept(cert, s.a.Pin(), nil),
		"other CA": one.Accept(cert, other.a.Pin(), []*x509.Certificate{other.a.ca.Leaf}),
	} {
		if err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
}
