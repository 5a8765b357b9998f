package join

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/binary"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"sigs.k8s.io/yaml"

	"ledge/api"
	"ledge/internal/durable"
)

// Config says which node joins which Kubernetes, and where its files are.
type Config struct {
	Dir    string
	Node   string
	Server string  // https://ADDRESS:PORT, to join by a ticket
	Ticket *Ticket // nil: none is known
	Now    func() time.Time
	// Leaving is called when the certificate is there, before it is kept: what the board was elsewhere ends here. It may be nil.
	Leaving func() error
}

// Node is a board's identity at a Kubernetes. It is safe for concurrent use, but for Close.
type Node struct {
	cfg  Config
	lock *os.File

	mu    sync.Mutex
	key   *ecdsa.PrivateKey
	chain []*x509.Certificate // nil: not joined
}

const (
	pairFile       = "node.pem"
	nextFile       = "next.pem"
	kubeconfigFile = "kubeconfig"
	clientCAFile   = "client-ca.crt"
)

// Dir is the directory of a board's identity at a Kubernetes, in its data directory.
func Dir(dataDir string) string { return filepath.Join(dataDir, "kubernetes") }

// Kubeconfig is the file in such a directory that the board talks to its control plane by.
func Kubeconfig(dir string) string { return filepath.Join(dir, kubeconfigFile) }

// ClientCA is the file in it that the CA of the control plane's clients is in, if that is known.
func ClientCA(dir string) string { return filepath.Join(dir, clientCAFile) }

// Open reads what is kept, and holds it until Close: two that renew would take each other's key away.
func Open(c Config) (_ *Node, failed error) {
	n := &Node{cfg: c}
	if err := os.MkdirAll(c.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("open this board's identity: %w", err)
	}
	var err error
	if n.lock, err = os.Open(c.Dir); err != nil {
		return nil, fmt.Errorf("open this board's identity: %w", err)
	}
	defer func() {
		if failed != nil {
			n.Close()
		}
	}()
	if err := syscall.Flock(int(n.lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return nil, fmt.Errorf("a node runs with the identity in %s: stop it first", c.Dir)
	}
	n.key, n.chain, err = readPair(c.Dir)
	if err != nil {
		return nil, fmt.Errorf("this board's identity is damaged: %w; remove %s and join again", err, c.Dir)
	}
	if err := n.tidy(); err != nil {
		return nil, fmt.Errorf("open this board's identity: %w", err)
	}
	return n, n.fits()
}

// tidy removes the next key where the power was cut after it had become the present one: it would be asked for again.
func (n *Node) tidy() error {
	path := filepath.Join(n.cfg.Dir, nextFile)
	data, err := os.ReadFile(path)
	if err != nil || n.chain == nil {
		return nil //nolint:nilerr // what cannot be read is made anew
	}
	if key, _, err := parsePair(data); err != nil || !key.Equal(n.key) {
		return nil //nolint:nilerr // likewise
	}
	return (durable.Disk{}).Remove(path)
}

// Close lets others open it.
func (n *Node) Close() { _ = n.lock.Close() } // nothing was written through it

// readPair reads who the board is; nothing if it has not joined.
func readPair(dir string) (*ecdsa.PrivateKey, []*x509.Certificate, error) {
	data, err := os.ReadFile(filepath.Join(dir, pairFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, err
	}
	key, chain, err := parsePair(data)
	if err == nil && chain == nil {
		err = errors.New("there is no certificate in it")
	}
	if err != nil {
		return nil, nil, fmt.Errorf("read %s: %w", filepath.Join(dir, pairFile), err)
	}
	return key, chain, nil
}

// fits refuses what is kept where the board has another name, or was told to join another control plane.
func (n *Node) fits() error {
	if n.chain == nil {
		return nil
	}
	if was := n.chain[0].Subject.CommonName; was != api.NodeUserPrefix+n.cfg.Node {
		return fmt.Errorf("this board has joined as %q and is named %q now: start it with --hostname-override %[1]s, or remove %s and join again",
			strings.TrimPrefix(was, api.NodeUserPrefix), n.cfg.Node, n.cfg.Dir)
	}
	if n.cfg.Ticket == nil {
		return nil
	}
	known, err := n.cluster()
	if err != nil {
		return err
	}
	if len(n.cfg.Ticket.Pins) == 0 {
		if n.cfg.Server == "" || sameServer(known.Server, n.cfg.Server) {
			return nil
		}
		return fmt.Errorf("this board has joined the control plane at %s, and a token was given for the one at %s: to move it, remove %s and "+
			"join again; to stay, take the token away; if both are one control plane, give the hash of its CA with the token (--ca-hash)",
			known.Server, n.cfg.Server, n.cfg.Dir)
	}
	cas, err := parseCertificates(known.CA, mostCAs)
	if err != nil || !slices.ContainsFunc(cas, func(c *x509.Certificate) bool {
		return slices.Contains(n.cfg.Ticket.Pins, sha256.Sum256(c.RawSubjectPublicKeyInfo))
	}) {
		return fmt.Errorf("this board has joined the control plane at %s, and the hash that was given is that of another one's CA; "+
			"to move it, remove %s and join again", known.Server, n.cfg.Dir)
	}
	return nil
}

// sameServer says whether two addresses of servers are one.
func sameServer(a, b string) bool { return hostPort(a) == hostPort(b) }

func hostPort(server string) string {
	u, err := url.Parse(server)
	if err != nil {
		return server
	}
	return net.JoinHostPort(strings.ToLower(u.Hostname()), cmp.Or(u.Port(), "443"))
}

// Joined says whether the board has a certificate, good or ended.
func (n *Node) Joined() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.chain != nil
}

// Chain is the certificate that this board shows its control plane, and what was given with it; none before it has joined.
func (n *Node) Chain() []*x509.Certificate {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.chain
}

// JoinedAt says which server the board with an identity in dir has joined; ok is false for one that has not joined.
func JoinedAt(dir string) (server string, ok bool) {
	if _, err := os.Stat(filepath.Join(dir, pairFile)); err != nil {
		return "", false
	}
	data, err := os.ReadFile(Kubeconfig(dir))
	if err != nil {
		return "", false
	}
	known, err := clusterOf(data)
	return known.Server, err == nil
}

// Forget removes what is kept in a directory.
func Forget(dir string) error { return os.RemoveAll(dir) }

func (n *Node) cluster() (cluster, error) {
	data, err := os.ReadFile(Kubeconfig(n.cfg.Dir))
	if err != nil {
		return cluster{}, err
	}
	out, err := clusterOf(data)
	if err != nil {
		err = fmt.Errorf("read %s: %w", Kubeconfig(n.cfg.Dir), err)
	}
	return out, err
}

// next is the key that a certificate is asked for: the one of the last try, if that has not ended.
func (n *Node) next() (*ecdsa.PrivateKey, error) {
	path := filepath.Join(n.cfg.Dir, nextFile)
	if data, err := os.ReadFile(path); err == nil {
		if key, _, err := parsePair(data); err == nil {
			return key, nil
		}
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make this board's key: %w", err)
	}
	data, err := encodePair(key, nil)
	if err != nil {
		return nil, err
	}
	return key, durable.Replace(path, data, 0o600)
}

func encodePair(key *ecdsa.PrivateKey, chain []*x509.Certificate) ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	return append(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), encode(chain)...), nil
}

// Join asks by the ticket for the first certificate, or looks whether it is there: after a Pending ask again. A Refusal is for good.
func (n *Node) Join(ctx context.Context) error {
	t := n.cfg.Ticket
	if t == nil {
		return refuse("this board has not joined yet: a token of 'kubeadm token create --print-join-command' is needed once")
	}
	server := n.cfg.Server
	if server == "" { // it has joined before
		known, err := n.cluster()
		if err != nil {
			return err
		}
		server = known.Server
	}
	cas, err := t.meet(ctx, server)
	if err != nil {
		return err
	}
	p := newPlane(server, &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: poolOf(cas), Time: n.cfg.Now}, t.Token())
	key, err := n.next()
	if err != nil {
		return err
	}
	chain, err := p.obtain(ctx, n.cfg.Node, key, false, n.cfg.Now())
	switch {
	case denied(err, http.StatusUnauthorized):
		return refuse("%v: the token has ended or was deleted; make another with 'kubeadm token create --print-join-command'", err)
	case denied(err, http.StatusForbidden):
		return refuse("%v: the token's group may not ask for certificates (kubeadm binds it to system:node-bootstrapper)", err)
	case err != nil:
		return err
	}
	// Whose clients' certificates this CA has signed, ours among them, it may name to the board's own port.
	clients := slices.DeleteFunc(slices.Clone(cas), func(ca *x509.Certificate) bool { return chain[0].CheckSignatureFrom(ca) != nil })
	return n.keep(key, chain, &cluster{Server: server, CA: encode(cas)}, encode(clients))
}

// Administrator is somebody who may approve certificates, by a way in that is his.
type Administrator struct {
	Server, ServerName string
	CA                 []byte // nil: the machine's
	HTTP               *http.Client
}

// JoinBy has an administrator's way in make this board a node: it asks, approves and waits until ctx ends. Nothing of his is kept.
// clients says whether the CA of the control plane's clients was found.
func (n *Node) JoinBy(ctx context.Context, who Administrator) (clients bool, err error) {
	p := plane{base: who.Server, http: who.HTTP}
	key, err := n.next()
	if err != nil {
		return false, err
	}
	chain, err := p.obtain(ctx, n.cfg.Node, key, true, n.cfg.Now())
	for wait := 250 * time.Millisecond; err != nil; wait = min(2*wait, 5*time.Second) {
		waits, ok := errors.AsType[*Pending](err)
		if !ok {
			return false, err
		}
		select {
		case <-ctx.Done():
			return false, fmt.Errorf("%w; run the same again to go on waiting", waits)
		case <-time.After(wait):
		}
		chain, err = p.obtain(ctx, n.cfg.Node, key, true, n.cfg.Now())
	}
	ca, err := p.clientCA(ctx)
	if err != nil {
		return false, err
	}
	// What joined another control plane ends before the way to this one is written: nothing shows that certificate there.
	if err := os.Remove(filepath.Join(n.cfg.Dir, pairFile)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return ca != nil, n.keep(key, chain, &cluster{who.Server, who.ServerName, who.CA}, ca)
}

// clientCA asks for the CA of the control plane's clients; nil where it is not told.
func (p plane) clientCA(ctx context.Context) ([]byte, error) {
	var found configMap
	err := p.ask(ctx, http.MethodGet, "/api/v1/namespaces/kube-system/configmaps/extension-apiserver-authentication", nil, &found)
	if denied(err, http.StatusForbidden, http.StatusNotFound) || err == nil && found.Data["client-ca-file"] == "" {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read the CA of clients: %w", err)
	}
	cas, err := parseCertificates([]byte(found.Data["client-ca-file"]), mostCAs)
	if err != nil {
		return nil, fmt.Errorf("read the CA of clients: %w", err)
	}
	return encode(cas), nil
}

// keep makes a certificate the board's. at is nil if the control plane is the one it was.
func (n *Node) keep(key *ecdsa.PrivateKey, chain []*x509.Certificate, at *cluster, clientCA []byte) error {
	if at != nil {
		if n.cfg.Leaving != nil {
			if err := n.cfg.Leaving(); err != nil {
				return err
			}
		}
		text, err := yaml.Marshal(map[string]any{
			"apiVersion": "v1", "kind": "Config", "current-context": "node",
			"clusters": []any{map[string]any{"name": "kubernetes", "cluster": at}},
			"users":    []any{map[string]any{"name": "node", "user": map[string]any{"client-certificate": pairFile, "client-key": pairFile}}},
			"contexts": []any{map[string]any{"name": "node", "context": map[string]any{"cluster": "kubernetes", "user": "node"}}},
		})
		if err == nil {
			err = durable.Replace(Kubeconfig(n.cfg.Dir), text, 0o600)
		}
		if err == nil && len(clientCA) > 0 {
			err = durable.Replace(ClientCA(n.cfg.Dir), clientCA, 0o600)
		} else if err == nil {
			err = (durable.Disk{}).Remove(ClientCA(n.cfg.Dir))
		}
		if err != nil {
			return fmt.Errorf("keep this board's identity: %w", err)
		}
	}
	data, err := encodePair(key, chain)
	if err == nil {
		err = durable.Replace(filepath.Join(n.cfg.Dir, pairFile), data, 0o600)
	}
	if err == nil {
		err = (durable.Disk{}).Remove(filepath.Join(n.cfg.Dir, nextFile))
	}
	if err != nil {
		return fmt.Errorf("keep this board's identity: %w", err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.key, n.chain = key, chain
	return nil
}

// renewAt is when a certificate is renewed: between seven and nine tenths of its life, at a time of its own, so that boards that
// joined together do not ask together.
func renewAt(leaf *x509.Certificate) time.Time {
	sum := sha256.Sum256(leaf.Raw)
	part := 0.7 + 0.2*float64(binary.BigEndian.Uint32(sum[:]))/(1<<32)
	return leaf.NotBefore.Add(time.Duration(part * float64(leaf.NotAfter.Sub(leaf.NotBefore))))
}

// RenewIn is how long the certificate is good without care. It is never negative.
func (n *Node) RenewIn() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.chain == nil {
		return 0
	}
	return max(0, renewAt(n.chain[0]).Sub(n.cfg.Now()))
}

// Renew asks for the next certificate, or looks whether it is there: by the one that the board has, or, if that has ended, by the
// ticket.
func (n *Node) Renew(ctx context.Context) error {
	n.mu.Lock()
	own, chain := n.key, n.chain
	n.mu.Unlock()
	if n.cfg.Now().After(chain[0].NotAfter) {
		if n.cfg.Ticket == nil {
			return errors.New(ended(chain[0]))
		}
		return n.Join(ctx)
	}
	at, err := n.cluster()
	if err != nil {
		return err
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: at.ServerName, Time: n.cfg.Now}
	if len(at.CA) > 0 {
		cas, err := parseCertificates(at.CA, mostCAs)
		if err != nil {
			return fmt.Errorf("read %s: %w", Kubeconfig(n.cfg.Dir), err)
		}
		conf.RootCAs = poolOf(cas)
	}
	shown := tls.Certificate{PrivateKey: own, Leaf: chain[0]}
	for _, c := range chain {
		shown.Certificate = append(shown.Certificate, c.Raw)
	}
	conf.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &shown, nil }
	key, err := n.next()
	if err != nil {
		return err
	}
	got, err := newPlane(at.Server, conf, "").obtain(ctx, n.cfg.Node, key, false, n.cfg.Now())
	if denied(err, http.StatusUnauthorized) && n.cfg.Ticket != nil { // the clock may be wrong, or the CA another one by now
		return n.Join(ctx)
	}
	if err != nil {
		return err
	}
	return n.keep(key, got, nil, nil)
}

// ended says what to do when a certificate has ended.
func ended(leaf *x509.Certificate) string {
	return fmt.Sprintf("this board's certificate at its Kubernetes ended on %s, and its control plane knows it no more: make a token there with "+
		"'kubeadm token create --print-join-command', write the line into the file named token beside the configuration (or give --token) and "+
		"start this board again; or stop it and run 'ledge join --kubeconfig' with an administrator's file", leaf.NotAfter.UTC().Format(time.DateOnly))
}

// Trouble says what keeps the board with an identity in dir from its Kubernetes, and what to do; it is empty where nothing does.
func Trouble(dir string, now time.Time) string {
	_, chain, err := readPair(dir)
	switch {
	case err != nil:
		return fmt.Sprintf("this board's identity is damaged: %v; remove %s and join again", err, dir)
	case chain != nil && now.After(chain[0].NotAfter):
		return ended(chain[0])
	}
	data, err := os.ReadFile(filepath.Join(dir, nextFile))
	if err != nil || chain != nil && now.Before(renewAt(chain[0])) {
		return ""
	}
	key, _, err := parsePair(data)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("this board has asked its Kubernetes for a certificate; if it waits for approval: kubectl certificate approve %s", nameOf(key))
}
