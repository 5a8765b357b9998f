package httpd

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/spdystream/spdy"

	"ledge/internal/testrun"
)

// spdyFrames are frames as they stand on the wire.
func spdyFrames(t testing.TB, frames ...spdy.Frame) []byte {
	t.Helper()
	var b bytes.Buffer
	w, err := spdy.NewFramer(&b, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, frame := range frames {
		if err := w.WriteFrame(frame); err != nil {
			t.Fatal(err)
		}
	}
	return b.Bytes()
}

func spdyStream(id spdy.StreamId, kind string) spdy.Frame {
	return &spdy.SynStreamFrame{StreamId: id, Headers: http.Header{headerStreamType: {kind}}}
}

// Whatever frames come, nothing panics, and when the client goes the session ends at once and leaves no goroutine
// behind: the bubble would say so.
func FuzzSPDY(f *testing.F) {
	whole := spdyFrames(f, spdyStream(1, "error"), spdyStream(3, "stdin"), &spdy.DataFrame{StreamId: 3, Data: []byte("hello")},
		&spdy.PingFrame{Id: 1}, &spdy.DataFrame{StreamId: 3, Flags: spdy.DataFlagFin})
	f.Add(whole)
	f.Add(whole[:len(whole)/2])
	f.Add(spdyFrames(f, spdyStream(1, "stdin"), spdyStream(1, "stdin"), spdyStream(2, "other")))
	f.Add(spdyFrames(f, &spdy.DataFrame{StreamId: 9, Data: []byte("of none")}, &spdy.RstStreamFrame{StreamId: 7, Status: spdy.Cancel}))
	f.Add(spdyFrames(f, &spdy.SettingsFrame{FlagIdValues: []spdy.SettingsFlagIdValue{{Id: 4, Value: 1 << 30}}},
		&spdy.WindowUpdateFrame{StreamId: 1, DeltaWindowSize: 1 << 30}, &spdy.GoAwayFrame{LastGoodStreamId: 1}))
	unread := []spdy.Frame{spdyStream(1, "error"), spdyStream(3, "stdin")}
	for range 200 { // more than the library queues
		unread = append(unread, &spdy.DataFrame{StreamId: 3, Data: []byte("y\n")})
	}
	f.Add(spdyFrames(f, unread...))
	f.Add(spdyFrames(f, unread[1:]...)) // and one stream never comes
	for _, unasked := range []spdy.Frame{
		&spdy.HeadersFrame{StreamId: 3, Headers: http.Header{"more": {"of it"}}},
		&spdy.DataFrame{StreamId: 1, Data: []byte("z")},
	} {
		f.Add(spdyFrames(f, slices.Concat(unread[:2], slices.Repeat([]spdy.Frame{unasked}, 200))...))
	}
	f.Add([]byte{0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff}) // a stream whose headers never come
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			client, server := net.Pipe()
			left := make(chan time.Duration, 1)
			go io.Copy(io.Discard, client)
			go func() {
				client.Write(data)
				client.Close()
				left <- time.Since(start)
			}()
			if streams, conn := collect(server, map[string]bool{"error": true, "stdin": true}); streams != nil {
				finishSPDY(conn, streams, []byte("it ended"))
			}
			// The bubble's time stands still while anything can go on.
			if waited, left := time.Since(start), <-left; waited > left {
				t.Fatalf("a client that had gone after %s was waited for: %s", left, waited)
			} else if waited > openTime {
				t.Fatalf("a client whose streams did not all come was waited for: %s", waited)
			}
		})
	})
}

// A client of port-forward that leaves behind what nobody reads is not waited for, whichever stream it was for, and no
// goroutine stays.
func TestForwardUnread(t *testing.T) {
	stream := func(id spdy.StreamId, kind, pair string) spdy.Frame {
		return &spdy.SynStreamFrame{StreamId: id, Headers: http.Header{headerStreamType: {kind}, "Requestid": {pair}, "Port": {"80"}}}
	}
	data := func(id spdy.StreamId) []spdy.Frame {
		return slices.Repeat([]spdy.Frame{&spdy.DataFrame{StreamId: id, Data: []byte("y")}}, 200)
	}
	headers := slices.Repeat([]spdy.Frame{&spdy.HeadersFrame{StreamId: 1, Headers: http.Header{"more": {"of it"}}}}, 200)
	pair := []spdy.Frame{stream(1, "error", "0"), stream(3, "data", "0")}
	for name, frames := range map[string][]spdy.Frame{
		"the partner never comes":      append([]spdy.Frame{stream(1, "data", "0")}, data(1)...),
		"two of one kind":              append([]spdy.Frame{stream(1, "data", "0"), stream(3, "data", "0")}, data(3)...),
		"the stream for errors":        slices.Concat(pair, data(1)),
		"headers":                      slices.Concat(pair, headers),
		"the pod does not read either": slices.Concat(pair, data(3)),
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				start := time.Now()
				client, server := net.Pipe()
				go io.Copy(io.Discard, client)
				go func() {
					client.Write(spdyFrames(t, frames...))
					client.Close()
				}()
				ctx, cancel := context.WithCancel(t.Context())
				f := &forwarding{ctx: ctx, to: deafPod{}, pairs: map[string]*streamPair{}}
				conn, err := serveSPDY(server, f.opened)
				if err != nil {
					t.Fatal(err)
				}
				if name == "the pod does not read either" { // whenGone sees it where there is a socket
					time.Sleep(time.Hour)
					conn.end()
				}
				<-conn.CloseChan()
				waited := time.Since(start)
				cancel()
				conn.end()
				f.end()
				if waited > openTime && name != "the pod does not read either" {
					t.Errorf("the client was waited for: %s", waited)
				}
			})
		})
	}
}

// deafPod takes connections, says nothing, and reads nothing.
type deafPod struct{}

func (deafPod) Dial(context.Context, string, string, uint16) (net.Conn, error) {
	ours, _ := net.Pipe()
	return ours, nil
}

// TestFramed: frames pass in whatever pieces they come, and one that is too large ends the connection.
func TestFramed(t *testing.T) {
	good := spdyFrames(t, spdyStream(1, "stdin"), &spdy.DataFrame{StreamId: 1, Data: make([]byte, maxFrame)}, &spdy.PingFrame{Id: 1})
	for _, size := range []int{1, 7, 1000, len(good)} {
		client, server := net.Pipe()
		go func() {
			for rest := good; len(rest) > 0; rest = rest[min(size, len(rest)):] {
				client.Write(rest[:min(size, len(rest))])
			}
			client.Close()
		}()
		if got, err := io.ReadAll(&framed{Conn: server}); err != nil || !bytes.Equal(got, good) {
			t.Errorf("in pieces of %d: %d of %d bytes, %v", size, len(got), len(good), err)
		}
	}
	client, server := net.Pipe()
	go client.Write(spdyFrames(t, &spdy.DataFrame{StreamId: 1, Data: make([]byte, maxFrame+1)}))
	if got, err := io.ReadAll(&framed{Conn: server}); err == nil {
		t.Errorf("%d bytes of a frame that is too large", len(got))
	}
}

// TestHungUp: a client that has left is seen although what it said before is not read yet; one that is there is not.
func TestHungUp(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	client, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	server, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	if _, err := client.Write([]byte("unread")); err != nil {
		t.Fatal(err)
	}
	raw := rawOf(&bufferedConn{Conn: &framed{Conn: server}})
	if raw != nil {
		t.Error("a wrapper that says nothing of what is underneath was looked through")
	}
	if raw = rawOf(&bufferedConn{Conn: tls.Server(server, nil)}); raw == nil || hungUp(raw) {
		t.Fatal("a client that is there is said to have left")
	}
	client.Close()
	testrun.Until(t, 10*time.Second, "it has left", func() bool { return hungUp(raw) })
}
