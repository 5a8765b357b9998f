package httpd

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// TunnelPath is where a board waits to be called by a control plane that cannot connect to it, and where it answers a call by a
// connection of its own.
const TunnelPath = "/tunnel"

// Switchboard joins calls to boards and the connections that they answer with.
type Switchboard interface {
	// Wait tells a board, which has called for that, of every call to it until ctx ends or another takes the board's place.
	Wait(ctx context.Context, node string, tell func(id string) error)
	// Claim finds a call to a board that waits for an answer. deliver must be called then, with nil when none comes.
	Claim(node, id string) (deliver func(net.Conn), ok bool)
}

// tunnels are the connections by which boards are called.
type tunnels struct{ calls Switchboard }

// serveTunnel is for boards, each for itself: nobody can stand in for one.
func (t *tunnels) serveTunnel(w *response, r *http.Request, caller, user api.User) error {
	node, ok := nodeName(caller)
	if !ok || user.Name != caller.Name {
		return status(http.StatusForbidden, metav1.StatusReasonForbidden, fmt.Sprintf("%q is no board: nobody calls it", user.Name))
	}
	if r.Method != http.MethodGet {
		return errMethod(r.Method, []string{http.MethodGet})
	}
	if id := r.URL.Query().Get("call"); id != "" {
		return t.answerCall(w, r, node, id)
	}
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	w.Header().Set("Content-Type", "text/plain")
	w.extend()
	w.WriteHeader(http.StatusOK)
	if w.flush() != nil {
		return nil
	}
	t.calls.Wait(ctx, node, func(id string) error {
		w.extend()
		if _, err := fmt.Fprintln(w, id); err != nil {
			return err
		}
		return w.flush()
	})
	return nil
}

// answerCall takes over the connection of a board that answers.
func (t *tunnels) answerCall(w *response, r *http.Request, node, id string) error {
	if !strings.EqualFold(r.Header.Get("Upgrade"), upgradeTCP) {
		return badRequest("unable to upgrade: an Upgrade to %s is needed here", upgradeTCP)
	}
	deliver, ok := t.calls.Claim(node, id)
	if !ok {
		return errNoPath()
	}
	conn, err := acceptUpgrade(w, upgradeTCP, "")
	if err != nil {
		deliver(nil)
		return nil //nolint:nilerr // the connection is gone
	}
	if c := connOf(r.Context()); c != nil {
		c.place.use() // it is not idle now, until it is closed
	}
	deliver(conn)
	return nil
}

// Handed is a listener of connections that come another way, whose peer is known to be u. hand says whether one is served.
func Handed(u api.User) (l *Listener, hand func(net.Conn) bool) {
	l, _ = Pipe(u)
	p := l.Listener.(*pipe)
	return l, func(conn net.Conn) bool {
		select {
		case p.conns <- conn:
			return true
		case <-p.closed:
			return false
		}
	}
}
