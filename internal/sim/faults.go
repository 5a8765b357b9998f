package sim

import (
	"fmt"
	"net/url"
	"os"
	"time"

	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/board"
	"ledge/node/pressure"
	"ledge/runtime"
)

// KillBrain ends the brain as kill -9 does and starts another. No container may notice, and nothing that was
// acknowledged may be lost.
func (b *Board) KillBrain() {
	b.t.Helper()
	before := b.Containers()
	kept := b.everything()
	b.witness.excuse()
	b.die()
	b.wake()
	b.compareKept(kept)
	b.compareRunning(before)
}

// Restart ends the brain as SIGTERM does and starts another: an upgrade.
func (b *Board) Restart() {
	b.t.Helper()
	before := b.Containers()
	kept := b.everything()
	b.witness.excuse()
	b.sleep()
	b.wake()
	b.compareKept(kept)
	b.compareRunning(before)
}

// CutPower takes the power away and gives it back.
func (b *Board) CutPower() {
	b.t.Helper()
	kept := b.everything()
	b.witness.excuse()
	b.die()
	b.reboot()
	b.wake()
	b.compareKept(kept)
}

// PowerOff asks the board to switch itself off, as 'ledge shutdown' does, and starts it again.
func (b *Board) PowerOff() {
	b.t.Helper()
	x := b.brain
	b.off = false
	b.must(x.ask(board.ShutdownPath, url.Values{"in": {"0s"}}, nil), "ask for a shutdown")
	b.brain = nil
	b.must(x.over(), "end the brain")
	if !b.off {
		b.Errorf("the machine was not switched off")
	}
	if left := b.Containers(); len(left) > 0 {
		b.Errorf("pods run after the shutdown: %v", left)
	}
	b.witness.excuse()
	b.reboot()
	b.wake()
}

// reboot is what the machine forgets: containers, mounts, links, the run directory.
func (b *Board) reboot() {
	b.t.Helper()
	b.engine.Reboot()
	b.must(b.images.Retain(b.ctx, nil), "forget mounts")
	for _, uid := range b.network.Pods() {
		b.must(networkOf(b).Detach(b.ctx, uid), "forget addresses")
	}
	b.must(os.RemoveAll(b.images.Dir), "forget root file systems")
	b.fall()
	b.must(os.MkdirAll(b.run, 0o700), "make the run directory")
	b.boots++
	b.must(b.Machine.booted(fmt.Sprintf("boot-%d", b.boots)), "boot")
}

// KeeperAway restarts the keeper, which takes a while: pods run on, nothing is decided.
func (b *Board) KeeperAway(d time.Duration) {
	b.t.Helper()
	b.engine.SetAway(true)
	b.Pass(d)
	b.engine.SetAway(false)
	synctestWait()
}

// CutUplink keeps the agent from the API for a while.
func (b *Board) CutUplink(d time.Duration) {
	b.t.Helper()
	b.witness.excuse()
	b.brain.uplink.set(true)
	b.Pass(d)
	b.brain.uplink.set(false)
	b.witness.excuse()
	synctestWait()
}

// NetworkDown breaks what connects pods, for a while.
func (b *Board) NetworkDown(d time.Duration) {
	b.t.Helper()
	b.network.SetReady(fmt.Errorf("bridge ledge0 is gone"))
	b.Pass(d)
	b.network.SetReady(nil)
}

// FillDisk fills the disk for a while. False: this simulation cannot, it needs root for a disk of its own.
func (b *Board) FillDisk(d time.Duration, meanwhile func()) bool {
	b.t.Helper()
	ok, err := b.Machine.fill()
	b.must(err, "fill the disk")
	if !ok {
		return false
	}
	synctestWait()
	if meanwhile != nil {
		meanwhile()
	}
	b.Pass(d)
	b.must(b.Machine.empty(), "free the disk")
	b.Pass(pressure.Transition) // the condition outlasts its cause (N-6.19)
	return true
}

// KillContainer ends one running container of a pod from outside, as the OOM killer does. False: none runs.
func (b *Board) KillContainer(uid types.UID) bool {
	b.t.Helper()
	for _, c := range b.Containers()[string(uid)] {
		return b.engine.End(c.ID, runtime.Exit{Code: 137, Signal: 9, OOMKilled: true})
	}
	return false
}

// everything is what the store holds of the kinds that watchers follow, as acknowledged.
func (b *Board) everything() map[*api.Kind][]api.Object {
	b.t.Helper()
	synctestWait()
	out := map[*api.Kind][]api.Object{}
	for _, kind := range witnessed {
		list, err := b.brain.local.List(b.ctx, kind, api.ListOptions{})
		b.must(err, "list "+kind.Resource)
		out[kind] = list.Items
	}
	return out
}

// compareKept checks that nothing acknowledged was lost. Heartbeats may be (architecture: Leases are lazy), and what the new brain wrote
// itself is newer.
func (b *Board) compareKept(kept map[*api.Kind][]api.Object) {
	b.t.Helper()
	for kind, objs := range kept {
		for _, old := range objs {
			now, err := b.brain.local.Get(b.ctx, kind, old.GetNamespace(), old.GetName())
			if err != nil {
				if !mayGo(old) {
					b.Errorf("%s %s was lost: %v", kind.Singular, api.Key(old), err)
				}
				continue
			}
			if number(now.GetResourceVersion()) < number(old.GetResourceVersion()) && !apiequality.Semantic.DeepEqual(durable(now), durable(old)) {
				b.Errorf("%s %s lost a write: it has revision %s, had %s", kind.Singular, api.Key(old), now.GetResourceVersion(),
					old.GetResourceVersion())
			}
		}
	}
}

// mayGo: a pod that was on its way out may have gone meanwhile.
func mayGo(o api.Object) bool {
	_, pod := o.(*corev1.Pod)
	return pod && o.GetDeletionTimestamp() != nil
}

// compareRunning checks that no container noticed: it runs as it ran, or has come to its own end.
func (b *Board) compareRunning(before map[string][]runtime.Status) {
	b.t.Helper()
	st, err := b.engine.List(b.ctx)
	b.must(err, "list containers")
	now := map[string]runtime.Status{}
	for _, c := range st.Containers {
		now[c.ID] = c
	}
	pods := map[string]*corev1.Pod{}
	for _, p := range b.Pods() {
		if p.DeletionTimestamp == nil {
			pods[string(p.UID)] = p
		}
	}
	for uid, list := range before {
		if pods[uid] == nil || pods[uid].Labels[wantLabel] == WantGone {
			continue // on its way out, as it was before or may be by now
		}
		for _, was := range list {
			is, ok := now[was.ID]
			switch {
			case ok && is.Pid == was.Pid && !b.starts.asked(was.ID):
			case ok && is.Phase == runtime.Exited && pods[uid].Labels[wantLabel] != WantSteady:
			case !ok && pods[uid].Labels[wantLabel] != WantSteady: // ended, and cleared away
			default:
				b.Errorf("container %s did not survive the brain: was %+v, is %+v", was.ID, was, is)
			}
		}
	}
}

// Taken apart in one place: which parts of an object a power cut may forget.
func durable(o api.Object) api.Object {
	c := o.DeepCopyObject().(api.Object)
	c.SetResourceVersion("")
	if n, ok := c.(*corev1.Node); ok {
		for i := range n.Status.Conditions {
			n.Status.Conditions[i].LastHeartbeatTime = metav1.Time{}
		}
		return n
	}
	forgetRenewal(c)
	return c
}
