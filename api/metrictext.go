package api

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// MetricText is Prometheus' text format. A name without a line is left out, as there.
type MetricText struct {
	strings.Builder
	At      time.Time // of the values; zero: of now
	pending string
}

// Head begins a metric.
func (t *MetricText) Head(name, kind, help string) {
	t.pending = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Line adds one value with its labels, sorted by name as given.
func (t *MetricText) Line(name string, v float64, labels ...string) {
	t.WriteString(t.pending)
	t.pending = ""
	t.WriteString(name)
	for i := 0; i < len(labels); i += 2 {
		sep := ","
		if i == 0 {
			sep = "{"
		}
		fmt.Fprintf(t, "%s%s=%q", sep, labels[i], labels[i+1]) // names of pods and containers need no escaping
	}
	if len(labels) > 0 {
		t.WriteByte('}')
	}
	fmt.Fprintf(t, " %g", v)
	if !t.At.IsZero() {
		fmt.Fprintf(t, " %d", t.At.UnixMilli())
	}
	t.WriteByte('\n')
}

// Durations counts how long something took, as a histogram. It is for one goroutine at a time.
type Durations struct {
	Bounds []float64 // in seconds, ascending
	within []int64
	count  int64
	sum    float64
}

// Saw counts one.
func (d *Durations) Saw(took time.Duration) {
	if d.within == nil {
		d.within = make([]int64, len(d.Bounds))
	}
	s := took.Seconds()
	for i, b := range d.Bounds {
		if s <= b {
			d.within[i]++
		}
	}
	d.count++
	d.sum += s
}

// Count is how often.
func (d *Durations) Count() int64 { return d.count }

// Histogram adds what was counted to the metric that Head began; nothing when nothing was.
func (t *MetricText) Histogram(name string, d *Durations, labels ...string) {
	if d.count == 0 {
		return
	}
	for i, b := range d.Bounds {
		t.Line(name+"_bucket", float64(d.within[i]), append(slices.Clone(labels), "le", fmt.Sprint(b))...)
	}
	t.Line(name+"_bucket", float64(d.count), append(slices.Clone(labels), "le", "+Inf")...)
	t.Line(name+"_sum", d.sum, labels...)
	t.Line(name+"_count", float64(d.count), labels...)
}
