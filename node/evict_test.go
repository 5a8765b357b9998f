package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/images"
	it "ledge/images/imagestest"
	"ledge/node/evict"
	"ledge/node/machine"
	"ledge/node/podspec"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/node/stats"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

const mi = 1 << 20

// livingBoard is a board whose readings follow from what runs on it.
type livingBoard struct {
	*rig
	edit func(s *machine.Sample, running map[string]bool)

	mu   sync.Mutex
	last map[string]bool // what ran when the engine was there
}

func (b *livingBoard) look() (machine.Sample, error) {
	s := sampleBoard()
	b.mu.Lock()
	defer b.mu.Unlock()
	st, err := b.engine.List(b.Context())
	if errors.Is(err, runtime.ErrUnavailable) {
		b.edit(&s, b.last)
		return s, nil
	}
	if err != nil {
		return s, err
	}
	names := map[string]string{}
	for _, p := range st.Pods {
		names[p.Pod.UID] = p.Pod.Name
	}
	running := map[string]bool{}
	for _, c := range st.Containers {
		if c.Phase == runtime.Running {
			running[names[c.PodUID]] = true
		}
	}
	b.last = running
	b.edit(&s, running)
	return s, nil
}

// TestGlance: memory that is used up between two looks is seen within a second.
func TestGlance(t *testing.T) { // N-6.22: polling is the contract, and more than it is allowed
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["eater"] {
				s.MemoryAvailable = 0
			}
		})
		r.begin()
		r.pass(3 * time.Second)
		r.uses(r.pod("eater"), 300*mi, 1)
		r.pass(2 * time.Second)
		r.evicted("eater")
	})
}

// TestSlowDisk: who goes for want of memory does not wait for a look at a disk that is slow.
func TestSlowDisk(t *testing.T) { // beyond N-6.22
	with(t, nil, func(r *rig) {
		var takes atomic.Int64
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["eater"] {
				s.MemoryAvailable = 0
			}
		})
		r.machine.Before = func(bool) { time.Sleep(time.Duration(takes.Load())) }
		r.begin()
		r.pass(11500 * time.Millisecond) // a look has just been
		takes.Store(int64(30 * time.Second))
		r.uses(r.pod("eater"), 300*mi, 1)
		r.pass(3 * time.Second)
		r.evicted("eater")
	})
}

// signalWitness notes how many statuses of pods had been written when a signal was sent.
type signalWitness struct {
	Engine
	r      *rig
	before atomic.Int64
}

func (e *signalWitness) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	e.before.Store(int64(e.r.via.count("update pods")))
	return e.Engine.Signal(ctx, id, sig)
}

// TestSignalBeforeStatus: the end of a pod that the board wants does not wait until it is written that it is wanted, and if it
// comes at once only the end is written.
func TestSignalBeforeStatus(t *testing.T) {
	with(t, behaviours{"deaf": {IgnoreTERM: true}}, func(r *rig) {
		engine := &signalWitness{Engine: r.engine, r: r}
		r.cfg.Engine = engine
		r.begin()
		p := r.pod("p")
		slow := r.pod("slow", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "deaf" })
		r.pass(time.Second)
		written := r.via.count("update pods")
		stop := podstate.Stop{Reason: evict.Reason, Message: "m", Disruption: corev1.PodReasonTerminationByKubelet}
		if err := r.agent.StopPod(r.Context(), p.UID, stop); err != nil {
			t.Fatal(err)
		}
		if n := engine.before.Load(); n != int64(written) {
			t.Errorf("%d statuses were written first", n-int64(written))
		}
		r.evicted("p")
		if n := r.via.count("update pods"); n != written+1 {
			t.Errorf("%d statuses of a pod that ended at once", n-written)
		}
		go func() { _ = r.agent.StopPod(r.Context(), slow.UID, stop) }()
		r.pass(statusHeld + 10*time.Millisecond)
		said := slices.ContainsFunc(r.get("slow").Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget })
		if n := r.via.count("update pods"); n != written+2 || !said {
			t.Errorf("a pod that does not end at once: %d statuses, %+v", n-written-1, r.get("slow").Status.Conditions)
		}
		r.pass(10 * time.Second)
		if n := r.via.count("update pods"); n != written+2 {
			t.Errorf("%d statuses while it ends", n-written-1)
		}
		r.pass(time.Minute)
		r.evicted("slow")
	})
}

// TestDeafEater: an evicted pod has its grace as long as there is memory to wait with, and no longer.
func TestDeafEater(t *testing.T) { // N-6.31, and beyond it
	for _, c := range []struct {
		name     string
		each     int64 // bytes a second
		from, to time.Duration
	}{
		{"slow", 20 * mi, 2 * time.Second, 2500 * time.Millisecond}, // more than half of 100Mi is left after the two of its grace
		{"fast", 100 * mi, 100 * time.Millisecond, 600 * time.Millisecond},
	} {
		with(t, behaviours{"deaf": {IgnoreTERM: true}}, func(r *rig) {
			var began atomic.Pointer[time.Time] // when it starts to eat
			r.measured(func(s *machine.Sample, running map[string]bool) {
				s.MemoryAvailable = 150 * mi
				if at := began.Load(); running["eater"] && at != nil {
					s.MemoryAvailable = max(0, 100*mi-c.each*int64(time.Since(*at))/int64(time.Second))
				}
			})
			r.begin()
			r.uses(r.pod("eater", func(p *corev1.Pod) { p.Spec.Containers[0].Name = "deaf" }), 300*mi, 1)
			r.pass(pressure.MonitorPeriod)
			now := time.Now()
			began.Store(&now)
			for len(r.events.of("Killing")) == 0 && time.Since(now) < time.Minute {
				r.pass(10 * time.Millisecond)
			}
			told := time.Now()
			for r.get("eater").Status.Phase == corev1.PodRunning && time.Since(now) < time.Minute {
				r.pass(10 * time.Millisecond)
			}
			r.evicted("eater")
			if took := time.Since(told); took < c.from || took > c.to {
				t.Errorf("%s: it lived for %s more, want %s to %s", c.name, took, c.from, c.to)
			}
		})
	}
}

// TestStall: when the kernel says that tasks wait for memory, nobody waits for the clock.
func TestStall(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["eater"] {
				s.MemoryAvailable = 0
			}
		})
		kernel := r.kernel()
		r.begin()
		r.pass(3500 * time.Millisecond)
		r.uses(r.pod("eater"), 300*mi, 1)
		r.want("not seen yet", r.events.of("Evicted"))
		kernel <- "memory"
		synctest.Wait() // no time has passed
		if n := len(r.events.of("Evicted")); n != 1 {
			t.Errorf("%d evicted", n)
		}
		r.pass(time.Second)
		r.evicted("eater")
	})
}

// kernel gives the agent one that tells what tasks have to wait for: what is sent.
func (r *rig) kernel() chan<- string {
	stalls := make(chan string)
	r.machine.Waits = stalls
	return stalls
}

// disks counts the looks at the room of a board, and says how long each look takes.
type disks struct{ rooms, takes atomic.Int64 }

func (r *rig) disks() *disks {
	d := &disks{}
	r.machine.Before = func(all bool) {
		if !all {
			d.rooms.Add(1)
		}
		time.Sleep(time.Duration(d.takes.Load()))
	}
	return d
}

// TestBusy: when the kernel says that tasks wait for a disk or a processor, disks and processes are looked at within a second,
// and once a second at most.
func TestBusy(t *testing.T) { // N-6.22
	for _, resource := range []string{"io", "cpu"} {
		with(t, nil, func(r *rig) {
			d := r.disks()
			r.measured(func(s *machine.Sample, running map[string]bool) {
				if running["bomb"] {
					s.PIDUsed, s.NodeFS.InodesFree = s.PIDMax-10, 0
				}
			})
			kernel := r.kernel()
			r.begin()
			r.pass(11 * time.Second) // a look has just been
			before := d.rooms.Load()
			for range 25 {
				kernel <- resource
				r.pass(100 * time.Millisecond)
			}
			if n := d.rooms.Load() - before; n < 2 || n > 3 {
				t.Errorf("%s: asked %d times in 2.5 s", resource, n)
			}
			r.uses(r.pod("bomb"), mi, 3000)
			synctest.Wait()
			if c := r.agent.Pressure().Report().Conditions; c[1].Status || c[2].Status {
				t.Errorf("%s: before anybody could know: %+v", resource, c)
			}
			kernel <- resource
			r.pass(time.Second)
			if c := r.agent.Pressure().Report().Conditions; !c[1].Status || !c[2].Status {
				t.Errorf("%s: %+v", resource, c)
			}
		})
	}
}

// TestRoomNear: where the kernel does not tell, disks and processes are looked at the more often the nearer their lines are.
func TestRoomNear(t *testing.T) { // N-6.22
	with(t, nil, func(r *rig) {
		var began atomic.Pointer[time.Time]
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if from := began.Load(); running["bomb"] && from != nil { // 3000 to the line, at 400 a second: 7.5 s
				s.PIDUsed = s.PIDMax - s.PIDMax/20 - 3000 + int64(400*time.Since(*from).Seconds())
			}
		})
		r.begin()
		r.uses(r.pod("bomb"), mi, 3000)
		r.pass(pressure.MonitorPeriod) // the next look of the clock is one period away
		now := time.Now()
		began.Store(&now)
		for len(r.events.of("Evicted")) == 0 && time.Since(now) < time.Minute {
			r.pass(10 * time.Millisecond)
		}
		if took := time.Since(now); took < 7500*time.Millisecond || took > 8600*time.Millisecond {
			t.Errorf("told to go after %v, the line is met after 7.5 s", took)
		}
	})
}

// TestSlowLook: a look at a disk that hangs holds up nothing for want of memory, whatever has begun it.
func TestSlowLook(t *testing.T) { // beyond N-6.22
	for _, begin := range []string{"the clock", "a stall"} {
		with(t, nil, func(r *rig) {
			d := r.disks()
			r.measured(func(s *machine.Sample, running map[string]bool) {
				if running["eater"] {
					s.MemoryAvailable = 0
				}
			})
			kernel := r.kernel()
			r.begin()
			r.pass(3 * time.Second)
			d.takes.Store(int64(time.Hour))
			wait := 9 * time.Second // the next look hangs by then
			if begin == "a stall" {
				kernel <- "io"
				wait = time.Second
			}
			r.pass(wait)
			r.uses(r.pod("eater"), 300*mi, 1)
			kernel <- "memory"
			synctest.Wait()
			r.want("by "+begin, r.events.of("Evicted"),
				"Warning Evicted eater: The node was low on resource: memory. Threshold quantity: 100Mi, available: 0. "+
					"Container c was using 300Mi, request is 0, has larger consumption of memory. map[offending_containers:c offending_containers_usage:300Mi starved_resource:memory]")
			d.takes.Store(0)
		})
	}
}

// uses writes what the kernel counts for a pod of one container: memory and processes.
func (r *rig) uses(p *corev1.Pod, memory, tasks int64) {
	r.Helper()
	pod := filepath.Join(r.dir, "cgroup", podspec.Cgroup(p))
	for _, dir := range []string{pod, filepath.Join(pod, containerID(p, "c", 0))} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			r.Fatal(err)
		}
		for file, n := range map[string]int64{"memory.current": memory, "pids.current": tasks} {
			if err := os.WriteFile(filepath.Join(dir, file), fmt.Appendln(nil, n), 0o600); err != nil {
				r.Fatal(err)
			}
		}
		if err := os.WriteFile(filepath.Join(dir, "memory.stat"), fmt.Appendf(nil, "anon %d\nfile 0\ninactive_file 0\n", memory),
			0o600); err != nil {
			r.Fatal(err)
		}
	}
}

// measured gives the agent a kernel to read, and a board that lives.
func (r *rig) measured(edit func(s *machine.Sample, running map[string]bool)) {
	r.cfg.Stats = stats.New(stats.Config{Mount: filepath.Join(r.dir, "cgroup"), Proc: r.dir})
	r.machine.See = (&livingBoard{rig: r, edit: edit}).look
}

func asks(memory string) func(*corev1.Pod) {
	return func(p *corev1.Pod) {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	}
}

func class(name string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.PriorityClassName = name }
}

func (r *rig) evicted(names ...string) {
	r.Helper()
	for _, name := range names {
		p := r.get(name)
		if p.Status.Phase != corev1.PodFailed || p.Status.Reason != "Evicted" {
			r.Errorf("%s is %s %s", name, p.Status.Phase, p.Status.Reason)
		}
	}
}

// TestEvictsForMemory: the pod goes that is furthest above its request, with Kubernetes' words, and nobody else.
func TestEvictsForMemory(t *testing.T) { // N-6.18, N-6.25, N-6.30 to N-6.33
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["eater"] {
				s.MemoryAvailable = 40 * mi
			}
		})
		r.begin()
		r.uses(r.pod("within", asks("100Mi")), 90*mi, 1)
		r.uses(r.pod("small"), 10*mi, 1)
		r.uses(r.pod("critical", class("system-node-critical")), 900*mi, 1)
		r.uses(r.pod("eater", asks("16Mi")), 300*mi, 1)
		r.pass(pressure.MonitorPeriod + time.Second)
		r.evicted("eater")
		const why = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 40Mi. " +
			"Container c was using 300Mi, request is 16Mi, has larger consumption of memory. "
		p := r.get("eater")
		if p.Status.Message != why {
			t.Errorf("message %q", p.Status.Message)
		}
		found := false
		for _, c := range p.Status.Conditions {
			found = found || c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue && c.Reason == "TerminationByKubelet" &&
				c.Message == why
		}
		if !found {
			t.Errorf("no condition DisruptionTarget: %+v", p.Status.Conditions)
		}
		r.want("running", sortedNames(r), "critical", "small", "within")
		r.want("events", r.events.of("Evicted", "EvictionThresholdMet"), "Warning EvictionThresholdMet n: Attempting to reclaim memory",
			"Warning Evicted eater: "+why+
				"map[offending_containers:c offending_containers_usage:300Mi starved_resource:memory]")
		if nodeCondition(r.node(), corev1.NodeMemoryPressure).Status != corev1.ConditionTrue {
			t.Error("the condition was not posted")
		}
		_, text, _, err := r.agent.Page(r.Context(), "/metrics") // N-6.37
		for _, line := range []string{"kubelet_evictions{eviction_signal=\"memory.available\"} 1\n",
			"kubelet_eviction_stats_age_seconds_bucket{eviction_signal=\"memory.available\",le=\"0.005\"} 1\n",
			"kubelet_eviction_stats_age_seconds_count{eviction_signal=\"memory.available\"} 1\n"} {
			if err != nil || !strings.Contains(string(text), line) {
				t.Errorf("no %q, %v: %s", line, err, text)
			}
		}
		r.pass(pressure.Transition + 20*time.Second)
		if c := nodeCondition(r.node(), corev1.NodeMemoryPressure); c.Status != corev1.ConditionFalse {
			t.Errorf("it is over: %+v", c)
		}
		r.want("running at the end", sortedNames(r), "critical", "small", "within")
		r.evicted("eater") // its record stays (N-6.36)
	})
}

// TestMappedPagesCount: programs at work are not what a board has left, for the looks and for the glances between them; page
// cache is, mapped or not.
func TestMappedPagesCount(t *testing.T) { // beyond N-6.1
	for name, c := range map[string]struct {
		available, mapped int64
		evicts            bool
	}{
		"programs": {150 * mi, 80 * mi, true}, "few programs": {150 * mi, 40 * mi, false}, "a large file": {300 * mi, 290 * mi, false},
	} {
		for _, glances := range []bool{false, true} {
			with(t, nil, func(r *rig) {
				r.measured(func(s *machine.Sample, running map[string]bool) {
					if running["p"] {
						s.MemoryAvailable, s.MemoryMapped = c.available, c.mapped
					}
				})
				r.machine.Mute = !glances
				within := pressure.MonitorPeriod
				if glances {
					within = time.Second
				}
				r.begin()
				r.pass(3 * time.Second)
				r.uses(r.pod("p"), 300*mi, 1)
				r.pass(within + time.Second)
				if n := len(r.events.of("Evicted")); (n == 1) != c.evicts {
					t.Errorf("%s, glances %v: %d evicted", name, glances, n)
				}
			})
		}
	}
}

// sortedNames are the pods that run something.
func sortedNames(r *rig) []string {
	b := &livingBoard{rig: r, edit: func(s *machine.Sample, running map[string]bool) {}}
	var out []string
	b.edit = func(_ *machine.Sample, running map[string]bool) { out = slices.Sorted(maps.Keys(running)) }
	if _, err := b.look(); err != nil {
		r.Fatal(err)
	}
	return out
}

// TestEvictsOneByOne: the next pod goes only when the one before it is gone and it was not enough; a hard threshold leaves
// a second, and the two of N-7.29.
func TestEvictsOneByOne(t *testing.T) { // N-6.18, N-6.20, N-6.31
	with(t, map[string]enginefake.Behaviour{"c": {IgnoreTERM: true}}, func(r *rig) {
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["a"] && running["b"] && running["c"] || running["b"] && running["c"] {
				s.MemoryAvailable = 0
			}
		})
		r.machine.Mute = true
		r.begin()
		for i, name := range []string{"a", "b", "c"} {
			r.uses(r.pod(name), int64(300-100*i)*mi, 1)
		}
		r.pass(pressure.MonitorPeriod)
		r.want("events of the first", r.events.of("Evicted"),
			"Warning Evicted a: The node was low on resource: memory. Threshold quantity: 100Mi, available: 0. "+
				"Container c was using 300Mi, request is 0, has larger consumption of memory. map[offending_containers:c offending_containers_usage:300Mi starved_resource:memory]")
		r.pass(time.Second)
		r.want("the first is still there", sortedNames(r), "a", "b", "c")
		r.pass(4 * time.Second)
		r.evicted("a", "b")
		r.pass(time.Minute)
		r.want("who is left", sortedNames(r), "c")
	})
}

// TestEvictsUnheard: whoever has gone has gone, whether its end can be told or not; but what it has in memory stays until it is.
func TestEvictsUnheard(t *testing.T) { // N-6.20
	for _, medium := range []corev1.StorageMedium{corev1.StorageMediumDefault, corev1.StorageMediumMemory} {
		with(t, nil, func(r *rig) {
			r.measured(func(s *machine.Sample, running map[string]bool) {
				if running["b"] {
					s.MemoryAvailable = 0
				}
			})
			r.machine.Mute = true
			r.begin()
			for i, name := range []string{"a", "b", "c"} {
				r.uses(r.pod(name, func(p *corev1.Pod) {
					p.Spec.Volumes = []corev1.Volume{{Name: "v",
						VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{Medium: medium}}}}
				}), int64(300-100*i)*mi, 1)
			}
			r.pass(pressure.MonitorPeriod - time.Second)
			r.via.breaks(down)
			r.pass(5 * time.Second)
			if n, want := len(r.events.of("Evicted")),
				map[corev1.StorageMedium]int{corev1.StorageMediumDefault: 2, corev1.StorageMediumMemory: 1}[medium]; n != want {
				t.Errorf("medium %q: %d were told to go, want %d", medium, n, want)
			}
			r.pass(30 * time.Second)
			r.want("who is left", sortedNames(r), "c")
			r.via.breaks(nil)
			r.pass(time.Minute)
			r.evicted("a", "b")
			r.delete("c", new(int64(0)))
			r.pass(10 * time.Second)
		})
	}
}

// TestBlind: while the board cannot be read nothing is decided, and what was decided holds.
func TestBlind(t *testing.T) { // N-6.21
	with(t, nil, func(r *rig) {
		var short, blind atomic.Bool
		r.measured(func(s *machine.Sample, _ map[string]bool) {
			if short.Load() {
				s.MemoryAvailable = mi
			}
		})
		sees := r.machine.See
		r.machine.See = func() (machine.Sample, error) {
			if blind.Load() {
				return machine.Sample{}, errors.New("input/output error")
			}
			return sees()
		}
		r.begin()
		r.uses(r.pod("p"), 300*mi, 1)
		blind.Store(true)
		short.Store(true)
		r.pass(time.Minute)
		r.want("events while it is blind", r.events.of("Evicted", "EvictionThresholdMet"))
		r.want("running while it is blind", sortedNames(r), "p")
		if report := r.agent.Pressure().Report(); report.Conditions[0].Status || time.Since(report.At) < 50*time.Second {
			t.Errorf("decided while it is blind: %+v", report)
		}
		blind.Store(false)
		r.pass(pressure.MonitorPeriod + time.Second)
		r.evicted("p")
		blind.Store(true)
		short.Store(false)
		r.pass(2 * pressure.Transition)
		if !r.agent.Pressure().Report().Conditions[0].Status {
			t.Error("the condition was taken back without a look")
		}
	})
}

// TestPartlyBlind: what cannot be read decides nothing; what can be read decides, and the Node keeps what it has.
func TestPartlyBlind(t *testing.T) { // N-6.7
	with(t, nil, func(r *rig) {
		var blind atomic.Bool
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if !blind.Load() {
				return
			}
			s.Unread = errors.New("input/output error")
			s.MemoryTotal, s.MemoryAvailable, s.MemoryUnknown = 0, 0, true
			s.NodeFS, s.ImageFS = machine.Filesystem{}, machine.Filesystem{}
			if running["bomb"] {
				s.PIDUsed = s.PIDMax - 10
			}
		})
		r.begin()
		r.uses(r.pod("many"), 900*mi, 20)
		r.pass(time.Second)
		was := r.node().Status.Capacity
		blind.Store(true)
		r.uses(r.pod("bomb"), mi, 3000)
		r.pass(2 * pressure.MonitorPeriod)
		r.evicted("bomb")
		r.want("running", sortedNames(r), "many")
		node := r.node()
		if !equality.Semantic.DeepEqual(node.Status.Capacity, was) || !isReady(node) ||
			nodeCondition(node, corev1.NodePIDPressure).Status != corev1.ConditionTrue ||
			nodeCondition(node, corev1.NodeMemoryPressure).Status != corev1.ConditionFalse {
			t.Errorf("the Node is %+v", node.Status)
		}
		for _, s := range r.agent.Pressure().Report().Signals {
			if known := s.Available != nil; known != (s.Signal == pressure.PIDAvailable) {
				t.Errorf("%s: known %v", s.Signal, known)
			}
		}
		r.begin() // one that has never known what there is tells nothing of it
		r.pass(2 * pressure.MonitorPeriod)
		if node := r.node(); !equality.Semantic.DeepEqual(node.Status.Capacity, was) {
			t.Errorf("told without knowing: %v", node.Status.Capacity)
		}
	})
}

// TestSoftEviction: after its grace, and a pod gets what it asks for, within what the board allows.
func TestSoftEviction(t *testing.T) { // N-6.12, N-6.19, N-6.31
	with(t, map[string]enginefake.Behaviour{"c": {IgnoreTERM: true}}, func(r *rig) {
		r.cfg.Status.Eviction = pressure.Policy{MaxPodGrace: 20 * time.Second, Thresholds: []pressure.Threshold{
			{Signal: pressure.MemoryAvailable, Below: pressure.Limit{Amount: 1 << 30}, Soft: true, Grace: time.Minute}}}
		r.measured(func(s *machine.Sample, running map[string]bool) { s.MemoryAvailable = 500 * mi })
		r.begin()
		r.pass(30 * time.Second)
		r.pod("p", asks("1Mi"))
		if c := nodeCondition(r.node(), corev1.NodeMemoryPressure); c.Status != corev1.ConditionTrue {
			t.Errorf("not raised at once: %+v", c)
		}
		r.pass(25 * time.Second)
		r.want("events before the grace is over", r.events.of("Evicted", "EvictionThresholdMet"))
		r.pass(20 * time.Second)
		r.want("it has its 20 seconds", sortedNames(r), "p")
		r.pass(16 * time.Second)
		r.evicted("p")
	})
}

// TestNobodyToEvict: critical pods stay whatever happens.
func TestNobodyToEvict(t *testing.T) { // N-6.30
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, _ map[string]bool) { s.MemoryAvailable, s.PIDUsed = 0, s.PIDMax })
		r.begin()
		r.pod("p", class("system-cluster-critical"))
		r.pass(5 * time.Minute)
		r.want("running", sortedNames(r), "p")
	})
}

func TestEvictsForProcesses(t *testing.T) { // N-6.6, N-6.27
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if running["bomb"] {
				s.PIDUsed = s.PIDMax - 10
			}
		})
		r.begin()
		r.uses(r.pod("many", asks("1Mi")), 900*mi, 20)
		r.uses(r.pod("bomb", asks("1Gi")), mi, 3000)
		r.pass(pressure.MonitorPeriod + time.Second)
		r.evicted("bomb")
		if m := r.get("bomb").Status.Message; m != "The node was low on resource: pids. Threshold quantity: 1638, available: 10. " {
			t.Errorf("message %q", m)
		}
		r.want("running", sortedNames(r), "many")
	})
}

// TestNoRoomForTheEnd: on a disk with no room for the status of the pod that filled it, the pod's files go first, and nobody
// else's.
func TestNoRoomForTheEnd(t *testing.T) { // reliability: a full card
	with(t, nil, func(r *rig) {
		r.cfg.Written = func(id string) string { return filepath.Join(r.dir, "roots", id) }
		var filler *corev1.Pod
		var full atomic.Bool
		filled := func() bool {
			return full.Load() && exists(filepath.Join(r.dir, "data/volumes", string(filler.UID), "v/big"))
		}
		r.measured(func(s *machine.Sample, running map[string]bool) {
			if filled() {
				s.NodeFS.Available = 0
			}
		})
		r.begin()
		r.uses(r.pod("other"), mi, 1)
		filler = r.pod("filler", func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
		})
		r.uses(filler, mi, 1)
		r.pass(time.Second)
		big := filepath.Join(r.dir, "data/volumes", string(filler.UID), "v/big")
		if err := errors.Join(os.MkdirAll(filepath.Dir(big), 0o755), os.WriteFile(big, make([]byte, 8<<10), 0o600)); err != nil {
			r.Fatal(err)
		}
		r.via.breaks(func(verb string, _ *api.Kind) error {
			if verb != "get" && verb != "list" && verb != "watch" && filled() {
				return apierrors.NewGenericServerResponse(http.StatusInsufficientStorage, verb, schema.GroupResource{}, "", "full", 0, true)
			}
			return nil
		})
		full.Store(true)
		r.pass(pressure.MonitorPeriod + 5*time.Second)
		r.evicted("filler")
		if s := r.get("filler").Status.ContainerStatuses[0]; s.State.Terminated == nil {
			t.Errorf("%+v", s)
		}
		r.want("running", sortedNames(r), "other")
	})
}

// TestDiskOrder: what nobody needs goes first, the least missed of it at the front, and only as much as has to.
func TestDiskOrder(t *testing.T) { // N-6.23, N-6.26, pain 12
	for enough, want := range map[string]string{"logs": "", "own": "logs", "dead": "logs own", "image": "logs own dead",
		"pod": "logs own dead image"} {
		with(t, map[string]enginefake.Behaviour{"c": {}, "dies": enginefake.For(time.Second, 1)}, func(r *rig) {
			reg := r.far()
			old, written := filepath.Join(r.dir, "data/logs/x/c/0.log.3"), filepath.Join(r.dir, "data/volumes")
			var shrunk atomic.Bool
			r.cfg.Shrink = func(context.Context) (bool, error) { return !shrunk.Swap(true), nil }
			there := map[string]func(running map[string]bool) bool{
				"own":  func(map[string]bool) bool { return !shrunk.Load() },
				"logs": func(map[string]bool) bool { return exists(old) },
				"dead": func(map[string]bool) bool {
					return slices.ContainsFunc(slices.Collect(maps.Keys(r.images.Mounts())),
						func(key string) bool { return strings.HasSuffix(key, ".dies.0") })
				},
				"image": func(map[string]bool) bool {
					_, err := r.images.Get(r.Context(), "registry.example/unused:v1")
					return err == nil
				},
				"pod": func(running map[string]bool) bool { return running["p"] },
			}
			r.cfg.Written = func(id string) string { return filepath.Join(r.dir, "roots", id) }
			var short atomic.Bool
			r.measured(func(s *machine.Sample, running map[string]bool) {
				if short.Load() && there[enough](running) {
					s.NodeFS.Available = s.NodeFS.Capacity / 100
					s.ImageFS = s.NodeFS
				}
			})
			r.begin()
			unused := it.Sample(farImage)
			unused.Names = []string{"registry.example/unused:v1"}
			reg.Push(unused)
			if _, err := r.images.Pull(r.Context(), images.PullRequest{Ref: unused.Names[0]}); err != nil {
				t.Fatal(err)
			}
			p := r.pod("p", policy(corev1.RestartPolicyNever), func(p *corev1.Pod) {
				p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Name: "dies", Image: image, Command: []string{"x"}})
				p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
			})
			r.uses(p, mi, 1)
			for _, file := range []string{old, filepath.Join(written, string(p.UID), "v", "big")} {
				if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(file, make([]byte, 8<<10), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			r.pass(2 * time.Second)
			short.Store(true)
			r.pass(20 * time.Second)
			for what, f := range there {
				gone := !f(map[string]bool{"p": len(sortedNames(r)) > 0})
				should := what == enough || strings.Contains(want, what)
				if gone != should {
					t.Errorf("enough is %s: %s gone: %v", enough, what, gone)
				}
			}
			if enough == "pod" {
				r.evicted("p")
			}
		})
	}
}

// TestStorageLimit: a container that writes more than it may goes, on a board that is short of nothing.
func TestStorageLimit(t *testing.T) { // N-6.34
	with(t, nil, func(r *rig) {
		r.cfg.Written = func(id string) string { return filepath.Join(r.dir, "written", id) }
		r.begin()
		limit := func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Limits = corev1.ResourceList{corev1.ResourceEphemeralStorage: resource.MustParse("64Ki")}
		}
		for _, name := range []string{"fits", "over"} {
			dir := r.cfg.Written(containerID(r.pod(name, limit), "c", 0))
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			size := map[string]int{"fits": 16 << 10, "over": 256 << 10}[name]
			if err := os.WriteFile(filepath.Join(dir, "f"), make([]byte, size), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		r.pass(measureEvery + 5*time.Second)
		r.evicted("over")
		const why = "Pod ephemeral local storage usage exceeds the total limit of containers 64Ki. "
		p := r.get("over")
		if p.Status.Message != why || slices.ContainsFunc(p.Status.Conditions,
			func(c corev1.PodCondition) bool { return c.Type == corev1.DisruptionTarget }) {
			t.Errorf("%q %+v", p.Status.Message, p.Status.Conditions)
		}
		r.want("events", r.events.of("Evicted", "EvictionThresholdMet"), "Warning Evicted over: "+why)
		r.want("running", sortedNames(r), "fits")
	})
}

// TestAdmissionUnderPressure: a board that is short takes nothing that would make it worse.
func TestAdmissionUnderPressure(t *testing.T) { // N-6.35
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, _ map[string]bool) { s.MemoryAvailable = mi })
		r.begin()
		r.pod("besteffort")
		r.pod("critical", class("system-node-critical"))
		r.pass(time.Second)
		r.evicted("besteffort")
		if m := r.get("besteffort").Status.Message; m != "Pod was rejected: The node had condition: [MemoryPressure]. " {
			t.Errorf("message %q", m)
		}
		r.want("running", sortedNames(r), "critical")
	})
	with(t, nil, func(r *rig) {
		r.measured(func(s *machine.Sample, _ map[string]bool) { s.NodeFS.InodesFree = 0 })
		r.begin()
		r.pod("burstable", asks("1Mi"))
		r.pass(time.Second)
		if m := r.get("burstable").Status.Message; m != "Pod was rejected: The node had condition: [DiskPressure]. " {
			t.Errorf("message %q", m)
		}
	})
}

// TestEvictsNobodyWithoutEngine: while the engine is away nobody could be stopped, and who was chosen meanwhile would go beside the
// one who frees enough.
func TestEvictsNobodyWithoutEngine(t *testing.T) { // N-6.20
	for _, c := range []struct {
		late   bool  // the engine is lost after the eater was told to go
		left   int64 // of memory; 0: of processes
		within time.Duration
	}{{false, 90 * mi, 3 * time.Second}, {true, 90 * mi, 3 * time.Second}, {false, 20 * mi, 500 * time.Millisecond},
		{false, 0, 3 * time.Second}} {
		late := c.late
		with(t, map[string]enginefake.Behaviour{"c": {IgnoreTERM: true}}, func(r *rig) {
			var begun atomic.Bool
			r.measured(func(s *machine.Sample, running map[string]bool) {
				switch {
				case !begun.Load() || !running["eater"]:
				case c.left > 0:
					s.MemoryAvailable = c.left
				default:
					s.PIDUsed = s.PIDMax - 100
				}
			})
			r.kernel()
			r.begin()
			r.uses(r.pod("small"), 10*mi, 1)
			r.uses(r.pod("other"), 20*mi, 1)
			r.uses(r.pod("eater"), 300*mi, 9000)
			r.pass(3 * time.Second)
			if !late {
				r.engine.SetAway(true)
			}
			begun.Store(true)
			if late {
				for len(r.events.of(evict.Reason)) == 0 {
					r.pass(10 * time.Millisecond)
				}
				r.engine.SetAway(true)
			}
			r.pass(3*time.Minute + time.Second)
			if n := len(r.events.of(evict.Reason)); n > 1 || !late && n > 0 {
				t.Errorf("late %v: %d were told to go while nobody could be stopped", late, n)
			}
			r.engine.SetAway(false)
			r.pass(c.within) // well before the next look of the clock
			r.evicted("eater")
			r.want("running", sortedNames(r), "other", "small")
			r.pass(time.Minute)
			r.want("running", sortedNames(r), "other", "small")
		})
	}
}
