package e2e

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ledge/internal/testrun"
)

// abuseBudget is how much the brain may grow while callers abuse it (architecture: Budgets).
const abuseBudget = 32 << 10 // KiB

// abuse is what one client does again and again.
type abuse struct {
	name, method, path, kind string
	body                     string
	unread                   bool // the answer is never read, the connection stays for a while
}

// mapAtLimit is the largest object there can be.
func mapAtLimit() abuse {
	return abuse{"map at the limit", "POST", "/api/v1/namespaces/default/configmaps", "application/json",
		`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{"a":"` + strings.Repeat("y", 1000<<10) + `"}}`, false}
}

// podAtLimit has as many elements as a pod may have: its 20 KB become megabytes.
func podAtLimit() abuse {
	return abuse{"pod at the limit", "POST", "/api/v1/namespaces/default/pods", "application/json", `{"apiVersion":"v1","kind":"Pod",` +
		`"metadata":{"name":"abuse"},"spec":{"containers":[null` + strings.Repeat(",null", 4000) + `]}}`, false}
}

func abuses() []abuse {
	pod := func(inside string) string {
		return `{"apiVersion":"v1","kind":"Pod","metadata":{"name":"abuse"},"spec":{` + inside + `}}`
	}
	repeat := func(what string, size int) string {
		return strings.TrimSuffix(strings.Repeat(what+",", size/(len(what)+1)), ",")
	}
	const pods, maps, json = "/api/v1/namespaces/default/pods", "/api/v1/namespaces/default/configmaps", "application/json"
	return []abuse{
		{"pod of 3 MB", "POST", pods, json, pod(`"containers":[` + repeat("{}", 3<<20) + `]`), false},
		{"pod of too many elements", "POST", pods, json, pod(`"containers":[` + repeat("{}", 12000) + `]`), false},
		{"pod with long words", "POST", pods, json,
			pod(`"containers":[{"name":"a","args":[` + repeat(`"`+strings.Repeat("x", 4000)+`"`, 240<<10) + `]}]`), false},
		{"deep JSON", "POST", pods, json, strings.Repeat(`{"a":`, 40000) + "1" + strings.Repeat("}", 40000), false},
		{"deep lists", "POST", maps, json, `{"data":` + strings.Repeat("[", 100000), false},
		mapAtLimit(),
		{"YAML", "POST", maps, "application/yaml", "data:\n" + strings.Repeat("- [a, b, c]\n", 10000), false},
		{"aliases", "POST", maps, "application/yaml", "a: &a [x,x]\nb: &b [*a,*a]\nc: [*b,*b]\n", false},
		{"apply", "PATCH", maps + "/big?fieldManager=a&force=true", "application/apply-patch+yaml",
			`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"big"},"data":{` + repeat(`"k":"v"`, 100<<10) + `}}`, false},
		{"schemas", "GET", "/openapi/v2", "", "", false},
		{"lists nobody reads", "GET", maps, "", "", true},
		{"watches", "GET", "/api/v1/configmaps?watch=1", "", "", true},
		{"half a body", "POST", maps, json, "", true},
	}
}

// Whatever a client sends, the brain stays small and goes on answering others. What counts is the memory that nobody can
// take from it: pages of its own binary come and go with the code that runs, and are never more than the binary.
func TestAbuse(t *testing.T) {
	testrun.Measured(t)
	b := newBoard(t)
	b.serve()
	b.importRough()
	b.apply(roughPod("rough", `"ignore"`, ""))
	b.running("rough")
	ways := b.doors()
	pid := b.cmd.Process.Pid
	span := 8 * time.Second
	if os.Getenv("LEDGE_LONG") != "" {
		span = time.Minute
	}
	before := statusKB(t, pid, "RssAnon")
	single := peakOf(t, pid, func() { ways.play() })
	t.Logf("before %d KiB, %+d with the list", before, single-before)
	ctx, stop := context.WithTimeout(t.Context(), span)
	defer stop()
	var wg sync.WaitGroup
	peak := single
	wg.Go(func() { peak = max(peak, peakOf(t, pid, func() { <-ctx.Done() })) })
	socket := filepath.Join(b.runDir, "ledge.sock")
	if said := mapAtLimit().send(ctx, socket); said != "201 Created" { // what is listed and watched below
		t.Fatal(said)
	}
	var counts sync.Map
	flood := func(ctx context.Context, a abuse, clients int, wg *sync.WaitGroup) {
		for range clients {
			wg.Go(func() {
				for ctx.Err() == nil {
					n, _ := counts.LoadOrStore(a.name+": "+a.send(ctx, socket), new(atomic.Int64))
					n.(*atomic.Int64).Add(1)
				}
			})
		}
	}
	// First what unfolds the most, of as many as may be answered at once.
	crowd, leave := context.WithTimeout(ctx, span/4)
	defer leave()
	var crowded sync.WaitGroup
	flood(crowd, podAtLimit(), 64, &crowded)
	crowded.Wait()
	if _, ok := counts.Load("pod at the limit: 422 Unprocessable Entity"); !ok {
		t.Error("none of the pods at the limit was looked at")
	}
	for _, a := range abuses() {
		flood(ctx, a, 8, &wg)
	}
	answered, slowest := 0, time.Duration(0)
	for ctx.Err() == nil { // somebody with manners
		begin := time.Now()
		out, err := b.try("get", "nodes")
		switch {
		case err == nil:
			answered++
		case ctx.Err() == nil && !strings.Contains(out, "too many requests"):
			t.Errorf("a client with manners: %v\n%s", err, out)
		}
		slowest = max(slowest, time.Since(begin))
	}
	wg.Wait()
	counts.Range(func(k, v any) bool { t.Logf("%5d x %v", v.(*atomic.Int64).Load(), k); return true })
	t.Logf("before %d KiB, at most %d KiB, %+d; a client with manners was answered %d times, and waited %s at most",
		before, peak, peak-before, answered, slowest)
	if peak-before > abuseBudget {
		t.Errorf("the brain grew by %d KiB, the budget is %d", peak-before, abuseBudget)
	}
	if answered == 0 {
		t.Error("nobody else was answered")
	}
	b.eventually("the node is Ready", func() error { return contains(b.ledge("get", "nodes"), " Ready ") })
}

// peakOf is the most anonymous memory that a process has while f runs, in KiB.
func peakOf(t *testing.T, pid int, f func()) (peak int) {
	over := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for tick := time.NewTicker(10 * time.Millisecond); ; {
			peak = max(peak, statusKB(t, pid, "RssAnon"))
			select {
			case <-over:
				return
			case <-tick.C:
			}
		}
	})
	f()
	close(over)
	wg.Wait()
	return peak
}

// send does it once and says what came of it.
func (a abuse) send(ctx context.Context, socket string) string {
	conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
	if err != nil {
		return "no connection"
	}
	defer conn.Close()
	if a.unread {
		length := len(a.body)
		if a.method == "POST" {
			length = 100 << 10
		}
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: ledge\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n", a.method, a.path, a.kind, length)
		select {
		case <-ctx.Done():
		case <-time.After(2 * time.Second):
		}
		return "left"
	}
	req, err := http.NewRequestWithContext(ctx, a.method, "http://ledge"+a.path, bytes.NewReader([]byte(a.body)))
	if err != nil {
		return err.Error()
	}
	req.Header.Set("Content-Type", a.kind)
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(context.Context, string, string) (net.Conn, error) { return conn, nil }}}
	resp, err := client.Do(req)
	if err != nil {
		return "cut off"
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, resp.Body) // what comes after the status does not matter
	return resp.Status
}

// statusKB is a field of /proc/PID/status.
func statusKB(t *testing.T, pid int, field string) (kb int) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if n, _ := fmt.Sscanf(line, field+": %d kB", &kb); n == 1 {
			return kb
		}
	}
	t.Fatalf("process %d has no %s", pid, field)
	return 0
}
