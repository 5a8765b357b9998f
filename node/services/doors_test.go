package services

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/network/service"
)

// freePort is one that nobody listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return uint16(l.Addr().(*net.TCPAddr).Port)
}

// ask gives the answer of a door: status, weight and body.
func ask(port uint16) string {
	resp, err := (&http.Client{Timeout: 5 * time.Second}).Get(fmt.Sprintf("http://127.0.0.1:%d/", port))
	if err != nil {
		return "nobody"
	}
	defer resp.Body.Close()
	body, _ := io.ReadAll(resp.Body)
	return fmt.Sprint(resp.StatusCode, " ", resp.Header.Get("X-Load-Balancing-Endpoint-Weight"), " ", strings.TrimSpace(string(body)))
}

func TestDoors(t *testing.T) {
	var d doors
	var g errgroup.Group
	port, other := freePort(t), freePort(t)
	set := func(want map[string]service.Health, healthy, all bool) {
		t.Helper()
		if err := d.set(&g, want, healthy, all); err != nil {
			t.Error(err)
		}
	}
	answer := func(what string, port uint16, want string) {
		t.Helper()
		if got := ask(port); got != want {
			t.Errorf("%s: %s, want %s", what, got, want)
		}
	}
	body := `{"service":{"namespace":"a","name":"web"},"localEndpoints":%d,"serviceProxyHealthy":%v}`
	set(map[string]service.Health{"a/web": {Port: port, Local: 2}, "a/none": {}}, true, true)
	answer("two here", port, "200 2 "+fmt.Sprintf(body, 2, true))
	set(map[string]service.Health{"a/web": {Port: port}}, true, false)
	answer("none here", port, "503 0 "+fmt.Sprintf(body, 0, true))
	set(map[string]service.Health{"a/web": {Port: port, Local: 1}}, false, false)
	answer("rules fail", port, "503 1 "+fmt.Sprintf(body, 1, false))
	set(map[string]service.Health{"a/other": {Port: other, Local: 1}}, true, false)
	answer("others stay", port, "200 1 "+fmt.Sprintf(body, 1, true))
	set(map[string]service.Health{"a/web": {}}, true, false)
	answer("no port any more", port, "nobody")
	if err := d.set(&g, map[string]service.Health{"a/web": {Port: other}}, true, false); err == nil || !strings.Contains(err.Error(), "a/web") {
		t.Errorf("a port that another has: %v", err)
	}
	set(map[string]service.Health{}, true, true)
	answer("all gone", other, "nobody")
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// TestDoorsAreBounded: callers that hold their connections hold few, and are sent away.
func TestDoorsAreBounded(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	f := &few{Listener: l, in: make(chan struct{}, 2)}
	defer f.Close()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := f.Accept()
			if err != nil {
				return
			}
			accepted <- c
		}
	}()
	for range 5 {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	first := <-accepted
	<-accepted
	select {
	case <-accepted:
		t.Fatal("a third of two")
	case <-time.After(50 * time.Millisecond):
	}
	_ = first.Close()
	_ = first.Close() // twice is once
	<-accepted
	select {
	case <-accepted:
		t.Error("a place that was left once was given twice")
	case <-time.After(50 * time.Millisecond):
	}
}
