package httpd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api/websocket"
)

// otherBoards passes on what is about the pods of other boards.
type otherBoards struct {
	node      string                                                   // this board
	dialBoard func(ctx context.Context, node string) (net.Conn, error) // nil: there are no others
	dialPod   func(ctx context.Context, network, address string) (net.Conn, error)
}

// elsewhere says whether a pod is on another board, which has a door.
func (b *otherBoards) elsewhere(pod *corev1.Pod) bool {
	return b.dialBoard != nil && pod.Spec.NodeName != "" && pod.Spec.NodeName != b.node
}

// sessionElsewhere passes an exec or attach on that is in order, in a kubelet's words.
func (b *otherBoards) sessionElsewhere(w *response, r *request, pod *corev1.Pod, o sessionOptions) error {
	if err := checkSession(r); err != nil {
		return err
	}
	query := url.Values{}
	if r.sub == "exec" {
		query["command"] = r.query["command"]
	}
	for name, is := range map[string]bool{"input": o.stdin, "output": o.stdout, "error": o.stderr, "tty": o.tty} {
		if is {
			query.Set(name, "1")
		}
	}
	return b.handOver(w, r, pod.Spec.NodeName, strings.Join([]string{"", r.sub, pod.Namespace, pod.Name, o.container}, "/"), query)
}

// logElsewhere passes on who wants to read a log.
func (b *otherBoards) logElsewhere(w *response, r *request, pod *corev1.Pod, container string) error {
	if err := checkOrigin(r); err != nil {
		return err
	}
	c, err := containerIn(pod, container)
	if err != nil {
		return err
	}
	query := maps.Clone(r.query)
	query.Del("container")
	return b.handOver(w, r, pod.Spec.NodeName, strings.Join([]string{"", "containerLogs", pod.Namespace, pod.Name, c.Name}, "/"), query)
}

// forwardElsewhere passes on who wants to reach a pod's ports.
func (b *otherBoards) forwardElsewhere(w *response, r *request, pod *corev1.Pod) error {
	if err := checkSession(r); err != nil {
		return err
	}
	query := url.Values{}
	if ports, ok := r.query["ports"]; ok {
		query["port"] = ports
	}
	return b.handOver(w, r, pod.Spec.NodeName, strings.Join([]string{"", "portForward", pod.Namespace, pod.Name}, "/"), query)
}

// checkSession wants an upgrade to what boards speak: whatever else is asked for, the answer would be the board's to choose.
func checkSession(r *request) error {
	if !websocket.Wanted(r.Request) && !wantsSPDY(r.Request) {
		return errNoUpgrade()
	}
	return checkOrigin(r)
}

// checkOrigin: a board cannot judge from which page its control plane was asked.
func checkOrigin(r *request) error {
	if !websocket.Wanted(r.Request) {
		return nil
	}
	if err := websocket.Check(r.Request); err != nil {
		return badRequest("%v", err)
	}
	return nil
}

// handOver passes a request on to the board of a pod, and back what comes of it: an answer, a log, or all that is said after
// an upgrade, whatever is spoken then.
func (b *otherBoards) handOver(w *response, r *request, node, path string, query url.Values) error {
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
	defer awaitBody(w.ResponseWriter, r.Request)
	if conn := connOf(r.Context()); conn != nil { // what the board does not read hides that the client has left
		go whenGone(ctx, conn, cancel)
	}
	var err error
	transport := foreign{Transport: b.boardTransport(node), judge: fromBoard, hangUp: cancel, patient: r.route.long == "log" && follows(r)}
	if limit, err := queryInt(query, "limitBytes"); err == nil && limit != nil {
		transport.most = *limit
	}
	proxy := httputil.ReverseProxy{Transport: transport, FlushInterval: -1,
		Rewrite: func(to *httputil.ProxyRequest) {
			to.Out.URL = &url.URL{Scheme: "http", Host: "board", Path: path, RawQuery: query.Encode()}
			to.Out.Host = ""
			maps.DeleteFunc(to.Out.Header, func(name string, _ []string) bool { return !slices.Contains(askedHeaders, name) })
		},
		ModifyResponse: func(a *http.Response) error {
			w.begun = w.begun || a.StatusCode == http.StatusSwitchingProtocols
			return nil
		},
		ErrorLog:     log.New(io.Discard, "", 0), // what goes wrong is answered, or cuts the connection
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, e error) { err = e }}
	proxy.ServeHTTP(flushing{w}, r.WithContext(ctx))
	if w.begun {
		return nil // there is nobody left to tell
	}
	return boardError(node, err)
}

// askedHeaders are those of a request that a board needs. Who asks, and from where, was judged here.
var askedHeaders = []string{"Accept", "Connection", "Upgrade", headerProtocol, "Sec-Websocket-Key", "Sec-Websocket-Protocol",
	"Sec-Websocket-Version"}

// boardTransport makes connections that serve one request.
func (b *otherBoards) boardTransport(node string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return b.dialBoard(ctx, node) },
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: boardTime, MaxResponseHeaderBytes: maxForeignHeader}
}

// boardError is a board's silence in words for who asked.
func boardError(node string, err error) error {
	var said apierrors.APIStatus
	var why refused
	switch {
	case err == nil, errors.As(err, &said):
		return err
	case errors.As(err, &why):
		return status(http.StatusBadGateway, "BadGateway", fmt.Sprintf("board %s %v", node, why))
	}
	return status(http.StatusServiceUnavailable, "ServiceUnavailable", shortText(fmt.Sprintf("board %s does not answer: %v", node, err)))
}

// boardPages are what a board shows through nodes/NAME/proxy: nothing that acts.
var boardPages = []string{"/configz", "/metrics", "/metrics/cadvisor", "/metrics/probes", "/metrics/resource", "/stats/summary", "/healthz"}

// dialPodOf connects to the address of a pod: by its board if that is another one, for its pods may have addresses that mean
// nothing here.
func (b *otherBoards) dialPodOf(pod *corev1.Pod) func(ctx context.Context, network, address string) (net.Conn, error) {
	if !b.elsewhere(pod) {
		return b.dialPod
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		node := pod.Spec.NodeName
		conn, err := b.dialBoard(ctx, node)
		if err != nil {
			return nil, err
		}
		up, err := Upgrade(ctx, conn, "/"+podAddressPath+"/"+pod.Namespace+"/"+pod.Name+"/"+port)
		if apierrors.IsNotFound(err) { // a kubelet: its pods are reached as everywhere
			return b.dialPod(ctx, network, address)
		}
		return up, err
	}
}
