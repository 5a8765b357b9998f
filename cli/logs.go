package cli

import (
	"context"
	"fmt"
	"io"
	"time"

	"ledge/api"
	"ledge/config"
)

type logsOpts struct {
	namespace, container         string
	follow, previous, timestamps bool
	tail, limit                  int64
	since                        time.Duration
}

func logsFlags(c *Command) {
	o := &logsOpts{}
	namespaceFlag(c, &o.namespace)
	c.Flags.StringVar(&o.container, "c", "", "container")
	c.Flags.BoolVar(&o.follow, "f", false, "go on until the container ends")
	c.Flags.BoolVar(&o.previous, "p", false, "of the instance before this one")
	c.Flags.BoolVar(&o.previous, "previous", false, "the same")
	c.Flags.BoolVar(&o.timestamps, "timestamps", false, "with the time of each line")
	c.Flags.Int64Var(&o.tail, "tail", -1, "only so many lines from the end")
	c.Flags.Int64Var(&o.limit, "limit-bytes", 0, "at most so many bytes")
	c.Flags.DurationVar(&o.since, "since", 0, "only what is newer, such as 5m")
	c.Opts = o
}

func logs(ctx context.Context, c *Command) error {
	o := c.Opts.(*logsOpts)
	if len(c.args) != 1 {
		return config.Usagef("logs: name one pod")
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	opts := api.LogOptions{Container: o.container, Follow: o.follow, Previous: o.previous, Timestamps: o.timestamps}
	if o.tail >= 0 {
		opts.TailLines = &o.tail
	}
	if o.limit > 0 {
		opts.LimitBytes = &o.limit
	}
	if o.since > 0 {
		opts.Since = time.Now().Add(-o.since)
	}
	r, err := cl.Logs(ctx, o.namespace, c.args[0], opts)
	if err != nil {
		return err
	}
	defer r.Close()
	if _, err := io.Copy(stream(c.out), r); err != nil {
		return fmt.Errorf("read log: %w", err)
	}
	return nil
}
