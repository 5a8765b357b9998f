package httpd

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// A board may be stolen, and a pod may be anybody's. What they answer is passed on to be read; nothing in it may make the
// caller's client act with the caller's rights (CVE-2020-8559). So statuses and headers pass that are known to be harmless, and
// a browser shows what comes without trusting it.

const (
	maxForeignHeader = 32 << 10 // bytes of the headers of an answer, with those of the 1xx answers before it
	maxForeignFields = 128      // headers of different names
	maxForeignError  = 16 << 10 // bytes of an error of a board
	maxForeignText   = 1 << 10  // bytes of its message
	boardTime        = 20 * time.Second
	podTime          = 5 * time.Minute // a pod may compute something first
)

// boardHeaders are those of a board's answer that pass.
var boardHeaders = []string{"Content-Type", "Content-Length"}

// upgradeHeaders are those of an answer that takes up another protocol.
var upgradeHeaders = []string{"Upgrade", headerProtocol, "Sec-Websocket-Accept", "Sec-Websocket-Protocol"}

// podHeaders are those with which a pod describes what it sends. Not among them are those that a browser or kubectl would obey
// for all of this server, such as Set-Cookie, Strict-Transport-Security or Warning.
var podHeaders = []string{"Accept-Ranges", "Age", "Allow", "Cache-Control", "Content-Disposition", "Content-Encoding", "Content-Language",
	"Content-Length", "Content-Range", "Content-Type", "Date", "Etag", "Expires", "Last-Modified", "Location", "Retry-After", "Server", "Vary"}

// boardMedia are the types of what boards show: text that no browser runs.
var boardMedia = []string{"text/plain", "application/json", "application/openmetrics-text", "application/vnd.google.protobuf"}

// The sandboxes of pages. A pod's page may run scripts, but as a page of nowhere: what it asks of this server is asked without
// the rights of who looks at it.
const (
	sandboxAll     = "sandbox"
	sandboxScripts = "sandbox allow-downloads allow-forms allow-modals allow-popups allow-scripts"
)

// foreign asks a board or a pod for something. judge leaves in an answer what may pass, or refuses it.
type foreign struct {
	*http.Transport
	judge func(*http.Response) error
	// hangUp ends the request when an error, or a piece of the answer, does not come within boardTime; nil: all may take its time.
	hangUp  func()
	patient bool  // pieces may take their time
	most    int64 // bytes that were asked for; 0: all
}

// RoundTrip implements http.RoundTripper.
func (f foreign) RoundTrip(r *http.Request) (*http.Response, error) {
	answer, err := f.Transport.RoundTrip(r.WithContext(untraced{r.Context()}))
	if err != nil {
		return nil, err
	}
	out := *answer // trailers go to the answer that the transport knows, and no further
	out.Trailer = nil
	if f.hangUp != nil && (out.StatusCode >= 400 || !f.patient && out.StatusCode >= 200) {
		out.Body = newTimedBody(out.Body, f.hangUp, out.StatusCode >= 400)
	}
	if err := f.judge(&out); err != nil {
		out.Body.Close()
		return nil, err
	}
	if f.most > 0 && out.StatusCode == http.StatusOK && (out.ContentLength < 0 || out.ContentLength > f.most) {
		out.Header.Del("Content-Length")
		out.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(out.Body, f.most), out.Body}
	}
	return &out, nil
}

// untraced hides that somebody wants to see 1xx answers: httputil.ReverseProxy passes them on, headers and all, and net/http
// does not count those that are seen.
type untraced struct{ context.Context }

func (untraced) Value(any) any { return nil }

// timedBody is a body whose next piece must come in time, or all of it.
type timedBody struct {
	io.ReadCloser
	timer *time.Timer
	whole bool
}

func newTimedBody(body io.ReadCloser, late func(), whole bool) *timedBody {
	return &timedBody{body, time.AfterFunc(boardTime, late), whole}
}

func (b *timedBody) Read(p []byte) (int, error) {
	if !b.whole {
		b.timer.Reset(boardTime)
		defer b.timer.Stop() // who reads it on may be slow
	}
	return b.ReadCloser.Read(p)
}

func (b *timedBody) Close() error {
	b.timer.Stop()
	return b.ReadCloser.Close()
}

// refused is why an answer is not passed on; who gave it stands before it.
type refused string

func (r refused) Error() string { return string(r) }

func refusedCode(code int) refused {
	return refused(strings.TrimSpace(fmt.Sprintf("answered %d %s", code, http.StatusText(code))) + ", which is not passed on")
}

// fromBoard judges the answer of a board.
func fromBoard(a *http.Response) error {
	code := a.StatusCode
	if err := expected(a); err != nil {
		return err
	}
	switch {
	case code >= 400:
		return answered(a)
	case code >= 300:
		return refusedCode(code)
	case code == http.StatusSwitchingProtocols:
		return nil
	}
	media := a.Header.Get("Content-Type")
	if kind, _, err := mime.ParseMediaType(media); err != nil || !slices.Contains(boardMedia, kind) {
		media = "text/plain; charset=utf-8"
	}
	a.Header = pick(a.Header, boardHeaders)
	a.Header.Set("Content-Type", media)
	a.Header.Set("Cache-Control", "no-cache, private")
	confine(a.Header, sandboxAll)
	return nil
}

// expected refuses statuses that were not asked for. Who asked for an upgrade gets it or an error, and nothing that could lead
// on to somewhere else.
func expected(a *http.Response) error {
	wanted, code := a.Request.Header.Get("Upgrade"), a.StatusCode
	switch {
	case len(a.Header) > maxForeignFields:
		return refused(fmt.Sprintf("answered with more than %d different headers", maxForeignFields))
	case code >= 400 && code <= 599:
		return nil
	case code == http.StatusSwitchingProtocols && wanted != "" && strings.EqualFold(wanted, a.Header.Get("Upgrade")):
		a.Header = pick(a.Header, upgradeHeaders)
		a.Header.Set("Connection", "Upgrade")
		return nil
	case wanted == "" && code >= 200 && code <= 399:
		return nil
	}
	return refusedCode(code)
}

// pick is what may pass of some headers, each once.
func pick(from http.Header, names []string) http.Header {
	out := http.Header{}
	for _, name := range names {
		if v := from.Get(name); v != "" {
			out.Set(name, v)
		}
	}
	return out
}

// confine tells browsers to take content for what it says it is, and to give it none of this server's rights.
func confine(head http.Header, sandbox string) {
	head.Set("X-Content-Type-Options", "nosniff")
	head.Set("Content-Security-Policy", sandbox)
}

// answered is the error in an answer of a board: its code, and a message. A code that tells clients how to get in, or where to
// go, would be obeyed.
func answered(a *http.Response) error {
	defer a.Body.Close()
	code := a.StatusCode
	s := metav1.Status{Status: metav1.StatusFailure, Code: int32(code),
		Message: fmt.Sprintf("the board answered %d %s", code, http.StatusText(code))}
	if code < 400 || code > 599 || code == http.StatusUnauthorized || code == http.StatusProxyAuthRequired {
		return refusedCode(code)
	}
	data, err := io.ReadAll(io.LimitReader(a.Body, maxForeignError))
	var said struct{ Message, Reason string }
	switch {
	case err != nil || len(data) == 0:
	case json.Unmarshal(data, &said) == nil && said.Message != "":
		s.Message = shortText(said.Message)
	case json.Valid(data):
	default: // a kubelet's errors are text
		s.Message = shortText(strings.TrimSpace(string(data)))
	}
	switch {
	case code == http.StatusNotFound:
		s.Reason = metav1.StatusReasonNotFound
	case len(said.Reason) <= 64 && !strings.ContainsFunc(said.Reason, func(c rune) bool { return !unicode.IsLetter(c) }):
		s.Reason = metav1.StatusReason(said.Reason)
	}
	return &apierrors.StatusError{ErrStatus: s}
}

// shortText cuts a text of a board.
func shortText(s string) string {
	if len(s) > maxForeignText {
		s = strings.ToValidUTF8(s[:maxForeignText], "") + "..."
	}
	return s
}
