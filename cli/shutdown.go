package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/url"
	"strings"
	"text/tabwriter"
	"time"

	"ledge/api/board"
	"ledge/config"
)

type shutdownOpts struct {
	now, cancel, plan, reboot bool
	in                        time.Duration
}

func shutdownFlags(c *Command) {
	o := &shutdownOpts{}
	c.Flags.BoolVar(&o.now, "now", false, "begin at once")
	c.Flags.DurationVar(&o.in, "in", 0, "begin after this time")
	c.Flags.BoolVar(&o.cancel, "cancel", false, "take a request back, and break off a shutdown that has begun")
	c.Flags.BoolVar(&o.plan, "plan", false, "show who would stop when, and stop nothing")
	c.Flags.BoolVar(&o.reboot, "reboot", false, "start the machine again afterwards")
	c.Opts = o
}

func shutdownVerb(ctx context.Context, c *Command) error {
	o := c.Opts.(*shutdownOpts)
	asked := 0
	for _, yes := range []bool{o.now, o.in > 0, o.cancel, o.plan} {
		if yes {
			asked++
		}
	}
	if asked != 1 || len(c.args) > 0 || o.in < 0 || o.reboot && (o.cancel || o.plan) {
		return config.Usagef("shutdown: say one of --now, --in 5m (both with --reboot or not), --cancel, --plan")
	}
	method, query := "POST", url.Values{"in": {o.in.String()}, "reboot": {fmt.Sprint(o.reboot)}}
	switch {
	case o.plan:
		method, query = "GET", nil
	case o.cancel:
		method, query = "DELETE", nil
	}
	resp, err := c.Raw(ctx, method, board.ShutdownPath, query, "", nil)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if said := o.answer(); said != "" {
		_, err := say(c.out, "%s\n", said)
		return err
	}
	var report board.Shutdown
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
		return fmt.Errorf("read the node's answer: %w", err)
	}
	return PrintShutdown(c.out, &report, time.Now())
}

// answer is what a request that was taken is told; nothing for --plan.
func (o *shutdownOpts) answer() string {
	switch what := "switched off"; {
	case o.plan:
		return ""
	case o.cancel:
		return "the shutdown is taken back"
	default:
		if o.reboot {
			what = "started again"
		}
		if o.in > 0 {
			return fmt.Sprintf("in %s the pods are stopped and the board is %s; 'ledge shutdown --cancel' takes that back", o.in, what)
		}
		return fmt.Sprintf("the pods are stopped, then the board is %s; 'ledge shutdown --plan' shows how far it is", what)
	}
}

// PrintShutdown shows the report as a table with a bar for every pod: from when to when it may take to stop.
func PrintShutdown(out io.Writer, r *board.Shutdown, now time.Time) error {
	switch {
	case r.Running:
		say(out, "A shutdown is running (%s). What is left of it:\n", r.Source)
	case r.Stopped:
		say(out, "The pods have been stopped (%s).\n", r.Source)
	case r.Due != nil:
		say(out, "A shutdown is asked for and begins in %s.\n", r.Due.Sub(now).Round(time.Second))
	}
	total := r.Plan.TotalSeconds
	tw := tabwriter.NewWriter(out, 0, 8, 3, ' ', 0)
	say(tw, "STAGE\tPOD\tPRIORITY\tFROM\tAT MOST\t0s%s\n", rightAlign(seconds(total), chartWidth-2))
	from := 0.0
	for i, s := range r.Plan.Stages {
		for _, p := range s.Pods {
			row(tw, i+1, p.Pod, p.Priority, seconds(from), seconds(p.Seconds), bar(from, p.Seconds, s.Seconds, total))
		}
		from += s.Seconds
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	if len(r.Plan.Stages) == 0 {
		fmt.Fprintln(out, "No pod runs here.")
	}
	if r.Plan.WantedSeconds > total {
		say(out, "There is less time than the configuration wants (%s): the lowest priorities are cut.\n", seconds(r.Plan.WantedSeconds))
	}
	switch {
	case r.Lock.Held && r.Lock.GrantedSeconds >= r.Lock.WantedSeconds:
		say(out, "logind holds up a shutdown for %ds.\n", r.Lock.GrantedSeconds)
	case r.Lock.Held:
		say(out, "logind holds up a shutdown for %ds only, %ds are wanted: look for InhibitDelayMaxSec in /etc/systemd/logind.conf.d.\n",
			r.Lock.GrantedSeconds, r.Lock.WantedSeconds)
	default:
		say(out, "logind does not hold up a shutdown: %s\n", r.Lock.Error)
	}
	if len(r.Sources) > 0 {
		say(out, "Shutdowns are heard of from: %s.\n", strings.Join(r.Sources, ", "))
	}
	return nil
}

const chartWidth = 40

// bar is where a pod's time lies in the whole: '#' what it may take itself, '.' the rest of its stage.
func bar(from, takes, stage, total float64) string {
	if total == 0 {
		return ""
	}
	col := func(at float64) int { return int(at / total * chartWidth) }
	own := max(col(from+takes)-col(from), 1)
	rest := max(col(from+stage)-col(from)-own, 0)
	return strings.Repeat(" ", min(col(from), chartWidth-1)) + strings.Repeat("#", own) + strings.Repeat(".", rest)
}

func seconds(s float64) string {
	return time.Duration(s * float64(time.Second)).Round(100 * time.Millisecond).String()
}

func rightAlign(s string, width int) string {
	return strings.Repeat(" ", max(width-len(s), 1)) + s
}
