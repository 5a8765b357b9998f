package cli

import (
	"context"
	"io"
	"net/http"
	"net/url"

	"ledge/api/rest"
	"ledge/brain/place"
)

// Client talks to the node of this run directory.
func (c *Command) Client() (*rest.Client, error) {
	if err := c.reachable(); err != nil {
		return nil, err
	}
	return rest.FromSocket(place.Socket(c.RunDir))
}

func (c *Command) reachable() error { return place.Reachable(c.RunDir) }

// Raw makes a request the object client has no word for.
func (c *Command) Raw(ctx context.Context, method, path string, query url.Values, accept string, body io.Reader) (*http.Response, error) {
	return place.Ask(ctx, c.RunDir, method, path, query, accept, body)
}
