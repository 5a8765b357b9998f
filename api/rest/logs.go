package rest

import (
	"context"
	"io"
	"strconv"
	"time"

	"ledge/api"
)

// Logs reads a container's log.
func (c *Client) Logs(ctx context.Context, namespace, pod string, opts api.LogOptions) (io.ReadCloser, error) {
	req, err := c.object("GET", api.Pods, namespace, pod, "log")
	if err != nil {
		return nil, err
	}
	param(req, "container", opts.Container)
	for name, set := range map[string]bool{"follow": opts.Follow, "previous": opts.Previous, "timestamps": opts.Timestamps} {
		if set {
			req.Param(name, "true")
		}
	}
	for name, n := range map[string]*int64{"tailLines": opts.TailLines, "limitBytes": opts.LimitBytes} {
		if n != nil {
			req.Param(name, strconv.FormatInt(*n, 10))
		}
	}
	if !opts.Since.IsZero() {
		req.Param("sinceTime", opts.Since.UTC().Format(time.RFC3339Nano))
	}
	req.SetHeader("Accept", "application/json, */*")
	log, err := req.Stream(ctx)
	return log, asStatus(err)
}
