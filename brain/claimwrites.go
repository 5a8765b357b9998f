package brain

import (
	"maps"
	"path"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"ledge/api"
	"ledge/host"
	"ledge/node"
	"ledge/node/claims"
)

// The kernel counts what a cgroup writes to a disk, not what comes into a directory. So of a claim is told what the pods that had it have
// written to the disk that it lies on: what came into it, and what they wrote beside it. It is counted since the boot, but for the last
// minute of each pod.

// claimAccount is what pods that have a claim have written.
type claimAccount struct {
	SinceBoot int64            `json:"sinceBoot"`
	Pods      map[string]count `json:"pods,omitempty"` // by UID
}

// count is what the counter of a pod said last.
type count struct {
	Group string `json:"group"`
	Of    string `json:"of"`
	Last  int64  `json:"last"`
}

// claimReading is a counter of a pod, and the volumes on its disk that the pod has.
type claimReading struct {
	pod, group string
	volumes    []string
	counter    host.Counter
}

// mostAccounts is more than a board has volumes, and far less than a boot may see.
const mostAccounts = 2048

// noteClaims enters what the counters say now. there are the volumes, as far as they are known yet; stands says which cgroups still do.
func (k *book) noteClaims(bootID string, there []string, list []claimReading, stands func(group string) bool) {
	if k.BootID != bootID || k.Claims == nil {
		k.Claims = map[string]claimAccount{}
	}
	for name, a := range k.Claims {
		maps.DeleteFunc(a.Pods, func(_ string, c count) bool { return !stands(c.Group) })
		if len(k.Claims) > mostAccounts && !slices.Contains(there, name) {
			delete(k.Claims, name)
		}
	}
	for _, r := range list {
		for _, name := range r.volumes {
			a, more := k.Claims[name], r.counter.Bytes
			if last, ok := a.Pods[r.pod]; ok && last.Of == r.counter.Of {
				more -= last.Last
			}
			if a.Pods == nil {
				a.Pods = map[string]count{}
			}
			a.SinceBoot += max(0, more)
			a.Pods[r.pod] = count{Group: r.group, Of: r.counter.Of, Last: r.counter.Bytes}
			k.Claims[name] = a
		}
	}
}

// claimWriters says which pods have which volumes of this board, and what these have written.
type claimWriters struct {
	host *host.Host
	loop *claims.Loop
	pods func() []*corev1.Pod
	card host.Disk
	root string // cgroup
}

// read asks the counters.
func (c *claimWriters) read() (there []string, list []claimReading) {
	volumes := map[string]*corev1.PersistentVolume{}
	for _, v := range c.loop.Volumes() {
		there = append(there, v.Name)
		if r := v.Spec.ClaimRef; r != nil {
			volumes[r.Namespace+"/"+r.Name] = v
		}
	}
	if len(volumes) == 0 {
		return nil, nil
	}
	for _, pod := range c.pods() {
		on := map[host.Disk][]string{}
		for _, name := range api.ClaimsOf(pod) {
			v := volumes[pod.Namespace+"/"+name]
			if v == nil {
				continue
			}
			d := c.card
			device, here := c.loop.DeviceOf(v)
			if device != "" {
				var err error
				d, err = host.DiskAt(c.host, device)
				here = err == nil
			}
			if here && d.Number != "" {
				on[d] = append(on[d], v.Name)
			}
		}
		for d, names := range on {
			group := path.Join(c.root, node.CgroupOf(pod))
			if n, err := c.host.GroupWrites(group, d); err == nil {
				list = append(list, claimReading{pod: string(pod.UID), group: group, volumes: names, counter: n})
			}
		}
	}
	return there, list
}

// claimWrites is what was written for each volume since the boot, by its name; nil: the kernel does not count it.
func (m *writesMeter) claimWrites() map[string]int64 {
	if m.claims == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	out := map[string]int64{}
	for name, a := range m.book.Claims {
		out[name] = a.SinceBoot
	}
	return out
}

// eachClaim tells each claim's, for the metrics.
func (m *writesMeter) eachClaim(each func(namespace, claim string, bytes int64)) {
	written := m.claimWrites()
	if written == nil {
		return
	}
	for _, v := range m.claims.loop.Volumes() {
		if n, ok := written[v.Name]; ok && v.Spec.ClaimRef != nil {
			each(v.Spec.ClaimRef.Namespace, v.Spec.ClaimRef.Name, n)
		}
	}
}
