package node

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// troubledEngine can be frozen (it does not answer, and its connections stand), tell that something hangs, and hang itself.
type troubledEngine struct {
	*enginefake.Engine
	mu     sync.Mutex
	frozen bool
	hangs  bool // its starts
	late   []runtime.Late
}

func (e *troubledEngine) set(change func()) {
	e.mu.Lock()
	defer e.mu.Unlock()
	change()
}

func (e *troubledEngine) Info(ctx context.Context) (runtime.Info, error) {
	e.mu.Lock()
	frozen, late := e.frozen, e.late
	e.mu.Unlock()
	if frozen {
		<-ctx.Done()
		return runtime.Info{}, ctx.Err()
	}
	info, err := e.Engine.Info(ctx)
	info.Late = late
	return info, err
}

func (e *troubledEngine) Start(ctx context.Context, c runtime.Container) (runtime.Status, error) {
	e.mu.Lock()
	hangs := e.hangs
	e.mu.Unlock()
	if hangs {
		<-ctx.Done()
		return runtime.Status{}, ctx.Err()
	}
	return e.Engine.Start(ctx, c)
}

func withTrouble(t *testing.T, fn func(r *rig, e *troubledEngine)) {
	with(t, nil, func(r *rig) {
		e := &troubledEngine{Engine: r.engine}
		r.cfg.Engine = e
		r.begin()
		r.pass(time.Second)
		fn(r, e)
	})
}

// TestFrozenEngine: a keeper that is stopped answers nothing, and ends nothing either. The Node says so as it does of one that is gone.
func TestFrozenEngine(t *testing.T) {
	withTrouble(t, func(r *rig, e *troubledEngine) {
		e.set(func() { e.frozen = true })
		r.pass(15 * time.Second)
		if !isReady(r.node()) {
			t.Error("not ready after 15 s")
		}
		r.pass(30 * time.Second)
		c := nodeCondition(r.node(), corev1.NodeReady)
		if c.Status != corev1.ConditionFalse || !strings.HasPrefix(c.Message, "container runtime is down: ") {
			t.Errorf("after 45 s: %+v", c)
		}
		e.set(func() { e.frozen = false })
		r.pass(12 * time.Second)
		if !isReady(r.node()) {
			t.Errorf("it answers again: %+v", nodeCondition(r.node(), corev1.NodeReady))
		}
	})
}

// TestHangingOperation: what takes too long in the engine is told on the pod, once, and on the Node, for a while.
func TestHangingOperation(t *testing.T) {
	withTrouble(t, func(r *rig, e *troubledEngine) {
		p := r.pod("p")
		r.pass(time.Second)
		e.set(func() { e.late = []runtime.Late{{What: runtime.Removing, PodUID: "1-2-3", For: time.Minute}} })
		r.pass(25 * time.Second)
		if c := nodeCondition(r.node(), containersHang); c.Status != corev1.ConditionTrue ||
			!strings.Contains(c.Message, "pod with UID 1-2-3, which is gone: the removal is not done after 1m0s") {
			t.Errorf("of a pod that is gone: %+v", c)
		}
		e.set(func() {
			e.late = []runtime.Late{{What: runtime.Entering, PodUID: string(p.UID), Container: containerID(p, "c", 0), For: 35 * time.Second}}
		})
		r.pass(25 * time.Second)
		c := nodeCondition(r.node(), containersHang)
		if c.Status != corev1.ConditionTrue ||
			!strings.Contains(c.Message, "pod default/p: a command on its way in (container c) is not done after 35s") {
			t.Errorf("the node: %+v", c)
		}
		if n := len(r.events.of("ContainerHangs")); n != 1 {
			t.Errorf("%d events", n)
		}
		e.set(func() { e.late = nil })
		r.pass(hungFor - 20*time.Second)
		if nodeCondition(r.node(), containersHang).Status != corev1.ConditionTrue {
			t.Error("the node has forgotten too soon")
		}
		r.pass(7 * time.Minute)
		if c := nodeCondition(r.node(), containersHang); c.Type != "" {
			t.Errorf("long after: %+v", c)
		}
	})
}

// TestDeletedWhileItStarts: a start that hangs does not hold the deletion of its pod up.
func TestDeletedWhileItStarts(t *testing.T) {
	withTrouble(t, func(r *rig, e *troubledEngine) {
		e.set(func() { e.hangs = true })
		r.pod("p")
		r.pass(5 * time.Second)
		if _, err := r.Delete(t.Context(), api.Pods, "default", "p", api.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		r.pass(2 * time.Second)
		if o, err := r.Get(t.Context(), api.Pods, "default", "p"); err == nil {
			t.Errorf("still there: %+v", o.(*corev1.Pod).Status)
		}
		if n := len(r.events.of("Failed")); n != 0 {
			t.Errorf("%d events of failure", n)
		}
	})
}
