package brain

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
	"ledge/api/coordination"
	"ledge/api/httpd"
	"ledge/api/local"
	"ledge/api/rest"
	"ledge/config"
	"ledge/internal/testrun"
	"ledge/node/join"
	"ledge/pki"
	"ledge/storage"
)

// joined is a board and its control plane in one process, with settable clocks.
type joined struct {
	t             *testing.T
	server, board atomic.Int64 // clocks
	p             *plane
	u             *uplink
	client        *rest.Client
	urls          []string
	token         pki.JoinToken
	ctx           context.Context
	done          chan error
	running       int
}

func newJoined(t *testing.T, begin time.Time) *joined {
	return newJoinedTo(t, begin, func(*httpd.Config) {})
}

// newJoinedTo is that with a control plane that serves more.
func newJoinedTo(t *testing.T, begin time.Time, more func(*httpd.Config)) *joined {
	j := &joined{t: t, done: make(chan error, 5), u: &uplink{renew: make(chan struct{}, 1)}}
	j.set(begin, begin)
	at := func(c *atomic.Int64) func() time.Time { return func() time.Time { return time.Unix(c.Load(), 0) } }
	db, err := storage.Open(t.Context(), storage.Config{Dir: t.TempDir(), NoSync: true})
	must(t, err)
	t.Cleanup(func() { must(t, db.Close()) })
	p := &plane{}
	j.p = p
	p.client, err = local.New(local.Config{Store: db})
	must(t, err)
	p.api = p.client
	p.ca, err = pki.Open(pki.Config{Dir: t.TempDir(), Now: at(&j.server)})
	must(t, err)
	p.joins, err = p.ca.Joins(pki.JoinsConfig{Tokens: db.Table("t"), Boards: db.Table("b")})
	must(t, err)
	p.boards.client, p.boards.tls = p.client, p.joins.BoardTLS
	serves := httpd.Config{Client: p.client, Join: p.join, Known: p.known, Calls: &p.boards}
	more(&serves)
	h, err := httpd.New(serves)
	must(t, err)
	conf, err := p.ca.ServerTLS([]string{pki.ServerIdentity}, nil)
	must(t, err)
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	must(t, err)
	var cancel context.CancelFunc
	j.ctx, cancel = context.WithCancel(context.Background())
	j.run((&httpd.Server{Handler: h, Listeners: []*httpd.Listener{l.WithTokens()}}).Run)
	t.Cleanup(func() {
		cancel()
		for range j.running {
			must(t, <-j.done)
		}
	})
	j.urls = []string{"https://" + l.Addr().String()}
	j.u.identity, err = pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(t.TempDir(), "board"), Node: "pi1", Now: at(&j.board)})
	must(t, err)
	j.token, err = p.joins.Create(pki.TokenTerms{TTL: time.Hour, Uses: 1})
	must(t, err)
	must(t, askCertificate(t.Context(), j.u.identity, j.urls, j.token.CA, j.token.Proof(), nil))
	j.u.servers, err = rest.NewServers(j.urls, j.u.identity.Client(), j.u.refused)
	must(t, err)
	j.client, err = rest.New(rest.Config{Servers: j.u.servers})
	must(t, err)
	t.Cleanup(j.client.Close)
	_, err = api.Create(t.Context(), j.client, api.Nodes, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "pi1"}})
	must(t, err)
	return j
}

func (j *joined) run(f func(context.Context) error) {
	j.running++
	go func() { j.done <- f(j.ctx) }()
}

// set puts both clocks right or wrong; the next request makes a new connection.
func (j *joined) set(server, board time.Time) {
	j.server.Store(server.Unix())
	j.board.Store(board.Unix())
	if j.client != nil {
		j.client.Close()
	}
}

func (j *joined) look() error {
	_, err := j.client.Get(j.t.Context(), api.Nodes, "", "pi1")
	return err
}

// renewed waits until a certificate that has ended is a good one.
func (j *joined) renewed(what string, u *uplink) {
	j.t.Helper()
	err := j.look()
	if err == nil {
		j.t.Fatalf("%s: an expired certificate was let in", what)
	}
	j.run(u.Run)
	testrun.Succeeds(j.t, 60*time.Second, what, j.look)
}

// TestUplinkRenews: a board whose certificate has ended while it was off gets the next one by its key, at once; so does one
// whose own clock does not know that it has ended.
func TestUplinkRenews(t *testing.T) {
	begin := time.Now()
	j := newJoined(t, begin)
	j.set(begin.AddDate(1, 1, 0), begin)
	j.renewed("a board that does not know what day it is", j.u)
	late := begin.AddDate(2, 3, 0)
	j.set(late, late)
	j.renewed("a board that was off for long", &uplink{identity: j.u.identity, servers: j.u.servers, renew: make(chan struct{}, 1)})

	// Another board, another key: it has no token, and the line says so.
	other, err := pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(t.TempDir(), "board"), Node: "pi1"})
	must(t, err)
	err = askCertificate(t.Context(), other, j.urls, j.token.CA, "", nil)
	if r, ok := errors.AsType[*refusal](err); !ok || r.code != 403 || !strings.Contains(r.Error(), `another board has joined as "pi1"`) {
		t.Errorf("%v", err)
	}
}

// booting is the address of a server that is in the middle of its boot: the first who calls is hung up on.
func booting(t *testing.T, url string) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for first := true; ; first = false {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			if first {
				conn.Close()
				continue
			}
			to, err := net.Dial("tcp", strings.TrimPrefix(url, "https://"))
			if err != nil {
				conn.Close()
				return
			}
			for from, to := range map[net.Conn]net.Conn{conn: to, to: conn} {
				go func() {
					_, _ = io.Copy(to, from)
					to.Close()
				}()
			}
		}
	}()
	return "https://" + l.Addr().String()
}

// TestJoinWhereOthersAnswer: a board that finds another control plane at one of its addresses waits for what is to come at the
// next; where all are others' it gives up, and keeps nothing.
func TestJoinWhereOthersAnswer(t *testing.T) {
	j, other := newJoined(t, time.Now()), newJoined(t, time.Now()).urls[0]
	token, err := j.p.joins.Create(pki.TokenTerms{TTL: time.Hour, Uses: 1})
	must(t, err)
	join := func(servers ...string) (*pki.Identity, error) {
		dir := filepath.Join(t.TempDir(), "board")
		id, err := pki.OpenIdentity(pki.IdentityConfig{Dir: dir, Node: "pi2"})
		must(t, err)
		b := &Brain{Config: Config{Settings: config.Settings{Options: &config.Options{Servers: servers}, Name: "pi2", JoinToken: &token}},
			uplink: &uplink{identity: id}}
		ctx, cancel := context.WithTimeout(t.Context(), testrun.Patience(60*time.Second))
		defer cancel()
		if err = b.join(ctx); err != nil {
			if _, gone := os.Stat(dir); !errors.Is(gone, fs.ErrNotExist) {
				t.Errorf("its key is still there: %v", gone)
			}
		}
		return id, err
	}
	if _, err := join(other, other); !errors.Is(err, pki.ErrOtherCA) {
		t.Errorf("others at all addresses: %v", err)
	}
	if id, err := join(other, booting(t, j.urls[0])); err != nil || !id.Joined() {
		t.Errorf("another at the first address, a control plane that starts at the second: %v", err)
	}
}

// TestNameOfALiveNode: a token gives nobody the name of a Node under which a board is at work that joined another way; that of one
// that was made by hand, or whose board is silent, it does (N-1.12).
func TestNameOfALiveNode(t *testing.T) {
	j := newJoined(t, time.Now())
	tok, err := j.p.joins.Create(pki.TokenTerms{TTL: time.Hour, Uses: 9})
	must(t, err)
	for _, c := range []struct {
		name          string
		ready         corev1.ConditionStatus // empty: nobody has said
		lease, worked bool
	}{
		{"byhand", "", false, true},
		{"claimed", corev1.ConditionTrue, false, true},
		{"silent", corev1.ConditionUnknown, true, true},
		{"alive", corev1.ConditionTrue, true, false},
	} {
		n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.name}}
		n, err := api.Create(t.Context(), j.p.client, api.Nodes, n)
		must(t, err)
		if c.ready != "" {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: c.ready}}
			_, err = api.UpdateStatus(t.Context(), j.p.client, api.Nodes, n)
			must(t, err)
		}
		if c.lease { // what time it says there is the board's clock's
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: corev1.NamespaceNodeLease, Name: c.name}}
			_, err = api.Create(t.Context(), j.p.client, coordination.Leases, l)
			must(t, err)
		}
		b, err := pki.OpenIdentity(pki.IdentityConfig{Dir: filepath.Join(t.TempDir(), "board"), Node: c.name})
		must(t, err)
		err = askCertificate(t.Context(), b, j.urls, tok.CA, tok.Proof(), nil)
		switch r, ok := errors.AsType[*refusal](err); {
		case c.worked && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case !c.worked && (!ok || r.code != 403 || !strings.Contains(r.Error(), `another board has joined as "`+c.name+`"`)):
			t.Errorf("%s: %v", c.name, err)
		case !c.worked && b.Joined():
			t.Errorf("%s: it is left with a certificate", c.name)
		}
	}
}

// TestAgentFlags say where the control plane is, in one way.
func TestAgentFlags(t *testing.T) {
	tok := pki.JoinToken{}.String()
	for _, c := range []struct {
		o    config.Options
		want string
	}{
		{config.Options{}, "--server"},
		{config.Options{Servers: []string{"10.0.0.1"}}, "no server such as"},
		{config.Options{Servers: []string{"https://10.0.0.1"}, Token: "x"}, "begins with"},
		{config.Options{Servers: []string{"https://10.0.0.1"}, Kubeconfig: "/x"}, "leave --server and --token out"},
		{config.Options{Servers: []string{"https://10.0.0.1"}, DoorPort: 70000}, "70000 is no port"},
		{config.Options{Kubeconfig: "/x"}, ""},
		{config.Options{Servers: []string{"https://10.0.0.1"}}, ""},
		{config.Options{Servers: []string{"https://10.0.0.1", "https://[fd00::1]:7000"}, Token: tok}, ""},
	} {
		s := config.Settings{Options: &c.o}
		if err := s.Where(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.o.Servers, err, c.want)
		}
		if (s.JoinToken != nil) != (c.o.Token == tok) {
			t.Errorf("token %v", s.JoinToken)
		}
	}
}

// TestWipe: nothing of a token is left, in the file or another name of it.
func TestWipe(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte("secret"), 0o600))
	must(t, os.Link(path, path+"2"))
	must(t, wipe(path))
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it is there: %v", err)
	}
	if data, err := os.ReadFile(path + "2"); err != nil || strings.Trim(string(data), "\x00") != "" || len(data) != 6 {
		t.Errorf("%q %v", data, err)
	}
	if err := wipe(path); err == nil {
		t.Error("there was nothing to wipe")
	}
}

// lateRenewal is a certificate that ends at a time, by a clock that is put on.
type lateRenewal struct {
	clock atomic.Int64
	end   time.Time
	tried chan time.Time
	err   error
}

func (r *lateRenewal) RenewIn() time.Duration {
	return max(0, r.end.Sub(time.Now().Add(time.Duration(r.clock.Load()))))
}

func (r *lateRenewal) Renew(context.Context) error {
	r.tried <- time.Now()
	return r.err
}

// TestClockPutRightLate: that a certificate has ended is known soon after the clock is right, and an answer that waits is looked for before
// Kubernetes removes it.
func TestClockPutRightLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &lateRenewal{end: time.Now().Add(20 * 24 * time.Hour), tried: make(chan time.Time), err: &join.Pending{Name: "csr"}}
		u := &uplink{renewal: r, renew: make(chan struct{}, 1)}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- u.Run(ctx) }()
		time.Sleep(time.Minute)
		r.clock.Store(int64(40 * 24 * time.Hour))
		right := time.Now()
		last := <-r.tried
		if late := last.Sub(right); late > 6*time.Minute {
			t.Errorf("asked %v after the clock was right", late)
		}
		for range 12 {
			at := <-r.tried
			if pace := at.Sub(last); pace < time.Minute || pace > 45*time.Minute {
				t.Errorf("looked again after %v", pace)
			}
			last = at
		}
		cancel()
		must(t, <-done)
	})
}

// TestTokenOfARejoin: the file of a token that a board needed to come back goes once it has done its work, not before; one that is gone
// is no trouble.
func TestTokenOfARejoin(t *testing.T) {
	path := filepath.Join(t.TempDir(), "token")
	must(t, os.WriteFile(path, []byte("abcdef.0123456789abcdef"), 0o600))
	client, err := rest.FromDialer(func(context.Context) (net.Conn, error) { return nil, errors.New("nobody is there") })
	must(t, err)
	for _, no := range []error{errors.New("no"), nil, nil} {
		r := &lateRenewal{tried: make(chan time.Time, 1), err: no}
		if err := (kubeRenewal{r, client, path}).Renew(t.Context()); !errors.Is(err, no) {
			t.Error(err)
		}
		if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) != (no == nil) {
			t.Errorf("after %v: %v", no, err)
		}
	}
}
