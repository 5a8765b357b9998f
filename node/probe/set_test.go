package probe

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	goruntime "runtime"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"ledge/runtime"
)

// bench is a set whose probes are commands named after their kind, played by a script.
type bench struct {
	*testing.T
	set *Set

	mu     sync.Mutex
	does   map[string]string // kind -> what the next runs come to: + - ? (cannot be asked) . (hangs); the last one stays
	asked  []string
	events []string
	pokes  int
	began  time.Time
}

func newBench(t *testing.T, does map[string]string) *bench {
	b := &bench{T: t, does: does, began: time.Now()}
	b.set = New(b, "1").NewSet(func() { b.mu.Lock(); defer b.mu.Unlock(); b.pokes++ }, func(container, typ, reason, message string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, fmt.Sprintf("%s %s %s: %s", container, typ, reason, message))
	})
	time.Sleep(time.Hour) // the agent did not just begin
	b.began = time.Now()
	return b
}

// Exec notes when a probe ran, and does what the script says.
func (b *bench) Exec(ctx context.Context, x runtime.Exec) (runtime.Exit, error) {
	kind := x.Args[0]
	b.mu.Lock()
	script := b.does[kind]
	next := script[0]
	if len(script) > 1 {
		b.does[kind] = script[1:]
	}
	b.asked = append(b.asked, fmt.Sprintf("%s@%g", kind, time.Since(b.began).Seconds()))
	b.mu.Unlock()
	switch next {
	case '?':
		return runtime.Exit{}, errors.New("no such command")
	case 'u':
		return runtime.Exit{}, runtime.ErrUnavailable
	case '.':
		<-ctx.Done()
		return runtime.Exit{}, ctx.Err()
	case '-':
		fmt.Fprint(x.Stdout, "bad")
		return runtime.Exit{Code: 1}, nil
	}
	return runtime.Exit{}, nil
}

func (b *bench) said() (asked, events []string) {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	asked, events = b.asked, b.events
	b.asked, b.events = nil, nil
	return asked, events
}

func (b *bench) wants(what string, got []string, want ...string) {
	b.Helper()
	if !slices.Equal(got, want) {
		b.Errorf("%s: %q, want %q", what, got, want)
	}
}

func spec(kinds ...Kind) *corev1.Container {
	c := &corev1.Container{Name: "c"}
	for _, k := range kinds {
		p := &corev1.Probe{TimeoutSeconds: 2, PeriodSeconds: 10, FailureThreshold: 3, SuccessThreshold: 1,
			ProbeHandler: corev1.ProbeHandler{Exec: &corev1.ExecAction{Command: []string{string(k)}}}}
		switch k {
		case Startup:
			c.StartupProbe = p
		case Liveness:
			c.LivenessProbe = p
		case Readiness:
			c.ReadinessProbe = p
		}
	}
	return c
}

// TestOrder: nothing but startup runs until the container has started; then readiness at once (N-7.34).
func TestOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, map[string]string{"Startup": "--+", "Liveness": "+", "Readiness": "-+"})
		defer b.set.Close()
		target := []Target{{Spec: spec(Startup, Liveness, Readiness), ID: "1", StartedAt: time.Now()}}
		b.set.Sync("10.0.0.1", target, false)
		if h := b.set.Health()["1"]; h.Started || h.Ready || h.Failed != "" {
			t.Errorf("at first: %+v", h)
		}
		time.Sleep(45 * time.Second)
		b.set.Sync("10.0.0.1", target, false) // again changes nothing
		asked, events := b.said()
		slices.Sort(asked[4:]) // of the same moment
		b.wants("asked", asked, "Startup@10", "Startup@20", "Startup@30", "Readiness@30", "Liveness@40", "Readiness@40")
		b.wants("events", events, "c Warning Unhealthy: Startup probe failed: bad", "c Warning Unhealthy: Startup probe failed: bad",
			"c Warning Unhealthy: Readiness probe failed: bad")
		if h := b.set.Health()["1"]; !h.Started || !h.Ready || h.Failed != "" {
			t.Errorf("at last: %+v", h)
		}
		if b.pokes != 2 {
			t.Errorf("told %d times that something changed: it started, it was ready", b.pokes)
		}
	})
}

// TestFailing: three failures in a row kill, once; then nothing is asked until there is another container (N-7.35).
func TestFailing(t *testing.T) {
	for _, kind := range []Kind{Liveness, Startup} {
		synctest.Test(t, func(t *testing.T) {
			b := newBench(t, map[string]string{string(kind): "--+-.-+"})
			defer b.set.Close()
			if kind == Startup {
				b.does["Startup"] = "-.-+"
			}
			b.set.Sync("", []Target{{Spec: spec(kind), ID: "1", StartedAt: time.Now()}}, false)
			time.Sleep(10 * time.Minute)
			asked, events := b.said()
			if h := b.set.Health()["1"]; h.Failed != kind || len(asked) != map[Kind]int{Liveness: 6, Startup: 3}[kind] {
				t.Errorf("%s: %+v after %v", kind, h, asked)
			}
			if late := fmt.Sprintf(`c Warning Unhealthy: %s probe failed: command timed out: "%s" timed out after 2s`, kind,
				kind); !slices.Contains(events, late) {
				t.Errorf("events %q", events)
			}
			b.set.Sync("", []Target{{Spec: spec(kind), ID: "2", StartedAt: time.Now()}}, false)
			time.Sleep(10 * time.Second)
			if asked, _ = b.said(); len(asked) != 1 || b.set.Health()["2"].Failed != "" || len(b.set.Health()) != 1 {
				t.Errorf("%s: the next container: %v %+v", kind, asked, b.set.Health())
			}
		})
	}
}

// TestStopping: a pod that is going away is asked only whether it is ready (N-7.36).
func TestStopping(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, map[string]string{"Liveness": "-", "Readiness": "+"})
		defer b.set.Close()
		target := []Target{{Spec: spec(Liveness, Readiness), ID: "1", StartedAt: time.Now()}}
		b.set.Sync("", target, false)
		time.Sleep(25 * time.Second)
		b.set.Sync("", target, true)
		b.said()
		time.Sleep(30 * time.Second)
		asked, events := b.said()
		b.wants("asked", asked, "Readiness@30", "Readiness@40", "Readiness@50")
		b.wants("events", events)
		if h := b.set.Health()["1"]; !h.Ready || h.Failed != "" {
			t.Errorf("%+v", h)
		}
	})
}

// TestCannotAsk: an answer that could not be had counts for nothing (N-7.33).
func TestCannotAsk(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, map[string]string{"Readiness": "+?"})
		defer b.set.Close()
		b.set.Sync("", []Target{{Spec: spec(Readiness), ID: "1", StartedAt: time.Now()}}, false)
		time.Sleep(55 * time.Second)
		b.mu.Lock()
		b.does["Readiness"] = "u"
		b.mu.Unlock()
		time.Sleep(time.Minute) // the keeper is away: nobody need hear of it
		if _, events := b.said(); len(events) != 5 || !b.set.Health()["1"].Ready ||
			!strings.HasPrefix(events[0], "c Warning Unhealthy: Readiness probe errored and resulted in unknown state: ") {
			t.Errorf("%+v %q", b.set.Health(), events)
		}
	})
}

// TestTakingOver: a brain that has just begun goes on from what it had reported, and asks its many containers one after
// the other (N-7.34).
func TestTakingOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		before := time.Now()
		time.Sleep(time.Hour)
		b := &bench{T: t, does: map[string]string{"Startup": "-", "Readiness": "+", "Liveness": "+"}, began: time.Now()}
		set := New(b, "1").NewSet(func() {}, func(string, string, string, string) {})
		defer set.Close()
		var targets []Target
		for i := range 100 {
			targets = append(targets, Target{Spec: spec(Startup, Liveness, Readiness), ID: fmt.Sprint(i), StartedAt: before,
				Was: Health{Started: true, Ready: true}})
		}
		set.Sync("", targets, false)
		if h := set.Health()["7"]; !h.Started || !h.Ready {
			t.Errorf("taken over as %+v", h)
		}
		time.Sleep(5 * time.Second)
		asked, _ := b.said()
		if len(asked) < 40 || len(asked) > 160 || slices.ContainsFunc(asked, func(s string) bool { return strings.HasPrefix(s, "Startup") }) {
			t.Errorf("%d of 200 were asked in the first half of a period", len(asked))
		}
	})
}

// TestSetCloses: closing ends what is under way and leaves no goroutine; a bubble with one that waits would not end.
func TestSetCloses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t, map[string]string{"Readiness": ".", "Liveness": "+"})
		b.set.Sync("", []Target{{Spec: spec(Readiness, Liveness), ID: "1", StartedAt: time.Now()}}, false)
		time.Sleep(time.Second)
		b.set.Close()
		b.set.Sync("", []Target{{Spec: spec(Readiness), ID: "2", StartedAt: time.Now()}}, false)
		time.Sleep(time.Hour)
		if asked, events := b.said(); len(asked) != 1 || len(events) != 0 {
			t.Errorf("after the end: %v %v", asked, events)
		}
	})
}

// BenchmarkProbes is not about time: 50 pods with three probes each that wait. "goroutines" is how many they have,
// "B/probe" what one costs in memory.
func BenchmarkProbes(b *testing.B) {
	heap := func() float64 {
		var m goruntime.MemStats
		goruntime.GC()
		goruntime.GC()
		goruntime.ReadMemStats(&m)
		return float64(m.HeapAlloc)
	}
	for b.Loop() {
		before, goroutines := heap(), goruntime.NumGoroutine()
		p := New(execer(func(context.Context, runtime.Exec) (runtime.Exit, error) { return runtime.Exit{}, nil }), "1")
		var sets []*Set
		for i := range 50 {
			s := p.NewSet(func() {}, func(string, string, string, string) {})
			s.Sync("", []Target{{Spec: spec(Startup, Liveness, Readiness), ID: fmt.Sprint(i), StartedAt: time.Now().Add(time.Hour)}}, false)
			sets = append(sets, s)
		}
		b.ReportMetric((heap()-before)/150, "B/probe")
		b.ReportMetric(float64(goruntime.NumGoroutine()-goroutines), "goroutines")
		for _, s := range sets {
			s.Close()
		}
	}
}

// BenchmarkFifty is fifty pods with three probes each (httpGet, tcpSocket and grpc, every ten seconds) for half a minute:
// "%core" is the processor time of it all, the server's part included.
func BenchmarkFifty(b *testing.B) {
	const length = 30 * time.Second
	web, health := httptest.NewServer(webServer(nil)), healthServer(b)
	defer web.Close()
	defer health.Close()
	ip, c := listening(b, web.URL)
	_, h := listening(b, health.URL)
	var three []*corev1.Container
	for name, p := range map[string]*corev1.Probe{
		"a": httpProbe("/code/200"),
		"b": {ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}},
		"c": {ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: h.Ports[0].ContainerPort}}},
	} {
		p.PeriodSeconds, p.TimeoutSeconds, p.FailureThreshold, p.SuccessThreshold = 10, 5, 3, 1
		three = append(three, &corev1.Container{Name: name, Ports: c.Ports, ReadinessProbe: p})
	}
	spent := func() time.Duration {
		var u syscall.Rusage
		if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
			b.Fatal(err)
		}
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	for b.Loop() {
		p := New(execer(func(context.Context, runtime.Exec) (runtime.Exit, error) { return runtime.Exit{}, nil }), "1")
		var sets []*Set
		before := spent()
		for i := range 50 {
			s := p.NewSet(func() {}, func(string, string, string, string) {})
			var targets []Target
			for _, c := range three {
				targets = append(targets, Target{Spec: c, ID: fmt.Sprint(i, c.Name), StartedAt: time.Now()})
			}
			s.Sync(ip, targets, false)
			sets = append(sets, s)
		}
		time.Sleep(length)
		b.ReportMetric(100*(spent()-before).Seconds()/length.Seconds(), "%core")
		for _, s := range sets {
			for id, h := range s.Health() {
				if !h.Ready {
					b.Fatalf("%s was not answered", id)
				}
			}
			s.Close()
		}
	}
}

// BenchmarkAsk is asking once, of a server in the same process, whose part is in the figures. Fifty pods with three
// probes of ten seconds ask fifteen times a second.
func BenchmarkAsk(b *testing.B) {
	web, health := httptest.NewServer(webServer(nil)), healthServer(b)
	defer web.Close()
	defer health.Close()
	ip, c := listening(b, web.URL)
	_, h := listening(b, health.URL)
	for name, spec := range map[string]*corev1.Probe{
		"httpGet":   httpProbe("/code/200"),
		"tcpSocket": {ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("web")}}},
		"grpc":      {ProbeHandler: corev1.ProbeHandler{GRPC: &corev1.GRPCAction{Port: h.Ports[0].ContainerPort}}},
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if out := New(nil, "1").ask(b.Context(), spec, c, "", ip); out.Result != Success {
					b.Fatal(out)
				}
			}
		})
	}
}
