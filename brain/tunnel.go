package brain

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"time"

	"ledge/api"
	"ledge/api/httpd"
	"ledge/pki"
)

// Most boards in cupboards stand behind a router that lets nothing in. So each asks its control plane for calls, by one request
// among those it has open anyway, and answers each call with a connection of its own.

const (
	callTime  = 15 * time.Second // for an answer
	callPause = 30 * time.Second // between two tries to hear of calls, at most
)

// planeUser is who comes in by the tunnel: the board has asked its control plane, and nobody else.
var planeUser = api.User{Name: pki.PlaneUser}

// answerCalls waits for calls until ctx ends.
func (u *uplink) answerCalls(ctx context.Context) error {
	if u.hand == nil {
		<-ctx.Done()
		return nil
	}
	client := &http.Client{Transport: u.servers.Transport()}
	defer client.CloseIdleConnections()
	places := make(chan struct{}, boardStreams)
	for pause := time.Second; ; pause = min(2*pause, callPause) {
		heard, err := u.hear(ctx, client, places)
		if heard {
			pause = time.Second
		}
		slog.Debug("calls of the control plane are not heard for a moment", "err", err)
		if !sleepFor(ctx, pause+time.Duration(rand.Int64N(int64(pause)))) { // a shed full of boards shall not come together
			return nil
		}
	}
}

// hear asks for calls, and answers them, until the connection is cut.
func (u *uplink) hear(ctx context.Context, client *http.Client, places chan struct{}) (heard bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.servers.URL()+httpd.TunnelPath, nil)
	if err != nil {
		return false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return false, errors.New(resp.Status)
	}
	in := bufio.NewScanner(resp.Body)
	for in.Scan() {
		select {
		case places <- struct{}{}:
			id := in.Text()
			go func() {
				defer func() { <-places }()
				if err := u.answerCall(ctx, id); err != nil {
					slog.Warn("a call of the control plane could not be answered", "err", err)
				}
			}()
		default: // it hears of that by not being answered
		}
	}
	return true, in.Err()
}

// answerCall connects to the control plane and serves it there.
func (u *uplink) answerCall(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, callTime)
	defer cancel()
	conn, err := u.servers.Connect(ctx)
	if err != nil {
		return err
	}
	up, err := httpd.Upgrade(ctx, conn, httpd.TunnelPath+"?call="+url.QueryEscape(id))
	if err != nil {
		return err
	}
	if !u.hand(up) {
		return up.Close()
	}
	return nil
}

// waiter is a board that waits for calls.
type waiter struct {
	calls chan string
	over  chan struct{} // closed when another takes its place, or the board is gone
}

// call is one that waits for an answer.
type call struct {
	node string
	got  chan net.Conn // capacity 1
}

var _ httpd.Switchboard = (*fleet)(nil)

// Wait implements httpd.Switchboard.
func (b *fleet) Wait(ctx context.Context, node string, tell func(id string) error) {
	l := &waiter{calls: make(chan string), over: make(chan struct{})}
	b.mu.Lock()
	b.hangUp(node)
	if b.waiters == nil {
		b.waiters = map[string]*waiter{}
	}
	b.waiters[node] = l
	b.mu.Unlock()
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if b.waiters[node] == l {
			b.hangUp(node)
		}
	}()
	for {
		select {
		case id := <-l.calls:
			if tell(id) != nil {
				return
			}
		case <-l.over:
			return
		case <-ctx.Done():
			return
		}
	}
}

// hangUp ends the wait of a board. The caller holds mu.
func (b *fleet) hangUp(node string) {
	if l := b.waiters[node]; l != nil {
		close(l.over)
		delete(b.waiters, node)
	}
}

// Claim implements httpd.Switchboard.
func (b *fleet) Claim(node, id string) (deliver func(net.Conn), ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	c := b.calls[id]
	if c == nil || c.node != node {
		return nil, false
	}
	delete(b.calls, id)
	return func(conn net.Conn) { c.got <- conn }, true
}

// waiterOf is that of a board; nil: it does not wait for calls.
func (b *fleet) waiterOf(node string) *waiter {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiters[node]
}

// call has a board connect to here.
func (b *fleet) call(ctx context.Context, node string, l *waiter) (net.Conn, error) {
	c, id := &call{node: node, got: make(chan net.Conn, 1)}, fmt.Sprintf("%016x%016x", rand.Uint64(), rand.Uint64())
	b.mu.Lock()
	if b.calls == nil {
		b.calls = map[string]*call{}
	}
	b.calls[id] = c
	b.mu.Unlock()
	select {
	case l.calls <- id:
	case <-l.over:
	case <-ctx.Done():
	}
	select {
	case conn := <-c.got:
		return answeredCall(conn)
	case <-l.over:
	case <-ctx.Done():
	}
	if _, unclaimed := b.Claim(node, id); !unclaimed { // it is being answered
		return answeredCall(<-c.got)
	}
	return nil, errors.New("it does not answer a call by its own connection either")
}

func answeredCall(conn net.Conn) (net.Conn, error) {
	if conn == nil {
		return nil, errors.New("its answer to a call was cut")
	}
	return conn, quietEnd(conn)
}
