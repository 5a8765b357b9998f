package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api/board"
	"ledge/node/pressure"
)

// status shows what the board is short of, how far it is from that, and what wears its disk.
func status(ctx context.Context, c *Command) error {
	safe, err := c.safeMode(ctx)
	if err != nil {
		return err
	}
	sayIfHeld(c.out, safe)
	if err := errors.Join(c.sayUpgrade(), sayKubernetes(c)); err != nil {
		return err
	}
	resp, err := c.Raw(ctx, "GET", board.StatusPath, nil, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	var r board.Status
	if err := json.NewDecoder(resp.Body).Decode(&r); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	if err := printPressure(c.out, r.Pressure, time.Now()); err != nil {
		return err
	}
	fmt.Fprintln(c.out)
	if err := printWrites(c.out, r.Writes); err != nil {
		return err
	}
	if len(r.Disks) > 0 {
		fmt.Fprintln(c.out)
		if err := printDisks(c.out, r.Disks); err != nil {
			return err
		}
	}
	if len(r.Devices) > 0 {
		fmt.Fprintln(c.out)
		if err := printDevices(c.out, r.Devices); err != nil {
			return err
		}
	}
	if len(r.Claims) == 0 {
		return nil
	}
	fmt.Fprintln(c.out)
	return printClaims(c.out, r.Claims)
}

// printClaims shows what lies on this board for longer than a pod.
func printClaims(out io.Writer, list []board.Claim) error {
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "CLAIM\tSIZE\tUSED\tFILES\tWRITTEN\tVOLUME")
	counted := false
	for _, c := range list {
		size, used, files, written := resource.NewQuantity(c.Size, resource.BinarySI).String(), "not counted", "", "not counted"
		if c.Used != nil {
			used, files = resource.NewQuantity(*c.Used>>20<<20, resource.BinarySI).String(), fmt.Sprint(c.Files)
			if c.Size > 0 {
				used += fmt.Sprintf(" (%d%%)", *c.Used*100/c.Size)
			}
		}
		if c.Written != nil {
			written, counted = megabytes(*c.Written), true
		}
		row(tw, c.Namespace+"/"+c.Name, size, used, files, written, c.Volume)
	}
	err := tw.Flush()
	if err == nil && counted {
		_, err = say(out, "written: since the boot, by the pods that had the claim, to its disk: into it or beside it\n")
	}
	return err
}

func printPressure(out io.Writer, r pressure.Report, now time.Time) error {
	for _, c := range r.Conditions {
		switch {
		case c.Status && c.Since != nil:
			say(out, "%s for %s\n", c.Type, now.Sub(*c.Since).Round(time.Second))
		case c.Status:
			say(out, "%s\n", c.Type)
		}
	}
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	fmt.Fprintln(tw, "SIGNAL\tAVAILABLE\tOF\tTHRESHOLD\tMET")
	for _, s := range r.Signals {
		available, capacity := "unknown", ""
		if s.Available != nil {
			available, capacity = amount(s.Signal, *s.Available), amount(s.Signal, *s.Capacity)
		}
		var lines, met []string
		for _, t := range s.Thresholds {
			line := "<" + amount(s.Signal, t.Below)
			if t.Soft {
				line += " for " + t.Grace
			}
			lines = append(lines, line)
			if t.Met != nil {
				met = append(met, "for "+now.Sub(*t.Met).Round(time.Second).String())
			}
		}
		row(tw, s.Signal, available, capacity, strings.Join(lines, ", "), strings.Join(met, ", "))
	}
	return tw.Flush()
}

// amount is rounded to what people compare: whole MB, or plain numbers where there are no bytes.
func amount(s pressure.Signal, n int64) string {
	if what := s.Resource(); what == pressure.Inodes || what == pressure.PIDs {
		return fmt.Sprint(n)
	}
	return resource.NewQuantity(n>>20<<20, resource.BinarySI).String()
}
