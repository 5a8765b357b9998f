package httpd

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/api/websocket"
)

// proxy hands a request on to a port of a pod, or of one of the pods behind a service:
// /api/v1/namespaces/x/pods/web:8080/proxy/any/thing. What the pod answers goes back as it is, but for redirects to itself and links
// of its pages.
func (p *podStreams) proxy(w *response, r *request) error {
	scheme, name, port, err := splitProxyName(r.name)
	if err != nil {
		return err
	}
	if r.rest == "" && (r.Method == http.MethodGet || r.Method == http.MethodHead) {
		// Links in a page are relative to its directory: the pod's root is one.
		to := r.URL.EscapedPath() + "/"
		if r.URL.RawQuery != "" {
			to += "?" + r.URL.RawQuery
		}
		w.Header().Set("Location", to)
		w.WriteHeader(http.StatusMovedPermanently)
		return nil
	}
	if websocket.Wanted(r.Request) {
		if err := websocket.Check(r.Request); err != nil {
			return badRequest("%v", err)
		}
	}
	if r.kind == api.Services {
		if name, port, err = behind(r.Context(), p.client, r.namespace, name, port); err != nil {
			return err
		}
	}
	pod, err := api.Get[*corev1.Pod](r.Context(), p.client, api.Pods, r.namespace, name)
	if err != nil {
		return err
	}
	host, err := proxyHost(pod, scheme, port)
	if err != nil {
		return err
	}
	ctx, cancel := untilStopping(r.Context())
	defer cancel()
	// A body may take its time: what it holds is one of its caller's few sessions, and nothing else.
	http.NewResponseController(w.ResponseWriter).SetReadDeadline(time.Time{})
	defer awaitBody(w.ResponseWriter, r.Request) // the rest that nobody reads
	to := podRequest{scheme: scheme, host: host, rest: r.rest, from: r.Request}
	to.prefix = strings.TrimSuffix(r.URL.EscapedPath(), r.rest)
	proxy := httputil.ReverseProxy{Rewrite: to.rewrite,
		Transport:    foreign{Transport: podTransport(p.boards.dialPodOf(pod)), judge: to.answered},
		ErrorLog:     log.New(io.Discard, "", 0), // what goes wrong is answered, or cuts the connection
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, e error) { err = e }}
	proxy.ServeHTTP(flushing{w}, r.WithContext(ctx))
	var why refused
	switch {
	case errors.As(err, &why):
		return status(http.StatusBadGateway, "BadGateway", fmt.Sprintf("pod %q at %s %v", name, host, why))
	case err != nil:
		return status(http.StatusServiceUnavailable, "ServiceUnavailable",
			shortText(fmt.Sprintf("error trying to reach pod %q at %s: %v", name, host, err)))
	}
	return nil
}

// splitProxyName reads what stands in the place of a pod's name: web, web:8080 or https:web:8443.
func splitProxyName(s string) (scheme, name, port string, err error) {
	parts := strings.Split(s, ":")
	switch len(parts) {
	case 1:
		return "http", parts[0], "", nil
	case 2:
		return "http", parts[0], parts[1], nil
	case 3:
		if scheme = parts[0]; scheme == "" {
			scheme = "http"
		}
		if scheme == "http" || scheme == "https" {
			return scheme, parts[1], parts[2], nil
		}
	}
	return "", "", "", badRequest("invalid request %q: it is NAME, NAME:PORT or SCHEME:NAME:PORT, with the scheme http or https", s)
}

// proxyHost is the address of a port of a pod: by number, by name, or the first one that the pod declares.
func proxyHost(pod *corev1.Pod, scheme, port string) (string, error) {
	var declared []corev1.ContainerPort
	for _, c := range pod.Spec.Containers {
		declared = append(declared, c.Ports...)
	}
	if port == "" && len(declared) > 0 {
		port = strconv.Itoa(int(declared[0].ContainerPort))
	}
	if i := slices.IndexFunc(declared, func(p corev1.ContainerPort) bool { return p.Name == port }); port != "" && i >= 0 {
		port = strconv.Itoa(int(declared[i].ContainerPort))
	}
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[scheme]
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return "", badRequest("pod %q has no port %q", pod.Name, port)
	}
	addr, err := netip.ParseAddr(pod.Status.PodIP)
	switch {
	case pod.Status.PodIP == "":
		return "", status(http.StatusServiceUnavailable, "ServiceUnavailable",
			fmt.Sprintf("pod %q has no address: its phase is %s", pod.Name, pod.Status.Phase))
	case err != nil || addr.IsLoopback() || addr.IsUnspecified() || addr.IsMulticast() || addr.IsLinkLocalUnicast():
		// The address is what a node says of its pod: it must not lead to the server itself.
		return "", badRequest("address not allowed: %s", pod.Status.PodIP)
	}
	return net.JoinHostPort(addr.String(), port), nil
}

// podTransport makes connections that serve one request. A pod's certificate names nobody that could be checked.
func podTransport(dial func(ctx context.Context, network, address string) (net.Conn, error)) *http.Transport {
	return &http.Transport{DialContext: dial, DisableKeepAlives: true, DisableCompression: true, ResponseHeaderTimeout: podTime,
		MaxResponseHeaderBytes: maxForeignHeader, TLSHandshakeTimeout: boardTime, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
}

// podRequest is a request on its way to a pod.
type podRequest struct {
	scheme, host string
	rest         string // the path that the pod sees, as it was escaped
	prefix       string // what stands before it on this server
	from         *http.Request
}

func (p *podRequest) rewrite(to *httputil.ProxyRequest) {
	to.SetXForwarded()
	to.Out.Header.Set("X-Forwarded-Uri", p.from.URL.EscapedPath())
	for name := range to.Out.Header { // what is for this server would be the pod's to use
		if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, impersonatePrefix) {
			to.Out.Header.Del(name)
		}
	}
	to.Out.Host = ""
	u := to.Out.URL
	u.Scheme, u.Host = p.scheme, p.host
	u.Path, u.RawPath = p.path()
}

// path is the path that the pod sees, decoded and as it was escaped.
func (p *podRequest) path() (path, raw string) {
	if p.rest == "" {
		return "/", ""
	}
	path, _ = url.PathUnescape(p.rest) // find has done it before
	return path, p.rest
}

// answered judges the answer of the pod. What it says of its own pages stays; a redirect leads back through this server.
func (p *podRequest) answered(a *http.Response) error {
	if err := expected(a); err != nil || a.StatusCode == http.StatusSwitchingProtocols {
		return err
	}
	location, code := a.Header.Get("Location"), a.StatusCode
	to, ok := p.within(location)
	switch {
	case code < 300 || code > 399 || code == http.StatusNotModified:
	case !slices.Contains([]int{301, 302, 303, 307, 308}, code):
		return refusedCode(code)
	case !ok:
		return refused(fmt.Sprintf("answered with a redirect to %q, which is not a page of that pod", shortText(location)))
	}
	head := pick(a.Header, podHeaders)
	for name, values := range a.Header { // of its own making
		// orders to an nginx before us
		if strings.HasPrefix(name, "X-") && !strings.HasPrefix(name, "X-Accel-") && !strings.HasPrefix(name, "X-Sendfile") {
			head[name] = values
		}
	}
	if head.Del("Location"); ok {
		head.Set("Location", to)
	}
	confine(head, sandboxScripts)
	a.Header = head
	return p.relink(a)
}

// within is where a Location of the pod leads on this server, if that is a page of the pod.
func (p *podRequest) within(location string) (string, bool) {
	u, err := url.Parse(location)
	if err != nil || location == "" {
		return "", false
	}
	here := &url.URL{Scheme: p.scheme, Host: p.host}
	here.Path, here.RawPath = p.path()
	u = here.ResolveReference(u)
	if u.Scheme != "http" && u.Scheme != "https" || u.Opaque != "" || u.User != nil || withPort(u) != p.host && u.Host != p.from.Host {
		return "", false
	}
	path := u.EscapedPath()
	if rest, ok := strings.CutPrefix(path, p.prefix+"/"); ok {
		path = "/" + rest
	}
	if !strings.HasPrefix(path, "/") || leadsUp(path) {
		return "", false
	}
	to := p.prefix + path
	if u.RawQuery != "" {
		to += "?" + u.RawQuery
	}
	if f := u.EscapedFragment(); f != "" {
		to += "#" + f
	}
	return to, true
}

// withPort is the host of a URL with its port.
func withPort(u *url.URL) string {
	port := u.Port()
	if port == "" {
		port = map[string]string{"http": "80", "https": "443"}[u.Scheme]
	}
	return net.JoinHostPort(u.Hostname(), port)
}

// flushing sends every piece at once, and gives each its own time.
type flushing struct{ *response }

func (f flushing) Write(p []byte) (int, error) {
	f.extend()
	n, err := f.response.Write(p)
	if err == nil {
		err = f.flush()
	}
	return n, err
}

// cutProxy takes what a pod is asked for off a path, so that it is not read as one of ours. It must lead nowhere but
// down, for those in between who clean paths.
func cutProxy(path string) (ours, rest string, ok bool) {
	parts := strings.SplitN(strings.TrimPrefix(path, "/"), "/", 8) // api v1 namespaces X pods Y proxy REST
	if len(parts) < 8 || parts[0] != "api" || parts[2] != "namespaces" || parts[4] != "pods" && parts[4] != "services" || parts[6] != "proxy" {
		return path, "", true
	}
	rest = "/" + parts[7]
	return strings.TrimSuffix(path, rest), rest, !leadsUp(rest)
}

// leadsUp says whether a path has dots that lead up, or would for those who clean paths.
func leadsUp(path string) bool {
	decoded, err := url.PathUnescape(path)
	return err != nil || slices.ContainsFunc(strings.FieldsFunc(decoded, func(c rune) bool { return c == '/' || c == '\\' }),
		func(s string) bool { return s == "." || s == ".." })
}
