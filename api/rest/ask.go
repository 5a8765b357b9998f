package rest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
)

// maxAnswer is what an answer to Ask may have, in bytes.
const maxAnswer = 2 << 20

// meant is the header by which a board knows that what changes something is no accident (api/httpd).
const meant = "Ledge-Meant"

// Ask sends a request about what is no kind of ledge's, at a path and its query: in as its JSON, if it is not nil, the answer into out,
// unless that is nil.
func (c *Client) Ask(ctx context.Context, verb, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout)
	defer cancel()
	var sent io.Reader
	if in != nil {
		text, err := json.Marshal(in)
		if err != nil {
			return api.NewInternal("encode %T: %v", in, err)
		}
		sent = bytes.NewReader(text)
	}
	path, query, _ := strings.Cut(path, "?")
	to := c.rest.Verb(verb).AbsPath(path).URL()
	to.RawQuery = query
	req, err := http.NewRequestWithContext(ctx, verb, to.String(), sent)
	if err != nil {
		return api.NewInternal("ask for %s: %v", path, err)
	}
	req.Header.Set("Accept", "application/json")
	if verb != http.MethodGet {
		req.Header.Set(meant, "yes")
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return asStatus(err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return asStatus(err)
	case len(data) > maxAnswer:
		return api.NewInternal("the server's answer to %s %s has more than %d bytes", verb, path, maxAnswer)
	case resp.StatusCode < 200 || resp.StatusCode > 299:
		var st metav1.Status
		if json.Unmarshal(data, &st) == nil && st.Kind == "Status" && st.Code == int32(resp.StatusCode) {
			return &apierrors.StatusError{ErrStatus: st}
		}
		return apierrors.NewGenericServerResponse(resp.StatusCode, verb, schema.GroupResource{}, "", fmt.Sprintf("%.200q", data), 0, true)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(data, out); err != nil {
		return api.NewInternal("the server's answer to %s %s cannot be read: %v", verb, path, err)
	}
	return nil
}
