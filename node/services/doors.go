package services

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"ledge/network/service"
)

// doors answer load balancers that ask, at the health check port of a Service, whether this board has an endpoint of it.
type doors struct {
	teller                           // a Service has none
	want   map[string]service.Health // by Service: all that want one
	open   map[string]*door
}

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
func (d *doors) set(g *errgroup.Group, changed map[string]service.Health, healthy, all bool) error {
	if d.want == nil {
		d.want, d.open = map[string]service.Health{}, map[string]*door{}
	}
	if all {
		clear(d.want)
	}
	maps.Copy(d.want, changed)
	maps.DeleteFunc(d.want, func(_ string, h service.Health) bool { return h.Port == 0 })
	chosen := share(d.want, mostDoors)
	for name, o := range d.open { // before others open: a port may have changed hands
		if h, ok := chosen[name]; !ok || h.Port != o.port {
			o.close()
			delete(d.open, name)
		}
	}
	without, errs := map[string]string{}, []error(nil)
	for name, h := range chosen {
		o := d.open[name]
		if o == nil {
			o = &door{service: name, port: h.Port}
		}
		o.local.Store(int64(h.Local))
		o.healthy.Store(healthy)
		if d.open[name] != nil {
			continue
		}
		if err := o.listen(g); err != nil {
			errs = append(errs, fmt.Errorf("health check port of %s: %w", name, err))
			without[name] = fmt.Sprintf("cannot answer at health check port %d: %v", h.Port, err)
			continue
		}
		d.open[name] = o
	}
	for name, h := range d.want {
		if _, ok := chosen[name]; !ok {
			without[name] = fmt.Sprintf("does not answer at health check port %d: a board has %d such ports, shared among namespaces, and those "+
				"of older Services come first", h.Port, mostDoors)
		}
	}
	d.say(without)
	return errors.Join(errs...)
}

// share chooses who has one of so many doors: each namespace's oldest Service, then each one's second, and so on.
func share(want map[string]service.Health, most int) map[string]service.Health {
	if len(want) <= most {
		return want
	}
	byAge := slices.SortedFunc(maps.Keys(want), func(a, b string) int {
		return cmp.Or(want[a].Created.Compare(want[b].Created), cmp.Compare(a, b))
	})
	rank, of := map[string]int{}, map[string]int{}
	for _, name := range byAge {
		namespace, _, _ := strings.Cut(name, "/")
		rank[name] = of[namespace]
		of[namespace]++
	}
	slices.SortStableFunc(byAge, func(a, b string) int { return cmp.Compare(rank[a], rank[b]) })
	out := make(map[string]service.Health, most)
	for _, name := range byAge[:most] {
		out[name] = want[name]
	}
	return out
}

func (d *doors) closeAll() {
	for _, o := range d.open {
		o.close()
	}
	clear(d.open)
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
