package httpd

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// Server serves a Handler on its listeners until it is told to stop.
type Server struct {
	Handler   http.Handler
	Listeners []*Listener
	// Grace is how long requests may go on after the stop; 0 is 3 s. Watches and logs end at once.
	Grace time.Duration
}

// Timeouts and sizes of connections; net/http has none of its own. A body and each piece of an answer have their
// own deadlines (body.go, respond.go), because a watch is an answer that never ends.
const (
	headerTime = 5 * time.Second
	idleTime   = 60 * time.Second
	maxHeader  = 16 << 10
	maxStreams = 64 // of HTTP/2 on one connection

	strangersStreams = 16 // on one of a Strangers listener
)

type stoppingKey struct{}

// Stopping ends when the server that brought a request wants to stop. The request itself goes on for a moment.
func Stopping(ctx context.Context) context.Context { return stopping(ctx) }

// stopping ends when the server that brought a request wants to stop, before the request itself is cut off.
func stopping(ctx context.Context) context.Context {
	if s, ok := ctx.Value(stoppingKey{}).(context.Context); ok {
		return s
	}
	return context.Background()
}

// untilStopping is a context that also ends when the server wants to stop.
func untilStopping(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(ctx)
	unhook := context.AfterFunc(stopping(ctx), cancel)
	return ctx, func() { unhook(); cancel() }
}

// Run serves until ctx ends or a listener breaks, then closes the listeners, ends the watches, gives the other
// requests a moment and returns. The listeners are closed in every case.
func (s *Server) Run(ctx context.Context) error {
	if len(s.Listeners) == 0 {
		return errors.New("serve the API: no listeners given")
	}
	grace := s.Grace
	if grace == 0 {
		grace = 3 * time.Second
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, l := range s.Listeners {
		srv := s.server(ctx, l)
		group.Go(func() error {
			err := serve(srv, l)
			if ctx.Err() != nil || errors.Is(err, http.ErrServerClosed) {
				return nil
			}
			return err
		})
		group.Go(func() error {
			<-ctx.Done()
			late, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
			defer cancel()
			if srv.Shutdown(late) != nil {
				srv.Close()
			}
			return nil
		})
	}
	return group.Wait()
}

// server makes the http.Server of one listener. stop is handed to the requests as a value: as their parent it
// would cut them off in the middle.
func (s *Server) server(stop context.Context, l *Listener) *http.Server {
	base := context.WithValue(context.WithoutCancel(stop), stoppingKey{}, stop)
	var protocols http.Protocols
	protocols.SetHTTP1(true)
	protocols.SetHTTP2(l.tls != nil)
	return &http.Server{
		Handler:   s.Handler,
		TLSConfig: l.tls.Clone(),
		Protocols: &protocols,
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: int(cmp.Or(l.streams, maxStreams)), SendPingTimeout: 30 * time.Second,
			PingTimeout: 15 * time.Second},
		ReadHeaderTimeout: headerTime,
		IdleTimeout:       idleTime,
		MaxHeaderBytes:    maxHeader,
		BaseContext:       func(net.Listener) context.Context { return base },
		ConnContext:       l.connContext,
		ErrorLog:          slog.NewLogLogger(quiet{slog.Default().Handler(), new(notices)}, slog.LevelDebug),
	}
}

func serve(srv *http.Server, l *Listener) error {
	if l.tls == nil {
		return srv.Serve(l)
	}
	return srv.ServeTLS(l, "", "")
}

// quiet keeps net/http's own log, which tells of every handshake a port scanner breaks off, below what an
// operator reads. Exceptions are a panic, and somebody who means us and does not know us, such as a board that was told of
// another control plane.
type quiet struct {
	slog.Handler
	distrusted *notices // by host
}

func (q quiet) Handle(ctx context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "panic") {
		r.Level = slog.LevelError
	}
	if from, ok := distrusts(r.Message); ok && q.distrusted.due(from) {
		r = slog.NewRecord(r.Time, slog.LevelWarn, "a board or client was not let in: it does not accept this server's certificate", r.PC)
		r.AddAttrs(slog.String("from", from), slog.String("why",
			"it knows another CA, or reached this server by a name that is not its own, or its clock is wrong"))
	}
	if !q.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return q.Handler.Handle(ctx, r)
}

// distrusts finds who ended a handshake because of our certificate. net/http says it in words only, and the alert does not
// say what is wrong: Go's own clients call everything a bad certificate.
func distrusts(message string) (host string, ok bool) {
	rest, ok := strings.CutPrefix(message, "http: TLS handshake error from ")
	if !ok {
		return "", false
	}
	for _, alert := range []string{"bad certificate", "unknown certificate authority"} {
		if from, ok := strings.CutSuffix(rest, ": remote error: tls: "+alert); ok {
			host, _, err := net.SplitHostPort(from)
			return host, err == nil
		}
	}
	return "", false
}

func (q quiet) Enabled(context.Context, slog.Level) bool { return true }
