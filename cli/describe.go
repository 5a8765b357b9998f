package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api"
	"ledge/api/apps"
	"ledge/config"
)

type describeOpts struct{ namespace string }

func describeFlags(c *Command) {
	o := &describeOpts{}
	namespaceFlag(c, &o.namespace)
	c.Opts = o
}

// describe tells all about one object: what it is, how it does, and what has happened to it.
func describe(ctx context.Context, c *Command) error {
	if len(c.args) == 0 {
		return config.Usagef("describe: say what: ledge describe pod NAME")
	}
	kind, name, err := kindAndName(c.args)
	if err != nil {
		return err
	}
	if name == "" && kind != api.Nodes {
		return config.Usagef("describe: name the %s", kind.Singular)
	}
	cl, err := c.Client()
	if err != nil {
		return err
	}
	var obj api.Object
	if name == "" {
		c.args = nil
		obj, err = c.node(ctx, cl)
	} else {
		obj, err = cl.Get(ctx, kind, c.Opts.(*describeOpts).namespace, name)
	}
	if err != nil {
		return err
	}
	events, err := eventsOf(ctx, cl, obj)
	if err != nil {
		return err
	}
	p := newPage(time.Now())
	p.head(obj)
	if err := p.body(ctx, cl, kind, obj); err != nil {
		return err
	}
	p.events(events)
	_, err = c.out.Write(p.done())
	return err
}

// body is what there is to say of an object beside what all objects have.
func (p *page) body(ctx context.Context, cl api.Client, kind *api.Kind, obj api.Object) error {
	switch kind {
	case api.Pods:
		p.pod(obj.(*corev1.Pod))
	case api.Nodes:
		pods, err := cl.List(ctx, api.Pods, api.ListOptions{Selection: api.Selection{Fields: fields.OneTermEqualSelector("spec.nodeName",
			obj.GetName())}})
		if err != nil {
			return err
		}
		p.node(obj.(*corev1.Node), pods.Items)
	case api.Secrets: // what is in it is nobody's who looks over a shoulder
		s := obj.(*corev1.Secret)
		p.line("Type", "%s", s.Type)
		for _, k := range slices.Sorted(maps.Keys(s.Data)) {
			p.line(k, "%d bytes", len(s.Data[k]))
		}
	case apps.Deployments:
		return p.deployment(ctx, cl, obj.(*appsv1.Deployment))
	case apps.StatefulSets:
		return p.statefulSet(ctx, cl, obj.(*appsv1.StatefulSet))
	case apps.DaemonSets:
		return p.daemonSet(ctx, cl, obj.(*appsv1.DaemonSet))
	case apps.ReplicaSets:
		p.replicaSet(obj.(*appsv1.ReplicaSet))
	default:
		return p.rest(obj)
	}
	return nil
}

// eventsOf are the events about an object, oldest first.
func eventsOf(ctx context.Context, cl api.Client, obj api.Object) ([]*corev1.Event, error) {
	about := fields.Set{"involvedObject.name": obj.GetName(), "involvedObject.namespace": obj.GetNamespace()}
	if _, node := obj.(*corev1.Node); node {
		about = fields.Set{"involvedObject.kind": "Node", "involvedObject.name": obj.GetName()} // by name, whatever its uid was
	} else {
		about["involvedObject.uid"] = string(obj.GetUID())
	}
	list, err := cl.List(ctx, api.Events, api.ListOptions{Selection: api.Selection{Fields: about.AsSelector()}})
	if err != nil {
		return nil, fmt.Errorf("list events: %w", err)
	}
	var out []*corev1.Event
	for _, e := range list.Items {
		out = append(out, e.(*corev1.Event))
	}
	slices.SortStableFunc(out, func(a, b *corev1.Event) int { return lastSeen(a).Compare(lastSeen(b)) })
	return out, nil
}

func lastSeen(e *corev1.Event) time.Time {
	switch {
	case e.Series != nil:
		return e.Series.LastObservedTime.Time
	case !e.LastTimestamp.IsZero():
		return e.LastTimestamp.Time
	}
	return e.EventTime.Time
}

// page is what describe prints: names and values in two columns, sections below each other.
type page struct {
	text strings.Builder
	w    *tabwriter.Writer
	now  time.Time
}

func newPage(now time.Time) *page {
	p := &page{now: now}
	p.w = tabwriter.NewWriter(&p.text, 0, 8, 2, ' ', 0)
	return p
}

func (p *page) done() []byte {
	p.w.Flush() // into memory: it cannot fail
	return []byte(p.text.String())
}

// line is a name and its value. A name that begins with spaces belongs to the section above.
func (p *page) line(name, format string, args ...any) {
	if name != "" {
		name += ":"
	}
	row(p.w, name, cmp.Or(fmt.Sprintf(format, args...), "<none>"))
}

// section begins columns of their own.
func (p *page) section(name string) {
	p.w.Flush()
	fmt.Fprintln(p.w, name+":")
}

// row is a line of a section's table.
func (p *page) row(cells ...any) {
	fmt.Fprint(p.w, "  ")
	row(p.w, cells...)
}

func (p *page) ago(t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(p.now.Sub(t))
}

const longValue = 120 // characters of an annotation that are shown

// pairs are labels and the like, one on each line.
func (p *page) pairs(name string, of map[string]string) {
	if len(of) == 0 {
		p.line(name, "")
	}
	for _, k := range slices.Sorted(maps.Keys(of)) {
		v := of[k]
		if r := []rune(v); len(r) > longValue {
			v = string(r[:longValue]) + "..."
		}
		p.line(name, "%s=%s", k, v)
		name = "" // the name once
	}
}

func (p *page) head(obj api.Object) {
	p.line("Name", "%s", obj.GetName())
	if obj.GetNamespace() != "" {
		p.line("Namespace", "%s", obj.GetNamespace())
	}
	p.pairs("Labels", obj.GetLabels())
	p.pairs("Annotations", obj.GetAnnotations())
	p.line("Created", "%s ago", p.ago(obj.GetCreationTimestamp().Time))
	if t := obj.GetDeletionTimestamp(); t != nil {
		p.line("Terminating", "since %s", p.ago(t.Time))
	}
}

// rest is everything else of a kind that has no page of its own.
func (p *page) rest(obj api.Object) error {
	data, err := json.Marshal(obj)
	if err != nil {
		return err
	}
	var all map[string]any
	if err := json.Unmarshal(data, &all); err != nil {
		return err
	}
	for _, k := range []string{"apiVersion", "kind", "metadata"} {
		delete(all, k)
	}
	if len(all) == 0 {
		return nil
	}
	if data, err = visibleYAML(all); err != nil {
		return err
	}
	p.w.Flush()
	p.text.Write(data)
	return nil
}

func (p *page) events(all []*corev1.Event) {
	p.w.Flush()
	if len(all) == 0 {
		p.line("Events", "")
		return
	}
	p.section("Events")
	p.row("TYPE", "REASON", "AGE", "FROM", "MESSAGE")
	for _, e := range all {
		age, n := p.ago(lastSeen(e)), e.Count
		if e.Series != nil {
			n = e.Series.Count
		}
		if n > 1 {
			age += fmt.Sprintf(" (x%d)", n)
		}
		p.row(e.Type, e.Reason, age, cmp.Or(e.Source.Component, e.ReportingController), strings.TrimSpace(e.Message))
	}
}
