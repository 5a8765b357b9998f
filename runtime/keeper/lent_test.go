package keeper

import (
	"context"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
)

// serveLoans is a keeper's socket, with nothing behind it but what is lent.
func serveLoans(t *testing.T, dir string) (stop func()) {
	t.Helper()
	l, err := listen(dir)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	e := &Engine{log: (Config{}).log(), lot: newLot(Config{}), adopted: make(chan struct{})}
	close(e.adopted)
	s := &server{e: e, log: e.log, slots: make(chan struct{}, maxConns)}
	var g errgroup.Group
	g.Go(func() error { return s.serve(ctx, l) })
	return func() {
		cancel()
		if err := g.Wait(); err != nil {
			t.Error(err)
		}
		s.lent.close()
	}
}

// TestLent: what a brain lends comes back to the brain after it, and goes to a keeper that was restarted; a datagram that came meanwhile
// is in it.
func TestLent(t *testing.T) {
	dir := t.TempDir()
	stop := serveLoans(t, dir)
	conn, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	at := conn.LocalAddr().String()
	f, err := conn.File()
	if err != nil {
		t.Fatal(err)
	}
	first := New(ClientConfig{RunDir: dir})
	if got, err := first.Lent(t.Context(), "names"); err != nil || len(got) != 0 {
		t.Fatal(got, err)
	}
	if err := first.Lend(t.Context(), "names", []*os.File{f, f}); err != nil {
		t.Fatal(err)
	}
	_, _ = f.Close(), conn.Close()

	stop() // the keeper is restarted, and the brain notices
	stop = serveLoans(t, dir)
	ctx, cancel := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- first.Run(ctx) }()
	second := New(ClientConfig{RunDir: dir})
	lent := func() []*os.File {
		got, err := second.Lent(t.Context(), "names")
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	var got []*os.File
	for ; len(got) == 0; time.Sleep(time.Millisecond) {
		got = lent()
	}
	closeFiles(got)
	cancel()
	if err := <-ran; err != nil {
		t.Fatal(err)
	}

	// Nobody but the keeper has the socket now.
	asks, err := net.Dial("udp4", at)
	if err != nil {
		t.Fatal(err)
	}
	defer asks.Close()
	if _, err := asks.Write([]byte("question")); err != nil {
		t.Fatal(err)
	}
	got = lent()
	if len(got) != 2 {
		t.Fatal(got)
	}
	again, err := net.FilePacketConn(got[0])
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	buf := make([]byte, 20)
	_ = again.SetDeadline(time.Now().Add(5 * time.Second))
	if n, _, err := again.ReadFrom(buf); err != nil || string(buf[:n]) != "question" {
		t.Errorf("%q %v", buf[:n], err)
	}
	closeFiles(got)
	if err := second.Lend(t.Context(), "names", nil); err != nil {
		t.Error(err)
	}
	if left := lent(); len(left) != 0 {
		t.Error("still lent:", left)
	}
	stop()
}

// TestLoansAreBounded: in names and in files.
func TestLoansAreBounded(t *testing.T) {
	dir := t.TempDir()
	defer serveLoans(t, dir)()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	many := make([]error, 0, 2*mostLent)
	for i := range 2 * mostLent {
		many = append(many, New(ClientConfig{RunDir: dir}).Lend(t.Context(), strings.Repeat("x", i+1), []*os.File{f}))
	}
	if n := len(slices.DeleteFunc(many, func(err error) bool { return err != nil })); n != mostLent {
		t.Error(n, "names were taken")
	}
	if err := New(ClientConfig{RunDir: dir}).Lend(t.Context(), "x", []*os.File{f, f, f, f}); err == nil {
		t.Error("four files were taken")
	}
}
