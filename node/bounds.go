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
func (u usage) podTasks() int64 {
	version, dir, ok := u.podsGroup()
	if !ok {
		return -1
	}
	if n, ok := u.a.cfg.Stats.Tasks(version, dir); ok {
		return n
	}
	return -1
}

// countTasks notes how many processes are not of pods, as often as that has changed by much. Pods had so many before the sample
// was taken; while they start or end hundreds, the board's own are rather counted too many.
func (u usage) countTasks(before int64, s Sample) {
	ofPods := min(before, u.podTasks())
	if ofPods < 0 || s.PIDUsed <= ofPods {
		return
	}
	u.a.mu.Lock()
	defer u.a.mu.Unlock()
	own, most := s.PIDUsed-ofPods, podspec.SpareTasks(u.a.cfg.Status.Eviction, s.PIDMax)/4
	if d := own - u.a.ownTasks; u.a.ownTasks == 0 || d > most || d < -most {
		u.a.ownTasks = own
		u.a.pokeGroups()
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
