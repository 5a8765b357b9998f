package httpd

import (
	"context"
	"io"
	"net/http"
	"strings"
	"time"

	"ledge/api"
)

// JoinPath is where a board that has no certificate, or an old one, asks for the next.
const JoinPath = "/join"

// Join answers a board's certificate request with a certificate. token is what the board shows, if anything; remote is
// where it is. An error is told to the board: its caller must be able to read it.
type Join func(ctx context.Context, remote string, request []byte, token string) (certificate []byte, err error)

// maxRequest is more than a certificate request for a P-256 key ever has.
const maxRequest = 8 << 10

// serveJoin is the one request that needs no identity, because it gives one. Like tokens, few are looked at at once: each
// costs a signature or two. It goes over TLS only: the board must know whom it shows its token.
func (h *handler) serveJoin(w *response, r *http.Request) error {
	if r.TLS == nil {
		return errNoPath()
	}
	if conn := connOf(r.Context()); conn != nil {
		conn.lastAnswer(w)
	}
	if r.Method != http.MethodPost {
		return errMethod(r.Method, []string{http.MethodPost})
	}
	if err := refuseHeaders(r.Header); err != nil {
		return err
	}
	request, err := io.ReadAll(io.LimitReader(r.Body, maxRequest+1))
	if err != nil || len(request) > maxRequest {
		return badRequest("a certificate request of up to %d bytes is expected", maxRequest)
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{}) // all is there
	token := ""
	if given := r.Header.Get("Authorization"); given != "" {
		scheme, rest, _ := strings.Cut(given, " ")
		if !strings.EqualFold(scheme, "bearer") || rest == "" {
			return errUnauthorized()
		}
		token = rest
	}
	checking, err := h.limits.tokens.wait(r.Context(), partySoFar(r), 1, nil)
	if err != nil {
		return err
	}
	defer checking.leave()
	certificate, err := h.join(r.Context(), r.RemoteAddr, request, token)
	if err != nil {
		return err // not audited: whoever is out there could push all else out of the log
	}
	w.audit = h.audit.begin(r, api.User{Name: "system:unauthenticated"}, attributes{verb: "create", path: JoinPath}, "")
	w.audit.decided(nil)
	w.Header().Set("Content-Type", "application/x-pem-file")
	_, err = w.Write(certificate)
	return err
}
