package e2e

import (
	"context"
	"encoding/json"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"ledge/api/board"
	"ledge/brain/place"
	"ledge/host"
)

// TestWritesOfABoard: status tells who writes to the card, and a brain that is killed takes nothing of that with it.
func TestWritesOfABoard(t *testing.T) {
	b := newBoard(t)
	b.serve()
	disk, err := host.New(host.Config{}).DiskOf(b.data)
	if err != nil {
		t.Skipf("%s: %v", b.data, err)
	}
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", place.Socket(b.runDir))
		}}}
	report := func() (disk string, writers map[string]board.Writer) {
		resp, err := client.Get("http://ledge" + board.StatusPath)
		must(t, err)
		defer resp.Body.Close()
		var s board.Status
		if must(t, json.NewDecoder(resp.Body).Decode(&s)); len(s.Pressure.Signals) == 0 {
			t.Fatalf("status: %+v", s)
		}
		writers = map[string]board.Writer{}
		for _, w := range s.Writes.Writers {
			writers[w.Name] = w
		}
		return s.Writes.Disk, writers
	}
	b.apply(logPod("talker"))
	b.eventually("talker has talked", func() error { return contains(b.ledge("logs", "talker"), "hello") })
	name, was := report()
	if name != disk.Name || was["brain"].SinceBoot == 0 || was["keeper"].SinceBoot == 0 || was["disk"].SinceBoot < was["disk"].Today {
		t.Errorf("%s: %+v", name, was)
	}
	if _, ok := was["pods"]; !ok {
		t.Errorf("no account of the pods: %+v", was)
	}
	_ = b.signal(syscall.SIGKILL) // what it says of its end is known
	b.serve()
	b.apply(logPod("another"))
	b.eventually("another has talked", func() error { return contains(b.ledge("logs", "another"), "hello") })
	if _, now := report(); now["brain"].SinceBoot <= was["brain"].SinceBoot || now["keeper"].SinceBoot < was["keeper"].SinceBoot {
		t.Errorf("%+v, then %+v", was, now)
	}
	if out := b.must("status"); !strings.Contains(out, "SINCE BOOT") || !strings.Contains(out, disk.Name) {
		t.Errorf("status says\n%s", out)
	}
}
