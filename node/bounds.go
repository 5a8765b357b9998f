package node

import (
	corev1 "k8s.io/api/core/v1"

	"ledge/node/podspec"
)

// limits are those of this board as last looked at.
func (a *Agent) limits() podspec.Limits {
	a.mu.Lock()
	defer a.mu.Unlock()
	f := facts{sample: a.sample, cfg: a.cfg.Status}
	pids := f.reserved(resourcePID)
	return podspec.Limits{ResourceConfig: a.cfg.Resources, CgroupV2: a.engine.last().CgroupVersion == 2, MemoryTotal: a.sample.MemoryTotal,
		SwapTotal: a.sample.SwapTotal, Allocatable: a.allocatable.Memory().Value(), ForPods: f.forPods(a.cfg.Resources.Unenforced),
		PIDMax: a.sample.PIDMax, PIDReserved: pids.Value(), OwnTasks: a.ownTasks, SpareTasks: podspec.SpareTasks(a.cfg.Status.Eviction, a.sample.PIDMax),
		Statics: a.fromFiles()}
}

// podTasks is how many processes all pods have now; -1 if that is not known.
func (a *Agent) podTasks() int64 {
	version, dir, ok := a.podsGroup()
	if !ok {
		return -1
	}
	if n, ok := a.cfg.Stats.Tasks(version, dir); ok {
		return n
	}
	return -1
}

// countTasks notes how many processes are not of pods, as often as that has changed by much. Pods had so many before the sample
// was taken; while they start or end hundreds, the board's own are rather counted too many.
func (a *Agent) countTasks(before int64, s Sample) {
	ofPods := min(before, a.podTasks())
	if ofPods < 0 || s.PIDUsed <= ofPods {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	own, most := s.PIDUsed-ofPods, podspec.SpareTasks(a.cfg.Status.Eviction, s.PIDMax)/4
	if d := own - a.ownTasks; a.ownTasks == 0 || d > most || d < -most {
		a.ownTasks = own
		a.pokeGroups()
	}
}

// fromFiles are those that are here. Called with the lock held.
func (a *Agent) fromFiles() podspec.FromFiles {
	out := podspec.FromFiles{}
	for uid, w := range a.workers {
		if w.static {
			out[uid] = true
		}
	}
	return out
}

// critical is that for one of the pods that are here.
func (a *Agent) critical(pod *corev1.Pod) bool {
	w := a.worker(pod.UID)
	return podspec.IsCritical(pod, w != nil && w.static)
}
