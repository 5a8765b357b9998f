package page

import (
	"fmt"
	"net/http"
	"slices"
	"sort"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"ledge/api"
	"ledge/api/board"
	"ledge/node/pressure"
)

// Board is what one sees first.
type Board struct {
	Troubles []Trouble        `json:"troubles"`
	Status   *board.Status    `json:"status,omitempty"` // nil: no board of ledge's answers there, or it may not be asked
	Power    *board.Shutdown  `json:"power,omitempty"`
	History  pressure.History `json:"history,omitzero"`
	Nodes    []Node           `json:"nodes"`
	Pods     map[string]int   `json:"pods"` // by phase
	Warnings []Event          `json:"warnings"`
}

// Node is one board of the fleet.
type Node struct {
	Name       string   `json:"name"`
	Ready      bool     `json:"ready"`
	Conditions []string `json:"conditions"` // that hold, beside Ready
	Version    string   `json:"version"`
	System     string   `json:"system"`
	Addresses  []string `json:"addresses"`
	Pods       int      `json:"pods"`
	Age        string   `json:"age"`
	Cordoned   bool     `json:"cordoned,omitempty"`
}

func lookAtBoard(v *visit) (answer, error) {
	out := Board{Troubles: []Trouble{}, Nodes: []Node{}, Pods: map[string]int{}, Warnings: []Event{}}
	on := map[string]int{}
	var ofPods []Trouble
	err := v.each(api.Pods, api.Selection{}, func(o api.Object) {
		if pod, ok := o.(*corev1.Pod); ok {
			out.Pods[string(pod.Status.Phase)]++
			on[pod.Spec.NodeName]++
		}
		if t := troubleOf(o, v.now); t != nil {
			ofPods = append(ofPods, *t)
		}
	})
	if err != nil {
		return nil, err
	}
	nodes, _, err := v.list(api.Nodes, api.Selection{})
	if err != nil {
		return nil, err
	}
	for _, o := range nodes {
		if node, ok := o.(*corev1.Node); ok {
			out.Nodes = append(out.Nodes, about(node, on[node.Name], v.now))
			out.Troubles = append(out.Troubles, NodeTroubles(node)...)
		}
	}
	events, err := v.events(nil, "")
	if err != nil {
		return nil, err
	}
	for _, e := range events {
		if e.Warning && len(out.Warnings) < 10 {
			out.Warnings = append(out.Warnings, e)
		}
	}
	if err := v.askBoard(&out); err != nil {
		return nil, err
	}
	if out.Status != nil {
		out.Troubles = append(out.Troubles, boardTroubles(out.Status)...)
	}
	out.Troubles = append(out.Troubles, ofPods...)
	return out, nil
}

// askBoard asks what the board says by itself. One of an older version may not know all of it.
func (v *visit) askBoard(out *Board) error {
	status, power := &board.Status{}, &board.Shutdown{}
	for path, into := range map[string]any{board.StatusPath: status, board.ShutdownPath: power, board.HistoryPath: &out.History} {
		switch err := v.api.Ask(v.ctx, http.MethodGet, path, nil, into); {
		case missing(err):
		case err != nil:
			return err
		case path == board.StatusPath:
			out.Status = status
		case path == board.ShutdownPath:
			out.Power = power
		}
	}
	return nil
}

// boardTroubles are those that a board tells of its machine.
func boardTroubles(s *board.Status) (out []Trouble) {
	add := func(grave bool, says, do string) {
		out = append(out, Trouble{Kind: "Node", Name: s.Machine.Node, Grave: grave, Says: says, Do: do})
	}
	if w := s.Writes.Wear; w != nil && (w.Exceeded || w.Reserve == "urgent") {
		add(true, s.Writes.Disk+" is worn out", "Put in another card or disk soon; 'ledge backup save' keeps what is on it.")
	}
	for _, why := range s.Machine.Throttled {
		if !strings.HasSuffix(why, "since the start") {
			add(false, "is slower than it could be: "+why, "")
		}
	}
	if f := s.Found; f != nil && f.Trouble != "" {
		add(false, "is not found by name: "+f.Trouble, "")
	}
	return out
}

func about(node *corev1.Node, pods int, now time.Time) Node {
	out := Node{Name: node.Name, Conditions: []string{}, Version: node.Status.NodeInfo.KubeletVersion, Addresses: []string{}, Pods: pods,
		System: node.Status.NodeInfo.OSImage + ", " + node.Status.NodeInfo.KernelVersion + ", " + node.Status.NodeInfo.Architecture,
		Age:    duration.HumanDuration(now.Sub(node.CreationTimestamp.Time)), Cordoned: node.Spec.Unschedulable}
	for _, c := range node.Status.Conditions {
		switch {
		case c.Type == corev1.NodeReady:
			out.Ready = c.Status == corev1.ConditionTrue
		case c.Status == corev1.ConditionTrue:
			out.Conditions = append(out.Conditions, string(c.Type))
		}
	}
	for _, a := range node.Status.Addresses {
		if a.Type != corev1.NodeHostName {
			out.Addresses = append(out.Addresses, a.Address)
		}
	}
	return out
}

func (b Board) title() string {
	if len(b.Nodes) == 1 {
		return b.Nodes[0].Name
	}
	return fmt.Sprintf("%d boards", len(b.Nodes))
}

func (b Board) sections(v *visit) []section {
	well := el("p", badge("well", "well"), " Nothing is wrong that ledge knows of.")
	if len(b.Troubles) > 0 {
		well = troubles(b.Troubles)
	}
	out := []section{{"troubles", "How it is", el("div", well, b.counts())}}
	if b.Status != nil {
		out = append(out, section{"machine", "This board", b.machine(v.now)}, section{"gauges", "What there is of it", b.gauges()})
	}
	return append(out, section{"nodes", "Boards", b.nodes(v)}, section{"warnings", "Last warnings", eventRows(b.Warnings)})
}

func (b Board) counts() markup {
	var parts []string
	for _, phase := range []corev1.PodPhase{corev1.PodRunning, corev1.PodPending, corev1.PodSucceeded, corev1.PodFailed, corev1.PodUnknown} {
		if n := b.Pods[string(phase)]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n, strings.ToLower(string(phase))))
		}
	}
	if len(parts) == 0 {
		parts = []string{"none"}
	}
	return el("p", "Pods: ", link("/pods", strings.Join(parts, ", ")))
}

func (b Board) machine(now time.Time) markup {
	m, found := b.Status.Machine, ""
	if f := b.Status.Found; f != nil {
		found = strings.Join(f.Names, ", ")
	}
	temperature := ""
	if m.Celsius != nil {
		temperature = fmt.Sprintf("%.0f °C", *m.Celsius)
	}
	since := ""
	if !b.Status.Writes.Boot.IsZero() {
		since = duration.HumanDuration(now.Sub(b.Status.Writes.Boot))
	}
	clock := "is believed"
	if !m.ClockBelieved {
		clock = "is not known to be right: no time server has answered yet"
	}
	last := "in order"
	if m.Unclean {
		last = "without an end: the power was cut, or the machine hung"
	}
	held, heard := "", ""
	if b.Power != nil {
		held, heard = b.Power.Lock.Error, strings.Join(b.Power.Sources, ", ")
		if b.Power.Lock.Held {
			held = fmt.Sprintf("logind waits %d s", b.Power.Lock.GrantedSeconds)
		}
	}
	return facts("Name", m.Node, "Found as", found, "Version", m.Version, "Up for", since, "Temperature", temperature,
		"Throttled", strings.Join(m.Throttled, ", "), "Clock", clock, "Last end", last,
		"Shutdowns are heard of from", heard, "A shutdown is held up", held, "Disk", wear(b.Status.Writes))
}

func (b Board) nodes(v *visit) markup {
	var lines [][]any
	head := []string{"Name", "State", "Pods", "Addresses", "Version", "System", "Age"}
	if v.acts {
		head = append(head, "Do")
	}
	for _, n := range b.Nodes {
		state := []any{badge("grave", "not ready")}
		if n.Ready {
			state = []any{badge("well", "ready")}
		}
		for _, c := range n.Conditions {
			state = append(state, " ", badge("grave", c))
		}
		do, words := "cordon", "Let no pods come"
		if n.Cordoned {
			state = append(state, " ", badge("soft", "takes no pods"))
			do, words = "uncordon", "Let pods come"
		}
		line := []any{n.Name, el("span", state...), fmt.Sprint(n.Pods), strings.Join(n.Addresses, ", "), n.Version, n.System, n.Age}
		if v.acts {
			line = append(line, el("span", form("/act/"+do, v.form, "", hidden("name", n.Name), button(words, "quiet")),
				form("/act/drain", v.form, "Evict all pods of "+n.Name+"? Those that nothing makes again are gone for good.", hidden("name", n.Name), button("Drain", "quiet"))))
		}
		lines = append(lines, line)
	}
	return rows(head, lines)
}

// signalNames are what people call what a board can be short of.
var signalNames = map[pressure.Signal]string{
	pressure.MemoryAvailable: "Memory", pressure.NodeFSAvailable: "Disk", pressure.NodeFSInodesFree: "Files on the disk",
	pressure.ImageFSAvailable: "Disk of the images", pressure.ImageFSInodesFree: "Files on the disk of the images",
	pressure.PIDAvailable: "Processes",
}

func (b Board) gauges() markup {
	var out []markup
	for _, s := range b.Status.Pressure.Signals {
		name := signalNames[s.Signal] // others are made of these
		if s.Available == nil || s.Capacity == nil || *s.Capacity <= 0 || name == "" || b.twice(s) {
			continue
		}
		least, met := int64(0), false
		for _, t := range s.Thresholds {
			least, met = max(least, t.Below), met || t.Met != nil
		}
		words := fmt.Sprintf("%s of %s are free", amount(s.Signal, *s.Available), amount(s.Signal, *s.Capacity))
		if least > 0 {
			words += ", pods are evicted below " + amount(s.Signal, least)
		}
		state := badge("well", "enough")
		if met {
			state = badge("grave", "short")
		}
		out = append(out, el("figure", el("figcaption", el("b", name), " ", state, " ", words),
			plot(b.History.Of(s.Signal), *s.Capacity, least, name+" that was free in the last hour; "+words)))
	}
	return el("div", class("gauges"), out)
}

// twice says that a signal of the images' disk is one of the board's: they are the same disk.
func (b Board) twice(s pressure.SignalReport) bool {
	other := map[pressure.Signal]pressure.Signal{pressure.ImageFSAvailable: pressure.NodeFSAvailable,
		pressure.ImageFSInodesFree: pressure.NodeFSInodesFree}[s.Signal]
	return slices.ContainsFunc(b.Status.Pressure.Signals, func(o pressure.SignalReport) bool {
		return o.Signal == other && o.Available != nil && o.Capacity != nil && *o.Available == *s.Available && *o.Capacity == *s.Capacity
	})
}

func amount(s pressure.Signal, n int64) string {
	if what := s.Resource(); what == pressure.Inodes || what == pressure.PIDs {
		return fmt.Sprint(n)
	}
	return bytes(n)
}

// bytes is a size as people say it, of three digits.
func bytes(n int64) string {
	size, units := float64(n), []string{"bytes", "KiB", "MiB", "GiB", "TiB", "PiB"}
	for len(units) > 1 && size >= 1000 {
		size, units = size/1024, units[1:]
	}
	if size >= 99.95 || units[0] == "bytes" {
		return fmt.Sprintf("%.0f %s", size, units[0])
	}
	return num(size) + " " + units[0]
}

func wear(w board.Writes) string {
	switch x := w.Wear; {
	case w.Disk == "":
		return "what it wears cannot be told"
	case x == nil || x.UsedPercent == 0 && !x.Exceeded:
		return w.Disk + " does not tell its wear"
	case x.Exceeded:
		return w.Disk + " has worn beyond the life it was made for: replace it"
	default:
		return fmt.Sprintf("%s has used up to %d %% of its life", w.Disk, x.UsedPercent)
	}
}

// Disk is what lies on the board's, and who writes to it.
type Disk struct {
	Writes board.Writes  `json:"writes"`
	Claims []board.Claim `json:"claims"`
	Images board.Images  `json:"images"`
	Tables []Table       `json:"tables"` // of claims and volumes, wherever they are
	here   bool
}

func (Disk) title() string { return "Disk" }

func lookAtDisk(v *visit) (answer, error) {
	out := Disk{here: true, Claims: []board.Claim{}}
	var status board.Status
	for path, into := range map[string]any{board.StatusPath: &status, board.ImagesPath: &out.Images} {
		if err := v.api.Ask(v.ctx, http.MethodGet, path, nil, into); missing(err) {
			out.here = false
		} else if err != nil {
			return nil, err
		}
	}
	out.Writes = status.Writes
	out.Claims = append(out.Claims, status.Claims...)
	claims, err := tables("", []*api.Kind{api.PersistentVolumeClaims, api.PersistentVolumes})(v)
	if t, ok := claims.(Tables); ok {
		out.Tables = t.Kinds
	}
	return out, err
}

func (d Disk) sections(v *visit) (out []section) {
	if d.here {
		var lines [][]any
		for _, w := range d.Writes.Writers {
			lines = append(lines, []any{w.Name, bytes(w.Today), bytes(w.SinceBoot), w.What})
		}
		out = append(out, section{"writes", "Who writes to it", el("div", el("p", wear(d.Writes)),
			rows([]string{"Writer", "Today", "Since the boot", "Of"}, lines))})
		lines = nil
		for _, c := range d.Claims {
			used, full := "not counted", markup("")
			if c.Used != nil {
				used, full = bytes(*c.Used), meter(*c.Used, c.Size, "of the claim is taken")
			}
			written := "not counted"
			if c.Written != nil {
				written = bytes(*c.Written)
			}
			lines = append(lines, []any{c.Namespace + "/" + c.Name, bytes(c.Size), used, full, written, c.Volume})
		}
		out = append(out, section{"here", "Claims on this board", rows([]string{"Claim", "Size", "Used", "", "Written by its pods", "Volume"}, lines)})
	}
	out = append(out, Tables{Kinds: d.Tables}.sections(v)...)
	if d.here {
		var lines [][]any
		all := slices.Clone(d.Images.Images)
		sort.SliceStable(all, func(i, j int) bool { return all[i].Size > all[j].Size })
		for _, i := range all {
			lines = append(lines, []any{strings.Join(i.Names, ", "), bytes(i.Size), fmt.Sprint(len(i.InUse))})
		}
		out = append(out, section{"images", "Images", rows([]string{"Name", "Size", "Pods that use it"}, lines)})
	}
	return out
}

// Power is how a shutdown would go, or goes.
type Power struct {
	*board.Shutdown
}

func (Power) title() string { return "Power" }

func lookAtPower(v *visit) (answer, error) {
	out := Power{&board.Shutdown{}}
	err := v.api.Ask(v.ctx, http.MethodGet, board.ShutdownPath, nil, out.Shutdown)
	if missing(err) {
		return Power{}, nil
	}
	return out, err
}

func (p Power) sections(v *visit) []section {
	if p.Shutdown == nil {
		return []section{{"plan", "The plan", el("p", "No board of ledge's answers there: what becomes of pods at a shutdown is not known.")}}
	}
	state := "The board runs. If the power went in order now, this is how its pods would stop."
	switch {
	case p.Running:
		state = "A shutdown is running (" + p.Source + "). This is what is left of it."
	case p.Stopped:
		state = "The pods have been stopped (" + p.Source + ")."
	case p.Due != nil:
		state = fmt.Sprintf("A shutdown is asked for and begins in %s.", p.Due.Sub(v.now).Round(time.Second))
	}
	lines := []any{el("p", state)}
	if p.Plan.WantedSeconds > p.Plan.TotalSeconds {
		lines = append(lines, el("p", badge("soft", "short"), fmt.Sprintf(" The configuration wants %.0f s, there are %.0f: those of the lowest "+
			"priorities have less time.", p.Plan.WantedSeconds, p.Plan.TotalSeconds)))
	}
	lines = append(lines, gantt(p.Plan))
	out := []section{{"plan", "The plan", el("div", lines...)}}
	if v.acts {
		acts := []any{form("/act/shutdown", v.form, "Stop all pods and switch the board off?", hidden("reboot", "false"), button("Switch off", "grave")),
			form("/act/shutdown", v.form, "Stop all pods and start the board again?", hidden("reboot", "true"), button("Start again", "quiet"))}
		if p.Running || p.Due != nil {
			acts = append(acts, form("/act/cancel", v.form, "", button("Take the shutdown back", "well")))
		}
		out = append(out, section{"acts", "Do", el("div", class("acts"), el("span", acts...))})
	}
	return out
}
