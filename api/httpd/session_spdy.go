package httpd

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/moby/spdystream"
	"github.com/moby/spdystream/spdy"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// SPDY/3.1 is what kubectl spoke before WebSocket, and what port-forward speaks still.
const (
	spdyUpgrade      = "SPDY/3.1"
	headerProtocol   = "X-Stream-Protocol-Version"
	headerStreamType = "Streamtype"
	openTime         = 30 * time.Second // for a client to open the streams it announced
	maxSPDYStreams   = 256              // open at once on one connection
)

// wantsSPDY says whether a request asks for SPDY.
func wantsSPDY(r *http.Request) bool {
	return strings.EqualFold(r.Header.Get("Upgrade"), spdyUpgrade) && strings.Contains(strings.ToLower(r.Header.Get("Connection")), "upgrade")
}

func errNoUpgrade() error {
	return badRequest("unable to upgrade: a WebSocket or an Upgrade to %s is needed here", spdyUpgrade)
}

// agreeSPDY picks the protocol to speak inside of SPDY.
func agreeSPDY(r *request, ours ...string) (string, error) {
	if !wantsSPDY(r.Request) {
		return "", errNoUpgrade()
	}
	var offered []string
	for _, line := range r.Header.Values(headerProtocol) {
		for _, p := range strings.Split(line, ",") {
			offered = append(offered, strings.TrimSpace(p))
		}
	}
	for _, p := range ours {
		if slices.Contains(offered, p) {
			return p, nil
		}
	}
	return "", status(http.StatusForbidden, metav1.StatusReasonForbidden,
		"none of the offered protocols is spoken here, only "+strings.Join(ours, ", "))
}

// acceptSPDY answers the upgrade and takes over the connection.
func acceptSPDY(w *response, protocol string) (net.Conn, error) {
	return acceptUpgrade(w, spdyUpgrade, protocol)
}

// acceptUpgrade does so for any upgrade; protocol is what is spoken inside of it, if there is more to say.
func acceptUpgrade(w *response, upgrade, protocol string) (net.Conn, error) {
	w.begun = true
	conn, buf, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, err
	}
	head := "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: " + upgrade + "\r\n"
	if protocol != "" {
		head += headerProtocol + ": " + protocol + "\r\n"
	}
	if err = conn.SetDeadline(time.Time{}); err == nil {
		_, err = io.WriteString(conn, head+"\r\n")
	}
	if err != nil {
		conn.Close()
		return nil, err
	}
	return &bufferedConn{conn, buf.Reader}, nil
}

// bufferedConn is a connection of which some bytes have been read already.
type bufferedConn struct {
	net.Conn
	in *bufio.Reader
}

func (c *bufferedConn) Read(p []byte) (int, error) { return c.in.Read(p) }

// spdyStreams are the streams that are open on one connection.
type spdyStreams struct {
	mu    sync.Mutex
	open  map[*spdystream.Stream]bool
	ended bool
}

// enter takes a stream in, unless there are too many or the connection has ended.
func (o *spdyStreams) enter(s *spdystream.Stream) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.ended || len(o.open) == maxSPDYStreams {
		return false
	}
	o.open[s] = true
	return true
}

// leave makes room for another stream.
func (o *spdyStreams) leave(s *spdystream.Stream) {
	o.mu.Lock()
	defer o.mu.Unlock()
	delete(o.open, s)
}

// end lets go of what came for streams that nobody reads any more: the library would wait for a reader for ever.
func (o *spdyStreams) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.ended = true
	for s := range o.open {
		s.Reset()
	}
}

// spdyConn is a connection that speaks SPDY.
type spdyConn struct {
	*spdystream.Connection
	conn    net.Conn
	streams spdyStreams
}

// serveSPDY speaks SPDY on a connection; each new stream is answered and handed to opened, with what is to be called
// when it is done with. It comes back at once, and closes the connection when the client is gone or not understood.
func serveSPDY(conn net.Conn, opened func(s *spdystream.Stream, done func())) (*spdyConn, error) {
	lib, err := spdystream.NewConnectionWithOptions(&framed{Conn: conn}, true, spdy.WithMaxControlFramePayloadSize(maxFrame),
		spdy.WithMaxHeaderFieldSize(maxFrame), spdy.WithMaxHeaderCount(maxFrameHeaders))
	if err != nil {
		conn.Close()
		return nil, err
	}
	c := &spdyConn{Connection: lib, conn: conn, streams: spdyStreams{open: map[*spdystream.Stream]bool{}}}
	go c.Serve(func(s *spdystream.Stream) {
		if !c.streams.enter(s) || s.SendReply(http.Header{}, false) != nil {
			c.streams.leave(s)
			s.Reset()
			return
		}
		go dropHeaders(s)
		opened(s, func() { c.streams.leave(s) })
	})
	ctx, cancel := context.WithCancel(context.Background())
	go whenGone(ctx, conn, c.end)
	go func() {
		defer cancel()
		<-c.CloseChan()
		c.end()
	}()
	return c, nil
}

// What a frame may have. The library queues some hundred of them for each connection; clients send 32 KiB at once.
const (
	maxFrame        = 64 << 10
	maxFrameHeaders = 64
)

// framed is a connection whose frames have a bound.
type framed struct {
	net.Conn
	head [8]byte // of the frame that has begun
	have int     // bytes of it
	left int     // bytes of its content that are to come
}

func (f *framed) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	for rest := p[:n]; len(rest) > 0; {
		if f.left > 0 {
			skip := min(f.left, len(rest))
			f.left, rest = f.left-skip, rest[skip:]
			continue
		}
		took := copy(f.head[f.have:], rest)
		f.have, rest = f.have+took, rest[took:]
		if f.have < len(f.head) {
			break
		}
		f.have, f.left = 0, int(f.head[5])<<16|int(f.head[6])<<8|int(f.head[7])
		if f.left > maxFrame {
			return 0, fmt.Errorf("a frame of %d bytes: at most %d are taken", f.left, maxFrame)
		}
	}
	return n, err
}

// end closes the connection and lets go of its streams. It closes first: nothing more can be told to the client, and
// nothing shall wait for it. Streams that nobody reads must go too: the library reads no further while what came for
// one of them waits, and so would not see that the connection is closed.
func (c *spdyConn) end() {
	c.conn.Close()
	c.streams.end()
	c.Close()
}

// dropHeaders reads the headers that come for a stream after its first. Nobody needs them, but the library would wait
// for a reader.
func dropHeaders(s *spdystream.Stream) {
	for {
		if _, err := s.ReceiveHeader(); err != nil {
			return
		}
	}
}

func openSPDYSession(w *response, r *request, o sessionOptions) (*session, error) {
	protocol, err := agreeSPDY(r, protocolV4, "v3.channel.k8s.io", "v2.channel.k8s.io", protocolV1)
	if err != nil {
		return nil, err
	}
	conn, err := acceptSPDY(w, protocol)
	if err != nil {
		return nil, nil //nolint:nilerr // the connection is gone: there is nobody to tell
	}
	wanted := map[string]bool{"error": true, "stdin": o.stdin, "stdout": o.stdout, "stderr": o.stderr,
		"resize": o.tty && (protocol == protocolV4 || protocol == "v3.channel.k8s.io")}
	streams, spdy := collect(conn, wanted)
	if streams == nil {
		return nil, nil
	}
	s := &session{gone: make(chan struct{}), resize: make(chan api.TerminalSize, 1)}
	if st := streams["stdin"]; st != nil {
		s.stdin = st
	}
	if st := streams["stdout"]; st != nil {
		s.stdout = st
	}
	if st := streams["stderr"]; st != nil {
		s.stderr = st
	}
	if st := streams["resize"]; st != nil {
		go readSizes(st, s.resize)
	}
	go func() {
		<-spdy.CloseChan()
		s.left()
	}()
	s.finish = func(end metav1.Status) { finishSPDY(spdy, streams, errorText(protocol, end)) }
	return s, nil
}

// finishSPDY tells the client how its session ended, and waits until it has read everything and closes; one that does
// not is cut off.
func finishSPDY(spdy *spdyConn, streams map[string]*spdystream.Stream, text []byte) {
	if text != nil {
		streams["error"].Write(text)
	}
	if st := streams["stdin"]; st != nil {
		st.Reset() // what nobody has read stands before the client's leaving
	}
	for _, name := range []string{"stdout", "stderr", "error"} {
		if st := streams[name]; st != nil {
			st.Close()
		}
	}
	select {
	case <-spdy.CloseChan():
	case <-time.After(lingerTime):
	}
	spdy.end()
}

// collect waits for the streams that a client announced; nil when they do not all come. What the client sends by the
// streams that are for it to read is dropped.
func collect(conn net.Conn, wanted map[string]bool) (map[string]*spdystream.Stream, *spdyConn) {
	missing := 0
	for _, is := range wanted {
		if is {
			missing++
		}
	}
	arrived := make(chan *spdystream.Stream, maxSPDYStreams)
	spdy, err := serveSPDY(conn, func(s *spdystream.Stream, _ func()) { arrived <- s })
	if err != nil {
		return nil, nil
	}
	late := time.After(openTime)
	streams := map[string]*spdystream.Stream{}
	for missing > 0 {
		select {
		case s := <-arrived:
			kind := s.Headers().Get(headerStreamType)
			if !wanted[kind] || streams[kind] != nil {
				s.Reset()
				continue
			}
			streams[kind] = s
			missing--
			if kind != "stdin" && kind != "resize" {
				go io.Copy(io.Discard, s)
			}
		case <-spdy.CloseChan():
			return nil, nil
		case <-late:
			spdy.end()
			return nil, nil
		}
	}
	go refuse(arrived, spdy.CloseChan())
	return streams, spdy
}

// refuse lets go of streams that nobody waits for.
func refuse(arrived <-chan *spdystream.Stream, ended <-chan bool) {
	for {
		select {
		case s := <-arrived:
			s.Reset()
		case <-ended:
			return
		}
	}
}
