package cli

import (
	"cmp"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"ledge/api/board"
	"ledge/node/devices"
)

// printDevices shows which devices pods may have, and which pods have them.
func printDevices(out io.Writer, list []board.Device) error {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "DEVICE\tRESOURCE\tSHARE\tPODS\tID")
	for _, d := range list {
		row(tw, d.Path, devices.Domain+d.Class, fmt.Sprint(d.Share), cmp.Or(strings.Join(d.Pods, ","), "<none>"), d.ID)
	}
	return tw.Flush()
}
