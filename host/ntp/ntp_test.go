package ntp

import (
	"context"
	"encoding/binary"
	"errors"
	"net"
	"strings"
	"testing"
	"time"
)

var built = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

// answerTo is a good answer at a moment.
func answerTo(q question, at time.Time) []byte {
	p := make([]byte, packetSize)
	p[0], p[1] = 4<<3|4, 2
	binary.BigEndian.PutUint64(p[24:], q.number)
	put(p[32:], at)
	put(p[40:], at)
	return p
}

func put(p []byte, at time.Time) {
	binary.BigEndian.PutUint32(p, uint32(at.Unix()-epoch))
	binary.BigEndian.PutUint32(p[4:], uint32(uint64(at.Nanosecond())<<32/1e9))
}

func TestRead(t *testing.T) {
	sent := time.Now()
	q := question{number: 42, sent: sent}
	came := sent.Add(80 * time.Millisecond)
	truth := time.Date(2027, 3, 1, 12, 0, 0, 250e6, time.UTC)
	for name, c := range map[string]struct {
		spoil func(p []byte) []byte
		at    time.Time
		wrong string
	}{
		"good":                 {at: truth},
		"after 2036":           {at: time.Date(2040, 1, 1, 0, 0, 0, 0, time.UTC)},
		"a little before":      {at: built.Add(-time.Hour)},
		"long before":          {at: built.Add(-48 * time.Hour), wrong: "has passed"},
		"short":                {spoil: func(p []byte) []byte { return p[:47] }, wrong: "47 bytes"},
		"longer":               {at: truth, spoil: func(p []byte) []byte { return append(p, 1, 2, 3, 4) }},
		"a client's":           {spoil: func(p []byte) []byte { p[0] = 4<<3 | 3; return p }, wrong: "mode 3"},
		"somebody else's":      {spoil: func(p []byte) []byte { p[24] = 1; return p }, wrong: "not to this question"},
		"a kiss of death":      {spoil: func(p []byte) []byte { p[1] = 0; copy(p[12:], "RATE"); return p }, wrong: "RATE"},
		"not synchronized":     {spoil: func(p []byte) []byte { p[0] |= 3 << 6; return p }, wrong: "does not know"},
		"stratum 16":           {spoil: func(p []byte) []byte { p[1] = 16; return p }, wrong: "does not know"},
		"no time":              {spoil: func(p []byte) []byte { clear(p[40:48]); return p }, wrong: "no time"},
		"answered too early":   {spoil: func(p []byte) []byte { put(p[32:], truth.Add(time.Second)); return p }, wrong: "contradict"},
		"thought for too long": {spoil: func(p []byte) []byte { put(p[32:], truth.Add(-time.Second)); return p }, wrong: "contradict"},
	} {
		at := c.at
		if at.IsZero() {
			at = truth
		}
		p := answerTo(q, at)
		if c.spoil != nil {
			p = c.spoil(p)
		}
		a, err := q.read(p, came, built)
		if c.wrong != "" {
			if err == nil || !strings.Contains(err.Error(), c.wrong) {
				t.Errorf("%s: %+v, %v; want an error with %q", name, a, err, c.wrong)
			}
			continue
		}
		if got := came.Round(0).Add(a.Offset).Sub(at.Add(40 * time.Millisecond)).Abs(); err != nil || a.Delay != 80*time.Millisecond ||
			got > time.Microsecond {
			t.Errorf("%s: %+v, %v; off by %v", name, a, err, got)
		}
	}
}

// FuzzRead: whatever comes is refused or gives a time after the floor and a delay that there was.
func FuzzRead(f *testing.F) {
	q := question{number: 42, sent: time.Now()}
	came := q.sent.Add(time.Second)
	f.Add(answerTo(q, built.Add(time.Hour)))
	f.Fuzz(func(t *testing.T, p []byte) {
		a, err := q.read(p, came, built)
		if err != nil {
			return
		}
		if now := came.Round(0).Add(a.Offset); now.Before(built.Add(-25*time.Hour)) || a.Delay < 0 || a.Delay > time.Second {
			t.Errorf("%s, %+v", now, a)
		}
	})
}

// server answers on loopback, with what each of its answers is made of.
func server(t *testing.T, answers func(q question) [][]byte) string {
	t.Helper()
	conn, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	go func() {
		buf := make([]byte, 512)
		for {
			n, from, err := conn.ReadFrom(buf)
			if err != nil {
				return
			}
			if n != packetSize || buf[0] != 4<<3|3 {
				t.Errorf("asked with %x", buf[:n])
			}
			for _, a := range answers(question{number: binary.BigEndian.Uint64(buf[40:])}) {
				if _, err := conn.WriteTo(a, from); err != nil {
					t.Error(err)
				}
			}
		}
	}()
	return conn.LocalAddr().String()
}

func TestAsk(t *testing.T) {
	const ahead = 1000 * time.Hour
	good := func(q question) []byte { return answerTo(q, time.Now().Add(ahead)) }
	at := server(t, func(q question) [][]byte {
		return [][]byte{{1, 2, 3}, answerTo(question{number: q.number + 1}, built), good(q)}
	})
	a, err := Ask(t.Context(), at, built)
	if err != nil || (a.Offset-ahead).Abs() > patience {
		t.Errorf("%+v, %v: what others send is passed over", a, err)
	}
	at = server(t, func(q question) [][]byte { p := good(q); p[1] = 0; return [][]byte{p} })
	if _, err := Ask(t.Context(), at, built); !errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), at) {
		t.Errorf("%v", err)
	}
	at = server(t, func(question) [][]byte { return nil })
	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(20*time.Millisecond, cancel)
	began := time.Now()
	if _, err := Ask(ctx, at, built); err == nil || time.Since(began) > patience/2 {
		t.Errorf("%v after %v", err, time.Since(began))
	}
}
