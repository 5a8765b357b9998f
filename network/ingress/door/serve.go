package door

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/network/share"
)

// lastWords is how long requests that are under way have when the pod ends.
const lastWords = 25 * time.Second

// firstWords is how long those who come may have to wait until the pod knows where requests go.
const firstWords = 3 * time.Second

// server takes requests in on two listeners.
type server struct {
	http    *http.Server
	shares  *share.Places
	handler *proxy
}

func newServer(d *follower, most int, told *tally) *server {
	told.known = func(host string) bool {
		now := d.present.Load()
		return now == nil || now.table.Has(host)
	}
	s := &server{shares: share.New(most), handler: newProxy(d.present.Load, most/2, told)}
	s.http = &http.Server{Handler: s.handler, ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: mostHeader,
		ConnState: upgraded, ErrorLog: log.New(io.Discard, "", 0), Protocols: new(http.Protocols), DisableGeneralOptionsHandler: true,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: d.certificate},
		HTTP2: &http.HTTP2Config{MaxConcurrentStreams: 100, MaxReceiveBufferPerConnection: 128 << 10, MaxReceiveBufferPerStream: 64 << 10,
			SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second}}
	s.http.Protocols.SetHTTP1(true)
	s.http.Protocols.SetHTTP2(true)
	s.http.Protocols.SetUnencryptedHTTP2(true)
	return s
}

// run serves until ctx ends, and then what is under way.
func (s *server) run(ctx context.Context, plain, encrypted net.Listener) error {
	g, ctx := errgroup.WithContext(ctx)
	serve := func(do func() error) {
		g.Go(func() error {
			if err := do(); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		})
	}
	serve(func() error { return s.http.Serve(&hall{plain, s.shares}) })
	serve(func() error { return s.http.ServeTLS(&hall{encrypted, s.shares}, "", "") })
	g.Go(func() error {
		<-ctx.Done()
		last, cancel := context.WithTimeout(context.WithoutCancel(ctx), lastWords)
		defer cancel()
		if err := s.http.Shutdown(last); err != nil {
			return s.http.Close() // they had their time
		}
		return nil
	})
	return g.Wait()
}

// settle waits until everything was heard: the kernel keeps those who come meanwhile. Without that, a program that was killed and started
// again would have no certificate for the first of them. When the control plane is away, they are told so.
func settle(ctx context.Context, ready func() bool) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for began := time.Now(); !ready() && time.Since(began) < firstWords; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
	}
}

// serve opens the ports of the pod.
func serve(ctx context.Context, d *follower, most int, told *tally) error {
	var ports [3]net.Listener
	for i, n := range []int{PlainPort, TLSPort, HealthPort} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", fmt.Sprintf(":%d", n))
		if err != nil {
			return err
		}
		defer l.Close() // the server closes it first, unless another port failed
		ports[i] = l
	}
	health := &http.Server{ReadHeaderTimeout: headerTime, WriteTimeout: headerTime, IdleTimeout: headerTime, MaxHeaderBytes: 4 << 10,
		ErrorLog: log.New(io.Discard, "", 0), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/metrics" {
				w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
				told.metrics(w)
				return
			}
			if !d.ready() && r.URL.Path != "/healthz" {
				refuse(w, http.StatusServiceUnavailable, "not everything was heard yet")
				return
			}
			refuse(w, http.StatusOK, "ready")
		})}
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		settle(ctx, d.ready)
		return newServer(d, most, told).run(ctx, ports[0], ports[1])
	})
	g.Go(func() error {
		if err := health.Serve(&hall{ports[2], share.New(32)}); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	})
	g.Go(func() error {
		<-ctx.Done()
		return health.Close()
	})
	return g.Wait()
}
