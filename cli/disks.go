package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"text/tabwriter"

	"ledge/api/board"
	"ledge/host"
)

// printDisks shows which disks beside the card hold claims.
func printDisks(out io.Writer, list []board.Disk) error {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "DISK\tLABEL\tDEVICE")
	for _, d := range list {
		device := d.Device
		if d.Trouble != "" {
			device = "not there: " + d.Trouble
		}
		row(tw, d.Name, d.Label, device)
	}
	return tw.Flush()
}

// diskProbes names the disks for claims that are not there, or hold none to its size; nothing where no node runs.
func diskProbes(ctx context.Context, c *Command) []host.Probe {
	list, err := c.disks(ctx)
	if err != nil {
		return nil // foundProbe has said it
	}
	return judgeDisks(list)
}

// disks are those that hold claims beside the card; none where no node runs.
func (c *Command) disks(ctx context.Context) ([]board.Disk, error) {
	if c.reachable() != nil {
		return nil, nil
	}
	var s board.Status
	resp, err := c.Raw(ctx, http.MethodGet, board.StatusPath, nil, "", nil)
	if err == nil {
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&s), resp.Body.Close())
	}
	return s.Disks, err
}

func judgeDisks(list []board.Disk) (out []host.Probe) {
	for _, d := range list {
		p := host.Probe{Name: "disk " + d.Name, Detail: fmt.Sprintf("label %s, %s", d.Label, d.Device)}
		switch {
		case d.Trouble != "":
			p.Err = fmt.Errorf("label %s: %s", d.Label, d.Trouble)
			p.Remedy = "plug it in (e2label names it), or take it out of the key disks of the configuration; pods with claims on it wait"
		case d.Unsized != "":
			p.Err = fmt.Errorf("claims on %s may outgrow their sizes: %s", d.Device, d.Unsized)
			p.Remedy = "for ext4, while it is not mounted: tune2fs -O quota,project -Q prjquota " + d.Device
		}
		out = append(out, p)
	}
	return out
}
