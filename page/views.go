package page

import (
	"cmp"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api"
	"ledge/api/apps"
	"ledge/api/batch"
	"ledge/api/networking"
)

// views are all there are, in the order of the menu.
var views = []view{
	{"/{$}", "Board", []*api.Kind{api.Nodes, api.Pods, api.Events}, lookAtBoard},
	{"/pods", "Pods", []*api.Kind{api.Pods}, lookAtPods},
	{"/pods/{namespace}/{name}", "", []*api.Kind{api.Pods, api.Events}, lookAtPod},
	{"/workloads", "Workloads", workloadKinds, tables("Workloads", workloadKinds)},
	{"/services", "Services", serviceKinds, tables("Services", serviceKinds)},
	{"/disk", "Disk", []*api.Kind{api.PersistentVolumeClaims}, lookAtDisk},
	{"/power", "Power", []*api.Kind{api.Pods}, lookAtPower},
	{"/events", "Events", []*api.Kind{api.Events}, lookAtEvents},
}

var (
	workloadKinds = []*api.Kind{apps.Deployments, apps.StatefulSets, apps.DaemonSets, batch.Jobs, batch.CronJobs}
	serviceKinds  = []*api.Kind{api.Services, networking.Ingresses}
)

// Tables are objects of some kinds.
type Tables struct {
	Title string  `json:"title"`
	Kinds []Table `json:"kinds"`
}

// Table is the objects of one.
type Table struct {
	Kind    string     `json:"kind"`
	Columns []string   `json:"columns"`
	Rows    [][]string `json:"rows"`
	Of      int        `json:"of"` // how many there are

	head  []string
	lines [][]any
}

func (t Tables) title() string { return t.Title }

func (t Tables) sections(*visit) (out []section) {
	for _, k := range t.Kinds {
		out = append(out, section{id: strings.ToLower(k.Kind), head: k.Kind, body: k.markup()})
	}
	return out
}

// tables is a view of some kinds, as kubectl shows them.
func tables(title string, kinds []*api.Kind) func(*visit) (answer, error) {
	return func(v *visit) (answer, error) {
		out := Tables{Title: title}
		for _, k := range kinds {
			objs, of, err := v.list(k, api.Selection{})
			if err != nil {
				return nil, err
			}
			out.Kinds = append(out.Kinds, v.table(k, objs, of, nil))
		}
		return out, nil
	}
}

func (t Table) markup() markup {
	more := markup("")
	if t.Of > len(t.lines) {
		more = el("p", class("none"), fmt.Sprintf("The first %d of %d are shown.", len(t.lines), t.Of))
	}
	return el("div", rows(t.head, t.lines), more)
}

func (v *visit) table(k *api.Kind, objs []api.Object, of int, leads func(api.Object) string) Table {
	t := Table{Kind: k.Name + "s", Rows: [][]string{}, Of: of}
	if strings.HasSuffix(k.Name, "s") {
		t.Kind = k.Name + "es"
	}
	t.head, t.lines = v.lines(k, objs, false, leads)
	t.Columns = t.head
	plain, _ := v.plainLines(k, objs)
	t.Rows = append(t.Rows, plain...)
	if v.acts && k.Template(k.New()) != nil && slices.Contains(restartable, k) {
		t.head = append(slices.Clone(t.head), "Restart")
		for i, o := range objs {
			t.lines[i] = append(t.lines[i], form("/act/restart", v.form, fmt.Sprintf("Restart all pods of %s %s?", k.Name, o.GetName()),
				hidden("kind", k.Resource), hidden("namespace", o.GetNamespace()), hidden("name", o.GetName()), button("Restart", "quiet")))
		}
	}
	return t
}

// plainLines are the same as texts.
func (v *visit) plainLines(k *api.Kind, objs []api.Object) (out [][]string, head []string) {
	head, lines := v.lines(k, objs, false, nil)
	for _, l := range lines {
		var row []string
		for _, c := range l {
			s, _ := c.(string)
			row = append(row, s)
		}
		out = append(out, row)
	}
	return out, head
}

func cellText(c any) string { return fmt.Sprint(c) }

func podPath(o api.Object) string {
	return "/pods/" + url.PathEscape(o.GetNamespace()) + "/" + url.PathEscape(o.GetName())
}

// Pods are all of them, and what is wrong with some.
type Pods struct {
	Table
	Troubles []Trouble `json:"troubles,omitempty"`
}

func (Pods) title() string { return "Pods" }

func (p Pods) sections(*visit) []section {
	out := []section{}
	if len(p.Troubles) > 0 {
		out = append(out, section{"troubles", "Troubles", troubles(p.Troubles)})
	}
	return append(out, section{"pods", "Pods", p.markup()})
}

func lookAtPods(v *visit) (answer, error) {
	var troubles []Trouble
	var objs []api.Object
	of := 0
	err := v.each(api.Pods, api.Selection{}, func(o api.Object) {
		if of++; of <= mostObjects {
			objs = append(objs, o)
		}
		if t := troubleOf(o, v.now); t != nil {
			troubles = append(troubles, *t)
		}
	})
	return Pods{Table: v.table(api.Pods, objs, of, podPath), Troubles: troubles}, err
}

func troubleOf(o api.Object, now time.Time) *Trouble {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return nil
	}
	return PodTrouble(pod, now)
}

// mostTroubles is how many are shown at once.
const mostTroubles = 50

// troubles are lines with what to do. Grave ones come first.
func troubles(list []Trouble) markup {
	list = slices.Clone(list)
	sort.SliceStable(list, func(i, j int) bool { return list[i].Grave && !list[j].Grave })
	var out []markup
	for _, t := range list[:min(len(list), mostTroubles)] {
		name := any(t.Name)
		if t.Kind == "Pod" {
			name = link("/pods/"+url.PathEscape(t.Namespace)+"/"+url.PathEscape(t.Name), t.Namespace+"/"+t.Name)
		}
		word, level := "waits", "soft"
		if t.Grave {
			word, level = "trouble", "grave"
		}
		line := []any{badge(level, word), " ", t.Kind, " ", el("b", name), " ", t.Says}
		if t.Do != "" {
			line = append(line, el("p", class("do"), t.Do))
		}
		out = append(out, el("li", line...))
	}
	if n := len(list) - mostTroubles; n > 0 {
		out = append(out, el("li", fmt.Sprintf("and %d more", n)))
	}
	return el("ul", class("troubles"), out)
}

// Pod is one, with what it says and what is said of it.
type Pod struct {
	Namespace  string      `json:"namespace"`
	Name       string      `json:"name"`
	Node       string      `json:"node,omitempty"`
	Address    string      `json:"address,omitempty"`
	Status     string      `json:"status"`
	MadeBy     string      `json:"madeBy,omitempty"` // what makes another when it goes; empty: nothing does
	Age        string      `json:"age"`
	Trouble    *Trouble    `json:"trouble,omitempty"`
	Containers []Container `json:"containers"`
	Events     []Event     `json:"events"`
}

// Container is one of its containers.
type Container struct {
	Name     string `json:"name"`
	Image    string `json:"image"`
	State    string `json:"state"`
	Ready    bool   `json:"ready"`
	Restarts int32  `json:"restarts"`
	Last     string `json:"last,omitempty"` // how it ended before
	Init     bool   `json:"init,omitempty"`
}

// Event is something that happened to an object.
type Event struct {
	At      string `json:"at"`
	Warning bool   `json:"warning,omitempty"`
	Of      string `json:"of"`
	Reason  string `json:"reason"`
	Message string `json:"message"`
	Count   int32  `json:"count,omitempty"`
}

func lookAtPod(v *visit) (answer, error) {
	pod, err := api.Get[*corev1.Pod](v.ctx, v.api, api.Pods, v.value("namespace"), v.value("name"))
	if err != nil {
		return nil, err
	}
	out := Pod{Namespace: pod.Namespace, Name: pod.Name, Node: pod.Spec.NodeName, Address: pod.Status.PodIP, Trouble: PodTrouble(pod, v.now)}
	cells, _ := v.plainLines(api.Pods, []api.Object{pod})
	if owner := metav1.GetControllerOf(pod); owner != nil {
		out.MadeBy = owner.Kind + " " + owner.Name
	}
	out.Status, out.Age = cells[0][3], cells[0][len(cells[0])-1]
	for i, list := range [][]corev1.ContainerStatus{pod.Status.InitContainerStatuses, pod.Status.ContainerStatuses} {
		for _, c := range list {
			out.Containers = append(out.Containers, container(c, i == 0, v.now))
		}
	}
	out.Events, err = v.events(fields.SelectorFromSet(fields.Set{"involvedObject.uid": string(pod.UID)}), pod.Namespace)
	return out, err
}

func container(c corev1.ContainerStatus, isInit bool, now time.Time) Container {
	out := Container{Name: c.Name, Image: c.Image, Ready: c.Ready, Restarts: c.RestartCount, Init: isInit}
	switch s := c.State; {
	case s.Running != nil:
		out.State = "runs since " + duration.HumanDuration(now.Sub(s.Running.StartedAt.Time))
	case s.Terminated != nil:
		out.State = howEnded(s.Terminated, now)
	case s.Waiting != nil:
		out.State = "waits: " + s.Waiting.Reason
	}
	if e := c.LastTerminationState.Terminated; e != nil {
		out.Last = howEnded(e, now)
	}
	return out
}

func howEnded(e *corev1.ContainerStateTerminated, now time.Time) string {
	return fmt.Sprintf("%s with code %d, %s ago", cmp.Or(e.Reason, "ended"), e.ExitCode, duration.HumanDuration(now.Sub(e.FinishedAt.Time)))
}

func (p Pod) title() string { return p.Name }

func (p Pod) sections(v *visit) []section {
	here := "/pods/" + url.PathEscape(p.Namespace) + "/" + url.PathEscape(p.Name)
	var out []section
	if p.Trouble != nil {
		out = append(out, section{"troubles", "Troubles", troubles([]Trouble{*p.Trouble})})
	}
	about := []any{facts("Namespace", p.Namespace, "Made by", p.MadeBy, "Node", p.Node, "Address", p.Address, "Status", p.Status, "Age", p.Age)}
	if v.acts {
		next := "Nothing makes another: it is gone for good."
		if p.MadeBy != "" {
			next = p.MadeBy + " makes another."
		}
		about = append(about, form("/act/delete", v.form, "Delete pod "+p.Name+"? "+next, hidden("namespace", p.Namespace),
			hidden("name", p.Name), button("Delete pod", "grave")))
	}
	var lines [][]any
	for _, c := range p.Containers {
		name := c.Name
		if c.Init {
			name += " (init)"
		}
		query := "?" + url.Values{"container": {c.Name}}.Encode()
		logs := []any{link(here+"/log"+query, "log of "+c.Name)}
		if c.Last != "" {
			logs = append(logs, " ", link(here+"/log"+query+"&previous=true", "of the one before"))
		}
		lines = append(lines, []any{name, c.State, fmt.Sprint(c.Restarts), c.Last, c.Image, el("span", logs...)})
	}
	return append(out, section{"about", "About", el("div", about...)},
		section{"containers", "Containers", rows([]string{"Name", "State", "Restarts", "Before", "Image", "Log"}, lines)},
		section{"events", "Events", eventRows(p.Events)})
}

// Events are the newest, of all objects.
type Events struct {
	Events []Event `json:"events"`
}

func (Events) title() string { return "Events" }

func (e Events) sections(*visit) []section {
	return []section{{"events", "Newest first", eventRows(e.Events)}}
}

func lookAtEvents(v *visit) (answer, error) {
	list, err := v.events(nil, v.query.Get("namespace"))
	return Events{list}, err
}

// mostEvents is how many are shown.
const mostEvents = 100

// events are the newest first.
func (v *visit) events(sel fields.Selector, namespace string) ([]Event, error) {
	type one struct {
		at time.Time
		e  *corev1.Event
	}
	var all []one
	newest := func() {
		sort.SliceStable(all, func(i, j int) bool { return all[i].at.After(all[j].at) })
		all = all[:min(len(all), mostEvents)]
	}
	err := v.each(api.Events, api.Selection{Namespace: namespace, Fields: sel}, func(o api.Object) {
		if e, ok := o.(*corev1.Event); ok {
			at := e.LastTimestamp.Time
			if e.Series != nil {
				at = e.Series.LastObservedTime.Time
			}
			if at.IsZero() {
				at = cmp.Or(e.EventTime.Time, e.CreationTimestamp.Time)
			}
			if all = append(all, one{at, e}); len(all) > 4*mostEvents {
				newest()
			}
		}
	})
	if err != nil {
		return nil, err
	}
	newest()
	out := []Event{}
	for _, o := range all {
		of := o.e.InvolvedObject.Kind + " " + o.e.InvolvedObject.Name
		out = append(out, Event{At: o.at.UTC().Format(time.RFC3339), Warning: o.e.Type == corev1.EventTypeWarning, Of: of, Reason: o.e.Reason,
			Message: o.e.Message, Count: o.e.Count})
	}
	return out, nil
}

func eventRows(list []Event) markup {
	var lines [][]any
	for _, e := range list {
		reason := any(e.Reason)
		if e.Warning {
			reason = badge("soft", e.Reason)
		}
		message := e.Message
		if e.Count > 1 {
			message += fmt.Sprintf(" (%d times)", e.Count)
		}
		lines = append(lines, []any{moment(e.At), e.Of, reason, message})
	}
	return rows([]string{"When", "Of", "Why", "What"}, lines)
}

// moment is a time, which the script shows by the visitor's own clock and zone.
func moment(at string) markup {
	return el("time", attr{"datetime", at}, strings.TrimSuffix(strings.Replace(at, "T", " ", 1), "Z")+" UTC")
}

func hidden(name, value string) markup {
	return el("input", at("type", "hidden"), at("name", name), at("value", value))
}

// missing says that there is no board that answers /ledge/v1, or that it may not be asked.
func missing(err error) bool {
	return apierrors.IsNotFound(err) || apierrors.IsForbidden(err) || errors.Is(err, errors.ErrUnsupported)
}
