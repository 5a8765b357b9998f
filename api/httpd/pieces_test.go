package httpd

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"ledge/api"
)

// told is a watch that begins with a present state, tells of two changes and ends.
type told struct {
	state, live int
	end         error
	asked       func()
}

func (w *told) State() []api.EventOf[[]byte] { return make([]api.EventOf[[]byte], w.state) }
func (w *told) Close()                       {}

func (w *told) Next() (api.EventOf[[]byte], error) {
	w.asked()
	switch {
	case w.state > 0:
		w.state--
	case w.live > 0:
		w.live--
	default:
		return api.EventOf[[]byte]{}, w.end
	}
	return api.EventOf[[]byte]{Type: "ADDED", Object: []byte(`{"n":"` + strings.Repeat("x", 500) + `"}`)}, nil
}

// counted is a connection that counts.
type counted struct {
	strings.Builder
	writes, flushes, sent int // sent: bytes by the last flush
	broken                bool
}

func (c *counted) Header() http.Header { return http.Header{} }
func (c *counted) WriteHeader(int)     {}
func (c *counted) Flush()              { c.flushes++; c.sent = c.Len() }
func (c *counted) Write(p []byte) (int, error) {
	if c.writes++; c.broken {
		return 0, io.ErrClosedPipe
	}
	return c.Builder.Write(p)
}

// TestStateGoesInPieces: a watch writes the state that it begins with as a list is written, and keeps no change waiting.
func TestStateGoesInPieces(t *testing.T) {
	const state, live = 1000, 2
	c := &counted{}
	lines := func() int { return strings.Count(c.String()[:c.sent], "\n") }
	w := &told{state: state, live: live, end: fmt.Errorf("it ends")}
	w.asked = func() {
		if got, want := lines(), state+live-w.live; w.state == 0 && got != want {
			t.Errorf("it waits for what comes next, and %d of %d lines are sent", got, want)
		}
	}
	if err := pump(t.Context(), nil, &response{ResponseWriter: c}, form{}, w, lengthOf, lineJSON); err != nil {
		t.Fatal(err)
	}
	if got := lines(); got != state+live+1 || !strings.Contains(c.String(), `{"type":"ERROR"`) {
		t.Errorf("%d lines are sent: %.100s", got, c.String())
	}
	pieces := c.Len()/pieceSize + 1
	if most := pieces + live + 1; c.writes > most || c.flushes != 1+1+live+1 { // the head, the state, each change, the end
		t.Errorf("%d writes, want at most %d; %d flushes", c.writes, most, c.flushes)
	}
}

// TestStateCutShort: what was gathered when the time is up is sent, and a client that is gone ends its watch.
func TestStateCutShort(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	c := &counted{}
	w := &told{state: 10}
	w.asked = func() {
		if w.state == 7 {
			cancel()
		}
	}
	err := pump(ctx, nil, &response{ResponseWriter: c}, form{}, w, lengthOf, lineJSON)
	if lines := strings.Count(c.String()[:c.sent], "\n"); err != nil || lines != 3 {
		t.Errorf("%d lines are sent: %v", lines, err)
	}
	c = &counted{broken: true}
	w = &told{state: 1000, live: 1000, end: io.EOF, asked: func() {}}
	err = pump(t.Context(), nil, &response{ResponseWriter: c}, form{}, w, lengthOf, lineJSON)
	if err != nil || c.writes != 1 || w.state == 0 {
		t.Errorf("%d writes to a client that is gone, %d objects are left: %v", c.writes, w.state, err)
	}
}
