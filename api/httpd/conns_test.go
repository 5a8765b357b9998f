package httpd_test

import (
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
	"ledge/pki"
)

// What one address and one user may have open, as the listener counts it.
const perHost, perUser = 128, 128

// More boards than one address may have connections stand behind one router, each with its own name; strangers from there
// are still counted by their address, and the one that has been there the longest makes room.
func TestConnectionsAreCountedByNameOnceKnown(t *testing.T) {
	a, conf := authority(t)
	l, err := httpd.ListenTLS("127.0.0.1:0", conf)
	if err != nil {
		t.Fatal(err)
	}
	run(t, &httpd.Server{Handler: handler(t), Listeners: []*httpd.Listener{l.WithTokens()}})
	address := l.Addr().String()
	url := "https://" + address
	for i := range perHost + 10 {
		if code, body := askAs(t, url, a, fmt.Sprintf("system:node:b%d", i), "system:nodes"); code != 200 {
			t.Fatalf("board %d: %d %s", i, code, body)
		}
	}
	var open []*tls.Conn
	for i := range perHost + 1 {
		conn := stranger(t, address)
		if err := conn.Handshake(); err != nil {
			t.Fatalf("stranger %d: %v", i, err)
		}
		open = append(open, conn)
	}
	if _, err := io.Copy(io.Discard, open[0]); err != nil && errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("there are more than %d strangers", perHost)
	}
	if code, body := askAs(t, url, a, "system:node:late", "system:nodes"); code != 200 {
		t.Errorf("a board: %d %s", code, body)
	}
}

// One name has its own bound, whatever the address, and who is above it is told so.
func TestConnectionsOfOneUserAreBounded(t *testing.T) {
	url, a, _ := secured(t, handler(t))
	var first *http.Client
	for i := range perUser {
		c := withCert(t, a, "x", api.AdminGroup)
		if first == nil {
			first = c
		}
		if code, body, err := get(c, url+"/version"); code != 200 || err != nil {
			t.Fatalf("connection %d: %d %s %v", i, code, body, err)
		}
	}
	one := withCert(t, a, "x", api.AdminGroup)
	if code, body, err := get(one, url+"/version"); code != 429 || !strings.Contains(body, `\"x\" has 128 connections already`) {
		t.Errorf("one more: %d %s %v", code, body, err)
	}
	if code, body := askAs(t, url, a, "y", api.AdminGroup); code != 200 {
		t.Errorf("another user: %d %s", code, body)
	}
	first.CloseIdleConnections()
	for { // until the server has seen it go
		if code, _, err := get(one, url+"/version"); err != nil || code == 200 {
			if err != nil {
				t.Errorf("after one was closed: %v", err)
			}
			return
		}
	}
}

// askAs makes a request on a connection of its own, which stays open.
func askAs(t *testing.T, url string, a *pki.Authority, user string, groups ...string) (int, string) {
	t.Helper()
	code, body, err := get(withCert(t, a, user, groups...), url+"/version")
	if err != nil {
		t.Fatalf("%s: %v", user, err)
	}
	return code, body
}

// stranger is a connection of nobody. It stays open.
func stranger(t *testing.T, address string) *tls.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	conn.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { conn.Close() })
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}})
}
