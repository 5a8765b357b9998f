package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api"
	"ledge/api/board"
	"ledge/api/rbac"
	"ledge/config"
	"ledge/pki"
)

// nodeVerb lists the boards that have joined, and turns out one that was stolen.
func nodeVerb(ctx context.Context, c *command) error {
	switch {
	case len(c.args) == 1 && c.args[0] == "ls":
		return c.ask(ctx, http.MethodGet, board.BoardsPath, nil, c.printBoards)
	case len(c.args) == 2 && c.args[0] == "revoke":
		return c.ask(ctx, http.MethodDelete, board.BoardsPath, url.Values{"name": {c.args[1]}}, c.printRevoked)
	}
	return config.Usagef("node: ls, or revoke NAME; 'ledge get nodes' shows their state")
}

func (c *command) printBoards(r io.Reader) error {
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
	tw := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
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

func (c *command) printRevoked(r io.Reader) error {
	said, err := decode[board.Revoked](r)
	if err != nil {
		return err
	}
	b := said.Board
	say(c.out, "node/%s revoked\n", b.Name)
	if len(said.Secrets) > 0 {
		say(c.err, "ledge: its pods name these secrets, which lie on its card: change them: %s\n", strings.Join(said.Secrets, ", "))
	}
	if len(said.Accounts) > 0 {
		say(c.err, "ledge: its pods ran as these service accounts, which have rights: tokens made for the pods count no more, but one that may create "+
			"tokens may have made others. Delete it, and make it anew, to end those: %s\n", strings.Join(said.Accounts, ", "))
	}
	say(c.err, "ledge: its pods are lost with it. 'ledge delete node %s' gives them up, and lets another board have the name\n", b.Name)
	return nil
}

func (p *plane) listBoards(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, p.joins.Boards())
}

// revokeBoard lets a board in no more, and ends what it has open: nothing that comes after this answer is the board's.
func (p *plane) revokeBoard(w http.ResponseWriter, r *http.Request) error {
	name := r.URL.Query().Get("name")
	gone, err := p.joins.Revoke(name)
	names := p.joins.Names(name)
	for _, n := range names {
		if ever, still := p.joins.Revoked(n); ever && still { // it may be, and not be kept everywhere
			p.cut(n)
		}
	}
	if err != nil {
		return refused(err)
	}
	user, _ := api.UserFrom(r.Context())
	slog.Warn("a board is revoked", "node", name, "by", user.Name)
	p.b.events.EventOn(corev1.ObjectReference{Kind: api.Nodes.Name, APIVersion: api.Nodes.APIVersion(), Name: name, UID: types.UID(name)},
		corev1.EventTypeWarning, "Revoked", "The key of this board was revoked: it is let in no more, and its pods are lost")
	said := board.Revoked{Board: gone}
	if said.Secrets, said.Accounts, err = p.exposedOn(r.Context(), names); err != nil {
		return fmt.Errorf("%s is revoked, but what its pods name cannot be said: %w", name, err)
	}
	return answer(w, said)
}

// exposedOn is what the pods of a board name, which it may have read, and the service accounts with rights that they run as.
func (p *plane) exposedOn(ctx context.Context, nodes []string) (secrets, accounts []string, err error) {
	var bindings []api.Object
	for _, kind := range []*api.Kind{rbac.ClusterRoleBindings, rbac.RoleBindings} {
		list, err := p.client.List(ctx, kind, api.ListOptions{})
		if err != nil {
			return nil, nil, err
		}
		bindings = append(bindings, list.Items...)
	}
	for _, node := range nodes {
		list, err := p.client.List(ctx, api.Pods, api.ListOptions{Selection: api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName", node)}})
		if err != nil {
			return nil, nil, err
		}
		for _, o := range list.Items {
			pod := o.(*corev1.Pod)
			_, names := api.References(pod)
			for _, s := range names {
				secrets = append(secrets, pod.Namespace+"/"+s)
			}
			if account := pod.Spec.ServiceAccountName; account != "" && len(rbac.GrantsOf(api.AccountUser(pod.Namespace, account), bindings)) > 0 {
				accounts = append(accounts, pod.Namespace+"/"+account)
			}
		}
	}
	slices.Sort(secrets)
	slices.Sort(accounts)
	return slices.Compact(secrets), slices.Compact(accounts), nil
}

// cut ends all that a board has open, and all that is open to it.
func (p *plane) cut(node string) {
	if p.door != nil {
		p.door.CloseBoard(node)
	}
	p.boards.end(func(name string) bool { return name == node })
	p.boards.mu.Lock()
	defer p.boards.mu.Unlock()
	p.boards.hangUp(node)
}
