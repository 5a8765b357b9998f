package services

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/network/service"
)

// doors answer load balancers that ask, at the health check port of a Service, whether this board has an endpoint of it.
type doors struct{ open map[string]*door } // by Service

type door struct {
	service string
	port    uint16
	local   atomic.Int64
	healthy atomic.Bool
	server  *http.Server
}

// What a stranger may hold: anybody who reaches the board may ask.
const (
	mostDoors   = 100
	mostCallers = 32 // of one door
	patience    = 5 * time.Second
)

// set opens, closes and updates doors. all: the map holds all of them; else only those that changed, with port 0 where there is none.
func (d *doors) set(g *errgroup.Group, want map[string]service.Health, healthy, all bool) error {
	for name, o := range d.open {
		h, told := want[name]
		if told && h.Port != o.port || all && !told {
			o.close()
			delete(d.open, name)
			continue
		}
		if o.healthy.Store(healthy); told {
			o.local.Store(int64(h.Local))
		}
	}
	var errs []error
	for name, h := range want {
		if h.Port == 0 || d.open[name] != nil {
			continue
		}
		if len(d.open) >= mostDoors {
			errs = append(errs, fmt.Errorf("health check port %d of %s: a board has at most %d", h.Port, name, mostDoors))
			continue
		}
		o := &door{service: name, port: h.Port}
		o.local.Store(int64(h.Local))
		o.healthy.Store(healthy)
		if err := o.listen(g); err != nil {
			errs = append(errs, fmt.Errorf("health check port of %s: %w", name, err))
			continue
		}
		if d.open == nil {
			d.open = map[string]*door{}
		}
		d.open[name] = o
	}
	return errors.Join(errs...)
}

func (d *doors) closeAll() {
	for _, o := range d.open {
		o.close()
	}
	d.open = nil
}

func (o *door) listen(g *errgroup.Group) error {
	l, err := net.Listen("tcp", ":"+strconv.Itoa(int(o.port)))
	if err != nil {
		return err
	}
	o.server = &http.Server{Handler: o, ReadHeaderTimeout: patience, WriteTimeout: patience, IdleTimeout: patience, MaxHeaderBytes: 4 << 10}
	g.Go(func() error {
		_ = o.server.Serve(&few{Listener: l, in: make(chan struct{}, mostCallers)}) // it ends when the door is closed
		return nil
	})
	return nil
}

func (o *door) close() { _ = o.server.Close() }

// ServeHTTP answers as kube-proxy does.
func (o *door) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	local, healthy := o.local.Load(), o.healthy.Load()
	namespace, name, _ := strings.Cut(o.service, "/")
	h := w.Header()
	h.Set("Content-Type", "application/json")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Load-Balancing-Endpoint-Weight", strconv.FormatInt(local, 10))
	if local == 0 || !healthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	type ref struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	}
	_ = json.NewEncoder(w).Encode(struct { // who has gone needs no answer
		Service ref   `json:"service"`
		Local   int64 `json:"localEndpoints"`
		Healthy bool  `json:"serviceProxyHealthy"`
	}{ref{namespace, name}, local, healthy})
}

// few is a listener that has a bound of open connections: further callers wait in the kernel.
type few struct {
	net.Listener
	in chan struct{}
}

func (f *few) Accept() (net.Conn, error) {
	f.in <- struct{}{}
	c, err := f.Listener.Accept()
	if err != nil {
		<-f.in
		return nil, err
	}
	return &one{Conn: c, of: f}, nil
}

type one struct {
	net.Conn
	of   *few
	left atomic.Bool
}

func (o *one) Close() error {
	if !o.left.Swap(true) {
		<-o.of.in
	}
	return o.Conn.Close()
}
