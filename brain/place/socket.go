package place

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/httpd"
)

// Reachable says in one line why the node cannot be talked to.
func Reachable(runDir string) error {
	conn, err := net.Dial("unix", Socket(runDir))
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("no access to %s: run this as root, or use kubectl with a kubeconfig", Socket(runDir))
	}
	return fmt.Errorf("no node answers at %s: start one with 'ledge serve', or name its directory with --run-dir", Socket(runDir))
}

// Ask makes a request of the node of this run directory that the object client has no word for: tables, images, backups.
func Ask(ctx context.Context, runDir, method, path string, query url.Values, accept string, body io.Reader) (*http.Response, error) {
	if err := Reachable(runDir); err != nil {
		return nil, err
	}
	return AskBy(ctx, func(ctx context.Context) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", Socket(runDir))
	}, method, path, query, accept, body)
}

// AskBy is Ask over whatever connects to the node.
func AskBy(ctx context.Context, dial func(context.Context) (net.Conn, error), method, path string, query url.Values, accept string,
	body io.Reader) (*http.Response, error) {
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return dial(ctx) },
		DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	u := url.URL{Scheme: "http", Host: "ledge", Path: path, RawQuery: query.Encode()}
	req, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	req.Header.Set(httpd.HeaderMeant, "yes")
	if accept != "" {
		req.Header.Set("Accept", accept)
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/octet-stream")
	}
	resp, err := hc.Do(req)
	if err != nil {
		return nil, fmt.Errorf("ask the node: %w", err)
	}
	if resp.StatusCode >= 300 {
		defer resp.Body.Close()
		return nil, StatusError(resp)
	}
	return resp, nil
}

// StatusError reads the message of a refused request.
func StatusError(resp *http.Response) error {
	data, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return fmt.Errorf("the node answered %s", resp.Status)
	}
	var st metav1.Status
	if json.Unmarshal(data, &st) == nil && st.Message != "" {
		return errors.New(st.Message)
	}
	return fmt.Errorf("the node answered %s: %s", resp.Status, data)
}
