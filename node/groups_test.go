package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/machine"
	"ledge/node/podspec"
	"ledge/node/pressure"
	"ledge/runtime"
)

// groupCounter counts how often cgroups above the pods are bounded.
type groupCounter struct {
	Engine
	calls atomic.Int32
}

func (e *groupCounter) Limit(ctx context.Context, at runtime.Place, r runtime.Resources) error {
	if at.Container == "" && strings.HasPrefix(at.Group, podspec.AllPods) {
		e.calls.Add(1)
	}
	return e.Engine.Limit(ctx, at, r)
}

// TestGroupsAreToldOnce: the engine hears of the groups when what pods ask for in all has changed, and each minute
// (N-7.43).
func TestGroupsAreToldOnce(t *testing.T) {
	with(t, nil, func(r *rig) {
		engine := &groupCounter{Engine: r.engine}
		r.cfg.Engine = engine
		r.begin()
		r.pass(time.Second)
		count := func(what string, want int32) {
			r.Helper()
			if got := engine.calls.Swap(0); got != want {
				r.Errorf("%s: %d calls, want %d", what, got, want)
			}
		}
		count("at the start", 3)
		r.pod("asks-for-nothing")
		r.pass(time.Second)
		count("a pod that asks for nothing", 0)
		r.pod("asks", sizedPod("100m", "-", "10Mi", "-"))
		r.pass(time.Second)
		count("a pod that asks for CPU: only the group of its class", 1)
		r.delete("asks", nil)
		r.pass(time.Second)
		count("it has gone", 1)
		r.pass(groupsEvery)
		count("a minute later", 3)
	})
}

// limitKeeper keeps what cgroups above the pods were bounded to last.
type limitKeeper struct {
	Engine
	mu   sync.Mutex
	last map[string]runtime.Resources
}

func (e *limitKeeper) Limit(ctx context.Context, at runtime.Place, r runtime.Resources) error {
	if at.Container == "" {
		e.mu.Lock()
		e.last[at.Group] = r
		e.mu.Unlock()
	}
	return e.Engine.Limit(ctx, at, r)
}

// TestTasksAreMeasured: all pods together may have what the board's own processes, as last counted, and three quarters of the
// eviction threshold leave; a few more or less are no news.
func TestTasksAreMeasured(t *testing.T) {
	with(t, nil, func(r *rig) {
		engine := &limitKeeper{Engine: r.engine, last: map[string]runtime.Resources{}}
		r.cfg.Engine = engine
		r.cfg.Status.Eviction = pressure.Default()
		var own atomic.Int64
		own.Store(200)
		r.measured(func(s *machine.Sample, _ map[string]bool) { s.PIDMax, s.PIDUsed = 2000, own.Load()+30 })
		group := filepath.Join(r.dir, "cgroup", podspec.AllPods)
		if err := errors.Join(os.MkdirAll(group, 0o755), os.WriteFile(filepath.Join(group, "pids.current"), []byte("30\n"), 0o600)); err != nil {
			t.Fatal(err)
		}
		r.begin()
		for _, c := range []struct{ own, want int64 }{{200, 1725}, {218, 1725}, {219, 1706}, {201, 1706}, {200, 1725}} {
			own.Store(c.own)
			r.pass(11 * time.Second)
			engine.mu.Lock()
			if got := engine.last[podspec.AllPods].PidsLimit; got != c.want {
				t.Errorf("%d of its own: %d, want %d", c.own, got, c.want)
			}
			engine.mu.Unlock()
		}
	})
}

// TestStatusOnItsWay: what is only on its way to run is told when it runs, and not later than a moment.
func TestStatusOnItsWay(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		before := r.via.count("update pods")
		r.pod("quick")
		r.pass(statusHeld / 2)
		if told := r.via.count("update pods") - before; told != 1 || r.get("quick").Status.Phase != corev1.PodRunning {
			r.Errorf("told %d times, then %s, want once, when it runs", told, r.get("quick").Status.Phase)
		}
	})
	with(t, nil, func(r *rig) {
		r.cfg.Engine = &slowEngine{Engine: r.engine, takes: statusHeld}
		r.begin()
		r.pod("slow", func(p *corev1.Pod) {
			for _, name := range []string{"d", "e"} {
				c := p.Spec.Containers[0]
				c.Name = name
				p.Spec.Containers = append(p.Spec.Containers, c)
			}
		})
		r.pass(statusHeld - time.Millisecond)
		if st := r.get("slow").Status; len(st.ContainerStatuses) != 0 {
			r.Errorf("told already: %+v", st)
		}
		r.pass(2 * time.Millisecond)
		if st := r.get("slow").Status; st.Phase != corev1.PodPending || len(st.ContainerStatuses) != 3 {
			r.Errorf("while the second container is started: %+v, want to be told of three that wait", st)
		}
		r.pass(time.Second)
		if st := r.get("slow").Status; st.Phase != corev1.PodRunning {
			r.Errorf("in the end: %s", st.Phase)
		}
	})
}

// slowEngine takes its time for each start, and knows the first signal of each container.
type slowEngine struct {
	Engine
	takes time.Duration
	first sync.Map
}

func (e *slowEngine) Signal(ctx context.Context, id string, sig syscall.Signal) error {
	e.first.LoadOrStore(id, sig)
	return e.Engine.Signal(ctx, id, sig)
}

func (e *slowEngine) Start(ctx context.Context, c runtime.Container) (runtime.Status, error) {
	time.Sleep(e.takes)
	return e.Engine.Start(ctx, c)
}

// TestDeletedOnItsWay: a pod that is deleted while it comes up is asked to stop, although its status was not told.
func TestDeletedOnItsWay(t *testing.T) {
	for what, grace := range map[string]*int64{"with its grace": nil, "by force": new(int64)} {
		t.Run(what, func(t *testing.T) {
			with(t, nil, func(r *rig) {
				engine := &slowEngine{Engine: r.engine, takes: statusHeld}
				r.cfg.Engine = engine
				r.begin()
				r.pod("p")
				r.pass(statusHeld / 2)
				r.delete("p", grace)
				r.pass(time.Second)
				r.nothingLeft()
				engine.first.Range(func(id, sig any) bool {
					if sig != syscall.SIGTERM {
						r.Errorf("%s: %s first", id, sig)
					}
					return true
				})
			})
		})
	}
}
