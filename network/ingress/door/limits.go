package door

import (
	"net"
	"net/http"
	"net/netip"
	"sync/atomic"
	"time"

	"ledge/network/share"
)

// How long a client may take.
const (
	headerTime = 10 * time.Second // for a handshake, and for the headers of a request
	idleTime   = 75 * time.Second // between two requests
	stallTime  = time.Minute      // between two pieces of a body, and until it takes a piece of an answer
	quietTime  = time.Hour        // without a byte, on a connection that became something else (WebSocket)
	mostHeader = 32 << 10
	mostBody   = 1 << 30 // unless the Ingress says otherwise
)

// clientOf is whose share an address counts for: one machine may have all addresses of an IPv6 network of 64 bits.
func clientOf(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if a.Is6() {
		if p, err := a.Prefix(64); err == nil {
			return p.Addr()
		}
	}
	return a
}

// hall is a listener whose clients share its connections. Whoever is beyond his share is sent away at once.
type hall struct {
	net.Listener
	shares *share.Places
}

func (h *hall) Accept() (net.Conn, error) {
	for {
		c, err := h.Listener.Accept()
		if err != nil {
			return nil, err
		}
		at, err := netip.ParseAddrPort(c.RemoteAddr().String())
		who := clientOf(at.Addr())
		if err == nil && h.shares.Take(who) {
			return &guest{Conn: c, of: h.shares, who: who}, nil
		}
		if t, ok := c.(*net.TCPConn); ok {
			_ = t.SetLinger(0) // nothing of it is to stay with us
		}
		_ = c.Close()
	}
}

// guest is a connection of a client.
type guest struct {
	net.Conn
	of       *share.Places
	who      netip.Addr
	left     atomic.Bool
	upgraded atomic.Bool
	extended atomic.Int64 // when its time was extended last
}

func (g *guest) Close() error {
	if !g.left.Swap(true) {
		g.of.Give(g.who)
	}
	return g.Conn.Close()
}

// extend gives an upgraded connection more time; the server of HTTP looks after the others.
func (g *guest) extend() {
	if !g.upgraded.Load() {
		return
	}
	now := time.Now()
	if last := g.extended.Load(); now.Unix()-last > int64(quietTime/time.Second/60) {
		g.extended.Store(now.Unix())
		_ = g.SetDeadline(now.Add(quietTime)) // a connection that is closed says so by itself
	}
}

func (g *guest) Read(p []byte) (int, error) {
	g.extend()
	return g.Conn.Read(p)
}

func (g *guest) Write(p []byte) (int, error) {
	g.extend()
	return g.Conn.Write(p)
}

// upgraded notes connections that are no HTTP any more.
func upgraded(c net.Conn, is http.ConnState) {
	if is != http.StateHijacked {
		return
	}
	if t, ok := c.(interface{ NetConn() net.Conn }); ok {
		c = t.NetConn()
	}
	if g, ok := c.(*guest); ok {
		g.upgraded.Store(true)
	}
}

// patient is a client's end of an answer, which has to be taken piece by piece.
type patient struct {
	http.ResponseWriter
	rc     *http.ResponseController
	stream bool // of HTTP/2: the time of a stream runs also while nobody writes
	set    time.Time

	code  int // of the answer
	bytes int64
	host  string // of the rule that was followed
	of    string // its Ingress
	end   string // the endpoint that was asked last
}

func newPatient(w http.ResponseWriter, r *http.Request) *patient {
	p := &patient{ResponseWriter: w, rc: http.NewResponseController(w), stream: r.ProtoMajor >= 2}
	_ = p.rc.SetWriteDeadline(time.Time{}) // that of the request before
	return p
}

// Unwrap is for http.ResponseController.
func (p *patient) Unwrap() http.ResponseWriter { return p.ResponseWriter }

// WriteHeader notes the code of the answer; those before it (100 to 199) are none, but for the one that ends HTTP.
func (p *patient) WriteHeader(code int) {
	if (code >= 200 || code == http.StatusSwitchingProtocols) && p.code == 0 {
		p.code = code
	}
	p.ResponseWriter.WriteHeader(code)
}

func (p *patient) Write(b []byte) (int, error) {
	if p.code == 0 {
		p.code = http.StatusOK
	}
	if now := time.Now(); p.stream || now.Sub(p.set) > time.Second {
		p.set = now
		_ = p.rc.SetWriteDeadline(now.Add(stallTime)) // a connection that is closed says so by itself
	}
	n, err := p.ResponseWriter.Write(b)
	p.bytes += int64(n)
	if p.stream {
		_ = p.rc.SetWriteDeadline(time.Time{})
	}
	return n, err
}

// over bounds what the server itself still writes.
func (p *patient) over() { _ = p.rc.SetWriteDeadline(time.Now().Add(stallTime)) }

// slowBody is a body of HTTP/1, which has to come piece by piece. A stream of HTTP/2 may be silent for long (gRPC); whether somebody is
// still there is asked by pings.
type slowBody struct {
	from interface {
		Read([]byte) (int, error)
		Close() error
	}
	rc  *http.ResponseController
	set time.Time
}

func (s *slowBody) Read(b []byte) (int, error) {
	if now := time.Now(); now.Sub(s.set) > time.Second {
		s.set = now
		_ = s.rc.SetReadDeadline(now.Add(stallTime))
	}
	n, err := s.from.Read(b)
	if err != nil {
		_ = s.rc.SetReadDeadline(time.Time{}) // else it would end the wait for the answer
	}
	return n, err
}

func (s *slowBody) Close() error { return s.from.Close() }
