package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"

	"ledge/api/board"
	"ledge/host"
)

func (c *Command) safeMode(ctx context.Context) (r board.SafeMode, err error) {
	resp, err := c.Raw(ctx, http.MethodGet, board.SafeModePath, nil, "", nil)
	if err != nil {
		return r, err
	}
	defer resp.Body.Close()
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return r, fmt.Errorf("read the node's answer: %w", err)
	}
	return r, nil
}

// resume is the verb.
func resume(ctx context.Context, c *Command) error {
	r, err := c.safeMode(ctx)
	if err != nil {
		return err
	}
	if r.Why == "" && r.Authority == "" {
		_, err := fmt.Fprintln(c.out, "The node is not in safe mode.")
		return err
	}
	resp, err := c.Raw(ctx, http.MethodDelete, board.SafeModePath, nil, "", nil)
	if err != nil {
		return err
	}
	return resp.Body.Close()
}

// sayIfHeld is the first line of status.
func sayIfHeld(out io.Writer, r board.SafeMode) {
	for _, why := range []string{r.Why, r.Authority} {
		if why != "" {
			say(out, "%s\n", why)
		}
	}
}

// safeModeProbe is doctor's; there is nothing to say of a node that is not in safe mode.
func (c *Command) safeModeProbe(ctx context.Context) []host.Probe {
	if c.reachable() != nil {
		return nil
	}
	r, err := c.safeMode(ctx)
	if err != nil {
		return nil // that the node does not answer is said elsewhere
	}
	var out []host.Probe
	if r.Why != "" {
		out = append(out, host.Probe{Name: "safe mode", Err: errors.New(r.Why),
			Remedy: "look at the node's log for what it died of, delete the pod if it was one, then 'ledge resume'"})
	}
	if r.Authority != "" {
		out = append(out, host.Probe{Name: "certificate authority", Err: errors.New(r.Authority), Remedy: "as it says"})
	}
	return out
}
