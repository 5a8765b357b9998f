package cli

import (
	"context"
	"net/url"

	"ledge/config"
)

type execOpts struct {
	namespace, container string
	stdin, tty, both     bool
}

func execFlags(c *Command) {
	o := &execOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.StringVar(&o.container, "c", "", "container")
	c.Flags.BoolVar(&o.stdin, "i", false, "hand on standard input")
	c.Flags.BoolVar(&o.tty, "t", false, "with a terminal")
	c.Flags.BoolVar(&o.both, "it", false, "both")
	c.Opts = o
}

// execVerb runs a command in a container; its exit code is the command's.
func execVerb(ctx context.Context, c *Command) error {
	o := c.Opts.(*execOpts)
	if len(c.args) < 2 {
		return config.Usagef("exec: write ledge exec POD -- COMMAND ARGUMENTS")
	}
	q := url.Values{"command": c.args[1:]}
	if o.container != "" {
		q.Set("container", o.container)
	}
	path := "/api/v1/namespaces/" + url.PathEscape(o.namespace) + "/pods/" + url.PathEscape(c.args[0]) + "/exec"
	return c.session(ctx, path, q, o.stdin || o.both, o.tty || o.both)
}
