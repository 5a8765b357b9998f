package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/runtime"
)

const (
	// pulse is how often the engine is asked for a sign of life: a keeper that is stopped keeps its connections. It has as long to answer.
	pulse = 10 * time.Second
	// downAfter is how long an engine may be silent (a keeper restarts) before the Node says so (N-1.48).
	downAfter = 30 * time.Second
	// hungFor is how long the Node tells that something hung after it has last been so: a pod that does it again and again must
	// not be a write to the card each minute.
	hungFor = 10 * time.Minute
)

// containersHang is the Node's condition while starts, commands or removals take longer than half a minute.
const containersHang corev1.NodeConditionType = "ContainersHang"

// engineView is what the agent knows of the engine and its containers.
type engineView struct {
	up         bool
	info       runtime.Info
	heard      time.Time // when it last answered; before that, when the agent began
	upSince    time.Time
	err        error
	grumbled   bool                                 // the log knows that it is down
	containers map[string]map[string]runtime.Status // pod UID -> ID
	pods       map[string]runtime.PodStatus
	groups     map[string]runtime.Resources // what it was told of the cgroups that pods stand in; tendGroups alone uses it
	hung       hanging
	told       map[string]bool // operations that hang and have had their event
}

// hanging is what took too long last.
type hanging struct {
	text string
	at   time.Time
}

// followEngine keeps the picture of the engine's containers; while the engine is away nothing is decided.
func (a *Agent) followEngine(ctx context.Context) error {
	a.mu.Lock()
	a.engine.heard = time.Now()
	a.mu.Unlock()
	for ctx.Err() == nil {
		err := a.followOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		a.engineLost(err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

func (a *Agent) followOnce(ctx context.Context) error {
	info, err := a.askEngine(ctx)
	if err != nil {
		return err
	}
	lctx, cancel := context.WithTimeout(ctx, pulse)
	st, err := a.cfg.Engine.List(lctx)
	cancel()
	if err != nil {
		return err
	}
	a.engineFound(info, st)
	ctx, stop := context.WithCancelCause(ctx)
	silent := make(chan struct{})
	go func() {
		defer close(silent)
		stop(a.feelPulse(ctx))
	}()
	err = a.cfg.Engine.Watch(ctx, a.containerChanged)
	stop(err)
	<-silent
	return context.Cause(ctx)
}

func (a *Agent) askEngine(ctx context.Context) (runtime.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, pulse)
	defer cancel()
	return a.cfg.Engine.Info(ctx)
}

// feelPulse asks the engine again and again, until it does not answer or ctx ends.
func (a *Agent) feelPulse(ctx context.Context) error {
	t := time.NewTicker(pulse)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		info, err := a.askEngine(ctx)
		if err != nil {
			return err
		}
		a.engineHeard(info)
	}
}

func (a *Agent) engineHeard(info runtime.Info) {
	a.mu.Lock()
	a.engine.info, a.engine.heard = info, time.Now()
	a.mu.Unlock()
	a.tellHanging(info.Late)
}

// tellHanging says once of each operation that takes too long, to its pod and to the log, and keeps it for the Node.
func (a *Agent) tellHanging(late []runtime.Late) {
	told := map[string]bool{}
	for _, l := range late {
		a.mu.Lock()
		w := a.workers[types.UID(l.PodUID)]
		key := l.What + " " + l.PodUID + " " + l.Container
		known := a.engine.told[key]
		a.mu.Unlock()
		told[key] = true
		if w == nil {
			continue
		}
		pod := w.current()
		name := containerOf(l)
		text := hangText(l, name)
		a.mu.Lock()
		a.engine.hung = hanging{fmt.Sprintf("pod %s: %s", api.Key(pod), text), time.Now()}
		a.mu.Unlock()
		if !known {
			slog.Warn("an operation hangs and will be ended", "pod", api.Key(pod), "what", text)
			a.containerEvent(pod, name, corev1.EventTypeWarning, "ContainerHangs", text)
			a.pokeStatus()
		}
	}
	a.mu.Lock()
	a.engine.told = told
	a.mu.Unlock()
}

// containerOf is the name within the ID that containerID made.
func containerOf(l runtime.Late) string {
	name := strings.TrimPrefix(l.Container, l.PodUID+".")
	if i := strings.LastIndexByte(name, '.'); i >= 0 {
		name = name[:i]
	}
	return name
}

func hangText(l runtime.Late, name string) string {
	what := map[string]string{runtime.Starting: "the start", runtime.Entering: "a command on its way in", runtime.Removing: "the removal"}[l.What]
	if name != "" {
		what += " (container " + name + ")"
	}
	return fmt.Sprintf("%s is not done after %s; after a minute it is ended", what, l.For.Round(time.Second))
}

// hangs is the condition that tells of it; gone once all is well for a while.
func (a *Agent) hangs(now time.Time) corev1.NodeCondition {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := corev1.NodeCondition{Type: containersHang}
	if h := a.engine.hung; h.text != "" && now.Sub(h.at) < hungFor {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "NotDoneInTime", h.text
	}
	return c
}

func (a *Agent) engineFound(info runtime.Info, st runtime.State) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.engine.up {
		slog.Info("container engine is up", "pods", len(st.Pods), "containers", len(st.Containers))
	}
	if !a.everUp {
		a.everUp = true
		close(a.met)
	}
	now := time.Now()
	a.engine = engineView{up: true, upSince: now, heard: now, info: info, hung: a.engine.hung, told: a.engine.told, containers: map[string]map[string]runtime.Status{}, pods: map[string]runtime.PodStatus{},
		groups: map[string]runtime.Resources{}}
	for _, p := range st.Pods {
		a.engine.pods[p.Pod.UID] = p
	}
	for _, c := range st.Containers {
		a.engine.put(c)
	}
	for _, w := range a.workers {
		w.poke()
	}
	a.pokeStatus()
	a.pokeGroups()
	nudge(a.stalled) // pods can be evicted again
}

func (a *Agent) engineLost(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	if a.engine.up && !errors.Is(err, context.DeadlineExceeded) { // it hung up, and was there until now
		a.engine.heard = now
	}
	switch {
	case a.engine.up:
		slog.Warn("container engine is away; pods run on, nothing is decided until it is back", "err", err)
	case !a.engine.grumbled && now.Sub(a.engine.heard) >= downAfter:
		a.engine.grumbled = true
		slog.Error("container engine is down; pods run on, nothing is decided until it is back", "err", err)
	}
	a.engine.up, a.engine.err = false, err
}

// engineFault follows N-1.48.
func (a *Agent) engineFault(now time.Time) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	down := now.Sub(a.engine.heard) >= downAfter
	switch {
	case a.engine.up && !down:
		return nil
	case !a.everUp && (!down || a.engine.err == nil):
		return errors.New("container runtime status check may not have completed yet")
	case !a.everUp:
		return fmt.Errorf("container runtime status check may not have completed yet: %w", a.engine.err)
	case !down:
		return nil
	case a.engine.up:
		return fmt.Errorf("container runtime is down: it has not answered for %s", now.Sub(a.engine.heard).Round(time.Second))
	}
	return fmt.Errorf("container runtime is down: %w", a.engine.err)
}

func (a *Agent) containerChanged(s runtime.Status) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.engine.put(s)
	if w := a.workers[types.UID(s.PodUID)]; w != nil {
		w.poke()
	}
}

func (v *engineView) put(s runtime.Status) {
	m := v.containers[s.PodUID]
	if m == nil {
		m = map[string]runtime.Status{}
		v.containers[s.PodUID] = m
	}
	// A Watch begins with every container there is; it must not undo what was heard since List.
	if old, ok := m[s.ID]; ok && old.Phase == runtime.Exited && s.Phase == runtime.Running {
		return
	}
	m[s.ID] = s
}
