package httpd

import (
	"context"
	"crypto/tls"
	"net"
	"net/http"

	"ledge/api"
)

type callerKey struct{}

// withCaller marks a connection whose peer is known without TLS: a unix socket, or a pipe in a test.
func withCaller(ctx context.Context, u api.User) context.Context {
	return context.WithValue(ctx, callerKey{}, u)
}

// callerOf is who sent a request: the subject of a verified client certificate, or the caller of the connection.
// A TLS connection has no other identity than its certificate.
func callerOf(r *http.Request) (api.User, bool) {
	if r.TLS != nil {
		return userOfCertificate(r.TLS)
	}
	u, ok := r.Context().Value(callerKey{}).(api.User)
	return u, ok
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

// peerUser is the caller behind a unix socket: the kernel says who connected. Only root may.
func peerUser(conn net.Conn) (api.User, bool) {
	uid, ok := peerUID(conn)
	if !ok || uid != 0 {
		return api.User{}, false
	}
	return api.User{Name: "root", Groups: []string{api.AdminGroup}}, true
}
