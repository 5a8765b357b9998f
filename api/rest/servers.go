package rest

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// Servers are the addresses of one control plane. Each new connection goes to the one that answered last, or else to the
// next that answers.
type Servers struct {
	hosts   []string // host:port
	tls     *tls.Config
	refused func()

	mu sync.Mutex
	at int
}

// How long one address may take to answer before the next is tried, and how soon a link that was cut is noticed: the
// node's heartbeats are sent on it every 10 seconds, and they must be able to go another way.
const (
	dialTime = 8 * time.Second
	quiet    = 10 * time.Second
	pong     = 5 * time.Second
)

// NewServers takes URLs, each such as https://10.0.0.1:6443. conf says who must be at all of them. refused, which may be nil,
// is called when one of them does not take our certificate.
func NewServers(urls []string, conf *tls.Config, refused func()) (*Servers, error) {
	if len(urls) == 0 {
		return nil, errors.New("no server given")
	}
	s := &Servers{tls: conf.Clone(), refused: refused}
	s.tls.NextProtos = []string{"h2", "http/1.1"}
	for _, text := range urls {
		u, err := url.Parse(text)
		if err != nil || u.Scheme != "https" || u.Hostname() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.User != nil {
			return nil, fmt.Errorf("%q is no server such as https://10.0.0.1:6443", text)
		}
		port := u.Port()
		if port == "" {
			port = "6443"
		}
		s.hosts = append(s.hosts, net.JoinHostPort(u.Hostname(), port))
	}
	return s, nil
}

// URL is that of the first server. Requests name it, wherever they go.
func (s *Servers) URL() string { return "https://" + s.hosts[0] }

// URLs are those of all servers.
func (s *Servers) URLs() []string {
	var out []string
	for _, h := range s.hosts {
		out = append(out, "https://"+h)
	}
	return out
}

// Transport makes a connection pool of its own.
func (s *Servers) Transport() http.RoundTripper {
	return &serversTransport{s, &http.Transport{
		DialTLSContext:      func(ctx context.Context, _, _ string) (net.Conn, error) { return s.dial(ctx) },
		ForceAttemptHTTP2:   true,
		HTTP2:               &http.HTTP2Config{SendPingTimeout: quiet, PingTimeout: pong},
		MaxIdleConnsPerHost: 4,
		IdleConnTimeout:     50 * time.Second,
		DisableCompression:  true,
	}}
}

type serversTransport struct {
	s *Servers
	*http.Transport
}

// RoundTrip is http.RoundTripper's. With TLS 1.3 a client learns only from its first answer that it was not let in.
func (t *serversTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	resp, err := t.Transport.RoundTrip(r)
	if err != nil && t.s.refused != nil && strings.Contains(err.Error(), "remote error: tls:") {
		t.s.refused()
	}
	return resp, err
}

// dial tries every server once.
func (s *Servers) dial(ctx context.Context) (net.Conn, error) { return s.dialWith(ctx, s.tls) }

func (s *Servers) dialWith(ctx context.Context, conf *tls.Config) (net.Conn, error) {
	s.mu.Lock()
	first := s.at
	s.mu.Unlock()
	var errs []error
	for n := range s.hosts {
		if n > 0 && ctx.Err() != nil {
			errs = append(errs, ctx.Err()) // the rest was not asked
			break
		}
		i := (first + n) % len(s.hosts)
		conn, err := s.dialOne(ctx, conf, s.hosts[i])
		if err == nil {
			s.mu.Lock()
			s.at = i
			s.mu.Unlock()
			return conn, nil
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.hosts[i], err))
	}
	return nil, &dialError{errs}
}

// Connect makes a connection of HTTP/1.1, for who wants to make something else of it.
func (s *Servers) Connect(ctx context.Context) (net.Conn, error) {
	plain := s.tls.Clone()
	plain.NextProtos = []string{"http/1.1"}
	return s.dialWith(ctx, plain)
}

func (s *Servers) dialOne(ctx context.Context, conf *tls.Config, host string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTime)
	defer cancel()
	return (&tls.Dialer{Config: conf}).DialContext(ctx, "tcp", host)
}

// dialError tells of all servers on one line.
type dialError struct{ errs []error }

func (e *dialError) Error() string {
	var out []string
	for _, err := range e.errs {
		out = append(out, err.Error())
	}
	return strings.Join(out, "; ")
}

func (e *dialError) Unwrap() []error { return e.errs }

// Everywhere says whether err is target at all servers, where errors.Is would have one suffice.
func Everywhere(err, target error) bool {
	d, ok := errors.AsType[*dialError](err)
	if !ok {
		return errors.Is(err, target)
	}
	return !slices.ContainsFunc(d.errs, func(one error) bool { return !errors.Is(one, target) })
}
