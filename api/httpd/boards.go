package httpd

import (
	"context"
	"encoding/json"
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
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"ledge/api"
	"ledge/api/websocket"
)

// elsewhere says whether a pod is on another board, which has a door.
func (h *handler) elsewhere(pod *corev1.Pod) bool {
	return h.dialBoard != nil && pod.Spec.NodeName != "" && pod.Spec.NodeName != h.node
}

// sessionElsewhere passes an exec or attach on that is in order, in a kubelet's words.
func (h *handler) sessionElsewhere(w *response, r *request, pod *corev1.Pod, o sessionOptions) error {
	if err := checkOrigin(r); err != nil {
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
	return h.handOver(w, r, pod.Spec.NodeName, strings.Join([]string{"", r.sub, pod.Namespace, pod.Name, o.container}, "/"), query)
}

// logElsewhere passes on who wants to read a log.
func (h *handler) logElsewhere(w *response, r *request, pod *corev1.Pod, container string) error {
	if err := checkOrigin(r); err != nil {
		return err
	}
	c, err := containerIn(pod, container)
	if err != nil {
		return err
	}
	query := maps.Clone(r.query)
	query.Del("container")
	return h.handOver(w, r, pod.Spec.NodeName, strings.Join([]string{"", "containerLogs", pod.Namespace, pod.Name, c.Name}, "/"), query)
}

// forwardElsewhere passes on who wants to reach a pod's ports.
func (h *handler) forwardElsewhere(w *response, r *request, pod *corev1.Pod) error {
	if err := checkOrigin(r); err != nil {
		return err
	}
	query := url.Values{}
	if ports, ok := r.query["ports"]; ok {
		query["port"] = ports
	}
	return h.handOver(w, r, pod.Spec.NodeName, strings.Join([]string{"", "portForward", pod.Namespace, pod.Name}, "/"), query)
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
func (h *handler) handOver(w *response, r *request, node, path string, query url.Values) error {
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
	defer awaitBody(w.ResponseWriter, r.Request)
	var err error
	proxy := httputil.ReverseProxy{Transport: h.boardTransport(node), FlushInterval: -1,
		Rewrite: func(to *httputil.ProxyRequest) {
			to.Out.URL = &url.URL{Scheme: "http", Host: "board", Path: path, RawQuery: query.Encode()}
			to.Out.Host = ""
			for name := range to.Out.Header { // who asks, and from where, was judged here
				if strings.HasPrefix(name, impersonatePrefix) || slices.Contains([]string{"Authorization", "Cookie", "Origin"}, name) {
					to.Out.Header.Del(name)
				}
			}
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

// boardTransport makes connections that serve one request.
func (h *handler) boardTransport(node string) *http.Transport {
	return &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return h.dialBoard(ctx, node) },
		DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: boardTime}
}

// boardTime is how long a board may take to answer at all. What is asked of it begins at once, or not.
const boardTime = 20 * time.Second

// boardError is a board's silence in words for who asked.
func boardError(node string, err error) error {
	var said apierrors.APIStatus
	if err == nil || errors.As(err, &said) {
		return err
	}
	return status(http.StatusServiceUnavailable, "ServiceUnavailable", fmt.Sprintf("board %s does not answer: %v", node, err))
}

// boardPages are what a board shows through nodes/NAME/proxy: nothing that acts.
var boardPages = []string{"/metrics", "/metrics/resource", "/stats/summary", "/healthz"}

// dialPodOf connects to the address of a pod: by its board if that is another one, for its pods may have addresses that mean
// nothing here.
func (h *handler) dialPodOf(pod *corev1.Pod) func(ctx context.Context, network, address string) (net.Conn, error) {
	if !h.elsewhere(pod) {
		return h.dialPod
	}
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		_, port, err := net.SplitHostPort(address)
		if err != nil {
			return nil, err
		}
		node := pod.Spec.NodeName
		conn, err := h.dialBoard(ctx, node)
		if err != nil {
			return nil, err
		}
		up, err := Upgrade(ctx, conn, "/"+podAddressPath+"/"+pod.Namespace+"/"+pod.Name+"/"+port)
		if apierrors.IsNotFound(err) { // a kubelet: its pods are reached as everywhere
			return h.dialPod(ctx, network, address)
		}
		return up, err
	}
}

// measuring is what the boards said when they were asked last. Many ask for tops of a fleet at once, and what a board measures
// changes every 15 seconds.
type measuring struct {
	mu   sync.Mutex
	at   time.Time
	page measuredPage
}

const (
	measuredFor = 5 * time.Second // what was heard counts
	measureTime = 3 * time.Second // for a board to answer
	measureMost = 16              // boards asked at once
	maxMeasured = 4 << 20         // bytes of an answer
)

// measuredElsewhere asks the boards that are ready what they use. One that does not answer is left out.
func (h *handler) measuredElsewhere(ctx context.Context) (measuredPage, error) {
	m := &h.measuring
	m.mu.Lock()
	defer m.mu.Unlock()
	if h.dialBoard == nil || time.Since(m.at) < measuredFor && !m.at.IsZero() {
		return m.page, nil
	}
	nodes, err := h.client.List(ctx, api.Nodes, api.ListOptions{})
	if err != nil {
		return measuredPage{}, err
	}
	pods, err := h.client.List(ctx, api.Pods, api.ListOptions{})
	if err != nil {
		return measuredPage{}, err
	}
	on := map[string]*corev1.Pod{}
	for _, o := range pods.Items {
		if p, ok := o.(*corev1.Pod); ok {
			on[p.Namespace+"/"+p.Name] = p
		}
	}
	// It is everybody's answer: it does not end with who asked first.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), measureTime)
	defer cancel()
	var mu sync.Mutex
	var all sync.WaitGroup
	var out measuredPage
	places := make(chan struct{}, measureMost)
	for _, o := range nodes.Items {
		node, ok := o.(*corev1.Node)
		if !ok || node.Name == h.node || !isReady(node) {
			continue
		}
		all.Go(func() {
			places <- struct{}{}
			defer func() { <-places }()
			page, err := h.measuredOn(ctx, node.Name)
			if err != nil {
				return
			}
			mu.Lock()
			defer mu.Unlock()
			out.add(page, node, on)
		})
	}
	all.Wait()
	m.at, m.page = time.Now(), out
	return out, nil
}

// add takes what a board says of itself and of its own pods, and nothing else. Labels are the API's.
func (p *measuredPage) add(said measuredPage, node *corev1.Node, pods map[string]*corev1.Pod) {
	for _, m := range said.Nodes {
		if m != nil && m.Name == node.Name {
			m.Labels = maps.Clone(node.Labels)
			p.Nodes = append(p.Nodes, m)
		}
	}
	for _, m := range said.Pods {
		if m == nil {
			continue
		}
		if pod := pods[m.Namespace+"/"+m.Name]; pod != nil && pod.Spec.NodeName == node.Name {
			m.Labels = maps.Clone(pod.Labels)
			p.Pods = append(p.Pods, m)
		}
	}
}

func isReady(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue
	})
}

func (h *handler) measuredOn(ctx context.Context, node string) (page measuredPage, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://board"+measuredPath, nil)
	if err != nil {
		return page, err
	}
	resp, err := h.boardTransport(node).RoundTrip(req)
	if err != nil {
		return page, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return page, errors.New(resp.Status)
	}
	err = json.NewDecoder(io.LimitReader(resp.Body, maxMeasured)).Decode(&page)
	return page, err
}
