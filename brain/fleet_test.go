package brain

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/internal/testrun"
	"ledge/pki"
)

// nothing is measured on a board of these tests.
type nothing struct{ api.Metrics }

func (nothing) Node() string { return "pi1" }

func (nothing) Page(_ context.Context, path string) (string, []byte, bool, error) {
	return "text/plain", []byte("well"), path == "/healthz", nil
}

// withDoor gives the board a port, and its Node the address of it.
func (j *joined) withDoor() (address string) {
	j.t.Helper()
	h, err := httpd.NewDoor(httpd.Config{Client: j.client, Metrics: nothing{}}, pki.PlaneUser)
	must(j.t, err)
	l, err := httpd.ListenTLS("127.0.0.1:0", j.u.identity.Server())
	must(j.t, err)
	j.run((&httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}}).Run)
	j.say(l.Addr().(*net.TCPAddr).Port, corev1.ConditionTrue)
	return l.Addr().String()
}

// say writes the board's Node.
func (j *joined) say(port int, ready corev1.ConditionStatus) {
	j.t.Helper()
	n, err := api.Get[*corev1.Node](j.t.Context(), j.client, api.Nodes, "", "pi1")
	must(j.t, err)
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: "pi1"}, {Type: corev1.NodeInternalIP, Address: "127.0.0.1"}}
	n.Status.DaemonEndpoints.KubeletEndpoint.Port = int32(port)
	n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: ready}}
	_, err = api.UpdateStatus(j.t.Context(), j.client, api.Nodes, n)
	must(j.t, err)
}

func healthOf(dial func(context.Context) (net.Conn, error)) error {
	tr := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) }}
	resp, err := (&http.Client{Transport: tr}).Get("http://board/healthz")
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if string(data) != "well" {
		err = fmt.Errorf("%s %s %w", resp.Status, data, err)
	}
	return err
}

// TestWhoGetsToABoard: its control plane and nobody else, whatever the CA has signed; and the control plane talks to that board
// and to no other machine.
func TestWhoGetsToABoard(t *testing.T) {
	j := newJoined(t, time.Now())
	address := j.withDoor()
	as := func(conf *tls.Config) error {
		return healthOf(func(ctx context.Context) (net.Conn, error) {
			return (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", address)
		})
	}
	must(t, as(j.p.joins.BoardTLS("pi1")))
	with := func(user string, groups ...string) *tls.Config {
		cert, err := j.p.ca.Client(user, groups)
		must(t, err)
		return &tls.Config{RootCAs: j.p.ca.Pool(), ServerName: "node_pi1", Certificates: []tls.Certificate{cert}}
	}
	own := j.u.identity.Client()
	own.InsecureSkipVerify, own.VerifyConnection = true, nil
	for who, conf := range map[string]*tls.Config{"an administrator": with("admin", api.AdminGroup),
		"somebody in its group": with("x", pki.PlaneUser),
		"itself":                own, "nobody": {InsecureSkipVerify: true}} {
		if err := as(conf); err == nil { // what it says depends on when the alert arrives
			t.Errorf("%s gets in", who)
		}
	}
	other, err := pki.Open(pki.Config{Dir: filepath.Join(t.TempDir(), "pki")})
	must(t, err)
	cert, err := other.Client(pki.PlaneUser, nil)
	must(t, err)
	if err := as(&tls.Config{InsecureSkipVerify: true, Certificates: []tls.Certificate{cert}}); err == nil {
		t.Error("another control plane gets in")
	}
	if err := as(j.p.joins.BoardTLS("pi2")); err == nil || !strings.Contains(err.Error(), "not node_pi2") {
		t.Errorf("a board in the place of another: %v", err)
	}
}

// TestStreamsToBoards: the way to a board is its Node's, a few streams go there at once, and they end when it is lost.
func TestStreamsToBoards(t *testing.T) {
	testrun.OnHost(t)
	j := newJoined(t, time.Now())
	j.withDoor()
	b := &fleet{client: j.p.client, tls: j.p.joins.BoardTLS}
	dial := func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, "pi1") }
	must(t, healthOf(dial))
	open := func() int {
		b.mu.Lock()
		defer b.mu.Unlock()
		return len(b.open["pi1"])
	}
	// HTTP closes in its own time
	testrun.Until(t, 20*time.Second, "streams that have ended are not counted", func() bool { return open() == 0 })
	if _, err := b.Dial(t.Context(), "none"); !apierrors.IsNotFound(err) {
		t.Errorf("no such board: %v", err)
	}
	var conns []net.Conn
	for range boardStreams {
		conn, err := dial(t.Context())
		must(t, err)
		conns = append(conns, conn)
	}
	if _, err := dial(t.Context()); !apierrors.IsTooManyRequests(err) || !strings.Contains(err.Error(), "too many streams to board pi1") {
		t.Errorf("one more: %v", err)
	}
	must(t, conns[0].Close())
	conn, err := dial(t.Context())
	must(t, err)
	must(t, conn.Close())

	look := func() {
		n, err := api.Get[*corev1.Node](t.Context(), j.p.client, api.Nodes, "", "pi1")
		must(t, err)
		b.look([]*corev1.Node{n})
	}
	look() // it is well
	must(t, conns[1].(interface{ CloseWrite() error }).CloseWrite())
	j.say(1, corev1.ConditionUnknown)
	look()
	if n, err := conns[2].Read(make([]byte, 1)); err == nil {
		t.Errorf("a stream to a lost board goes on: %d", n)
	}
	if n := open(); n != 0 {
		t.Errorf("%d streams of a lost board are counted", n)
	}
	if _, err := dial(t.Context()); err == nil || !strings.Contains(err.Error(), "127.0.0.1:1: connect: connection refused") {
		t.Errorf("nobody is there: %v", err)
	}
	j.say(0, corev1.ConditionTrue)
	if _, err := dial(t.Context()); err == nil || !strings.Contains(err.Error(), "names no port") {
		t.Errorf("no port: %v", err)
	}
}

// TestTunnel: a board that cannot be reached is called, and answers with a connection of its own; the port is taken where it
// works. Nobody can hear or answer calls in a board's name.
func TestTunnel(t *testing.T) {
	j := newJoined(t, time.Now())
	h, err := httpd.NewDoor(httpd.Config{Client: j.client, Metrics: nothing{}}, pki.PlaneUser)
	must(t, err)
	b := &j.p.boards
	l, hand := httpd.Handed(planeUser)
	j.run((&httpd.Server{Handler: h, Listeners: []*httpd.Listener{l}}).Run)
	j.say(1, corev1.ConditionTrue) // nobody listens there
	dial := func(ctx context.Context) (net.Conn, error) { return b.Dial(ctx, "pi1") }
	if err := healthOf(dial); err == nil || !strings.Contains(err.Error(), "connection refused") {
		t.Errorf("before the board waits for calls: %v", err)
	}
	j.u.hand = hand
	j.run(j.u.answerCalls)
	testrun.Until(t, 20*time.Second, "the board waits for calls", func() bool { return b.waiterOf("pi1") != nil })
	for range 3 {
		must(t, healthOf(dial))
	}
	j.say(0, corev1.ConditionTrue) // no port at all
	must(t, healthOf(dial))

	cert, err := j.p.ca.Client("admin", []string{api.AdminGroup})
	must(t, err)
	admin := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: j.p.ca.Pool(), ServerName: pki.ServerIdentity,
		Certificates: []tls.Certificate{cert}}}}
	defer admin.CloseIdleConnections()
	for _, as := range []string{"", "system:node:pi1"} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, j.urls[0]+httpd.TunnelPath, nil)
		must(t, err)
		if as != "" {
			req.Header.Set("Impersonate-User", as)
			req.Header.Set("Impersonate-Group", "system:nodes")
		}
		resp, err := admin.Do(req)
		must(t, err)
		if resp.Body.Close(); resp.StatusCode != http.StatusForbidden {
			t.Errorf("an administrator as %q hears calls: %s", as, resp.Status)
		}
	}
	b.mu.Lock()
	b.calls["theirs"] = &call{node: "pi2", got: make(chan net.Conn, 1)}
	b.mu.Unlock()
	for _, id := range []string{"theirs", "none"} {
		conn, err := j.u.servers.Connect(t.Context())
		must(t, err)
		if _, err := httpd.Upgrade(t.Context(), conn, httpd.TunnelPath+"?call="+id); !apierrors.IsNotFound(err) {
			t.Errorf("a call %q is answered by pi1: %v", id, err)
		}
	}
}

// TestCallWithoutAnswer: who waits for a board that does not answer is told, and nothing is kept of it; a board that comes anew
// takes the place of what it left.
func TestCallWithoutAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := &fleet{}
		ctx, cancel := context.WithCancel(t.Context())
		heard := make(chan string, 2)
		wait := func() { b.Wait(ctx, "x", func(id string) error { heard <- id; return nil }) }
		go wait()
		synctest.Wait()
		old := b.waiterOf("x")
		go wait()
		synctest.Wait()
		if l := b.waiterOf("x"); l == nil || l == old {
			t.Error("a board that came anew does not take its place")
		}
		short, stop := context.WithTimeout(ctx, time.Second)
		defer stop()
		if _, err := b.call(short, "x", b.waiterOf("x")); err == nil || !strings.Contains(err.Error(), "does not answer a call") {
			t.Errorf("%v", err)
		}
		if _, ok := b.Claim("x", <-heard); ok || len(b.calls) != 0 {
			t.Error("a call that was given up is still waited for")
		}
		if _, err := b.call(ctx, "x", old); err == nil { // a line that was cut
			t.Error("a call on a line that was cut succeeds")
		}
		cancel()
		synctest.Wait()
		if b.waiterOf("x") != nil {
			t.Error("a line is left")
		}
	})
}
