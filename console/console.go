// Package console shows a board to the person who stands before it: where the board is reached, how it is, what went wrong last. Where
// ledge is process 1, that has a screen of its own, on which nothing else scrolls, and comes on a serial line when Enter is pressed. On
// another system it stands above the login.
package console

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/page"
)

// Facts are what there is to say.
type Facts struct {
	Name, Version string
	Addresses     []netip.Addr // the machine's own
	Names         []string     // by which it is found on its networks
	API           string       // where others reach it; "": nowhere
	Page          string       // likewise
	Plane         string       // of a board that has joined: where its control plane is
	Node          *corev1.Node // nil: not known yet
	Pods          []*corev1.Pod
	Mistakes      []string // of the configuration and of the last start
	Power         string   // what is going on; "": nothing
}

// The measures of the smallest screen: 80 columns; 25 rows are more than enough.
const (
	columns      = 80
	labelColumns = 12
	mostShown    = 4 // addresses, and names
	mostTroubles = 3
)

// Lines say it, in ten lines or so of 79 columns at most. Nothing but printable ASCII is in them: what pods and networks say of
// themselves goes to a terminal here.
func Lines(f Facts, now time.Time) []string {
	out := []string{clip("ledge "+f.Version+"  "+f.Name, columns-1), strings.Repeat("-", columns-1)}
	say := func(label, text string) {
		out = append(out, clip(fmt.Sprintf("%-*s%s", labelColumns, label, text), columns-1))
	}
	say("Address", cmp.Or(join(f.Addresses), "none: is the cable in, or the wireless network in reach?"))
	if len(f.Names) > 0 {
		say("Name", join(f.Names))
	}
	switch {
	case f.Plane != "":
		say("Joined", f.Plane)
	case f.API != "":
		say("kubectl", f.API)
	default:
		say("kubectl", "on the board alone: it listens on loopback")
	}
	if f.Page != "" {
		say("Page", f.Page)
	}
	if f.Power != "" {
		say("Power", f.Power)
	}
	if f.Node == nil && f.Plane != "" {
		say("Node", "not known: the control plane has not answered yet")
	} else {
		say("Node", stateOf(f.Node))
	}
	running, waiting, failed := 0, 0, 0
	var troubles []page.Trouble
	for _, p := range f.Pods {
		switch p.Status.Phase {
		case corev1.PodRunning:
			running++
		case corev1.PodFailed:
			failed++
		case corev1.PodPending:
			waiting++
		}
		if t := page.PodTrouble(p, now); t != nil {
			troubles = append(troubles, *t)
		}
	}
	pods := fmt.Sprintf("%d run", running)
	if waiting > 0 {
		pods += fmt.Sprintf(", %d wait", waiting)
	}
	if failed > 0 {
		pods += fmt.Sprintf(", %d failed", failed)
	}
	say("Pods", pods)
	if f.Node != nil {
		for _, t := range page.NodeTroubles(f.Node) {
			troubles = append(troubles, page.Trouble{Name: "this board", Grave: t.Grave, Says: t.Says})
		}
	}
	for _, m := range f.Mistakes {
		troubles = append(troubles, page.Trouble{Name: "configuration", Grave: true, Says: m})
	}
	shown := 0
	for _, grave := range []bool{true, false} {
		for _, t := range troubles {
			if t.Grave == grave && shown < mostTroubles {
				shown++
				say(map[bool]string{true: "Wrong"}[shown == 1], t.Name+": "+t.Says)
			}
		}
	}
	if more := len(troubles) - shown; more > 0 {
		say("", fmt.Sprintf("and %d more; 'kubectl describe' or the board's page tells them", more))
	}
	return out
}

func stateOf(n *corev1.Node) string {
	if n == nil {
		return "starts"
	}
	for _, c := range n.Status.Conditions {
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionTrue {
			if n.Spec.Unschedulable {
				return "ready, takes no new pods"
			}
			return "ready"
		}
	}
	return "not ready"
}

func join[T any](all []T) string {
	var out []string
	for i, v := range all {
		if i == mostShown {
			out = append(out, "...")
			break
		}
		out = append(out, fmt.Sprint(v))
	}
	return strings.Join(out, "  ")
}

// clip is a text on one line, of printable ASCII alone.
func clip(s string, most int) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case b.Len() == most:
			return strings.TrimRight(b.String()[:most-3], " ") + "..."
		case r == '\n' || r == '\t' || r == '\r':
			b.WriteByte(' ')
		case r < ' ' || r > '~':
			b.WriteByte('?')
		default:
			b.WriteByte(byte(r))
		}
	}
	return strings.TrimRight(b.String(), " ")
}
