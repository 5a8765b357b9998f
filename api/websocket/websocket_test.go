package websocket

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// ends are both ends of a connection.
func ends(t *testing.T) (server, client *Conn) {
	t.Helper()
	a, b := net.Pipe()
	t.Cleanup(func() { a.Close(); b.Close() })
	return &Conn{conn: a, in: bufio.NewReader(a)}, &Conn{conn: b, in: bufio.NewReader(b), client: true}
}

// Messages of every length of head come through whole, both ways, and the ends of messages are seen.
func TestMessages(t *testing.T) {
	server, client := ends(t)
	for _, d := range []struct{ from, to *Conn }{{client, server}, {server, client}} {
		for _, n := range []int{0, 1, 125, 126, 65535, 65536, 200_000} {
			want := make([]byte, n)
			rand.Read(want)
			sent := make(chan error, 1)
			go func() { sent <- d.from.WriteMessage(want[:n/2], want[n/2:]) }()
			var got []byte
			buf := make([]byte, 4096)
			for i := 0; ; i++ {
				k, first, last, err := d.to.Next(buf)
				if err != nil {
					t.Fatal(err)
				}
				if first != (i == 0) {
					t.Fatalf("piece %d of %d bytes is first: %v", i, n, first)
				}
				got = append(got, buf[:k]...)
				if last {
					break
				}
			}
			if err := <-sent; err != nil || !bytes.Equal(got, want) {
				t.Errorf("%d bytes: %d came, %v", n, len(got), err)
			}
		}
	}
}

// Frames as others may send them: parts, pings in between, the end.
func TestFrames(t *testing.T) {
	frame := func(head byte, data string) []byte {
		return append([]byte{head, 0x80 | byte(len(data)), 0, 0, 0, 0}, data...)
	}
	for name, tc := range map[string]struct {
		bytes []byte
		want  string // the messages, separated by |
		err   string
	}{
		"parts":                 {bytes.Join([][]byte{frame(2, "ab"), frame(0, ""), frame(0x80, "c"), frame(0x88, "")}, nil), "abc|", "EOF"},
		"ping in between":       {bytes.Join([][]byte{frame(2, "a"), frame(0x89, "hi"), frame(0x80, "b"), frame(0x88, "")}, nil), "ab|", "EOF"},
		"empty message":         {bytes.Join([][]byte{frame(0x82, ""), frame(0x82, "x"), frame(0x88, "")}, nil), "|x|", "EOF"},
		"cut":                   {frame(0x82, "abc")[:7], "a", "unexpected EOF"},
		"not masked":            {[]byte{0x82, 1, 'a'}, "", "mask"},
		"reserved":              {frame(0xc2, "a"), "", "reserved"},
		"unknown opcode":        {frame(0x83, "a"), "", "opcode"},
		"continuation of none":  {frame(0x80, "a"), "", "continuation"},
		"message in a message":  {append(frame(2, "a"), frame(0x82, "b")...), "a", "inside"},
		"long control frame":    {append([]byte{0x89, 0x80 | 126, 1, 0}, make([]byte, 260)...), "", "control"},
		"control in parts":      {frame(9, "a"), "", "control"},
		"longer than the world": {append([]byte{0x82, 0x80 | 127}, bytes.Repeat([]byte{0xff}, 12)...), "", "too long"},
	} {
		t.Run(name, func(t *testing.T) {
			c := &Conn{conn: nowhere{}, in: bufio.NewReader(bytes.NewReader(tc.bytes))}
			got, err := readAll(c)
			if got != tc.want || !strings.Contains(err.Error(), tc.err) {
				t.Errorf("%q, %v; want %q, %s", got, err, tc.want, tc.err)
			}
			if _, _, _, again := c.Next(make([]byte, 1)); again == nil {
				t.Error("went on after the end")
			}
		})
	}
}

func readAll(c *Conn) (string, error) {
	var out strings.Builder
	buf := make([]byte, 16)
	for {
		n, _, last, err := c.Next(buf)
		out.Write(buf[:n])
		if err != nil {
			return out.String(), err
		}
		if last {
			out.WriteByte('|')
		}
	}
}

// An orderly end is io.EOF to the other side, and ends writing on this one.
func TestClose(t *testing.T) {
	server, client := ends(t)
	go client.Close()
	if _, err := readAll(server); !errors.Is(err, io.EOF) {
		t.Error(err)
	}
	if err := client.WriteMessage([]byte("x")); err == nil {
		t.Error("wrote after the end")
	}
}

func TestCheck(t *testing.T) {
	good := func() *http.Request {
		r, _ := http.NewRequest("GET", "http://board:6443/x", nil)
		r.Host = "board:6443"
		r.Header.Set("Sec-Websocket-Version", "13")
		r.Header.Set("Sec-Websocket-Key", "dGhlIHNhbXBsZSBub25jZQ==")
		return r
	}
	if err := Check(good()); err != nil {
		t.Error(err)
	}
	for origin, ok := range map[string]bool{"https://board:6443": true, "http://localhost": true, "http://127.0.0.1:8001": true,
		"https://evil.example": false, "https://board:6443.evil.example": false, "http://localhost.evil.example": false, "null": false,
		"%": false} {
		r := good()
		r.Header.Set("Origin", origin)
		if err := Check(r); (err == nil) != ok {
			t.Errorf("Origin %s: %v", origin, err)
		}
	}
	for name, spoil := range map[string]func(*http.Request){
		"method":  func(r *http.Request) { r.Method = "POST" },
		"HTTP/2":  func(r *http.Request) { r.ProtoMajor = 2 },
		"key":     func(r *http.Request) { r.Header.Set("Sec-Websocket-Key", "x") },
		"version": func(r *http.Request) { r.Header.Del("Sec-Websocket-Version") },
	} {
		r := good()
		spoil(r)
		if Check(r) == nil {
			t.Errorf("a wrong %s was taken", name)
		}
	}
	if got := accept("dGhlIHNhbXBsZSBub25jZQ=="); got != "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=" { // RFC 6455, 1.3
		t.Error(got)
	}
}

// No bytes make a reader panic, hold more than its buffer or go on for ever.
func FuzzNext(f *testing.F) {
	f.Add([]byte{0x82, 0x81, 1, 2, 3, 4, 5})
	f.Add([]byte{0x02, 0x80, 0, 0, 0, 0, 0x89, 0x80, 0, 0, 0, 0, 0x80, 0xfe, 0, 1, 0, 0, 0, 0, 7})
	f.Fuzz(func(t *testing.T, data []byte) {
		c := &Conn{conn: nowhere{}, in: bufio.NewReader(bytes.NewReader(data))}
		buf := make([]byte, 64)
		total := 0
		for range 2*len(data) + 8 {
			n, _, _, err := c.Next(buf)
			if total += n; total > len(data) {
				t.Fatalf("%d bytes out of %d", total, len(data))
			}
			if err != nil {
				return
			}
		}
		t.Fatal("no end")
	})
}

// nowhere is a connection that takes everything.
type nowhere struct{ net.Conn }

func (nowhere) Write(p []byte) (int, error)      { return len(p), nil }
func (nowhere) SetWriteDeadline(time.Time) error { return nil }
