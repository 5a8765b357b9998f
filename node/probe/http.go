package probe

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// transport asks containers. Nothing is kept open between two probes, and a proxy of the board's environment is not for
// its own pods. What a pod answers is not to be trusted any more with a certificate: none is verified (N-7.33).
var transport = &http.Transport{
	TLSClientConfig:        &tls.Config{InsecureSkipVerify: true}, // probes name pods by address
	DisableKeepAlives:      true,
	DisableCompression:     true,
	MaxResponseHeaderBytes: 64 << 10,
}

func (p *Prober) httpGet(ctx context.Context, h *corev1.HTTPGetAction, c *corev1.Container, ip string) Outcome {
	req, err := httpRequest(ctx, h, c, ip, "kube-probe/"+p.version)
	if err != nil {
		return Outcome{Err: err}
	}
	resp, err := (&http.Client{Transport: transport, CheckRedirect: stayHere}).Do(req)
	if err != nil {
		return failed("%v", err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, most))
	if err != nil {
		return failed("%v", err)
	}
	text := strings.ToValidUTF8(string(body), "�")
	switch {
	case resp.StatusCode < 200 || resp.StatusCode >= 400:
		return failed("HTTP probe failed with statuscode: %d", resp.StatusCode)
	case resp.StatusCode >= 300: // to another host
		return Outcome{Result: Success, Warning: true, Output: "Probe terminated redirects, Response body: " + text}
	}
	return Outcome{Result: Success, Output: text}
}

// stayHere follows redirects within the host that was asked. One that leads elsewhere ends there and is a success:
// the board must not be had to ask others.
func stayHere(req *http.Request, via []*http.Request) error {
	if req.URL.Hostname() != via[0].URL.Hostname() {
		return http.ErrUseLastResponse
	}
	if len(via) >= 10 {
		return errors.New("stopped after 10 redirects")
	}
	return nil
}

func httpRequest(ctx context.Context, h *corev1.HTTPGetAction, c *corev1.Container, ip, agent string) (*http.Request, error) {
	port, err := portOf(h.Port, c)
	if err != nil {
		return nil, err
	}
	u, err := url.Parse(h.Path)
	if err != nil { // then as it stands, as Kubernetes does
		u = &url.URL{Path: h.Path}
	}
	u.Scheme = strings.ToLower(first(string(h.Scheme), "http"))
	u.Host = net.JoinHostPort(first(h.Host, ip), strconv.Itoa(port))
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("make the request of a probe: %w", err)
	}
	for _, kv := range h.HTTPHeaders {
		req.Header.Add(kv.Name, kv.Value)
	}
	if host := req.Header.Get("Host"); host != "" {
		req.Host = host
	}
	// A header given as empty is not sent; Go leaves out a User-Agent that is.
	for name, value := range map[string]string{"User-Agent": agent, "Accept": "*/*"} {
		given, ok := req.Header[name]
		switch {
		case !ok:
			req.Header.Set(name, value)
		case given[0] == "" && name == "Accept":
			req.Header.Del(name)
		}
	}
	return req, nil
}
