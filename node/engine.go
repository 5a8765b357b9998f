package node

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
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

// engineView is the agent's knowledge of the engine and its containers. While the engine is away nothing is decided.
type engineView struct {
	engine Engine
	news   engineNews
	met    chan struct{} // closed when the engine has been reached once

	mu         sync.Mutex
	up         bool
	info       runtime.Info
	heard      time.Time // when it last answered; before that, when the agent began
	upSince    time.Time // zero: it has never been reached
	err        error
	grumbled   bool                                 // the log knows that it is down
	containers map[string]map[string]runtime.Status // pod UID -> ID
	pods       map[string]runtime.PodStatus
	groups     map[string]runtime.Resources // what it was told of the cgroups that pods stand in
	hung       hanging
	told       map[string]bool // operations that hang and have had their event
}

// engineNews is told what happens to the engine and its containers.
type engineNews interface {
	// came: the engine is there, and what it holds is known.
	came()
	// changed: a container of that pod has.
	changed(uid types.UID)
	// named is the pod with that UID; nil if there is none here.
	named(uid types.UID) *corev1.Pod
	// hangs: an operation on a container of that pod takes too long.
	hangs(pod *corev1.Pod, container, what string)
}

func newEngineView(e Engine, news engineNews) *engineView {
	return &engineView{engine: e, news: news, met: make(chan struct{}), heard: time.Now()}
}

// hanging is what took too long last.
type hanging struct {
	text string
	at   time.Time
}

// Run keeps the picture of the engine's containers until ctx ends.
func (v *engineView) Run(ctx context.Context) error {
	v.mu.Lock()
	v.heard = time.Now()
	v.mu.Unlock()
	for ctx.Err() == nil {
		err := v.followOnce(ctx)
		if ctx.Err() != nil {
			break
		}
		v.lost(err)
		select {
		case <-ctx.Done():
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}

func (v *engineView) followOnce(ctx context.Context) error {
	info, err := v.ask(ctx)
	if err != nil {
		return err
	}
	lctx, cancel := context.WithTimeout(ctx, pulse)
	st, err := v.engine.List(lctx)
	cancel()
	if err != nil {
		return err
	}
	v.found(info, st)
	ctx, stop := context.WithCancelCause(ctx)
	silent := make(chan struct{})
	go func() {
		defer close(silent)
		stop(v.feelPulse(ctx))
	}()
	err = v.engine.Watch(ctx, v.changed)
	stop(err)
	<-silent
	return context.Cause(ctx)
}

func (v *engineView) ask(ctx context.Context) (runtime.Info, error) {
	ctx, cancel := context.WithTimeout(ctx, pulse)
	defer cancel()
	return v.engine.Info(ctx)
}

// feelPulse asks the engine again and again, until it does not answer or ctx ends.
func (v *engineView) feelPulse(ctx context.Context) error {
	t := time.NewTicker(pulse)
	defer t.Stop()
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-t.C:
		}
		info, err := v.ask(ctx)
		if err != nil {
			return err
		}
		v.hear(info)
	}
}

func (v *engineView) hear(info runtime.Info) {
	v.mu.Lock()
	v.info, v.heard = info, time.Now()
	v.mu.Unlock()
	v.tellHanging(info.Late)
}

// tellHanging says once of each operation that takes too long, to its pod and to the log, and keeps it for the Node.
func (v *engineView) tellHanging(late []runtime.Late) {
	told := map[string]bool{}
	for _, l := range late {
		key := l.What + " " + l.PodUID + " " + l.Container
		told[key] = true
		v.mu.Lock()
		known := v.told[key]
		v.mu.Unlock()
		name := containerOf(l)
		text := hangText(l, name)
		pod, of := v.news.named(types.UID(l.PodUID)), "with UID "+l.PodUID+", which is gone"
		if pod != nil {
			of = api.Key(pod).String()
		}
		v.mu.Lock()
		v.hung = hanging{fmt.Sprintf("pod %s: %s", of, text), time.Now()}
		v.mu.Unlock()
		switch {
		case known:
		case pod == nil: // and no event can be on it
			slog.Warn("an operation on a container hangs", "pod", l.PodUID, "what", text)
		default:
			v.news.hangs(pod, name, text)
		}
	}
	v.mu.Lock()
	v.told = told
	v.mu.Unlock()
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
	what := map[string]string{runtime.Starting: "the start", runtime.Entering: "a command on its way in",
		runtime.Removing: "the removal"}[l.What]
	if name != "" {
		what += " (container " + name + ")"
	}
	return fmt.Sprintf("%s is not done after %s; after a minute it is ended", what, l.For.Round(time.Second))
}

// condition is the one that tells of it; gone once all is well for a while.
func (v *engineView) condition(now time.Time) corev1.NodeCondition {
	v.mu.Lock()
	defer v.mu.Unlock()
	c := corev1.NodeCondition{Type: containersHang}
	if h := v.hung; h.text != "" && now.Sub(h.at) < hungFor {
		c.Status, c.Reason, c.Message = corev1.ConditionTrue, "NotDoneInTime", h.text
	}
	return c
}

func (v *engineView) found(info runtime.Info, st runtime.State) {
	v.mu.Lock()
	if !v.up {
		slog.Info("container engine is up", "pods", len(st.Pods), "containers", len(st.Containers))
	}
	if v.upSince.IsZero() {
		close(v.met)
	}
	now := time.Now()
	v.up, v.upSince, v.heard, v.info, v.err, v.grumbled = true, now, now, info, nil, false
	v.containers, v.pods, v.groups = map[string]map[string]runtime.Status{}, map[string]runtime.PodStatus{}, map[string]runtime.Resources{}
	for _, p := range st.Pods {
		v.pods[p.Pod.UID] = p
	}
	for _, c := range st.Containers {
		v.put(c)
	}
	v.mu.Unlock()
	v.news.came()
}

func (v *engineView) lost(err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	now := time.Now()
	if v.up && !errors.Is(err, context.DeadlineExceeded) { // it hung up, and was there until now
		v.heard = now
	}
	switch {
	case v.up:
		slog.Warn("container engine is away; pods run on, nothing is decided until it is back", "err", err)
	case !v.grumbled && now.Sub(v.heard) >= downAfter:
		v.grumbled = true
		slog.Error("container engine is down; pods run on, nothing is decided until it is back", "err", err)
	}
	v.up, v.err = false, err
}

// fault follows N-1.48.
func (v *engineView) fault(now time.Time) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	down := now.Sub(v.heard) >= downAfter
	switch {
	case v.up && !down:
		return nil
	case v.upSince.IsZero() && (!down || v.err == nil):
		return errors.New("container runtime status check may not have completed yet")
	case v.upSince.IsZero():
		return fmt.Errorf("container runtime status check may not have completed yet: %w", v.err)
	case !down:
		return nil
	case v.up:
		return fmt.Errorf("container runtime is down: it has not answered for %s", now.Sub(v.heard).Round(time.Second))
	}
	return fmt.Errorf("container runtime is down: %w", v.err)
}

func (v *engineView) changed(s runtime.Status) {
	v.mu.Lock()
	v.put(s)
	v.mu.Unlock()
	v.news.changed(types.UID(s.PodUID))
}

// put takes in the state of a container. Called with the lock held.
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

// running says whether the engine is there.
func (v *engineView) running() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.up
}

// runningSince says whether the engine is there, and has been since that moment.
func (v *engineView) runningSince(at time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.up && !v.upSince.After(at)
}

// reached says whether the engine has ever been there.
func (v *engineView) reached() bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return !v.upSince.IsZero()
}

// last is what the engine has last said of itself.
func (v *engineView) last() runtime.Info {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.info
}

// held is what the engine holds of a pod; ok is false while the engine is away.
func (v *engineView) held(uid types.UID) (cs []runtime.Status, sandbox, ok bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, c := range v.containers[string(uid)] {
		cs = append(cs, c)
	}
	_, sandbox = v.pods[string(uid)]
	return cs, sandbox, v.up
}

// pod is the sandbox of a pod.
func (v *engineView) pod(uid types.UID) (runtime.PodStatus, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	st, ok := v.pods[string(uid)]
	return st, ok
}

// all are the sandboxes of all pods.
func (v *engineView) all() []runtime.PodStatus {
	v.mu.Lock()
	defer v.mu.Unlock()
	return slices.Collect(maps.Values(v.pods))
}

// made takes in a sandbox.
func (v *engineView) made(st runtime.PodStatus) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.pods[st.Pod.UID] = st
}

// forget drops what the engine no longer holds: one container, or with an empty ID the whole pod.
func (v *engineView) forget(uid types.UID, id string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if id == "" {
		delete(v.containers, string(uid))
		delete(v.pods, string(uid))
		return
	}
	delete(v.containers[string(uid)], id)
}

// ended are the containers that nothing will run in again.
func (v *engineView) ended() (ids []string) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, cs := range v.containers {
		for id, c := range cs {
			if c.Phase == runtime.Exited {
				ids = append(ids, id)
			}
		}
	}
	slices.Sort(ids)
	return ids
}

// podSized takes in the bounds that a pod was given.
func (v *engineView) podSized(uid types.UID, r runtime.Resources) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if st, ok := v.pods[string(uid)]; ok {
		st.Pod.Resources = st.Pod.Resources.With(r)
		v.pods[string(uid)] = st
	}
}

// containerSized takes in the bounds that a container was given.
func (v *engineView) containerSized(uid types.UID, id string, r runtime.Resources) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if st, ok := v.containers[string(uid)][id]; ok {
		st.Resources = st.Resources.With(r)
		v.containers[string(uid)][id] = st
	}
}

// group is what the engine was last told about a cgroup that pods stand in; false: nothing.
func (v *engineView) group(name string) (runtime.Resources, bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	r, ok := v.groups[name]
	return r, ok
}

// limit bounds such a cgroup.
func (v *engineView) limit(ctx context.Context, name string, r runtime.Resources) error {
	v.mu.Lock()
	groups := v.groups // another one, should the engine come back meanwhile
	delete(groups, name)
	v.mu.Unlock()
	if err := v.engine.Limit(ctx, runtime.Place{Group: name}, r); err != nil {
		return err
	}
	v.mu.Lock()
	groups[name] = r
	v.mu.Unlock()
	return nil
}
