package controller

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/api"
	"ledge/api/kinds"
)

var noOptions api.WriteOptions

func kindOf(o api.Object) *api.Kind {
	k, err := kinds.All.Of(o)
	if err != nil {
		panic(err)
	}
	return k
}

func noExec(key string) corev1.Taint {
	return corev1.Taint{Key: key, Effect: corev1.TaintEffectNoExecute}
}

// TestToleratesFor: N-3.22, N-3.23, N-3.32.
func TestToleratesFor(t *testing.T) {
	for _, tt := range []struct {
		name   string
		tols   []corev1.Toleration
		taints []corev1.Taint
		wait   time.Duration
		never  bool
	}{
		{"no taints", nil, nil, 0, true},
		{"none tolerated", nil, []corev1.Taint{noExec("a")}, 0, false},
		{"for ever", []corev1.Toleration{exists("a")}, []corev1.Taint{noExec("a")}, 0, true},
		{"for a while", []corev1.Toleration{exists("a", 30)}, []corev1.Taint{noExec("a")}, 30 * time.Second, false},
		{"the smallest of those used", []corev1.Toleration{exists("a", 30), exists("b", 20), exists("c", 1)},
			[]corev1.Taint{noExec("a"), noExec("b")}, 20 * time.Second, false},
		{"one of two for ever", []corev1.Toleration{exists("a", 30), exists("b")}, []corev1.Taint{noExec("a"), noExec("b")}, 30 * time.Second,
			false},
		{"one of two not at all", []corev1.Toleration{exists("a", 30)}, []corev1.Taint{noExec("a"), noExec("b")}, 0, false},
		{"the first that matches", []corev1.Toleration{exists("a", 30), exists("a", 10)}, []corev1.Taint{noExec("a")}, 30 * time.Second, false},
		{"zero is now", []corev1.Toleration{exists("a", 0)}, []corev1.Taint{noExec("a")}, 0, false},
		{"negative is now", []corev1.Toleration{exists("a", -5)}, []corev1.Taint{noExec("a")}, 0, false},
		{"all taints", []corev1.Toleration{{Operator: corev1.TolerationOpExists}}, []corev1.Taint{noExec("a"), noExec("b")}, 0, true},
	} {
		p := &corev1.Pod{Spec: corev1.PodSpec{Tolerations: tt.tols}}
		if wait, never := tolerates(p, tt.taints); wait != tt.wait || never != tt.never {
			t.Errorf("%s: %s %v, want %s %v", tt.name, wait, never, tt.wait, tt.never)
		}
	}
}

// TestTimers: N-3.24, N-3.25.
func TestTimers(t *testing.T) {
	now := time.Unix(1000, 0)
	pod := func(seconds int64) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "p"},
			Spec: corev1.PodSpec{NodeName: "n", Tolerations: []corev1.Toleration{exists("a", seconds)}}}
	}
	tainted := map[string][]corev1.Taint{"n": {noExec("a")}}
	at := func(ts timers, sec int, taints map[string][]corev1.Taint, p *corev1.Pod) string {
		evict, spare, _ := ts.step(taints, []*corev1.Pod{p}, now.Add(time.Duration(sec)*time.Second))
		return fmt.Sprint(len(evict), len(spare))
	}
	check := func(what, got, want string) {
		t.Helper()
		if got != want {
			t.Errorf("%s: evict, spare = %s, want %s", what, got, want)
		}
	}
	ts := timers{}
	check("waits", at(ts, 0, tainted, pod(30)), "0 0")
	check("keeps its time though a longer one is given", at(ts, 10, tainted, pod(300)), "0 0")
	check("keeps its time though a shorter one is given", at(ts, 20, tainted, pod(5)), "0 0")
	check("not yet", at(ts, 29, tainted, pod(30)), "0 0")
	check("now", at(ts, 30, tainted, pod(30)), "1 0")
	check("not at once again: the deletion is on its way", at(ts, 31, tainted, pod(30)), "0 0")
	check("but again if it does not show", at(ts, 36, tainted, pod(30)), "1 0")

	ts = timers{}
	at(ts, 0, tainted, pod(30))
	check("toleration taken away", at(ts, 1, tainted,
		&corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "p"}, Spec: corev1.PodSpec{NodeName: "n"}}), "1 0")

	ts = timers{}
	at(ts, 0, tainted, pod(30))
	check("taint gone", at(ts, 10, nil, pod(30)), "0 1")
	check("said once", at(ts, 11, nil, pod(30)), "0 0")
	check("a new taint is a new wait", at(ts, 12, tainted, pod(30)), "0 0")
	check("of full length", at(ts, 41, tainted, pod(30)), "0 0")
	check("and then", at(ts, 42, tainted, pod(30)), "1 0")

	ts = timers{}
	gone := pod(0)
	gone.DeletionTimestamp = &metav1.Time{}
	check("already going", at(ts, 0, tainted, gone), "0 0")
	at(ts, 0, tainted, pod(30))
	ts.step(tainted, nil, now)
	if len(ts) != 0 {
		t.Error("remembers pods that are gone")
	}
}

// TestUserTaint: a NoExecute taint that a person sets works at once on a healthy node, without the rate limits of health
// taints, and spares who tolerates it (N-3.22, N-3.39).
func TestUserTaint(t *testing.T) {
	plane(t, Config{}, func(r *rig) {
		r.node("n")
		defer r.alive("n")()
		r.pod("p")
		r.report("p", corev1.PodRunning)
		r.pod("q", tolerating(exists("mine", 20)))
		r.pod("r", tolerating(exists("mine")))
		n := r.getNode("n")
		n.Spec.Taints = append(n.Spec.Taints, noExec("mine"))
		if _, err := api.Update(r.ctx, r.Client, api.Nodes, n); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		going := func(name string) bool { return r.getPod(name).DeletionTimestamp != nil }
		if !going("p") || going("q") || going("r") {
			t.Errorf("at once: %v %v %v", going("p"), going("q"), going("r"))
		}
		r.pass(20 * time.Second)
		if !going("q") || going("r") {
			t.Errorf("after 20 s: %v %v", going("q"), going("r"))
		}
		if got := taintsOf(r.getNode("n")); len(got) != 1 || got[0] != "mine:NoExecute" {
			t.Errorf("foreign taints are left alone: %v", got)
		}
	})
}

// TestTimersProperties: a pod is evicted exactly when its wait is over, whenever and however often one looks, and the
// wake-up says when that is.
func TestTimersProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 5))
	for range 2000 {
		ts, now := timers{}, time.Unix(1000, 0)
		began := now
		var pods []*corev1.Pod
		left := map[types.UID]time.Duration{}
		for i := range 1 + r.IntN(5) {
			uid := types.UID(fmt.Sprint(i))
			seconds := int64(r.IntN(100))
			left[uid] = time.Duration(seconds) * time.Second
			pods = append(pods, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: uid},
				Spec: corev1.PodSpec{NodeName: "n", Tolerations: []corev1.Toleration{exists("a", seconds)}}})
		}
		for len(left) > 0 {
			evict, spare, wake := ts.step(map[string][]corev1.Taint{"n": {noExec("a")}}, pods, now)
			if len(spare) != 0 || wake <= 0 {
				t.Fatalf("spare %v, wake %s", spare, wake)
			}
			for _, p := range evict {
				due, ok := left[p.UID]
				if !ok || began.Add(due).After(now) {
					t.Fatalf("pod %s evicted at %s, due at %s", p.UID, now.Sub(began), due)
				}
				delete(left, p.UID)
				p.DeletionTimestamp = &metav1.Time{}
			}
			for uid, due := range left {
				if !began.Add(due).After(now) {
					t.Fatalf("pod %s is still there at %s, due at %s", uid, now.Sub(began), due)
				}
				if began.Add(due).Before(now.Add(wake)) {
					t.Fatalf("sleeps %s, pod %s is due in %s", wake, uid, began.Add(due).Sub(now))
				}
			}
			now = now.Add(min(wake, time.Duration(1+r.IntN(20000))*time.Millisecond))
		}
	}
}
