package cli

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api/board"
	"ledge/config"
	"ledge/pki"
)

// nodeVerb lists the boards that have joined, and turns out one that was stolen.
func nodeVerb(ctx context.Context, c *Command) error {
	switch {
	case len(c.args) == 1 && c.args[0] == "ls":
		return c.ask(ctx, http.MethodGet, board.BoardsPath, nil, onto(c.out, printBoards))
	case len(c.args) == 2 && c.args[0] == "revoke":
		return c.ask(ctx, http.MethodDelete, board.BoardsPath, url.Values{"name": {c.args[1]}}, c.printRevoked)
	}
	return config.Usagef("node: ls, or revoke NAME; 'ledge get nodes' shows their state")
}

func printBoards(out io.Writer, r io.Reader) error {
	list, err := decode[[]pki.BoardInfo](r)
	if err != nil {
		return err
	}
	ago := func(t time.Time) string {
		if t.IsZero() {
			return "<unknown>"
		}
		return duration.HumanDuration(time.Since(t))
	}
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "NAME\tSTATUS\tJOINED\tCERTIFICATE UNTIL")
	for _, b := range list {
		status, until := "Joined", "<none>"
		if !b.Revoked.IsZero() {
			status = "Revoked " + ago(b.Revoked) + " ago"
		} else {
			until = b.Until.UTC().Format(time.DateOnly)
		}
		row(tw, b.Name, status, ago(b.Since), until)
	}
	return tw.Flush()
}

func (c *Command) printRevoked(r io.Reader) error {
	said, err := decode[board.Revoked](r)
	if err != nil {
		return err
	}
	b := said.Board
	say(c.out, "node/%s revoked\n", b.Name)
	if len(said.Secrets) > 0 {
		say(c.Err, "ledge: its pods name these secrets, or take requests in with their certificates, so it has them: change them: %s\n", strings.Join(said.Secrets, ", "))
	}
	if len(said.Accounts) > 0 {
		say(c.Err, "ledge: its pods ran as these service accounts, which have rights: tokens made for the pods count no more, but one that may create "+
			"tokens may have made others. Delete it, and make it anew, to end those: %s\n", strings.Join(said.Accounts, ", "))
	}
	say(c.Err, "ledge: its pods are lost with it. 'ledge delete node %s' gives them up, and lets another board have the name\n", b.Name)
	return nil
}
