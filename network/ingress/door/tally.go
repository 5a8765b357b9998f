package door

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"sort"
	"strconv"
	"sync"
	"time"
)

// What is told of requests is bounded, whoever asks for what.
const (
	mostSeries = 4096 // counters; what is beyond them is counted together
	mostCodes  = 64   // of them of one host
	mostLines  = 100  // of the access log in a second
	mostPath   = 256  // bytes of a path in the access log
)

// others are the hosts that have no counters of their own, because there are too many.
const others = "_other"

// clientGone is the code of a request whose client went before the answer.
const clientGone = 499

// series is what one counter counts. The host is that of a rule, never what a stranger says.
type series struct {
	host string
	code int
}

// spent is how many answers took how long.
type spent struct {
	count   uint64
	seconds float64
}

// tally counts requests, and notes them in the log where that is wanted.
type tally struct {
	log bool

	mu       sync.Mutex
	requests map[series]uint64
	codes    map[string]int         // by host: how many counters it has
	took     map[string]spent       // by host
	known    func(host string) bool // whether a rule has a host; nil: all
	emptied  time.Time              // when hosts that no rule has any more were dropped last
	second   int64                  // of the log
	lines    int
	left     uint64 // lines that were too many
}

func newTally(log bool) *tally {
	return &tally{log: log, requests: map[series]uint64{}, codes: map[string]int{}, took: map[string]spent{}}
}

// answered is a request that has its answer. The time of a connection that became something else says nothing of answers.
func (t *tally) answered(p *patient, r *http.Request, took time.Duration) {
	p.code = cmp.Or(p.code, http.StatusOK) // what net/http sends when nothing was written
	line, left := t.count(p, took)
	if left > 0 {
		slog.Warn("requests are not in the log", "number", left, "why", fmt.Sprintf("it takes %d in a second", mostLines))
	}
	if !line {
		return
	}
	path := r.URL.Path
	if len(path) > mostPath {
		path = path[:mostPath] + "..."
	}
	slog.Info("request", "client", r.RemoteAddr, "host", cut(r.Host), "method", cut(r.Method), "path", path, "protocol", r.Proto,
		"code", p.code, "bytes", p.bytes, "took", took.Round(time.Microsecond), "ingress", p.of, "endpoint", p.end)
}

// cut is a stranger's word as the log takes it.
func cut(word string) string { return word[:min(len(word), mostPath)] }

// count says whether the request has a line in the log, and how many lines were left out in the second before.
func (t *tally) count(p *patient, took time.Duration) (line bool, left uint64) {
	t.mu.Lock()
	defer t.mu.Unlock()
	s := t.counter(p.host, p.code)
	t.requests[s]++
	if p.code != http.StatusSwitchingProtocols {
		of := t.took[s.host]
		t.took[s.host] = spent{of.count + 1, of.seconds + took.Seconds()}
	}
	if !t.log {
		return false, 0
	}
	if now := time.Now().Unix(); now != t.second {
		left, t.second, t.lines, t.left = t.left, now, 0, 0
	}
	if t.lines++; t.lines > mostLines {
		t.left++
		return false, left
	}
	return true, left
}

// counter is the one for an answer. What endpoints say is theirs to choose: a code that nobody has defined counts as its hundred, and so
// does what a host has beyond its share.
func (t *tally) counter(host string, code int) series {
	hundred := code / 100 * 100
	if http.StatusText(code) == "" && code != clientGone {
		code = hundred
	}
	s := series{host, code}
	if _, had := t.requests[s]; had {
		return s
	}
	if t.codes[host] >= mostCodes-9 { // those are for the hundreds
		if s.code = hundred; t.requests[s] > 0 {
			return s
		}
	}
	if len(t.requests) >= mostSeries {
		t.dropUnknown()
	}
	if len(t.requests) >= mostSeries {
		return series{others, hundred}
	}
	t.codes[host]++
	return s
}

// dropUnknown makes room: hosts that no rule has any more lose their counters. It is looked for once in a minute.
func (t *tally) dropUnknown() {
	if t.known == nil || time.Since(t.emptied) < time.Minute {
		return
	}
	t.emptied = time.Now()
	gone := func(host string) bool { return host != "" && host != others && !t.known(host) }
	maps.DeleteFunc(t.requests, func(s series, _ uint64) bool { return gone(s.host) })
	maps.DeleteFunc(t.codes, func(host string, _ int) bool { return gone(host) })
	maps.DeleteFunc(t.took, func(host string, _ spent) bool { return gone(host) })
}

// metrics are the counters in the text format of Prometheus.
func (t *tally) metrics(w io.Writer) {
	t.mu.Lock()
	requests, took := maps.Clone(t.requests), maps.Clone(t.took)
	t.mu.Unlock()
	b := bufio.NewWriter(w)
	defer b.Flush() // who has gone needs none
	const total, time = "ledge_ingress_requests_total", "ledge_ingress_request_duration_seconds"
	fmt.Fprintf(b, "# HELP %s Requests, by the host of the rule and the code of the answer.\n# TYPE %[1]s counter\n", total)
	all := slices.Collect(maps.Keys(requests))
	sort.Slice(all, func(i, j int) bool {
		return cmp.Or(cmp.Compare(all[i].host, all[j].host), cmp.Compare(all[i].code, all[j].code)) < 0
	})
	for _, s := range all {
		fmt.Fprintf(b, "%s{host=%q,code=\"%d\"} %d\n", total, s.host, s.code, requests[s])
	}
	fmt.Fprintf(b, "# HELP %s From a request's headers to the end of its answer.\n# TYPE %[1]s summary\n", time)
	for _, host := range slices.Sorted(maps.Keys(took)) {
		fmt.Fprintf(b, "%s_sum{host=%q} %s\n", time, host, strconv.FormatFloat(took[host].seconds, 'g', -1, 64))
		fmt.Fprintf(b, "%s_count{host=%q} %d\n", time, host, took[host].count)
	}
}
