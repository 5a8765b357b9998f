package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/websocket"
)

// Port-forward is SPDY: two streams for each connection, one for data and one for what goes wrong. Newer clients put
// the SPDY into a WebSocket.
const (
	forwardProtocol = "portforward.k8s.io"
	tunnelProtocol  = "SPDY/3.1+portforward.k8s.io"
)

func (h *handler) portForward(w *response, r *request) error {
	if h.forward == nil {
		return status(http.StatusNotImplemented, "NotImplemented", "this server cannot forward ports")
	}
	pod, err := api.Get[*corev1.Pod](r.Context(), h.client, api.Pods, r.namespace, r.name)
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return badRequest("unable to forward port because pod is not running. Current status=%v", pod.Status.Phase)
	}
	if h.elsewhere(pod) {
		return h.forwardElsewhere(w, r, pod)
	}
	conn, err := openTunnel(w, r)
	if err != nil || conn == nil {
		return err
	}
	defer conn.Close()
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	f := &forwarding{ctx: ctx, to: h.forward, namespace: r.namespace, pod: r.name, pairs: map[string]*streamPair{}}
	spdy, err := serveSPDY(conn, f.opened)
	if err != nil {
		return nil //nolint:nilerr // the connection is gone
	}
	defer spdy.Close()
	select {
	case <-spdy.CloseChan():
	case <-ctx.Done():
	}
	return nil
}

func openTunnel(w *response, r *request) (net.Conn, error) {
	if !websocket.Wanted(r.Request) {
		if _, err := agreeSPDY(r, forwardProtocol); err != nil {
			return nil, err
		}
		conn, err := acceptSPDY(w, forwardProtocol)
		if err != nil {
			return nil, nil //nolint:nilerr // the connection is gone
		}
		return conn, nil
	}
	protocol, err := agree(r, tunnelProtocol)
	if err != nil {
		return nil, err
	}
	w.begun = true
	ws, err := websocket.Accept(w.ResponseWriter, r.Request, protocol)
	if err != nil {
		return nil, nil //nolint:nilerr // the connection is gone
	}
	return ws.Stream(), nil
}

// forwarding is one client's forwarded ports.
type forwarding struct {
	ctx            context.Context
	to             api.Forwarder
	namespace, pod string

	mu    sync.Mutex
	pairs map[string]*streamPair // by request, until both have come
}

type streamPair struct {
	data, fail *spdystream.Stream
	done       []func()
}

// opened takes in a stream; with its partner it becomes a connection.
func (f *forwarding) opened(s *spdystream.Stream, done func()) {
	head := s.Headers()
	id, kind := head.Get("Requestid"), head.Get(headerStreamType)
	port, err := strconv.ParseUint(head.Get("Port"), 10, 16)
	if err != nil || port == 0 || id == "" || kind != "data" && kind != "error" {
		done()
		s.Reset()
		return
	}
	f.mu.Lock()
	p := f.pairs[id]
	if p == nil {
		p = &streamPair{}
		f.pairs[id] = p
	}
	if kind == "data" {
		p.data = s
	} else {
		p.fail = s
	}
	p.done = append(p.done, done)
	whole := p.data != nil && p.fail != nil
	if whole {
		delete(f.pairs, id)
	}
	f.mu.Unlock()
	if whole {
		go f.connect(p, uint16(port)) // not here: the connection's frames wait for this
	}
}

// connect joins a pair of streams and a port of the pod until one of them ends.
func (f *forwarding) connect(p *streamPair, port uint16) {
	defer func() {
		for _, done := range p.done {
			done()
		}
	}()
	defer p.fail.Close()
	defer p.data.Reset()
	conn, err := f.to.Dial(f.ctx, f.namespace, f.pod, port)
	if err != nil {
		fmt.Fprintf(p.fail, "error forwarding port %d to pod %s: %v", port, f.pod, err)
		p.data.Close()
		return
	}
	defer conn.Close()
	defer context.AfterFunc(f.ctx, func() { conn.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.Copy(conn, p.data)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite() // the client has no more to say, and may still listen
		}
	}()
	_, err = io.Copy(p.data, conn)
	if err != nil && !errors.Is(err, net.ErrClosed) && f.ctx.Err() == nil {
		fmt.Fprintf(p.fail, "error forwarding port %d to pod %s: %v", port, f.pod, err)
	}
	p.data.Close()
	select { // what the client still sends has nowhere to go
	case <-sent:
	case <-time.After(time.Second):
	}
}
