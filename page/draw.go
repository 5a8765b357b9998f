package page

import (
	"fmt"
	"math"
	"strings"

	"ledge/api/board"
)

// The size of plots, in units of their own: style.css says how large they are.
const (
	plotWidth, plotHeight = 240, 48
	barHeight             = 18
	nameWidth             = 160
	chartWidth            = 640
)

func num(f float64) string { return strings.TrimSuffix(fmt.Sprintf("%.1f", f), ".0") }

// plot shows amounts over an hour, oldest first, below what there is of it; least is the line below which pods go. A negative amount was
// not known.
func plot(points []int64, capacity, least int64, words string) markup {
	y := func(n int64) float64 { return plotHeight - math.Min(1, float64(n)/float64(capacity))*plotHeight }
	var parts []any
	parts = append(parts, at("viewBox", fmt.Sprintf("0 0 %d %d", plotWidth, plotHeight)), at("role", "img"), at("aria-label", words),
		at("preserveAspectRatio", "none"), class("plot"))
	var line []string
	flush := func() {
		if len(line) > 0 {
			parts = append(parts, el("polyline", class("line"), at("points", strings.Join(line, " "))))
		}
		line = nil
	}
	for i, n := range points {
		if n < 0 {
			flush()
			continue
		}
		x := float64(i) * plotWidth / float64(max(len(points)-1, 1))
		line = append(line, num(x)+","+num(y(n)))
	}
	flush()
	if least > 0 {
		h := num(y(least))
		parts = append(parts, el("line", class("least"), at("x1", "0"), at("x2", fmt.Sprint(plotWidth)), at("y1", h), at("y2", h)))
	}
	return el("svg", parts...)
}

// gantt shows who stops when: what each pod may take, within what its stage has.
func gantt(plan board.Plan) markup {
	total := plan.TotalSeconds
	var parts []any
	n, from := 0, 0.0
	x := func(at float64) float64 { return nameWidth + at/math.Max(total, 1)*(chartWidth-nameWidth) }
	var lines [][]any
	for i, s := range plan.Stages {
		for _, p := range s.Pods {
			y := float64(n * (barHeight + 4))
			n++
			parts = append(parts,
				el("text", at("x", "0"), at("y", num(y+barHeight-5)), short(p.Pod)),
				el("rect", class("stage"), at("x", num(x(from))), at("y", num(y)), at("width", num(math.Max(x(from+s.Seconds)-x(from), 1))),
					at("height", fmt.Sprint(barHeight))),
				el("rect", class("own"), at("x", num(x(from))), at("y", num(y)), at("width", num(math.Max(x(from+p.Seconds)-x(from), 1))),
					at("height", fmt.Sprint(barHeight)), el("title", fmt.Sprintf("%s: %s at most", p.Pod, seconds(p.Seconds)))))
			lines = append(lines, []any{fmt.Sprint(i + 1), p.Pod, fmt.Sprint(p.Priority), seconds(from), seconds(p.Seconds)})
		}
		from += s.Seconds
	}
	if n == 0 {
		return el("p", "No pod runs here.")
	}
	head := []any{at("viewBox", fmt.Sprintf("0 0 %d %d", chartWidth, n*(barHeight+4))), at("role", "img"), class("gantt"),
		at("aria-label", fmt.Sprintf("%d pods stop within %s; the table below says when each does", n, seconds(total)))}
	return el("div", el("svg", append(head, parts...)...), rows([]string{"Stage", "Pod", "Priority", "From", "At most"}, lines))
}

func seconds(s float64) string { return num(s) + " s" }

// short is a name that fits before a bar.
func short(name string) string {
	const most = 24
	if signs := []rune(name); len(signs) > most {
		return string(signs[:most-1]) + "…"
	}
	return name
}

// meter is a part of a whole, as a bar.
func meter(part, whole int64, words string) markup {
	percent := 100.0
	if whole > 0 {
		percent = math.Min(100, float64(part)*100/float64(whole))
	}
	label := fmt.Sprintf("%.0f %% %s", percent, words)
	return el("meter", at("min", "0"), at("max", "100"), at("high", "85"), at("value", num(percent)), at("aria-label", label), label)
}
