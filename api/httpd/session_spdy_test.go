package httpd

import (
	"bytes"
	"io"
	"net"
	"net/http"
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
	f.Add([]byte{0x80, 3, 0, 1, 0, 0xff, 0xff, 0xff}) // a stream whose headers never come
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			client, server := net.Pipe()
			go io.Copy(io.Discard, client)
			go func() {
				client.Write(data)
				client.Close()
			}()
			if streams, conn := collect(server, map[string]bool{"error": true, "stdin": true}); streams != nil {
				finishSPDY(server, conn, streams, []byte("it ended"))
			}
			if waited := time.Since(start); waited > 0 { // the bubble's time stands still while anything can go on
				t.Fatalf("a client that has gone was waited for: %s", waited)
			}
		})
	})
}
