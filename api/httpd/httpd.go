package httpd

import (
	"cmp"
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/kinds"
)

// Config is what a Handler serves. Only Client is required.
type Config struct {
	Client  api.Client
	Kinds   *api.Kinds    // nil: those of a board
	Streams api.Streams   // nil: logs answer 501
	Exec    api.Execer    // nil: exec and attach answer 501
	Forward api.Forwarder // nil: portforward answers 501
	Metrics api.Metrics   // nil: what is measured answers 501
	// DialPod connects to the address of a pod, for requests that are handed on to it; nil: as this machine does.
	DialPod func(ctx context.Context, network, address string) (net.Conn, error)
	// DialBoard connects to the port of another board than Node, for pods that run there; nil: there are no others.
	DialBoard func(ctx context.Context, node string) (net.Conn, error)
	Node      string
	// Calls joins calls to boards with their answers; nil: boards are not called.
	Calls   Switchboard
	Version Version
	Checks  []Check // what /readyz and /healthz ask
	// Board answers what stands under /ledge/: what a board can do that Kubernetes has no word for. Only admins get
	// there. It may be nil.
	Board http.Handler
	// Audit takes a line of JSON for each request that changes something, in one Write; nil: there is no log.
	Audit io.Writer
	// StockPrinter prints a failed pod's containers instead of its reason (N-11.26).
	StockPrinter bool
	// MaxInFlight is how many requests are answered at once beside those that are kept for each kind of caller, watches and
	// followed logs aside; 0 is 64.
	MaxInFlight int
	// Authenticate knows the bearers of tokens, on listeners that let them in (WithTokens); nil: there are none.
	Authenticate Authenticate
	// Join answers boards that are not known yet; nil: none may join.
	Join Join
	// Known says whether a client's certificate, the first of those that it has sent, still counts: it was of our CA and had not ended
	// when the connection was made. The error is for its owner. Nil: each does.
	Known func(peer []*x509.Certificate) error
	// MaxWatches, MaxLogs and MaxSessions cap the watches, the followed logs and the sessions (exec, attach, port-forward) of one
	// identity; 0 is 32 (128 for an administrator), 16 and 16. The service accounts of a namespace have twice as many watches and
	// logs together, and nobody more sessions than he leaves to others.
	MaxWatches  int
	MaxLogs     int
	MaxSessions int
}

// Check is one thing that must work for the server to call itself ready.
type Check struct {
	Name string
	Run  func(ctx context.Context) error
}

// handler lets requests in, one way for all (serve), and answers what is asked of objects that are kept. The rest is its parts'.
// There is no state but counters.
type handler struct {
	client   api.Client
	kinds    *api.Kinds
	board    http.Handler // what stands under /ledge/; nil: nothing
	join     Join         // nil: none may join
	limits   limits
	large    map[*api.Kind]*atomic.Bool // whether a list of all was large the last time
	audit    auditLog
	refusals notices // of boards

	intake   *intake     // of bodies
	forms    *forms      // of answers
	callers  *callers    // who asks
	rights   *authorizer // what he may do
	reviewer *reviewer   // questions about both
	pods     *podStreams
	measures *measures
	boards   *otherBoards
	tunnels  tunnels
	later    *laterKinds
	about    *about
}

// New makes the handler of an API server. The caller of a request is taken from its connection, so it must be
// served by a Server of this package.
func New(c Config) (Handler, error) { return newHandler(c) }

// Handler is an API server, which others of its process may ask what pods use.
type Handler interface {
	http.Handler
	// PodMetrics is what the pods of all boards use, as measured last.
	PodMetrics(context.Context) ([]*api.PodMetrics, error)
}

func newHandler(c Config) (*handler, error) {
	if c.Client == nil {
		return nil, errors.New("make API handler: no client given")
	}
	version, err := c.Version.encode()
	if err != nil {
		return nil, fmt.Errorf("make API handler: %w", err)
	}
	h := &handler{client: c.Client, kinds: cmp.Or(c.Kinds, kinds.All), board: c.Board, join: c.Join, limits: newLimits(c),
		large: map[*api.Kind]*atomic.Bool{}, audit: auditLog{c.Audit}, tunnels: tunnels{c.Calls}}
	for _, k := range h.kinds.All() {
		h.large[k] = new(atomic.Bool)
	}
	h.intake, h.forms = &intake{&h.limits}, &forms{h.limits.answers, c.StockPrinter}
	h.callers, h.rights = &callers{c.Authenticate, c.Known, h.limits.tokens}, &authorizer{c.Client}
	h.reviewer = &reviewer{c.Client, h.intake, h.rights, c.Authenticate}
	h.boards = &otherBoards{c.Node, h.limits.streams.dialer(c.DialBoard), c.DialPod}
	if h.boards.dialPod == nil {
		h.boards.dialPod = (&net.Dialer{Timeout: 10 * time.Second}).DialContext
	}
	h.pods = &podStreams{c.Client, c.Streams, c.Exec, c.Forward, h.boards}
	h.measures = &measures{client: c.Client, metrics: c.Metrics, boards: h.boards, forms: h.forms}
	h.later = &laterKinds{client: c.Client, kinds: h.kinds, intake: h.intake, forms: h.forms, answers: h.limits.answers}
	docs := sync.OnceValues(func() (map[string]*document, error) { return documents(h.kinds) })
	h.about = &about{version, c.Checks, docs, &h.limits}
	return h, nil
}

// request is one request on its way, with what was found out about it so far.
type request struct {
	*http.Request
	user  api.User
	query url.Values
	target
	route *route
	audit *audit
}

// attributes is what authorisation looks at.
func (r *request) attributes() attributes {
	a := attributes{verb: r.route.verb, path: r.URL.Path}
	if k := r.kind; k != nil {
		a.group, a.resource, a.sub, a.namespace, a.name = k.Group, k.Resource, r.sub, r.namespace, r.name
		a.fields = r.query.Get("fieldSelector")
		if k == api.Namespaces && a.name != "" {
			a.namespace = a.name // as on Kubernetes: rights in a namespace say that one may see it
		}
	}
	for _, v := range reviews {
		if v.path == r.route.on {
			a.group, a.resource, a.namespace = v.gvk.Group, v.resource(), r.namespace
		}
	}
	return a
}

// ServeHTTP answers one request.
func (h *handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.answer(w, r, h.serve) }

// PodMetrics implements Handler.
func (h *handler) PodMetrics(ctx context.Context) ([]*api.PodMetrics, error) {
	return h.measures.PodMetrics(ctx)
}

// panicked tells the log where, and whoever asked that it is not their mistake. It is called where the panic is recovered.
func panicked(r *http.Request, p any) error {
	slog.Error("request panicked", "method", r.Method, "path", r.URL.Path, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
	return api.NewInternal("ledge bug: the request panicked: %v", p)
}

// answer is what is around every request, whoever serves it.
func (h *handler) answer(w http.ResponseWriter, r *http.Request, serve func(*response, *http.Request) error) {
	out := &response{ResponseWriter: w, places: h.limits.answers}
	defer func() { out.audit.end(out.status()) }()
	defer out.finish()
	defer func() {
		switch p := recover(); {
		case p == nil:
		case p == http.ErrAbortHandler:
			panic(p)
		default:
			out.fail(panicked(r, p))
		}
	}()
	if conn := connOf(r.Context()); conn != nil {
		defer conn.place.use()()
	}
	awaitBody(w, r)
	if err := serve(out, r); err != nil {
		out.fail(err)
	}
}

func (h *handler) serve(w *response, hr *http.Request) (err error) {
	if h.join != nil && hr.URL.Path == JoinPath {
		return h.serveJoin(w, hr)
	}
	caller, err := h.callers.callerOf(hr)
	if conn := connOf(hr.Context()); conn != nil {
		conn.lastAnswer(w)
	}
	if err != nil {
		if apierrors.IsTooManyRequests(err) {
			w.Header().Set("Connection", "close") // it is what there is too much of
		}
		return err
	}
	w.party = partyOf(caller, hr.RemoteAddr)
	hr = hr.WithContext(withParty(hr.Context(), w.party))
	a := attributes{verb: strings.ToLower(hr.Method), path: hr.URL.Path}
	defer func() { h.refusals.noteRefusal(hr, caller, a, err) }()
	user, err := h.rights.impersonated(hr.Context(), caller, hr.Header)
	if err != nil {
		return err
	}
	if user.Name != caller.Name {
		hr = hr.WithContext(context.WithValue(hr.Context(), actorKey{}, caller))
	}
	if h.tunnels.calls != nil && hr.URL.Path == TunnelPath {
		return h.tunnels.serveTunnel(w, hr, caller, user)
	}
	if h.board != nil && strings.HasPrefix(hr.URL.Path, boardPrefix) {
		return h.serveBoard(w, hr, user)
	}
	query, err := url.ParseQuery(hr.URL.RawQuery)
	if err != nil {
		return badRequest("the query of the URL cannot be parsed: %v", err)
	}
	r := &request{Request: hr.WithContext(api.WithUser(hr.Context(), user)), user: user, query: query}
	if err := h.find(r); err != nil {
		return err
	}
	if err := refuseHeaders(hr.Header); err != nil {
		return err
	}
	a = r.attributes()
	version := ""
	if r.kind != nil {
		version = r.kind.Version
	}
	r.audit = h.audit.begin(hr, user, a, version)
	w.audit = r.audit
	err = h.rights.authorize(r.Context(), user, a)
	r.audit.decided(err)
	if err != nil {
		return err
	}
	r.Request = r.WithContext(api.WithWarnings(r.audit.notes(r.Context()), w.warn))
	if r.kind != nil && r.kind.Deprecated != "" {
		w.warn(r.kind.Deprecated)
	}
	return h.inPlace(w, r, h.serveRoute)
}

// inPlace serves a request that has a place. Who loses it is told so, unless it is a watch that has begun: that ends as any watch
// does, and goes on elsewhere.
func (h *handler) inPlace(w *response, r *request, serve func(*response, *request) error) error {
	pl, err := h.limits.enter(r)
	if err != nil {
		return err
	}
	defer pl.leave()
	defer context.AfterFunc(r.Context(), func() { w.hurry(hurryTime) })() // whoever does not read, too
	err = serve(w, r)
	if pl.lost() && !(w.begun && r.route.long == "watch") {
		return errPlaceLost
	}
	return err
}

// serveRoute serves a request that is allowed.
func (h *handler) serveRoute(w *response, r *request) error {
	if err := h.rights.mayRead(r); err != nil {
		return err
	}
	if slices.ContainsFunc(reviews, func(v review) bool { return v.path == r.route.on }) {
		// An answer to a question has no metadata of an object, so it is no row of a table either.
		if form, err := r.form(); err != nil || form.as != asObject {
			return errNotAcceptable(r.Header.Get("Accept"))
		}
	}
	if r.route.long == "session" {
		r.audit.begin()
	}
	return r.route.serve(h, w, r)
}

// boardPrefix is where a board's own requests stand.
const boardPrefix = "/ledge/"

// HeaderMeant must stand in each of them that changes something. They take what they need from their query, so that a client
// which follows a redirect, or a page in a browser, could ask for them unmeant; neither can add a header.
const HeaderMeant = "Ledge-Meant"

// serveBoard hands an admin's request on. Its body is not an object: it may be a whole image, so none of the limits
// of objects apply, and who may send it is decided first.
func (h *handler) serveBoard(w *response, r *http.Request, user api.User) error {
	a := attributes{verb: strings.ToLower(r.Method), path: r.URL.Path}
	w.audit = h.audit.begin(r, user, a, "")
	err := h.rights.authorize(r.Context(), user, a)
	w.audit.decided(err)
	if err != nil {
		return err
	}
	if err := refuseHeaders(r.Header); err != nil {
		return err
	}
	if r.Method != http.MethodGet && r.Method != http.MethodHead && r.Header.Get(HeaderMeant) == "" {
		return badRequest("%s %s changes something on this board: say that it is meant, by a header %s: yes", r.Method, r.URL.Path, HeaderMeant)
	}
	http.NewResponseController(w).SetReadDeadline(time.Time{}) // nor the time that a body of ours has
	h.board.ServeHTTP(w, r.WithContext(api.WithUser(r.Context(), user)))
	return nil
}

// refuseHeaders turns down bodies that could unfold.
func refuseHeaders(head http.Header) error {
	if enc := head.Get("Content-Encoding"); enc != "" && enc != "identity" {
		return errMediaType("the body's Content-Encoding %q is not supported: send it as it is", enc)
	}
	return nil
}
