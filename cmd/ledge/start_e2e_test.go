package main

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"ledge/internal/testrun"
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

// Of two that start on one run directory at the same moment, with data of their own, one serves and the other leaves nothing.
func TestTwoStartsAtOnce(t *testing.T) {
	onHost(t)
	b := newBoard(t)
	other := *b
	other.data, other.port = b.data+"2", freePort(t)
	for range 4 {
		from, err := b.log.Seek(0, io.SeekEnd)
		must(t, err)
		b.start()
		other.start()
		winner, loser := b, &other
		select {
		case err = <-b.done:
			winner, loser = &other, b
		case err = <-other.done:
		case <-time.After(testrun.Patience(30 * time.Second)):
			t.Fatal("both started")
		}
		loser.cmd = nil
		b.cmd = winner.cmd // for what tidies up
		b.done = winner.done
		text, rerr := os.ReadFile(b.log.Name())
		must(t, rerr)
		if said := string(text[from:]); err == nil || strings.Count(said, "ledge: ") != 1 || !strings.Contains(said, "another ledge runs there") {
			t.Fatalf("%v %s", err, said)
		}
		if _, err := os.Stat(loser.data); !errors.Is(err, os.ErrNotExist) {
			t.Error("the loser left its data:", err)
		}
		b.eventually("the winner is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
		if was, err := readRunInfo(b.runDir); err != nil || was.DataDir != winner.data {
			t.Errorf("%+v %v", was, err)
		}
		must(t, b.signal(syscall.SIGTERM))
		b.resetsAll()
	}
}
