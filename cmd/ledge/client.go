package main

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
	"path/filepath"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"ledge/api/httpd"
	"ledge/api/rest"
)

// socketPath is where the node of a run directory listens for root.
func socketPath(runDir string) string { return filepath.Join(runDir, "ledge.sock") }

// client talks to the node of this run directory.
func (c *command) client() (*rest.Client, error) {
	if err := c.reachable(); err != nil {
		return nil, err
	}
	return rest.FromSocket(socketPath(c.runDir))
}

// reachable says in one line why the node cannot be talked to.
func (c *command) reachable() error {
	conn, err := net.Dial("unix", socketPath(c.runDir))
	switch {
	case err == nil:
		return conn.Close()
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("no access to %s: run this as root, or use kubectl with a kubeconfig", socketPath(c.runDir))
	}
	return fmt.Errorf("no node answers at %s: start one with 'ledge serve', or name its directory with --run-dir", socketPath(c.runDir))
}

// raw makes a request the object client has no word for: tables, images, backups.
func (c *command) raw(ctx context.Context, method, path string, query url.Values, accept string, body io.Reader) (*http.Response, error) {
	if err := c.reachable(); err != nil {
		return nil, err
	}
	hc := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", socketPath(c.runDir))
	}, DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
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
		return nil, statusError(resp)
	}
	return resp, nil
}

// statusError reads the message of a refused request.
func statusError(resp *http.Response) error {
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
