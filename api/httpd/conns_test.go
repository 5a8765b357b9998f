package httpd_test

import (
	"crypto/tls"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/pki"
)

// What one address and one user may have open, as the listener counts it.
const perHost, perUser = 128, 128

// More boards than one address may have connections stand behind one router, each with its own name; strangers from there
// are still counted by their address.
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
	for i := range perHost {
		if !answers(t, address) {
			t.Fatalf("stranger %d was turned away", i)
		}
	}
	if answers(t, address) {
		t.Errorf("stranger %d was let in", perHost)
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

// answers says whether a server takes a connection of nobody. It stays open.
func answers(t *testing.T, address string) bool {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return tls.Client(conn, &tls.Config{InsecureSkipVerify: true, NextProtos: []string{"h2"}}).Handshake() == nil
}
