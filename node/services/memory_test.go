package services

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"ledge/api"
	"ledge/api/discovery"
	"ledge/network/fake"
	"ledge/network/service"
)

// card is a Memory that counts.
type card struct {
	mu      sync.Mutex
	rows    map[string][]byte
	writes  int
	damaged bool
	lags    bool
}

func (c *card) Lag() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lags = true
}

func (c *card) Load() (map[string][]byte, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.rows), !c.damaged && !c.lags, nil
}

func (c *card) Save(rows map[string][]byte) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lags = false; len(rows) > 0 {
		c.writes++
	}
	if c.rows == nil {
		c.rows = map[string][]byte{}
	}
	for key, row := range rows {
		if c.rows[key] = row; row == nil {
			delete(c.rows, key)
		}
	}
	return nil
}

func (c *card) count() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.writes
}

// joined is a board that has joined, over several boots.
type joined struct {
	plane  *plane
	card   card
	kernel *fake.Kernel

	mu   sync.Mutex
	pods []*corev1.Pod
}

// runs says which pods the board has.
func (j *joined) runs(pods ...*corev1.Pod) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.pods = pods
}

// boot runs the Loop of one boot, or of one process in it.
func (j *joined) boot(t *testing.T, client api.Client, do func(*Loop)) {
	t.Helper()
	l := New(Config{Client: client, Forwarder: fake.NewForwarder(j.kernel), Node: "here", Memory: &j.card,
		Here: func() []*corev1.Pod {
			j.mu.Lock()
			defer j.mu.Unlock()
			return j.pods
		}})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- l.Run(ctx) }()
	do(l)
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// ours is a slice with a pod of this board and one of another.
func ours() *discoveryv1.EndpointSlice {
	s, here, there := slice("web-a", "web", "10.42.0.2", "10.42.1.2"), "here", "there"
	s.Endpoints[0].NodeName, s.Endpoints[0].TargetRef = &here, &corev1.ObjectReference{Kind: "Pod", Name: "web-0"}
	s.Endpoints[1].NodeName, s.Endpoints[1].TargetRef = &there, &corev1.ObjectReference{Kind: "Pod", Name: "web-1"}
	return s
}

func pod(name, ip string, ready corev1.ConditionStatus) *corev1.Pod {
	p := &corev1.Pod{}
	p.Namespace, p.Name = "default", name
	p.Status.PodIPs = []corev1.PodIP{{IP: ip}}
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}
	return p
}

// TestRemembered: after a power cut with the uplink down what the control plane said last is there at once, and the board's own pods are
// found where they are now; when the control plane is back, what it says counts.
func TestRemembered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		p.put(api.Services, svc("kubernetes", "10.96.0.1"))
		p.put(api.Services, svc("web", "10.96.0.2"))
		p.put(discovery.EndpointSlices, ours())
		j := &joined{plane: p, kernel: &fake.Kernel{}, pods: []*corev1.Pod{pod("web-0", "10.42.0.2", corev1.ConditionTrue)}}
		j.boot(t, p, func(*Loop) {
			expect(t, "heard", j.kernel, "default/kubernetes=", "default/web=10.42.0.2,10.42.1.2,")
			time.Sleep(delay)
		})
		p.cut(true)

		j.boot(t, p, func(l *Loop) { // the brain alone has died
			synctest.Wait()
			tells(t, "at once", l, "shop", "default/kubernetes=10.96.0.1 :TCP:80")
			expect(t, "another process", j.kernel, "default/kubernetes=", "default/web=10.42.0.2,10.42.1.2,")
		})
		j.runs() // nobody has said yet which pods there are
		j.boot(t, p, func(*Loop) {
			expect(t, "no pods known yet", j.kernel, "default/kubernetes=", "default/web=10.42.0.2,10.42.1.2,")
			time.Sleep(grace + 2*glance)
			expect(t, "there are none", j.kernel, "default/kubernetes=", "default/web=10.42.1.2,")
		})

		j.kernel = &fake.Kernel{} // the power was cut
		j.boot(t, p, func(l *Loop) {
			expect(t, "no pod runs yet", j.kernel, "default/kubernetes=", "default/web=10.42.1.2,")
			if !l.Heard().Whole() {
				t.Error("names that are not remembered fail")
			}
			j.runs(pod("web-0", "10.42.0.7", corev1.ConditionFalse))
			time.Sleep(2 * glance)
			expect(t, "it is not ready", j.kernel, "default/kubernetes=", "default/web=10.42.1.2,")
			j.runs(pod("web-0", "10.42.0.7", corev1.ConditionTrue))
			time.Sleep(2 * glance)
			expect(t, "it is", j.kernel, "default/kubernetes=", "default/web=10.42.0.7,10.42.1.2,")
			p.remove(api.Services, svc("web", ""))
			p.cut(false)
			time.Sleep(time.Minute)
			expect(t, "the control plane is back", j.kernel, "default/kubernetes=")
		})
		if _, is := j.card.rows[ofService+"default/web"]; is || len(j.card.rows) != 3 {
			t.Errorf("remembered: %q", slices.Collect(maps.Keys(j.card.rows)))
		}
	})
}

// TestRememberedBeforeAnybodyAnswers: an uplink that swallows what is sent holds nothing up, and a control plane that answers counts.
func TestRememberedBeforeAnybodyAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		p.put(api.Services, svc("web", "10.96.0.2"))
		j := &joined{plane: p, kernel: &fake.Kernel{}}
		j.boot(t, p, func(*Loop) { time.Sleep(time.Minute) })
		j.kernel = &fake.Kernel{}
		j.boot(t, silent{p}, func(*Loop) {
			time.Sleep(hearing)
			expect(t, "nobody answers", j.kernel, "default/web=")
		})
		p.put(api.Services, svc("web", "10.96.0.9"))
		j.boot(t, p, func(l *Loop) {
			synctest.Wait()
			tells(t, "what was heard, not what was remembered", l, "default", "default/web=10.96.0.9 :TCP:80")
		})
	})
}

// silent never answers.
type silent struct{ api.Client }

func (silent) List(ctx context.Context, _ *api.Kind, _ api.ListOptions) (api.List, error) {
	<-ctx.Done()
	return api.List{}, ctx.Err()
}

// TestKilledBeforeItWasWritten: rules that are newer than what is remembered stay where no reboot lies between.
func TestKilledBeforeItWasWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		p.put(api.Services, svc("web", "10.96.0.2"))
		j := &joined{plane: p, kernel: &fake.Kernel{}}
		j.boot(t, p, func(*Loop) { time.Sleep(time.Minute) })
		old := maps.Clone(j.card.rows)
		j.boot(t, p, func(*Loop) {
			time.Sleep(time.Minute)
			p.put(api.Services, svc("new", "10.96.0.3"))
			expect(t, "a change", j.kernel, "default/new=", "default/web=")
		})
		j.card.rows, j.card.lags = old, true // the process was killed before it wrote that down
		j.boot(t, silent{p}, func(l *Loop) {
			time.Sleep(time.Hour)
			expect(t, "the control plane is away", j.kernel, "default/new=", "default/web=")
			if l.Heard().Whole() {
				t.Error("a name is denied that may be one of what was not written down")
			}
			tells(t, "what is known", l, "default", "default/web=10.96.0.2 :TCP:80")
		})
	})
}

// TestWear: one change is written soon, many are written together, and what is as on disk is not written again.
func TestWear(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		p.put(api.Services, svc("web", "10.96.0.2"))
		j := &joined{plane: p, kernel: &fake.Kernel{}}
		j.boot(t, p, func(*Loop) {
			time.Sleep(time.Hour)
			if n := j.card.count(); n != 1 {
				t.Errorf("%d writes for what there was", n)
			}
			for i := range 3600 {
				p.put(discovery.EndpointSlices, slice("web-a", "web", fmt.Sprint("10.42.0.", i%200+2)))
				time.Sleep(time.Second)
			}
			if n := j.card.count(); n < 16 || n > 19 {
				t.Errorf("%d writes in an hour in which an endpoint changed each second", n)
			}
			p.put(discovery.EndpointSlices, slice("web-a", "web", "10.42.0.250"))
			synctest.Wait() // it was heard
		})
		if !strings.Contains(string(j.card.rows[ofSlice+"default/web-a"]), "10.42.0.250") {
			t.Error("a clean end loses the last change")
		}
		before := j.card.writes
		j.boot(t, p, func(*Loop) {
			time.Sleep(time.Hour)
			p.cut(false) // all is listed again
			time.Sleep(time.Hour)
		})
		if j.card.writes != before {
			t.Errorf("%d writes of what is on disk", j.card.writes-before)
		}
	})
}

// TestRememberedBounds: a control plane that says too much does not fill the card, and a damaged row is no reason to deny a name.
func TestRememberedBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlane()
		for i := range 3000 {
			s := svc(fmt.Sprint("s", i), fmt.Sprintf("10.96.%d.%d", i/250, i%250+1))
			for k := range 50 {
				s.Spec.Ports = append(s.Spec.Ports, corev1.ServicePort{Name: strings.Repeat("x", 50), Port: int32(k + 100)})
			}
			p.put(api.Services, s)
		}
		j := &joined{plane: p, kernel: &fake.Kernel{}}
		j.boot(t, p, func(*Loop) { time.Sleep(time.Minute) })
		size := 0
		for key, row := range j.card.rows {
			size += len(key) + len(row)
		}
		if size > mostBytes+100 || size < mostBytes/2 {
			t.Errorf("%d bytes are remembered", size)
		}
		j.card.damaged, j.kernel = true, &fake.Kernel{}
		j.boot(t, silent{p}, func(l *Loop) {
			time.Sleep(2 * hearing)
			if synctest.Wait(); l.Heard().Whole() {
				t.Error("names that may have been forgotten are denied")
			}
			if len(j.kernel.Services()) == 0 {
				t.Error("nothing is forwarded of what is whole")
			}
		})
		for key := range j.card.rows {
			if key != all {
				j.card.rows[key] = []byte(`{"n":"x","a":["no"]}`)
			}
		}
		j.boot(t, silent{p}, func(*Loop) { time.Sleep(2 * hearing) }) // it ends
	})
}

// older is a control plane that has no Services.
type older struct{ api.Client }

func (older) List(_ context.Context, kind *api.Kind, _ api.ListOptions) (api.List, error) {
	return api.List{}, apierrors.NewNotFound(schema.GroupResource{Resource: kind.Resource}, "")
}

// TestOlderControlPlane: pods wait for no Services of a control plane that has none.
func TestOlderControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := &joined{kernel: &fake.Kernel{}}
		j.boot(t, older{}, func(l *Loop) {
			synctest.Wait()
			began := time.Now()
			if list, err := l.Of(t.Context(), "default"); len(list) > 0 || err != nil || time.Since(began) > 0 {
				t.Errorf("%v %v after %v", list, err, time.Since(began))
			}
			time.Sleep(time.Hour)
			if l.Heard().Whole() {
				t.Error("names are denied by a board that cannot hear of any")
			}
		})
		if j.card.writes > 0 {
			t.Errorf("%d writes", j.card.writes)
		}
	})
}

// TestPresent holds what becomes of a remembered endpoint to what is known of its pod.
func TestPresent(t *testing.T) {
	e := service.Trim(svc("x", "10.42.0.2")).ClusterIPs[0]
	was := service.Endpoint{Addr: e, Pod: "web-0", Ready: true, Serving: true}
	gone, ended := pod("web-0", "10.42.0.9", corev1.ConditionTrue), pod("web-0", "10.42.0.9", corev1.ConditionTrue)
	gone.DeletionTimestamp = &gone.CreationTimestamp
	ended.Status.Phase = corev1.PodSucceeded
	for _, c := range []struct {
		what          string
		pod           *corev1.Pod
		unready, keep bool
		want          string
	}{
		{"another address", pod("web-0", "10.42.0.9", corev1.ConditionTrue), false, false, "10.42.0.9 ready"},
		{"another address, soon", pod("web-0", "10.42.0.9", corev1.ConditionTrue), false, true, "10.42.0.9 ready"},
		{"not ready", pod("web-0", "10.42.0.9", corev1.ConditionFalse), false, false, "10.42.0.9"},
		{"not ready, soon, where it was", pod("web-0", "10.42.0.2", corev1.ConditionFalse), false, true, "10.42.0.2 ready"},
		{"not ready, which does not matter", pod("web-0", "10.42.0.9", corev1.ConditionFalse), true, false, "10.42.0.9 ready"},
		{"ends", gone, false, false, "10.42.0.9 terminating"},
		{"has ended", ended, false, false, "none"},
		{"no address of the family", pod("web-0", "fd00::9", corev1.ConditionTrue), false, false, "none"},
		{"unknown", nil, false, false, "none"},
		{"unknown, soon", nil, false, true, "10.42.0.2 ready"},
	} {
		got, ok := present(was, c.pod, c.unready, c.keep)
		text := got.Addr.String()
		for flag, is := range map[string]bool{" ready": got.Ready, " terminating": got.Terminating} {
			if is {
				text += flag
			}
		}
		if !ok {
			text = "none"
		}
		if text != c.want {
			t.Errorf("%s: %s, want %s", c.what, text, c.want)
		}
	}
}
