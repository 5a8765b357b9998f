package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"ledge/config"
	"ledge/host"
	"ledge/network/mdns"
)

type findOptions struct {
	format  string
	timeout time.Duration
}

func findFlags(c *Command) {
	o := &findOptions{}
	c.Flags.StringVar(&o.format, "o", "", "json")
	c.Flags.DurationVar(&o.timeout, "timeout", 2*time.Second, "how long to listen")
	c.Opts = o
}

// find lists the boards on the networks of this machine. It needs no node and no rights.
func find(ctx context.Context, c *Command) error {
	o := c.Opts.(*findOptions)
	if o.format != "" && o.format != "json" {
		return config.Usagef("find: -o %s is not a format; there is json", o.format)
	}
	if o.timeout <= 0 || o.timeout > time.Minute {
		return config.Usagef("find: --timeout %s: say up to 1m", o.timeout)
	}
	ifaces, err := host.Outside(host.New(host.Config{}))
	if err != nil {
		return fmt.Errorf("look for this machine's networks: %w", err)
	}
	var links []mdns.Link
	for _, i := range ifaces {
		links = append(links, mdns.Link{Index: i.Index, Addresses: i.Addresses})
	}
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	boards, err := mdns.Find(ctx, links)
	if err != nil {
		return err
	}
	if o.format == "json" {
		enc := json.NewEncoder(c.out)
		enc.SetIndent("", "  ")
		return enc.Encode(append([]mdns.Board{}, boards...))
	}
	if len(boards) == 0 {
		fmt.Fprintln(c.Err, "ledge: no board answers on this machine's networks; boards do with 'mdns: true' in their configuration, unless a firewall keeps UDP port 5353 or the answers from here")
		return nil
	}
	tw := tabwriter.NewWriter(c.out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "NAME\tADDRESSES\tVERSION\tSTATE\tAPI")
	for _, b := range boards {
		var at []string
		for _, a := range b.Addresses {
			at = append(at, a.String())
		}
		door := "<none>"
		if b.Port > 0 {
			door = fmt.Sprintf("https://%s:%d", b.Name, b.Port)
		}
		row(tw, b.Name, strings.Join(at, ","), b.Version, b.State, door)
	}
	return tw.Flush()
}
