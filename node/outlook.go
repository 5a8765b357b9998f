package node

import (
	"sync"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/machine"
	"ledge/node/podspec"
	"ledge/node/poster"
)

// outlook is the board as it was last looked at.
type outlook struct {
	mu sync.Mutex
	view
}

// view is what a look at the board has shown.
type view struct {
	sample      machine.Sample
	hostIPs     []string
	ownTasks    int64 // processes that are not of pods, when that changed by much last
	allocatable corev1.ResourceList
}

func (o *outlook) last() view {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.view
}

// set takes in a look. Without addresses those that are known stay: while the link is down the last one is still the best answer.
func (o *outlook) set(s machine.Sample, allocatable corev1.ResourceList, ips []string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.sample, o.allocatable = s, allocatable; len(ips) > 0 {
		o.hostIPs = ips
	}
}

// setOwnTasks takes in how many processes are not of pods, unless that differs by no more than few from what is known; it says
// whether it did.
func (o *outlook) setOwnTasks(n, few int64) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if d := n - o.ownTasks; o.ownTasks != 0 && d <= few && d >= -few {
		return false
	}
	o.ownTasks = n
	return true
}

// limits are those of this board as last looked at.
func (a *Agent) limits() podspec.Limits {
	seen := a.outlook.last()
	pids := a.cfg.Status.Reserved(poster.PID)
	return podspec.Limits{ResourceConfig: a.cfg.Resources, CgroupV2: a.engine.last().CgroupVersion == 2, MemoryTotal: seen.sample.MemoryTotal,
		SwapTotal: seen.sample.SwapTotal, Allocatable: seen.allocatable.Memory().Value(),
		ForPods: a.cfg.Status.ForPods(seen.sample, a.cfg.Resources.Unenforced),
		PIDMax:  seen.sample.PIDMax, PIDReserved: pids.Value(), OwnTasks: seen.ownTasks,
		SpareTasks: podspec.SpareTasks(a.cfg.Status.Eviction, seen.sample.PIDMax), Statics: a.roster.fromFiles()}
}

// board is the state of the board that the specs of pods depend on, as it is now.
func (a *Agent) board() podspec.Board {
	seen := a.outlook.last()
	return podspec.Board{Node: a.cfg.Name, Hostname: seen.sample.Hostname, IPs: seen.hostIPs, Allocatable: seen.allocatable,
		Limits: a.limits(),
		Logs:   a.cfg.Logs, APIServer: a.cfg.APIServer, ClusterDNS: a.cfg.clusterDNS(), ClusterDomain: a.cfg.ClusterDomain,
		NoPodNetwork: a.cfg.NoPodNetwork, Unconfined: a.cfg.Unconfined}
}

func (c Config) clusterDNS() []string {
	if c.ClusterDNS == nil {
		return nil
	}
	return c.ClusterDNS()
}
