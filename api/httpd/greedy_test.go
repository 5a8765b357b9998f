package httpd_test

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/internal/testrun"
	"ledge/pki"
)

// port is a TLS listener to which tokens give the rights of accounts: "NAMESPACE:NAME".
type port struct {
	t       *testing.T
	address string
	ca      *pki.Authority
}

func newPort(t *testing.T) *port {
	t.Helper()
	ca, conf := authority(t)
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	h, err := httpd.New(httpd.Config{Client: serve(t, httpd.Config{}).store,
		Authenticate: func(token string, _ ...string) (api.User, error) {
			return api.User{Name: "system:serviceaccount:" + token}, nil
		}})
	if err != nil {
		t.Fatal(err)
	}
	run(t, &httpd.Server{Handler: h, Listeners: []*httpd.Listener{l.WithTokens()}})
	return &port{t, l.Addr().String(), ca}
}

// held is a connection from an address of this machine on which one request was answered, if a token is given with that. It stays open.
func (p *port) held(from, token string) (*tls.Conn, *http.Response) {
	p.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	raw, err := d.Dial("tcp", p.address)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { raw.Close() })
	raw.SetDeadline(time.Now().Add(30 * time.Second))
	conn := tls.Client(raw, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"http/1.1"}})
	head := ""
	if token != "" {
		head = "Authorization: Bearer " + token + "\r\n"
	}
	if _, err := io.WriteString(conn, "GET /livez HTTP/1.1\r\nHost: x\r\n"+head+"\r\n"); err != nil {
		p.t.Fatal(err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	return conn, resp
}

// getIn has an administrator, a board and a user come by new connections, and says how long the slowest took.
func (p *port) getIn() (slowest time.Duration) {
	p.t.Helper()
	for user, group := range map[string]string{"ada": api.AdminGroup, "system:node:a": "system:nodes", "bob": "x"} {
		c := withCert(p.t, p.ca, user, group)
		start := time.Now()
		if code, body, err := get(c, "https://"+p.address+"/version"); err != nil || code != 200 {
			p.t.Errorf("%s: %d %s %v", user, code, body, err)
		}
		slowest = max(slowest, time.Since(start))
	}
	return slowest
}

// atOnce is how long who has the right to come in may wait for those who have not.
var atOnce = testrun.Patience(time.Second)

// othersIn fails if others waited too long for those who hold what they can.
func othersIn(t *testing.T, took time.Duration, holders string) {
	t.Helper()
	t.Logf("%s: all others got theirs within %s", holders, took)
	if took > atOnce {
		t.Errorf("%s: others waited %s, want at most %s", holders, took, atOnce)
	}
}

// Strangers that hold all connections they can get, from two addresses, keep nobody out; one that is answered is sent away.
func TestStrangersKeepNobodyOut(t *testing.T) {
	p := newPort(t)
	var first net.Conn
	for i := range 400 {
		d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+i%2))}}
		conn, err := d.Dial("tcp", p.address)
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		if first == nil {
			first = conn
		}
	}
	othersIn(t, p.getIn(), "400 connections that say nothing from two addresses")
	for range 2 {
		for _, from := range []string{"127.0.0.1", "127.0.0.2"} {
			conn, resp := p.held(from, "")
			if resp.StatusCode != 200 || !resp.Close {
				t.Errorf("%d, close %t", resp.StatusCode, resp.Close)
			}
			if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
				t.Error("a stranger stays")
			}
		}
	}
	// Over HTTP/2 too. Go's client would close the connection as well, and nobody could tell who was first.
	heard := p.byHTTP2()
	for _, want := range []string{"HEADERS 200", "GOAWAY"} {
		if !strings.Contains(heard, want) || strings.Contains(heard, "stays") {
			t.Errorf("over HTTP/2 a stranger heard %s, want %s and the end", heard, want)
		}
	}
	if _, resp := p.held("127.0.0.2", "x:y"); resp.StatusCode != 200 || resp.Close {
		t.Errorf("who is known: %d, close %t", resp.StatusCode, resp.Close)
	}
}

// byHTTP2 asks /livez over HTTP/2 and names the frames that come until the server closes the connection.
func (p *port) byHTTP2() string {
	p.t.Helper()
	conn, err := tls.Dial("tcp", p.address, &tls.Config{RootCAs: p.ca.Pool(), NextProtos: []string{"h2"}})
	if err != nil {
		p.t.Fatal(err)
	}
	defer conn.Close()
	conn.SetDeadline(time.Now().Add(testrun.Patience(20 * time.Second)))
	const (
		settings = "\x00\x00\x00\x04\x00\x00\x00\x00\x00"
		ack      = "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
		// GET, https, and by their lengths the path and the host. The stream ends with it.
		livez = "\x00\x00\x0d\x01\x05\x00\x00\x00\x01" + "\x82\x87\x04\x06/livez\x41\x01x"
	)
	if _, err := io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+settings+ack+livez); err != nil {
		p.t.Fatal(err)
	}
	names := map[byte]string{1: "HEADERS", 3: "RST_STREAM", 4: "SETTINGS", 6: "PING", 7: "GOAWAY", 8: "WINDOW_UPDATE"}
	var heard []string
	for {
		head := make([]byte, 9) // three bytes of length, then the kind
		_, err := io.ReadFull(conn, head)
		body := make([]byte, int(head[0])<<16|int(head[1])<<8|int(head[2]))
		if err == nil {
			_, err = io.ReadFull(conn, body)
		}
		if errors.Is(err, os.ErrDeadlineExceeded) {
			return strings.Join(append(heard, "and stays"), " ")
		}
		if err != nil {
			return strings.Join(heard, " ")
		}
		if name := names[head[3]]; name != "" { // what is left is the answer's body
			heard = append(heard, name)
		}
		if head[3] == 1 && body[0] == 0x88 { // :status 200
			heard = append(heard, "200")
		}
	}
}

// Service accounts without any right that hold all connections they can get keep nobody out: of four namespaces, and those of a fifth
// get in as well.
func TestAccountsKeepNobodyOut(t *testing.T) {
	p := newPort(t)
	for i := range 4 * 80 {
		if _, resp := p.held("127.0.0.2", fmt.Sprintf("ns%d:x%d", i%4, i)); resp.StatusCode != 200 && resp.StatusCode != 429 {
			t.Fatalf("%d: %d", i, resp.StatusCode)
		}
	}
	if _, resp := p.held("127.0.0.2", "ns0:more"); resp.StatusCode != 429 {
		t.Errorf("they have not got all they can: %d", resp.StatusCode)
	}
	if _, resp := p.held("127.0.0.2", "fifth:x"); resp.StatusCode != 200 {
		t.Errorf("another namespace: %d", resp.StatusCode)
	}
	othersIn(t, p.getIn(), "320 connections of four namespaces")
}

// patient runs commands that never end, and logs to which nothing is written.
type patient struct{ none }

func (patient) Exec(ctx context.Context, _, _ string, _ api.Exec) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func (patient) Logs(ctx context.Context, _, _ string, _ api.LogOptions) (io.ReadCloser, error) {
	r, _ := io.Pipe()
	context.AfterFunc(ctx, func() { r.CloseWithError(ctx.Err()) })
	return r, nil
}

// TestLongPlaces: service accounts with rights hold all watches, followed logs and sessions they can get. Root, an administrator, a
// board (of watches) and an account of another namespace get theirs at once. For that a watch ends as any watch does, a followed log
// is cut, and no session ends.
func TestLongPlaces(t *testing.T) {
	f := serve(t, httpd.Config{})
	f.withRunningPod("web")
	h, err := httpd.New(httpd.Config{Client: f.store, Streams: patient{}, Exec: patient{}})
	if err != nil {
		t.Fatal(err)
	}
	srv := &httpd.Server{Handler: h}
	dials := map[string]func(context.Context) (net.Conn, error){}
	know := func(u api.User) {
		l, dial := httpd.Pipe(u)
		srv.Listeners, dials[u.Name] = append(srv.Listeners, l), dial
	}
	var accounts []string
	for i := range 8 {
		name := fmt.Sprintf("system:serviceaccount:ns%d:x", i)
		accounts = append(accounts, name)
		know(api.User{Name: name, Groups: []string{api.AdminGroup}}) // for its rights: what it is says its name
	}
	other := api.User{Name: "system:serviceaccount:other:x", Groups: []string{api.AdminGroup}}
	rootUser := api.User{Name: "root", Groups: []string{api.AdminGroup}}
	for _, u := range []api.User{other, rootUser, admin, nodeA} {
		know(u)
	}
	run(t, srv)
	const upgrade = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
	for _, c := range []struct {
		what, path, head string
		good             int
		board            bool
		ends             string // how one of the holders' ends
	}{
		{"watches", "/api/v1/nodes?watch=1&fieldSelector=metadata.name%3Da", "", 200, true, "well"},
		{"followed logs", podsPath + "/web/log?follow=1", "", 200, false, "cut"},
		{"sessions", podsPath + "/web/exec?command=x&stdout=1", upgrade, 101, false, ""},
	} {
		ask := func(user string) (int, io.Reader) {
			conn, err := dials[user](t.Context())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { conn.Close() })
			go io.WriteString(conn, "GET "+c.path+" HTTP/1.1\r\nHost: x\r\n"+c.head+"\r\n")
			in := bufio.NewReader(conn)
			resp, err := http.ReadResponse(in, nil)
			if err != nil {
				t.Fatalf("%s, %s: %v", c.what, user, err)
			}
			if resp.StatusCode == http.StatusSwitchingProtocols {
				return resp.StatusCode, in
			}
			return resp.StatusCode, resp.Body
		}
		ended := make(chan error, 300)
		held := 0
		for refused := 0; refused < len(accounts); {
			if code, body := ask(accounts[held%len(accounts)]); code == c.good {
				held, refused = held+1, 0
				go func() { _, err := io.Copy(io.Discard, body); ended <- err }()
			} else if refused++; code != 429 {
				t.Fatalf("%s: %d", c.what, code)
			} else {
				accounts = append(accounts[1:], accounts[0])
			}
		}
		begun := time.Now()
		for _, u := range []api.User{rootUser, admin, nodeA, other} {
			if u.Name == nodeA.Name && !c.board {
				continue
			}
			if code, _ := ask(u.Name); code != c.good {
				t.Errorf("%s: %s: %d", c.what, u.Name, code)
			}
		}
		othersIn(t, time.Since(begun), fmt.Sprintf("%d %s of eight namespaces", held, c.what))
		var got error
		select {
		case got = <-ended:
		case <-time.After(map[bool]time.Duration{true: 20 * time.Second, false: 100 * time.Millisecond}[c.ends != ""]):
			got = os.ErrDeadlineExceeded
		}
		if is := map[bool]string{true: "well", false: "cut"}[got == nil]; c.ends == "" && !errors.Is(got, os.ErrDeadlineExceeded) ||
			c.ends != "" && (is != c.ends || errors.Is(got, os.ErrDeadlineExceeded)) {
			t.Errorf("%s: one ended with %v, want %q", c.what, got, c.ends)
		}
	}
}
