package cli

import (
	"context"
	"net/url"

	"ledge/config"
)

// attach joins what a container reads and writes, until it ends, or until standard input does and the container's stays
// open. -t is for containers with a terminal.
func attach(ctx context.Context, c *Command) error {
	o := c.Opts.(*execOpts)
	if len(c.args) != 1 {
		return config.Usagef("attach: name one pod")
	}
	q := url.Values{}
	if o.container != "" {
		q.Set("container", o.container)
	}
	path := "/api/v1/namespaces/" + url.PathEscape(o.namespace) + "/pods/" + url.PathEscape(c.args[0]) + "/attach"
	return c.session(ctx, path, q, o.stdin || o.both, o.tty || o.both)
}
