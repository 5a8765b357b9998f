package node

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"ledge/node/evict"
	"ledge/node/podstate"
	"ledge/node/pressure"
)

// newEvictor joins the evictor of a board with its agent.
func newEvictor(a *Agent) *evict.Evictor {
	w := &waste{a: a, bare: map[string]bool{}}
	return evict.New(evict.Config{Policy: a.cfg.Status.Eviction, Unenforced: a.cfg.Resources.Unenforced, Swaps: a.cfg.Resources.Swap.Any(),
		WorkingSet: a.cfg.Status.WorkingSet, Reclaim: a.cfg.Reclaim, Machine: a.cfg.Machine, Engine: evictEngine{a.engine},
		Pods: podsToEvict{a}, Events: a.cfg.Events, Node: a.ref(), Own: []evict.Step{a.logs.DropFull, w.shrink},
		Stored: []evict.Step{w.dropEnded, w.dropImages}, Changed: func() { a.poster.Poke() }})
}

// Amounts are what there is of what a board can be short of.
type Amounts interface {
	Report() pressure.Report   // by the last look
	History() pressure.History // in the last hour
}

// Pressure is what this board is short of.
func (a *Agent) Pressure() Amounts { return a.evictor }

// evictEngine is the engine as an evictor knows it.
type evictEngine struct{ v *engineView }

// Running implements evict.Engine.
func (e evictEngine) Running() bool { return e.v.running() }

// RunningSince implements evict.Engine.
func (e evictEngine) RunningSince(at time.Time) bool { return e.v.runningSince(at) }

// podsToEvict are the pods as an evictor knows them.
type podsToEvict struct{ a *Agent }

// Memory implements evict.Pods.
func (p podsToEvict) Memory(now time.Time) (pressure.Reading, bool) { return p.a.usage.podMemory(now) }

// Claim implements evict.Pods.
func (p podsToEvict) Claim(uid types.UID, stop podstate.Stop) bool {
	return p.a.roster.claim(uid, stop)
}

// Hasten implements evict.Pods.
func (p podsToEvict) Hasten(uid types.UID, stop podstate.Stop) { p.a.roster.hasten(uid, stop) }

// Stop implements evict.Pods.
func (p podsToEvict) Stop(ctx context.Context, uid types.UID, stop podstate.Stop) error {
	err := p.a.StopPod(ctx, uid, stop)
	if errors.Is(err, ErrUnknownPod) {
		return nil
	}
	return err
}

// Gone implements evict.Pods.
func (p podsToEvict) Gone(uid types.UID) bool {
	w := p.a.roster.of(uid)
	return w == nil || w.isEnded()
}

// Unheard implements evict.Pods.
func (p podsToEvict) Unheard(uid types.UID) <-chan struct{} {
	if w := p.a.roster.of(uid); w != nil {
		return w.unheard
	}
	return nil
}

// Cgroup implements evict.Pods.
func (p podsToEvict) Cgroup(uid types.UID) string {
	info := p.a.engine.last()
	stands, _ := p.a.engine.pod(uid)
	if info.CgroupVersion != 2 || stands.Pod.Cgroup == "" {
		return ""
	}
	return path.Join("/", info.CgroupRoot, stands.Pod.Cgroup)
}

// Candidates implements evict.Pods. A pod that has nothing on the board yet would free nothing.
func (p podsToEvict) Candidates(s pressure.Signal) []pressure.Candidate {
	var out []pressure.Candidate
	usage := p.usageNow(s)
	for _, pod := range p.a.Pods() {
		if p.a.roster.critical(pod) || terminal(pod.Status.Phase) || !p.a.roster.mayEvict(pod.UID) { // N-6.30
			continue
		}
		if _, stands, _ := p.a.engine.held(pod.UID); stands {
			out = append(out, pressure.Candidate{Pod: pod, Used: usage[string(pod.UID)]})
		}
	}
	return out
}

// usageNow measures what a signal is about, by the UID of pods.
func (p podsToEvict) usageNow(s pressure.Signal) map[string]*pressure.Usage {
	out := map[string]*pressure.Usage{}
	if p.a.cfg.Stats == nil {
		return out
	}
	pass := p.a.usage.readStats()
	for i := range pass.Pods {
		m := &pass.Pods[i]
		if s.Disk() {
			if u, err := p.a.storage.filesOf(m.Pod); err == nil {
				out[m.UID] = u
			} else {
				slog.Warn("cannot measure the files of a pod", "pod", m.Namespace+"/"+m.Name, "err", err)
			}
			continue
		}
		u := &pressure.Usage{}
		if m.Memory != nil {
			u.Memory = m.Memory.WorkingSet
		}
		if m.Pids != nil {
			u.Processes = *m.Pids
		}
		if m.Memory == nil && s.Resource() == pressure.Memory || m.Pids == nil && s.Resource() == pressure.PIDs {
			continue // the kernel does not count it: not measured
		}
		for _, c := range m.Containers {
			if c.Memory != nil {
				u.Containers = append(u.Containers, pressure.ContainerUsage{Name: c.Name, Memory: c.Memory.WorkingSet})
			}
		}
		out[m.UID] = u
	}
	return out
}
