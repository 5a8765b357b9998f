package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api/board"
	"ledge/config"
	"ledge/shutdown"
)

// powerControl is the board as the requests about shutdowns see it.
type powerControl interface {
	shutdownReport() board.Shutdown
	ask(in time.Duration, reboot bool) error
	takeBack() error
	renew() error
	safeModeReport() board.SafeMode
	leaveSafeMode() error
}

func (b *brain) shutdownReport() board.Shutdown {
	st := b.power.Status()
	out := board.Shutdown{Running: st.Running, Stopped: st.Stopped, Source: st.Source, Due: optionalTime(b.requests.Due()),
		Until: optionalTime(st.Until), Backend: string(b.PowerBackend)}
	if out.Backend == "" {
		out.Backend = "logind, else direct"
	}
	out.Sources = b.power.Live()
	out.Lock.Error = "this node is no unit of systemd: a shutdown is noticed by SIGTERM, or asked for by 'ledge shutdown'"
	out.Lock.WantedSeconds = int64(b.File.Shutdown().Total().Seconds())
	if b.logind != nil {
		out.Lock.Unit = true
		l := b.logind.Status()
		out.Lock.Held, out.Lock.GrantedSeconds, out.Lock.Error = l.Held, int64(l.Granted.Seconds()), ""
		if l.Err != nil {
			out.Lock.Error = l.Err.Error()
		}
	}
	out.Last.Begun, out.Last.Ended = optionalTime(st.Last.Begun), optionalTime(st.Last.Ended)
	out.Plan = reportPlan(b.power.Plan())
	return out
}

func reportPlan(p shutdown.Plan) board.Plan {
	out := board.Plan{TotalSeconds: p.Total().Seconds(), WantedSeconds: p.Wanted.Seconds(), Stages: []board.Stage{}}
	for _, s := range p.Stages {
		stage := board.Stage{Priority: s.Priority, Seconds: s.Period.Seconds()}
		for _, p := range s.Pods {
			stage.Pods = append(stage.Pods, board.PodStop{Pod: p.Namespace + "/" + p.Name, Priority: p.Priority, Seconds: p.Grace.Seconds()})
		}
		out.Stages = append(out.Stages, stage)
	}
	return out
}

func optionalTime(t time.Time) *metav1.Time {
	if t.IsZero() {
		return nil
	}
	return &metav1.Time{Time: t}
}

func (b *brain) ask(in time.Duration, reboot bool) error { return b.requests.Ask(in, reboot) }

// takeBack refuses what it cannot do: a machine that is going down on another's word goes on doing so.
func (b *brain) takeBack() error {
	wanted := b.power.Status().Wanted
	others := slices.DeleteFunc(slices.Clone(wanted), func(s string) bool { return s == shutdown.RequestSource })
	switch {
	case len(others) > 0:
		return fmt.Errorf("this shutdown is wanted by %s and can only be cancelled there", strings.Join(others, ", "))
	case len(wanted) == 0 && b.requests.Due().IsZero():
		return errors.New("there is no shutdown to cancel")
	}
	return b.requests.Cancel()
}

var shutdownResource = schema.GroupResource{Group: "ledge", Resource: "shutdown"}

func (b *boardAPI) showShutdown(w http.ResponseWriter, _ *http.Request) error {
	return answer(w, b.power.shutdownReport())
}

func (b *boardAPI) askShutdown(w http.ResponseWriter, r *http.Request) error {
	q := r.URL.Query()
	in, err := time.ParseDuration(q.Get("in"))
	if err != nil || in < 0 {
		return apierrors.NewBadRequest("in: how long to wait, such as 0s or 5m")
	}
	if err := b.power.ask(in, q.Get("reboot") == "true"); err != nil {
		return apierrors.NewConflict(shutdownResource, "", err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

func (b *boardAPI) cancelShutdown(w http.ResponseWriter, _ *http.Request) error {
	if err := b.power.takeBack(); err != nil {
		return apierrors.NewConflict(shutdownResource, "", err)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

type shutdownOpts struct {
	now, cancel, plan, reboot bool
	in                        time.Duration
}

func shutdownFlags(c *command) {
	o := &shutdownOpts{}
	c.flags.BoolVar(&o.now, "now", false, "begin at once")
	c.flags.DurationVar(&o.in, "in", 0, "begin after this time")
	c.flags.BoolVar(&o.cancel, "cancel", false, "take a request back, and break off a shutdown that has begun")
	c.flags.BoolVar(&o.plan, "plan", false, "show who would stop when, and stop nothing")
	c.flags.BoolVar(&o.reboot, "reboot", false, "start the machine again afterwards")
	c.opts = o
}

func shutdownVerb(ctx context.Context, c *command) error {
	o := c.opts.(*shutdownOpts)
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
	resp, err := c.raw(ctx, method, board.ShutdownPath, query, "", nil)
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
	return printShutdown(c.out, &report, time.Now())
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

// printShutdown shows the report as a table with a bar for every pod: from when to when it may take to stop.
func printShutdown(out io.Writer, r *board.Shutdown, now time.Time) error {
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
