package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api/board"
	"ledge/config"
	"ledge/pki"
)

const tokenUsage = "token: create [--ttl 1h] [--uses 1] [--node NAME], list, or delete ID"

type tokenOpts struct {
	ttl  time.Duration
	uses int
	node string
}

func tokenFlags(c *Command) {
	o := &tokenOpts{}
	c.Flags.DurationVar(&o.ttl, "ttl", time.Hour, "create: how long it is good for")
	c.Flags.IntVar(&o.uses, "uses", 1, "create: how many boards may join with it")
	c.Flags.StringVar(&o.node, "node", "", "create: the only board that may; empty: any")
	c.Opts = o
}

// tokenVerb makes, lists and deletes what boards join with.
func tokenVerb(ctx context.Context, c *Command) error {
	o := c.Opts.(*tokenOpts)
	switch {
	case len(c.args) == 1 && c.args[0] == "create":
		q := url.Values{"ttl": {o.ttl.String()}, "uses": {strconv.Itoa(o.uses)}, "node": {o.node}}
		return c.ask(ctx, http.MethodPost, board.TokensPath, q, c.printToken)
	case len(c.args) == 1 && c.args[0] == "list":
		return c.ask(ctx, http.MethodGet, board.TokensPath, nil, onto(c.out, printTokens))
	case len(c.args) == 2 && c.args[0] == "delete":
		return c.ask(ctx, http.MethodDelete, board.TokensPath, url.Values{"id": {c.args[1]}}, func(io.Reader) error {
			_, err := say(c.out, "token %s deleted\n", c.args[1])
			return err
		})
	}
	return config.Usagef(tokenUsage)
}

func (c *Command) printToken(r io.Reader) error {
	var t board.NewToken
	if err := json.NewDecoder(r).Decode(&t); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	if t.Local {
		fmt.Fprintln(c.Err, "note: this control plane listens on this board alone; before others join, start it with --listen 0.0.0.0:6443 (listen in the configuration)")
	}
	line := "ledge agent"
	for _, s := range t.Server {
		line += " --server " + s
	}
	_, err := say(c.out, "%s --token %s\n", line, t.Token)
	return err
}

func printTokens(out io.Writer, r io.Reader) error {
	var list []pki.TokenInfo
	if err := json.NewDecoder(r).Decode(&list); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "ID\tNODE\tUSED\tEXPIRES")
	for _, t := range list {
		when := "in " + duration.HumanDuration(time.Until(t.Expires))
		if t.Over != "" {
			when = "over"
			if !time.Now().Before(t.Expires) {
				when = "expired"
			}
		}
		row(tw, t.ID, cmp.Or(t.Node, "any"), fmt.Sprintf("%d/%d", t.Used, t.Uses), when)
	}
	return tw.Flush()
}
