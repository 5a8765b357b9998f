package door

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"ledge/network/share"
)

const (
	dialTime   = 2 * time.Second
	answerTime = 10 * time.Minute // until the headers of an answer: people wait for events in such requests
	mostTries  = 3
)

// proxy leads requests to endpoints.
type proxy struct {
	present func() *present
	shares  *share.Places // of requests
	reverse *httputil.ReverseProxy
	plain   http.RoundTripper // to endpoints
	h2c     http.RoundTripper
	told    *tally
}

func newProxy(present func() *present, most int, told *tally) *proxy {
	dialer := &net.Dialer{Timeout: dialTime}
	transport := func() *http.Transport {
		return &http.Transport{DialContext: dialer.DialContext, MaxIdleConns: 256, MaxIdleConnsPerHost: 32, IdleConnTimeout: time.Minute,
			ResponseHeaderTimeout: answerTime, ExpectContinueTimeout: time.Second, MaxResponseHeaderBytes: 64 << 10, DisableCompression: true,
			ReadBufferSize: 4 << 10, WriteBufferSize: 4 << 10, Protocols: new(http.Protocols)}
	}
	plain, h2c := transport(), transport()
	plain.Protocols.SetHTTP1(true)
	h2c.Protocols.SetUnencryptedHTTP2(true)
	p := &proxy{present: present, shares: share.New(most), plain: plain, h2c: h2c, told: told}
	p.reverse = &httputil.ReverseProxy{Rewrite: rewrite, Transport: p, ErrorHandler: failed, BufferPool: &buffers{},
		ErrorLog: log.New(io.Discard, "", 0)} // what strangers do is no news
	return p
}

// journey is a request on its way.
type journey struct {
	pool   *pool
	client netip.Addr
	out    *patient
}

type journeyKey struct{}

// ServeHTTP leads one request on, or says why not.
func (p *proxy) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	out, began := newPatient(w, r), time.Now()
	defer func() { // also of an answer that broke off
		out.over()
		p.told.answered(out, r, time.Since(began))
	}()
	p.lead(out, r)
}

func (p *proxy) lead(out *patient, r *http.Request) {
	now := p.present()
	at, err := netip.ParseAddrPort(r.RemoteAddr)
	if now == nil || err != nil || r.Method == http.MethodConnect {
		refuse(out, http.StatusServiceUnavailable, "not ready yet")
		return
	}
	if r.URL.Opaque != "" || r.URL.Path != "" && r.URL.Path[0] != '/' { // such as "GET http:x": who answers would read it in another way
		refuse(out, http.StatusBadRequest, "which path?")
		return
	}
	host := hostOf(r.Host)
	to := now.table.Route(host, r.URL.Path)
	if to != nil {
		out.host, out.of = to.Host, to.Of.String()
	}
	switch {
	case to == nil:
		refuse(out, http.StatusNotFound, "no ingress leads from here")
		return
	case to.Redirect && r.TLS == nil && host == "":
		refuse(out, http.StatusBadRequest, "which host?")
		return
	case to.Redirect && r.TLS == nil:
		out.Header().Set("Location", encrypted(host, r.URL))
		refuse(out, http.StatusPermanentRedirect, "ask by https")
		return
	}
	most := int64(mostBody)
	if to.MostBody != nil {
		most = *to.MostBody
	}
	if most > 0 && r.ContentLength > most {
		refuse(out, http.StatusRequestEntityTooLarge, "the body is too large")
		return
	}
	pool := now.pools[to.Backend]
	if pool == nil || len(pool.Ends) == 0 {
		refuse(out, http.StatusServiceUnavailable, "nobody answers for this at the moment")
		return
	}
	who := clientOf(at.Addr())
	if !p.shares.Take(who) {
		out.Header().Set("Retry-After", "1")
		refuse(out, http.StatusServiceUnavailable, "too many requests at one time")
		return
	}
	defer p.shares.Give(who)
	j := &journey{pool: pool, client: at.Addr().Unmap(), out: out}
	r = r.WithContext(context.WithValue(r.Context(), journeyKey{}, j))
	if r.Body != nil && r.Body != http.NoBody {
		body := r.Body
		if most > 0 {
			body = http.MaxBytesReader(out, body, most)
		}
		if r.ProtoMajor < 2 {
			body = &slowBody{from: body, rc: out.rc}
		}
		r.Body = body
	}
	p.reverse.ServeHTTP(out, r)
}

func refuse(w http.ResponseWriter, code int, why string) {
	h := w.Header()
	h.Set("Content-Type", "text/plain; charset=utf-8")
	h.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	_, _ = fmt.Fprintf(w, "%d %s: %s\n", code, http.StatusText(code), why) // who has gone needs no answer
}

// hostOf is the name that a client asks for, without a port.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		return h
	}
	return strings.Trim(host, "[]")
}

// encrypted is the same place by https, at its usual port.
func encrypted(host string, at *url.URL) string {
	if strings.Contains(host, ":") {
		host = "[" + host + "]"
	}
	to := url.URL{Scheme: "https", Host: host, Path: at.Path, RawPath: at.RawPath, RawQuery: at.RawQuery}
	return to.String()
}

// said are headers by which we say who the client is: what a client says itself is not handed on, however it is spelt.
var said = map[string]bool{"Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Forwarded-Port": true, "X-Forwarded-Scheme": true, "X-Forwarded-Server": true, "X-Forwarded-Ssl": true, "X-Forwarded": true,
	"X-Real-Ip": true, "X-Original-Forwarded-For": true, "X-Scheme": true, "Proxy": true}

func rewrite(r *httputil.ProxyRequest) {
	for name := range r.Out.Header { // net/http has made their letters large and small
		usual := name
		if strings.Contains(name, "_") { // programs in many languages take it for "-"
			usual = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		}
		if said[usual] {
			delete(r.Out.Header, name)
		}
	}
	keepOwnCookie(r.Out)
	r.SetXForwarded()
	port := "80"
	if r.In.TLS != nil {
		port = "443"
	}
	r.Out.Header.Set("X-Forwarded-Port", port)
	r.Out.Header.Set("X-Real-Ip", r.Out.Header.Get("X-Forwarded-For"))
	r.Out.Host = r.In.Host
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.Out.URL.Scheme, r.Out.URL.Host = "http", r.In.Host // the endpoint is chosen with each try
}

// pageCookie is by which the board's page knows its visitor (package page). Browsers send it to every port of the board's name, so to this
// pod, too, and no further.
const pageCookie = "__Host-ledge"

func keepOwnCookie(r *http.Request) {
	if !strings.Contains(strings.Join(r.Header.Values("Cookie"), ";"), pageCookie+"=") {
		return
	}
	all := r.Cookies()
	r.Header.Del("Cookie")
	for _, c := range all {
		if c.Name != pageCookie {
			r.AddCookie(c)
		}
	}
}

// RoundTrip asks endpoints until one takes the connection. Before that nothing of the request has been sent.
func (p *proxy) RoundTrip(r *http.Request) (*http.Response, error) {
	j, ok := r.Context().Value(journeyKey{}).(*journey)
	if !ok {
		return nil, errors.New("ledge bug: a request without a journey")
	}
	via := p.plain
	if j.pool.H2C && r.Header.Get("Upgrade") == "" {
		via = p.h2c
	}
	var body *touched
	if r.Body != nil && r.Body != http.NoBody {
		body = &touched{from: r.Body}
	}
	order := j.pool.Order(j.client, j.pool.turn.Add(1))
	for try := 0; ; try++ {
		out := *r
		u := *r.URL
		u.Host = order(try).String()
		j.out.end = u.Host
		if out.URL = &u; body != nil {
			out.Body = body
		}
		resp, err := via.RoundTrip(&out)
		sent := err == nil || !notTaken(err) || body != nil && body.read.Load()
		if sent || try+1 >= min(mostTries, len(j.pool.Ends)) || r.Context().Err() != nil {
			return resp, err
		}
	}
}

// notTaken: nobody took the connection.
func notTaken(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "dial"
}

// touched is a body that notes whether something of it was read. A try that failed before must not close it for the next one; who made
// it closes it in the end.
type touched struct {
	from io.ReadCloser
	read atomic.Bool
}

func (t *touched) Read(p []byte) (int, error) {
	t.read.Store(true)
	return t.from.Read(p)
}

func (t *touched) Close() error { return nil }

// failed says what went wrong, in as few words as a stranger needs.
func failed(w http.ResponseWriter, r *http.Request, err error) {
	large, isLarge := errors.AsType[*http.MaxBytesError](err)
	timeout, isTimeout := errors.AsType[net.Error](err)
	switch {
	case isLarge:
		refuse(w, http.StatusRequestEntityTooLarge, "the body has more than "+strconv.FormatInt(large.Limit, 10)+" bytes")
	case r.Context().Err() != nil: // the client has gone
		if p, ok := w.(*patient); ok {
			p.code = clientGone
		}
		w.WriteHeader(http.StatusBadGateway)
	case isTimeout && timeout.Timeout() && !notTaken(err):
		refuse(w, http.StatusGatewayTimeout, "no answer in time")
	default:
		refuse(w, http.StatusBadGateway, "the answer did not come")
	}
}

// buffers are those of answers on their way.
type buffers struct{ pool sync.Pool }

const bufferSize = 16 << 10

func (b *buffers) Get() []byte {
	if p, ok := b.pool.Get().(*[]byte); ok {
		return *p
	}
	return make([]byte, bufferSize)
}

func (b *buffers) Put(p []byte) { b.pool.Put(&p) }
