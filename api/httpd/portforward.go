package httpd

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/moby/spdystream"
	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/websocket"
)

// Port-forward is SPDY: two streams for each connection, one for data and one for what goes wrong. Newer clients put
// the SPDY into a WebSocket. The channels of a plain WebSocket, two for each port, carry one connection to each.
const (
	forwardProtocol = "portforward.k8s.io"
	tunnelProtocol  = "SPDY/3.1+portforward.k8s.io"
	maxPorts        = 16 // by channels
)

func (p *podStreams) portForward(w *response, r *request) error {
	if p.forward == nil {
		return status(http.StatusNotImplemented, "NotImplemented", "this server cannot forward ports")
	}
	pod, err := api.Get[*corev1.Pod](r.Context(), p.client, api.Pods, r.namespace, r.name)
	if err != nil {
		return err
	}
	if pod.Status.Phase != corev1.PodRunning {
		return badRequest("unable to forward port because pod is not running. Current status=%v", pod.Status.Phase)
	}
	if p.boards.elsewhere(pod) {
		return p.boards.forwardElsewhere(w, r, pod)
	}
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	f := &forwarding{ctx: ctx, to: p.forward, namespace: r.namespace, pod: r.name, pairs: map[string]*streamPair{}}
	conn, err := openTunnel(w, r, f)
	if err != nil || conn == nil {
		return err
	}
	defer conn.Close()
	spdy, err := serveSPDY(conn, f.opened)
	if err != nil {
		return nil //nolint:nilerr // the connection is gone
	}
	defer f.end()
	defer spdy.end()
	select {
	case <-spdy.CloseChan():
	case <-ctx.Done():
	}
	return nil
}

// openTunnel answers a client. What speaks by channels is served here, and leaves no connection.
func openTunnel(w *response, r *request, f *forwarding) (net.Conn, error) {
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
	protocol, err := agree(r, tunnelProtocol, protocolV4, "")
	if err != nil {
		return nil, err
	}
	var ports []uint16
	if protocol != tunnelProtocol {
		if ports, err = portsOf(r.query["ports"]); err != nil {
			return nil, err
		}
	}
	w.begun = true
	ws, err := websocket.Accept(w.ResponseWriter, r.Request, protocol)
	if err != nil {
		return nil, nil //nolint:nilerr // the connection is gone
	}
	if protocol != tunnelProtocol {
		f.channels(ws, ports)
		return nil, nil
	}
	return ws.Stream(), nil
}

// portsOf reads ports=80,81 or ports=80&ports=81.
func portsOf(values []string) (ports []uint16, err error) {
	for _, v := range values {
		for p := range strings.SplitSeq(v, ",") {
			n, err := strconv.ParseUint(p, 10, 16)
			if err != nil || n == 0 {
				return nil, badRequest("unable to parse %q as a port", p)
			}
			ports = append(ports, uint16(n))
		}
	}
	if len(ports) == 0 || len(ports) > maxPorts {
		return nil, badRequest("the query parameter ports must name 1 to %d ports", maxPorts)
	}
	return ports, nil
}

// channels forwards each port by two channels of a WebSocket, the even for data and the odd for what goes wrong. Either begins
// with the port.
func (f *forwarding) channels(ws *websocket.Conn, ports []uint16) {
	var cancel func()
	f.ctx, cancel = context.WithCancel(f.ctx)
	defer cancel()
	defer ws.Close()
	go whenGone(f.ctx, ws.NetConn(), cancel)
	inputs := make([]*io.PipeWriter, len(ports))
	ends := make([]*io.PipeReader, len(ports))
	for i := range ports {
		ends[i], inputs[i] = io.Pipe()
	}
	go func() {
		defer func() { // the client has left
			for _, in := range inputs {
				in.Close()
			}
			cancel()
		}()
		for buf, channel := make([]byte, 32<<10), byte(0); ; {
			n, first, _, err := ws.Next(buf)
			if err != nil {
				return
			}
			data := buf[:n]
			if first && n > 0 {
				channel, data = data[0], data[1:]
			}
			if i := int(channel / 2); channel%2 == 0 && i < len(inputs) && len(data) > 0 {
				inputs[i].Write(data) // an error: that port has ended
			}
		}
	}()
	var all sync.WaitGroup
	for i, port := range ports {
		all.Go(func() {
			defer ends[i].Close()
			data, fail := channelWriter{ws, byte(2 * i)}, channelWriter{ws, byte(2*i + 1)}
			begin := binary.LittleEndian.AppendUint16(nil, port)
			data.Write(begin)
			fail.Write(begin)
			f.join(port, ends[i], data, fail, func() {})
		})
	}
	all.Wait()
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
	late       *time.Timer // the partner did not come in time
}

// end lets go of what has come of a pair.
func (p *streamPair) end() {
	for _, s := range []*spdystream.Stream{p.data, p.fail} {
		if s != nil {
			s.Reset()
		}
	}
	for _, done := range p.done {
		done()
	}
}

// opened takes in a stream; with its partner it becomes a connection. A stream of a kind that has come already is
// refused, and one whose partner does not come is given up: what it sends holds up the others.
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
	defer f.mu.Unlock()
	p := f.pairs[id]
	if p == nil {
		p = &streamPair{}
		p.late = time.AfterFunc(openTime, func() { f.giveUp(id, p) })
		f.pairs[id] = p
	}
	place := &p.data
	if kind == "error" {
		place = &p.fail
	}
	if *place != nil {
		go func() { // not here: the client may not read, and the lock is held
			done()
			s.Reset()
		}()
		return
	}
	*place = s
	p.done = append(p.done, done)
	if p.data != nil && p.fail != nil {
		delete(f.pairs, id)
		p.late.Stop()
		go f.connect(p, uint16(port)) // not here: the connection's frames wait for this
	}
}

// giveUp ends a pair that did not become whole.
func (f *forwarding) giveUp(id string, p *streamPair) {
	f.mu.Lock()
	still := f.pairs[id] == p
	if still {
		delete(f.pairs, id)
	}
	f.mu.Unlock()
	if still {
		p.end()
	}
}

// end gives up the pairs that are not whole when the client has left.
func (f *forwarding) end() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, p := range f.pairs {
		p.late.Stop()
	}
	clear(f.pairs)
}

// connect joins a pair of streams and a port of the pod until one of them ends.
func (f *forwarding) connect(p *streamPair, port uint16) {
	defer p.end()
	defer p.fail.Close()
	go io.Copy(io.Discard, p.fail) // only we speak by it
	f.join(port, p.data, p.data, p.fail, func() { p.data.Close() })
}

// join connects to a port of the pod and carries what comes until the pod or the client has ended. said is called when the pod
// says no more.
func (f *forwarding) join(port uint16, in io.Reader, out, fail io.Writer, said func()) {
	conn, err := f.to.Dial(f.ctx, f.namespace, f.pod, port)
	if err != nil {
		fmt.Fprintf(fail, "error forwarding port %d to pod %s: %v", port, f.pod, err)
		said()
		return
	}
	defer conn.Close()
	defer context.AfterFunc(f.ctx, func() { conn.Close() })()
	sent := make(chan struct{})
	go func() {
		defer close(sent)
		io.Copy(conn, in)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite() // the client has no more to say, and may still listen
		}
	}()
	_, err = io.Copy(out, conn)
	if err != nil && !errors.Is(err, net.ErrClosed) && f.ctx.Err() == nil {
		fmt.Fprintf(fail, "error forwarding port %d to pod %s: %v", port, f.pod, err)
	}
	said()
	select { // what the client still sends has nowhere to go
	case <-sent:
	case <-time.After(time.Second):
	}
}
