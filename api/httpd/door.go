package httpd

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api"
)

// door is a kubelet's port: what a board serves to its control plane, and to whom else it lets in.
type door struct {
	h    *handler
	who  Visitors
	node string
}

// Visitors say who gets in by a board's port, and to what.
type Visitors interface {
	// May gives the one of these subresources of the board's Node to which somebody may do this, a verb of Kubernetes.
	May(u api.User, verb string, subresources ...string) (by string, err error)
}

// only is the control plane of a fleet of ledge's, and nobody else. It has judged already who may do what.
type only struct{ caller, node string }

func (o only) May(u api.User, _ string, _ ...string) (string, error) {
	if u.Name == o.caller {
		return wholeNode, nil
	}
	return "", status(http.StatusForbidden, metav1.StatusReasonForbidden,
		fmt.Sprintf("this port of board %s is its control plane's alone", o.node))
}

// wholeNode is the subresource of who may use all of a Node.
const wholeNode = "proxy"

// The paths that a control plane of ledge asks for besides a kubelet's.
const (
	measuredPath   = "/ledge/measured"
	podAddressPath = "podAddress"
)

// doorSessions is how many sessions, and how many followed logs, a board bears.
const doorSessions = 64

// NewDoor makes the handler of a board's port. caller is the only one who is let in; its certificate's name, or the user of the
// listener.
func NewDoor(c Config, caller string) (http.Handler, error) {
	if c.Metrics == nil || caller == "" {
		return nil, errors.New("make the board's port: nobody would be let in, or find nothing")
	}
	return newDoor(c, only{caller, c.Metrics.Node()})
}

// NewKubeDoor makes the handler of the port of a board that has joined Kubernetes: each request is judged by itself, as by a kubelet.
func NewKubeDoor(c Config, who Visitors) (http.Handler, error) {
	if c.Metrics == nil || who == nil || c.Authenticate == nil || c.Known == nil {
		return nil, errors.New("make the board's port: who comes would not be known, or find nothing")
	}
	return newDoor(c, who)
}

func newDoor(c Config, who Visitors) (http.Handler, error) {
	c.MaxSessions, c.MaxLogs = doorSessions, doorSessions
	h, err := newHandler(c)
	if err != nil {
		return nil, err
	}
	return &door{h: h, who: who, node: c.Metrics.Node()}, nil
}

// ServeHTTP answers one request.
func (d *door) ServeHTTP(w http.ResponseWriter, r *http.Request) { d.h.answer(w, r, d.serve) }

// doorRoutes are the paths below which a pod's name follows, by their first word.
var doorRoutes = map[string]struct {
	methods []string
	long    string
	serve   serving[podStreams]
}{
	"containerLogs": {[]string{"GET"}, "log", (*podStreams).log},
	"exec":          {[]string{"GET", "POST"}, "session", (*podStreams).exec},
	"attach":        {[]string{"GET", "POST"}, "session", (*podStreams).attach},
	"portForward":   {[]string{"GET", "POST"}, "session", (*podStreams).portForward},
}

// asked is what Kubernetes calls what a request wants of a board's Node: the verb, and the subresources one of which is enough. A
// session is an act, whatever its method: a kubelet takes the GET of a WebSocket for reading, so that who may read may run commands.
func asked(method, first string) (verb string, subresources []string) {
	verb = map[string]string{http.MethodGet: "get", http.MethodPost: "create", http.MethodPut: "update", http.MethodPatch: "patch",
		http.MethodDelete: "delete"}[method]
	switch first {
	case "stats", "metrics", "checkpoint", "statusz":
		return verb, []string{first}
	case "logs":
		return verb, []string{"log"}
	case "flagz":
		return verb, []string{"configz"}
	case "pods", "allocatedPods", "runningpods":
		return verb, []string{"pods", wholeNode}
	case "healthz", "configz":
		return verb, []string{first, wholeNode}
	}
	if doorRoutes[first].long == "session" {
		verb = "create"
	}
	return verb, []string{wholeNode}
}

// admit finds out who sent a request, and whether it is let in.
func (d *door) admit(w *response, hr *http.Request) (u api.User, segments []string, err error) {
	u, err = d.h.callers.callerOf(hr)
	if conn := connOf(hr.Context()); conn != nil {
		conn.lastAnswer(w)
	}
	if err == nil && isAnonymous(u) {
		err = errUnauthorized()
	}
	if err != nil {
		return u, nil, err
	}
	segments, ok := splitPath(hr.URL.EscapedPath())
	if !ok {
		segments = []string{""}
	}
	verb, subs := asked(hr.Method, segments[0])
	w.party = partyOf(u, hr.RemoteAddr)
	by, err := d.who.May(u, verb, subs...)
	if err != nil {
		return u, nil, err
	}
	if by == wholeNode { // who may use all of a board is one, and a control plane has judged who may have how much
		w.party = party{administrators, u.Name}
	}
	if !ok {
		return u, nil, errNoPath()
	}
	return u, segments, nil
}

func (d *door) serve(w *response, hr *http.Request) error {
	_, own := d.who.(only)
	w.plain = !own // as a kubelet; our own control plane passes a Status on
	u, segments, err := d.admit(w, hr)
	if err != nil {
		return err
	}
	hr = hr.WithContext(withParty(hr.Context(), w.party))
	query, err := url.ParseQuery(hr.URL.RawQuery)
	if err != nil {
		return badRequest("the query of the URL cannot be parsed: %v", err)
	}
	r := &request{Request: hr, user: u, query: query, route: &route{}}
	to, isPod := doorRoutes[segments[0]]
	switch {
	case isPod:
	case own && segments[0] == podAddressPath && len(segments) == 4:
		return d.podAddress(w, r, segments[1], segments[2], segments[3])
	case hr.Method != http.MethodGet:
		return errMethod(hr.Method, []string{http.MethodGet})
	case own && hr.URL.Path == measuredPath:
		return d.measured(w, r)
	default:
		return d.h.measures.page(w, r, hr.URL.Path)
	}
	switch {
	case !slices.Contains(to.methods, hr.Method):
		return errMethod(hr.Method, to.methods)
	case len(segments) == 3 && segments[0] == "portForward":
	case len(segments) == 4 && segments[0] != "portForward":
		query.Set("container", segments[3])
	default:
		return errNoPath()
	}
	// A kubelet's words for what kubectl calls stdin, stdout, stderr and ports.
	for theirs, ours := range map[string]string{"input": "stdin", "output": "stdout", "error": "stderr", "port": "ports"} {
		if v, ok := query[theirs]; ok {
			query[ours] = v
		}
	}
	// A kubelet drops stderr where there is a terminal, and its clients count on that.
	if tty, err := queryBool(query, "tty"); err == nil && tty {
		query.Del("stderr")
	}
	r.target = target{kind: api.Pods, shape: object, namespace: segments[1], name: segments[2]}
	r.route = &route{long: to.long}
	return d.h.inPlace(w, r, func(w *response, r *request) error { return to.serve(d.h.pods, w, r) })
}

// measured is what this board uses, in the forms in which the control plane is asked for it.
type measuredPage struct {
	Nodes []*api.NodeMetrics `json:"nodes"`
	Pods  []*api.PodMetrics  `json:"pods"`
}

func (d *door) measured(w *response, r *request) error {
	page := measuredPage{d.h.measures.metrics.NodeMetrics(r.Context()), slices.Clone(d.h.measures.metrics.PodMetrics(r.Context()))}
	for i, m := range page.Pods {
		if m != nil { // labels can be long, and the control plane has them
			short := *m
			short.Labels, page.Pods[i] = nil, &short
		}
	}
	return w.json(http.StatusOK, page, false)
}

// podAddress connects to the address of a pod of this board, for those who have no way there.
func (d *door) podAddress(w *response, r *request, namespace, name, port string) error {
	if r.Method != http.MethodGet || !strings.EqualFold(r.Header.Get("Upgrade"), upgradeTCP) {
		return badRequest("unable to upgrade: a GET with an Upgrade to %s is needed here", upgradeTCP)
	}
	r.route = &route{long: "session"}
	return d.h.inPlace(w, r, func(w *response, r *request) error { return d.toPod(w, r, namespace, name, port) })
}

func (d *door) toPod(w *response, r *request, namespace, name, port string) error {
	pod, err := api.Get[*corev1.Pod](r.Context(), d.h.client, api.Pods, namespace, name)
	if err != nil {
		return err
	}
	if pod.Spec.NodeName != d.node {
		return badRequest("pod %s is on node %q, not on %q", name, pod.Spec.NodeName, d.node)
	}
	host, err := proxyHost(pod, "http", port)
	if err != nil {
		return err
	}
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	there, err := d.h.boards.dialPod(ctx, "tcp", host)
	if err != nil {
		return status(http.StatusServiceUnavailable, "ServiceUnavailable", err.Error())
	}
	defer there.Close()
	here, err := acceptUpgrade(w, upgradeTCP, "")
	if err != nil {
		return nil //nolint:nilerr // the connection is gone
	}
	defer here.Close()
	splice(ctx, here, there)
	return nil
}
