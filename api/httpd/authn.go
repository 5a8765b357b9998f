package httpd

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
)

type callerKey struct{}

// withCaller marks a connection whose peer is known without TLS: a unix socket, or a pipe in a test.
func withCaller(ctx context.Context, u api.User) context.Context {
	return context.WithValue(ctx, callerKey{}, u)
}

type refusalKey struct{}

// withoutCaller marks a connection whose requests are answered with an error only.
func withoutCaller(ctx context.Context, why error) context.Context {
	return context.WithValue(ctx, refusalKey{}, why)
}

// Authenticate says whose a bearer token is, if it is one of ours for one of these audiences (none: this API) and
// still counts.
type Authenticate func(token string, audiences ...string) (api.User, error)

// callers finds out who sends requests.
type callers struct {
	authenticate Authenticate // knows the bearers of tokens; nil: there are none
	known        func(peer []*x509.Certificate) error
	tokens       *pool // being checked
}

// callerOf is who sent a request: the subject of a verified client certificate, who a token belongs to, or the caller
// of the connection. A TLS connection has no other identity than these.
func (c *callers) callerOf(r *http.Request) (api.User, error) {
	if err := c.stillKnown(r); err != nil {
		return api.User{}, err
	}
	u, err := c.caller(r)
	if conn := connOf(r.Context()); err == nil && conn != nil {
		if err := c.countConn(conn, u, r); err != nil {
			return u, err
		}
	}
	if err != nil && isPublic(r) {
		u, err = api.User{Name: anonymousUser}, nil
	}
	if why, refused := r.Context().Value(refusalKey{}).(error); refused {
		return u, why
	}
	if err != nil {
		return u, err
	}
	u.Groups = withKnown(u)
	return u, nil
}

// stillKnown asks whether a certificate counts that has not ended.
func (c *callers) stillKnown(r *http.Request) error {
	if c.known == nil || r.TLS == nil || len(r.TLS.PeerCertificates) == 0 {
		return nil
	}
	if err := c.known(r.TLS.PeerCertificates); err != nil {
		return apierrors.NewUnauthorized(err.Error())
	}
	return nil
}

// countConn counts a connection for its user from the first good request on. Who is sent away at that moment is either found
// among the connections of its board or finds out here.
func (c *callers) countConn(conn *cappedConn, u api.User, r *http.Request) error {
	fresh, err := conn.known(u)
	if err != nil || !fresh {
		return err
	}
	if _, err := c.caller(r); err != nil {
		return err
	}
	return c.stillKnown(r)
}

// anonymousUser is the name of callers without credentials.
const anonymousUser = "system:anonymous"

// publicPaths are what anybody may read over TLS: load balancers, and those who look for a server.
var publicPaths = []string{"/livez", "/readyz", "/version"}

// isPublic says whether a request needs no name. A caller who does present credentials must prove them.
func isPublic(r *http.Request) bool {
	return r.TLS != nil && len(r.TLS.PeerCertificates) == 0 && len(r.Header.Values("Authorization")) == 0 &&
		r.Method == http.MethodGet && slices.Contains(publicPaths, r.URL.Path)
}

func isAnonymous(u api.User) bool { return slices.Contains(u.Groups, api.UnauthenticatedGroup) }

func (c *callers) caller(r *http.Request) (api.User, error) {
	if r.TLS != nil && len(r.TLS.PeerCertificates) == 0 {
		return c.userOfToken(r)
	}
	u, ok := r.Context().Value(callerKey{}).(api.User)
	if r.TLS != nil {
		u, ok = userOfCertificate(r.TLS)
	}
	if !ok {
		return u, errUnauthorized()
	}
	return u, nil
}

// userOfToken looks at few tokens at once: who sends them is not known, and each costs a signature to check.
func (c *callers) userOfToken(r *http.Request) (api.User, error) {
	scheme, token, found := strings.Cut(r.Header.Get("Authorization"), " ")
	if c.authenticate == nil || !found || !strings.EqualFold(scheme, "bearer") || len(r.Header.Values("Authorization")) != 1 {
		return api.User{}, errUnauthorized()
	}
	checking, err := c.tokens.wait(r.Context(), partySoFar(r), 1, nil)
	if err != nil {
		return api.User{}, err
	}
	defer checking.leave()
	u, err := c.authenticate(token)
	if apierrors.IsServiceUnavailable(err) { // who knows it is away
		return u, err
	}
	if err != nil {
		return u, errUnauthorized()
	}
	return u, nil
}

// partySoFar is who a request counts for before it is known who sent it.
func partySoFar(r *http.Request) party {
	if conn := connOf(r.Context()); conn != nil {
		return conn.party()
	}
	return strangerAt(r.RemoteAddr)
}

func userOfCertificate(state *tls.ConnectionState) (api.User, bool) {
	if len(state.VerifiedChains) == 0 || len(state.VerifiedChains[0]) == 0 {
		return api.User{}, false
	}
	subject := state.VerifiedChains[0][0].Subject
	if subject.CommonName == "" {
		return api.User{}, false
	}
	return api.User{Name: subject.CommonName, Groups: subject.Organization}, true
}

// peerUser is the caller behind a unix socket: the kernel says who connected. Only root may, and only one that is
// trusted.
func peerUser(conn net.Conn, trust func(net.Conn) error) (api.User, error) {
	uid, ok := peerUID(conn)
	if !ok || uid != 0 {
		return api.User{}, errUnauthorized()
	}
	if trust != nil {
		if err := trust(conn); err != nil {
			return api.User{}, errNotOfBoard(err)
		}
	}
	return api.User{Name: rootUser, Groups: []string{api.AdminGroup}}, nil
}
