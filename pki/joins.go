package pki

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"ledge/api"
)

// Who a board is on the API.

// PlaneUser is who a control plane is to its boards. The name has no rights on the API.
const PlaneUser = "system:ledge:control-plane"

// Names in certificates that no host can have: host names have no underscore. So nobody who chooses the name of a
// board can pose as another machine.
const (
	ServerIdentity = "ledge_server" // in the control plane's certificate, wherever it is reached
	boardPrefix    = "node_"        // before a board's name, in its own
)

// Rows is a small durable table, such as storage.Table.
type Rows interface {
	All() (rows map[string][]byte, damaged []string, err error)
	Put(key string, value []byte) error
	Delete(key string) error
}

// JoinsConfig says where an authority remembers whom it lets in.
type JoinsConfig struct {
	Tokens, Boards Rows
	Own            string // the name of the control plane's own board, which nobody else may have
}

// Joins lets boards into a control plane and knows them again. It is safe for concurrent use.
type Joins struct {
	a   *Authority
	cfg JoinsConfig

	mu      sync.Mutex
	boards  map[string]boardRow
	revoked []revocation
}

// tokenRow is a token at rest. Its secret has 128 random bits, so a plain hash of it tells nothing.
type tokenRow struct {
	Hash    []byte    `json:"hash"`
	Node    string    `json:"node,omitempty"`
	Uses    int       `json:"uses"`
	Used    int       `json:"used"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
}

// boardRow is a board that has joined. Its key is who it is; certificates come and go.
type boardRow struct {
	Key   []byte    `json:"key"` // SHA-256 of the public key
	Token string    `json:"token"`
	Since time.Time `json:"since"`
	Until time.Time `json:"until"` // of its last certificate

	Revoked time.Time `json:"revoked,omitzero"`
}

// How long a used or expired token is still remembered: who tries it is told what is wrong with it. It is also how long after the end of
// its certificate a board may still get the next one by its key alone: it may have lain in a drawer for a year.
const (
	tokenMemory  = 7 * 24 * time.Hour
	renewalGrace = 365 * 24 * time.Hour
)

// TokenTerms are what a new token is good for.
type TokenTerms struct {
	TTL  time.Duration
	Uses int
	Node string // the only name it is good for; empty: any
}

// TokenInfo is what is known of a token.
type TokenInfo struct {
	ID      string    `json:"id"`
	Node    string    `json:"node,omitempty"`
	Uses    int       `json:"uses"`
	Used    int       `json:"used"`
	Created time.Time `json:"created"`
	Expires time.Time `json:"expires"`
	Over    string    `json:"over,omitempty"` // why it is good for nothing any more
}

// Refusal is why a board is not let in, for both sides to read.
type Refusal struct{ Why string }

func (r *Refusal) Error() string { return r.Why }

func refuse(format string, args ...any) error { return &Refusal{fmt.Sprintf(format, args...)} }

// Joins opens the memory of who has joined.
func (a *Authority) Joins(c JoinsConfig) (*Joins, error) {
	j := &Joins{a: a, cfg: c, boards: map[string]boardRow{}}
	rows, damaged, err := c.Boards.All()
	if err != nil {
		return nil, fmt.Errorf("read which boards have joined: %w", err)
	}
	for name, data := range rows {
		var row boardRow
		if err := json.Unmarshal(data, &row); err != nil {
			damaged = append(damaged, name)
			continue
		}
		j.boards[name] = row
	}
	if len(damaged) > 0 {
		slog.Error("what is kept of some boards is damaged: they have to join again, with a new token", "boards", damaged)
	}
	return j, j.loadRevoked()
}

// Create makes a token. It cannot be shown again.
func (j *Joins) Create(terms TokenTerms) (JoinToken, error) {
	var t JoinToken
	switch {
	case terms.TTL <= 0:
		return t, refuse("a token must live for some time")
	case terms.Uses < 1:
		return t, refuse("a token must be good for one board at least")
	case terms.Node != "" && badName(terms.Node) != "":
		return t, refuse("no board can be named %q: %s", terms.Node, badName(terms.Node))
	case terms.Node != "" && terms.Node == j.cfg.Own:
		return t, refuse("%q is the control plane's own board", terms.Node)
	}
	rand.Read(t.id[:]) // never fails
	rand.Read(t.secret[:])
	t.CA = j.a.Pin()
	now := j.a.Now()
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.forgetOld(now); err != nil {
		return t, err
	}
	sum := sha256.Sum256(t.secret[:])
	return t, put(j.cfg.Tokens, t.ID(), tokenRow{Hash: sum[:], Node: terms.Node, Uses: terms.Uses, Created: now, Expires: now.Add(terms.TTL)})
}

// List is every token that is remembered, the newest first.
func (j *Joins) List() ([]TokenInfo, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	rows, err := j.tokenRows()
	if err != nil {
		return nil, err
	}
	out := []TokenInfo{}
	for id, row := range rows {
		info := TokenInfo{ID: id, Node: row.Node, Uses: row.Uses, Used: row.Used, Created: row.Created, Expires: row.Expires}
		if err := row.over(id, j.a.Now()); err != nil {
			info.Over = err.Error()
		}
		out = append(out, info)
	}
	sort.Slice(out, func(i, j int) bool { return out[j].Created.Before(out[i].Created) })
	return out, nil
}

// Delete ends a token. Boards that have joined by it stay.
func (j *Joins) Delete(id string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	rows, err := j.tokenRows()
	if err != nil {
		return err
	}
	if _, ok := rows[id]; !ok {
		return refuse("there is no token %q; 'ledge token list' names them", id)
	}
	return j.cfg.Tokens.Delete(id)
}

// Known returns an error if a client's certificate no longer counts: if it is a board's and another board has the
// name now, or the board was revoked.
func (j *Joins) Known(leaf *x509.Certificate) error {
	name, ok := strings.CutPrefix(leaf.Subject.CommonName, api.NodeUserPrefix)
	if !ok {
		return nil
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.spent(leaf.RawSubjectPublicKeyInfo); err != nil {
		return err
	}
	row, found := j.boards[name]
	switch {
	case !found:
		return refuse("no board named %q has joined this control plane: it needs a new token", name)
	case !row.has(leaf.RawSubjectPublicKeyInfo):
		return refuse("another board has joined as %q since: this one needs a new token and another name", name)
	}
	return nil
}

// Sign answers a board that asks for a certificate by a signed request: the first time with the proof of a token, later
// by its key alone, because nobody else can do anything with the answer. taken says whether a Node of that name is there, and
// whether somebody is at work under it. A *Refusal is for the board to read; it leaves nothing behind.
func (j *Joins) Sign(request []byte, proof string, taken func(node string) (is, alive bool, err error)) (cert []byte, node string,
	err error) {
	req, node, err := parseRequest(request)
	if err != nil {
		return nil, node, err
	}
	if node == j.cfg.Own {
		return nil, node, refuse("%q is the control plane's own board: give this one another name with --hostname-override", node)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if err := j.spent(req.RawSubjectPublicKeyInfo); err != nil {
		return nil, node, err
	}
	now := j.a.Now()
	row, known := j.boards[node]
	count := func() error { return nil }
	if !known || !row.has(req.RawSubjectPublicKeyInfo) || now.After(row.Until.Add(renewalGrace)) {
		if count, err = j.admit(node, proof, known, row, now); err != nil {
			return nil, node, err
		}
		is, alive, err := taken(node)
		if err != nil {
			return nil, node, fmt.Errorf("look for node %s: %w", node, err)
		}
		// A Node made by hand waits for its board. A Node that is alive has its board, even if no row here says so:
		// the board joined by a kubeconfig, or the rows are damaged.
		if (known && is || alive) && !row.has(req.RawSubjectPublicKeyInfo) {
			return nil, node, refuse("another board has joined as %q: give this one another name with --hostname-override, or delete that "+
				"node first if this one replaces it ('ledge delete node %s')", node, node)
		}
		sum := sha256.Sum256(req.RawSubjectPublicKeyInfo)
		// One key, one name: revoking a name then revokes all that the key opens. No ledge asks for a second name
		// with the key it has.
		if names := j.names(sum[:]); len(names) > 0 && !slices.Contains(names, node) {
			return nil, node, refuse("the key of this board has joined as %q: remove the directory board/ below its data directory, "+
				"so that it gets a key of its own", names[0])
		}
		id, _, _ := parseProof(proof) // admit has read it
		row = boardRow{Key: sum[:], Token: id, Since: now}
	}
	der, until, err := j.certify(node, req, now)
	if err != nil {
		return nil, node, err
	}
	row.Until = until
	// The use is counted first: a power cut in between must not give a board away for nothing.
	if err := count(); err != nil {
		return nil, node, err
	}
	if err := put(j.cfg.Boards, node, row); err != nil {
		return nil, node, err
	}
	j.boards[node] = row
	return encodeCert(der), node, nil
}

// admit looks at a token. count is what takes one use of it.
func (j *Joins) admit(node, proof string, known bool, row boardRow, now time.Time) (count func() error, err error) {
	if proof == "" {
		switch {
		case !known:
			return nil, refuse("no board named %q has joined here, and no token was given: make one with 'ledge token create' on the control plane",
				node)
		case now.After(row.Until.Add(renewalGrace)):
			return nil, refuse("the certificate of %q ended on %s, more than %d days ago: join again with a new token",
				node, row.Until.Format(time.DateOnly), int(renewalGrace.Hours()/24))
		}
		return nil, refuse("another board has joined as %q since: this one needs a new token and another name", node)
	}
	rows, err := j.tokenRows()
	if err != nil {
		return nil, err
	}
	id, secret, err := parseProof(proof)
	token, found := rows[id]
	sum := sha256.Sum256(secret)
	if err != nil || !found || subtle.ConstantTimeCompare(sum[:], token.Hash) != 1 {
		return nil, refuse("the token is not one of this control plane (any more): make one with 'ledge token create'")
	}
	if err := token.over(id, now); err != nil {
		return nil, err
	}
	if token.Node != "" && token.Node != node {
		return nil, refuse("token %s is for a board named %q, this one is %q", id, token.Node, node)
	}
	token.Used++
	return func() error { return put(j.cfg.Tokens, id, token) }, nil
}

// certify makes a board's certificate, for its own key. It is the client's, and the server's of its port.
func (j *Joins) certify(node string, req *x509.CertificateRequest, now time.Time) (der []byte, until time.Time, err error) {
	want := request{user: api.NodeUserPrefix + node, groups: []string{api.NodesGroup}, names: []string{boardPrefix + node},
		usage: x509.ExtKeyUsageClientAuth, life: clientLife}
	template, err := want.template(j.a.ca.Leaf, now)
	if err != nil {
		return nil, until, err
	}
	template.ExtKeyUsage = append(template.ExtKeyUsage, x509.ExtKeyUsageServerAuth)
	if now.After(template.NotAfter) {
		return nil, until, fmt.Errorf("the CA ended on %s", j.a.ca.Leaf.NotAfter.Format(time.DateOnly))
	}
	der, err = x509.CreateCertificate(rand.Reader, template, j.a.ca.Leaf, req.PublicKey, j.a.ca.PrivateKey)
	return der, template.NotAfter, err
}

func (j *Joins) tokenRows() (map[string]tokenRow, error) {
	rows, _, err := j.cfg.Tokens.All() // a damaged one is as good as deleted
	if err != nil {
		return nil, fmt.Errorf("read the tokens: %w", err)
	}
	out := map[string]tokenRow{}
	for id, data := range rows {
		var row tokenRow
		if json.Unmarshal(data, &row) == nil {
			out[id] = row
		}
	}
	return out, nil
}

func (j *Joins) forgetOld(now time.Time) error {
	rows, err := j.tokenRows()
	for id, row := range rows {
		if now.After(row.Expires.Add(tokenMemory)) {
			err = errors.Join(err, j.cfg.Tokens.Delete(id))
		}
	}
	return err
}

// over is why a token is good for nothing any more.
func (r tokenRow) over(id string, now time.Time) error {
	switch {
	case !now.Before(r.Expires):
		return refuse("token %s expired at %s: make a new one with 'ledge token create'", id, r.Expires.UTC().Format(time.RFC3339))
	case r.Used >= r.Uses:
		return refuse("token %s has been used up (%d of %d): make a new one with 'ledge token create'", id, r.Used, r.Uses)
	}
	return nil
}

func (r boardRow) has(publicKey []byte) bool {
	sum := sha256.Sum256(publicKey)
	return subtle.ConstantTimeCompare(sum[:], r.Key) == 1
}

func put(rows Rows, key string, v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return err
	}
	return rows.Put(key, data)
}

// parseRequest reads what a board asks for, and sees that it holds the key.
func parseRequest(der []byte) (*x509.CertificateRequest, string, error) {
	req, err := x509.ParseCertificateRequest(der)
	if err != nil {
		return nil, "", refuse("the certificate request cannot be read: %v", err)
	}
	node, ok := strings.CutPrefix(req.Subject.CommonName, api.NodeUserPrefix)
	key, isECDSA := req.PublicKey.(*ecdsa.PublicKey)
	switch {
	case !ok:
		return nil, "", refuse("the certificate request is not for a board")
	case badName(node) != "":
		return nil, "", refuse("no board can be named %q: %s", node, badName(node))
	case !isECDSA || key.Curve != elliptic.P256():
		return nil, node, refuse("the key of the certificate request is not of the kind P-256")
	case req.CheckSignature() != nil:
		return nil, node, refuse("the certificate request is not signed by its own key")
	}
	return req, node, nil
}

func badName(node string) string { return strings.Join(validation.IsDNS1123Subdomain(node), "; ") }

// BoardTLS is how a control plane talks to the port of one board, and to no other machine. It may be used for long.
func (j *Joins) BoardTLS(node string) *tls.Config {
	return &tls.Config{
		MinVersion: tls.VersionTLS12,
		RootCAs:    j.a.Pool(),
		ServerName: boardPrefix + node,
		Time:       j.a.Now,
		NextProtos: []string{"http/1.1"}, // what is asked there is mostly an upgrade
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			cert, err := j.a.Client(PlaneUser, nil)
			return &cert, err
		},
		VerifyConnection: func(state tls.ConnectionState) error { return j.Known(state.PeerCertificates[0]) },
	}
}
