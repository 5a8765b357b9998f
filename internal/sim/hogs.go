package sim

import (
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/node/evict"
	"ledge/node/pressure"
)

// hogsGo is how long the slowest hog takes to be noticed, told, and gone, several in turn, after whatever else is done to the board.
const hogsGo = 30 * time.Minute

// hogs has pods take all there is of memory or of process numbers until each has been evicted, beside one that has much and asked
// for it. What is done meanwhile happens at some moment of that. Nobody else may be hurt, and the kernel shall have
// nobody to kill, unless ledge is helpless meanwhile.
func (m *mischief) hogs(meanwhile func(), helpless bool) {
	m.b.t.Helper()
	rich := Pod("rich", WantSteady, corev1.RestartPolicyAlways, "run", fmt.Sprintf("eats=%d:%d", 64<<20, 800<<20), "forks=500:5000")
	rich.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("900Mi")}
	m.b.Apply(rich)
	m.b.Settle(time.Minute)
	hogs := map[string]bool{} // by UID: to be evicted yet
	for i := range 1 + m.rand.IntN(3) {
		hogs[string(m.b.Apply(m.someHog(fmt.Sprintf("hog-%d", i))).UID)] = true
	}
	m.b.Logf("%d hogs", len(hogs))
	begin := m.upTo(time.Minute) // the fastest takes a minute, alone
	for began := time.Now(); len(hogs) > 0 || meanwhile != nil; {
		if meanwhile != nil && time.Since(began) > begin {
			meanwhile()
			meanwhile = nil
		}
		for range 8 {
			m.b.Pass(250 * time.Millisecond)
			m.b.kernel.tick()
		}
		m.forgetGone(hogs)
		if time.Since(began) > hogsGo {
			m.b.Errorf("%d hogs were not evicted in %s", len(hogs), hogsGo)
			break
		}
	}
	if killed := m.b.kernel.victims(); len(killed) > 0 && !helpless {
		m.b.Errorf("the kernel had to kill %d times", len(killed))
	}
	for _, p := range m.b.Pods() {
		if p.Labels[wantLabel] == WantGone || p.Name == rich.Name {
			m.b.Delete(p.Name, nil)
		}
	}
	m.b.Pass(pressure.Transition + time.Minute) // the condition outlasts its cause (N-6.19)
}

// forgetGone takes out who is evicted, or was deleted meanwhile.
func (m *mischief) forgetGone(hogs map[string]bool) {
	m.b.t.Helper()
	here := map[string]bool{}
	for _, p := range m.b.Pods() {
		here[string(p.UID)] = p.Status.Reason != evict.Reason
	}
	maps.DeleteFunc(hogs, func(uid string, _ bool) bool { return !here[uid] })
}

// someHog takes between 4 and 50 MiB a second, or up to a thousand processes; without end, as far as the board goes.
func (m *mischief) someHog(name string) *corev1.Pod {
	does := []string{"run", fmt.Sprintf("eats=%d:%d", int64(4+m.rand.IntN(47))<<20, 8<<30)}
	if m.rand.IntN(3) == 0 {
		does[1] = fmt.Sprintf("forks=%d:%d", 50+m.rand.IntN(950), 1<<20)
	}
	if m.rand.IntN(2) == 0 {
		does = append(does, "deaf")
	}
	p := Pod(name, WantGone, corev1.RestartPolicyAlways, does...)
	if m.rand.IntN(2) == 0 {
		p.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceMemory: resource.MustParse("64Mi")}
	}
	return p
}

// refused: the pod came to a board that was short, and took no more.
func refused(p *corev1.Pod) bool {
	return p.Status.Reason == evict.Reason && strings.HasPrefix(p.Status.Message, "Pod was rejected: The node had condition")
}

// judgeEnd checks that the agent evicted a pod it may evict: one that uses what the board is short of, while it is
// short, or one that arrived meanwhile (N-6.25, N-6.35).
func (b *Board) judgeEnd(old, new *corev1.Pod) {
	if new.Status.Reason != evict.Reason || old.Status.Reason == evict.Reason {
		return
	}
	if refused(new) {
		if !b.kernel.shortSince(time.Now().Add(-pressure.Transition-time.Minute)) && !b.Machine.full() {
			b.Errorf("pod %s was refused on a board that was not short: %s", new.Name, new.Status.Message)
		}
		return
	}
	if new.Labels[wantLabel] != WantGone {
		b.Errorf("pod %s was evicted, and took nothing of others: %s", new.Name, new.Status.Message)
	}
	if !b.kernel.shortSince(new.Status.StartTime.Time) {
		b.Errorf("pod %s was evicted from a board that was not short: %s", new.Name, new.Status.Message)
	}
}
