package main

import (
	"context"
	"net"
	"net/http"
	"path/filepath"
	"syscall"
	"testing"
	"time"
)

// A brain that answers already, and is told to end while the rest of it starts, ends as in order as any other.
func TestEndWhileStarting(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", filepath.Join(b.runDir, "ledge.sock"))
	}}}
	for range 5 {
		b.start()
		for end := time.Now().Add(time.Minute); ; time.Sleep(time.Millisecond) {
			resp, err := client.Get("http://ledge/api/v1/nodes")
			if err == nil {
				_ = resp.Body.Close()
				break
			}
			if time.Now().After(end) {
				t.Fatal(err)
			}
		}
		if err := b.signal(syscall.SIGTERM); err != nil {
			t.Fatalf("told to end as soon as it answered: %v", err)
		}
	}
	b.serve() // for what tidies up after the test
}
