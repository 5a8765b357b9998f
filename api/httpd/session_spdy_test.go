package httpd

import (
	"bytes"
	"context"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/moby/spdystream/spdy"
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
				<-conn.CloseChan()
				cancel()
				conn.end()
				f.end()
				if waited := time.Since(start); waited > openTime {
					t.Errorf("the client was waited for: %s", waited)
				}
			})
		})
	}
}

// deafPod takes connections, says nothing, and reads nothing for a second.
type deafPod struct{}

func (deafPod) Dial(context.Context, string, string, uint16) (net.Conn, error) {
	ours, pods := net.Pipe()
	time.AfterFunc(time.Second, func() { pods.Close() })
	return ours, nil
}
