package node

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"ledge/api"
	"ledge/node/podspec"
	"ledge/runtime"
)

// needs is a container's resources: "request limit" of CPU and of memory, - for none.
func needs(cpuReq, cpuLim, memReq, memLim string) corev1.ResourceRequirements {
	out := corev1.ResourceRequirements{Requests: corev1.ResourceList{}, Limits: corev1.ResourceList{}}
	for _, x := range []struct {
		list corev1.ResourceList
		name corev1.ResourceName
		text string
	}{{out.Requests, corev1.ResourceCPU, cpuReq}, {out.Limits, corev1.ResourceCPU, cpuLim},
		{out.Requests, corev1.ResourceMemory, memReq}, {out.Limits, corev1.ResourceMemory, memLim}} {
		if x.text != "-" {
			x.list[x.name] = resource.MustParse(x.text)
		}
	}
	return out
}

// resize asks for other amounts: "CPU request, CPU limit, memory request, memory limit" as in needs.
func (r *rig) resize(name, cpuReq, cpuLim, memReq, memLim string) {
	r.Helper()
	p := r.get(name)
	p.Spec.Containers[0].Resources = needs(cpuReq, cpuLim, memReq, memLim)
	if _, err := r.Update(r.Context(), api.Pods, p, api.WriteOptions{Subresource: api.Resize}); err != nil {
		r.Fatal(err)
	}
}

func sizedPod(cpuReq, cpuLim, memReq, memLim string) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Containers[0].Resources = needs(cpuReq, cpuLim, memReq, memLim) }
}

// sizes are what the engine holds of the only container and of its pod: shares, quota, memory.
func (r *rig) sizes(name string) (container, pod string) {
	r.Helper()
	st, err := r.engine.List(r.Context())
	if err != nil {
		r.Fatal(err)
	}
	word := func(x runtime.Resources) string { return fmt.Sprint(x.CPUShares, x.CPUQuotaUS, x.MemoryBytes>>20) }
	uid := string(r.get(name).UID)
	for _, p := range st.Pods {
		if p.Pod.UID == uid {
			pod = word(p.Pod.Resources)
		}
	}
	for _, c := range st.Containers {
		if c.PodUID == uid && c.Phase == runtime.Running {
			container = fmt.Sprint(c.Attempt, ": ", word(c.Resources))
		}
	}
	return container, pod
}

func (r *rig) wantSizes(name, container, pod string) {
	r.Helper()
	if c, p := r.sizes(name); c != container || p != pod {
		r.Errorf("%s has %q in %q, want %q in %q", name, c, p, container, pod)
	}
}

// told is what the status says of a resize: the condition, the granted requests, the limits that hold.
func (r *rig) told(name string) string {
	p := r.get(name)
	out := ""
	for _, c := range p.Status.Conditions {
		if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
			out += fmt.Sprintf("%s %s %s; ", c.Type, c.Reason, c.Message)
			if c.ObservedGeneration != p.Generation {
				r.Errorf("condition %s of generation %d, the pod is at %d", c.Type, c.ObservedGeneration, p.Generation)
			}
		}
	}
	st := p.Status.ContainerStatuses[0]
	if st.Resources == nil {
		return out + "nothing"
	}
	text := func(l corev1.ResourceList) string { return l.Cpu().String() + " " + l.Memory().String() }
	return out + text(st.AllocatedResources) + ", " + text(st.Resources.Limits)
}

func (r *rig) wantTold(name, want string) {
	r.Helper()
	if got := r.told(name); got != want {
		r.Errorf("%s: told %q, want %q", name, got, want)
	}
}

// TestResize: more and less, while the container runs, and a restarted brain knows what was granted.
func TestResize(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", sizedPod("100m", "500m", "10Mi", "20Mi"))
		r.pass(time.Second)
		r.wantSizes("p", "0: 102 50000 20", "102 50000 20")
		r.wantTold("p", "100m 10Mi, 500m 20Mi")
		r.resize("p", "1", "2", "100Mi", "200Mi")
		r.pass(time.Second)
		r.wantSizes("p", "0: 1024 200000 200", "1024 200000 200")
		r.wantTold("p", "1 100Mi, 2 200Mi")
		r.resize("p", "1", "1500m", "50Mi", "60Mi")
		r.pass(time.Second)
		r.wantSizes("p", "0: 1024 150000 60", "1024 150000 60")
		r.begin()
		r.pass(time.Second)
		r.wantSizes("p", "0: 1024 150000 60", "1024 150000 60")
		r.wantTold("p", "1 50Mi, 1500m 60Mi")
	})
}

// TestResizeWithoutRoom: what the board does not have now is waited for, also over a restart; what it can never have is
// said. Meanwhile the pod keeps what it was granted.
func TestResizeWithoutRoom(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", sizedPod("1", "-", "10Mi", "-"))
		r.pod("q", sizedPod("2", "-", "10Mi", "-"))
		r.pass(time.Second)
		r.resize("p", "3", "-", "10Mi", "-")
		r.pass(time.Second)
		deferred := "PodResizePending Deferred Node didn't have enough resource: cpu, requested: 3000, used: 2000, capacity: 4000; "
		r.wantTold("p", deferred+"1 10Mi, 0 0")
		r.wantSizes("p", "0: 1024 0 0", "1024 0 0")
		r.begin()
		r.pass(time.Second)
		r.wantTold("p", deferred+"1 10Mi, 0 0")
		r.delete("q", new(int64))
		r.pass(10 * time.Second)
		r.wantTold("p", "3 10Mi, 0 0")
		r.wantSizes("p", "0: 3072 0 0", "3072 0 0")
		r.resize("p", "5", "-", "10Mi", "-")
		r.pass(time.Second)
		r.wantTold("p", "PodResizePending Infeasible Node didn't have enough capacity: cpu, requested: 5000, capacity: 4000; 3 10Mi, 0 0")
		if held := api.Held(r.get("p")); held.Cpu().String() != "3" {
			t.Errorf("the scheduler counts %s CPUs", held.Cpu())
		}
	})
}

// TestResizeRestarts: a container whose memory cannot change while it runs is replaced, at once and only for that.
func TestResizeRestarts(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", sizedPod("100m", "-", "10Mi", "20Mi"), func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{{ResourceName: "memory", RestartPolicy: corev1.RestartContainer}}
		})
		r.pass(time.Second)
		r.resize("p", "200m", "-", "10Mi", "20Mi")
		r.pass(time.Second)
		r.wantSizes("p", "0: 204 0 20", "204 0 20")
		r.resize("p", "200m", "-", "10Mi", "40Mi")
		r.pass(time.Second)
		r.wantSizes("p", "1: 204 0 40", "204 0 40")
		r.wantTold("p", "200m 10Mi, 0 40Mi")
	})
}

// TestResizeFails: what cannot be set is said, tried again, and not told as if it were so.
func TestResizeFails(t *testing.T) {
	with(t, nil, func(r *rig) {
		e := &tightEngine{Engine: r.engine}
		r.cfg.Engine = e
		r.begin()
		r.pod("p", sizedPod("100m", "-", "10Mi", "20Mi"))
		r.pass(time.Second)
		e.tight.Store(true)
		r.resize("p", "100m", "-", "5Mi", "15Mi")
		r.pass(time.Second)
		r.wantTold("p", "PodResizeInProgress Error in use; 100m 5Mi, 0 20Mi")
		e.tight.Store(false)
		r.pass(10 * time.Second)
		r.wantTold("p", "100m 5Mi, 0 15Mi")
		r.wantSizes("p", "0: 102 0 15", "102 0 15")
	})
}

// TestResizeOfShares: what a container may swap, and where it is slowed down, follow from its request and change with it.
func TestResizeOfShares(t *testing.T) {
	with(t, nil, func(r *rig) {
		rule, err := podspec.NewSwapRule("LimitedSwap", "", true)
		if err != nil {
			t.Fatal(err)
		}
		r.cfg.Resources.Swap, r.cfg.Resources.MemoryQoS = rule, podspec.MemoryQoS{On: true}
		r.board.sample.SwapTotal = 2 << 30
		r.begin()
		r.pod("p", sizedPod("100m", "-", "64Mi", "128Mi"))
		r.pass(time.Second)
		l := r.agent.limits()
		if l.MemoryTotal == 0 || l.SwapTotal == 0 || !l.CgroupV2 {
			t.Fatalf("the board has no swap to share: %+v", l)
		}
		check := func(request, limit int64) {
			r.Helper()
			st, err := r.engine.List(r.Context())
			if err != nil || len(st.Containers) != 1 {
				t.Fatalf("%+v %v", st, err)
			}
			res := st.Containers[0].Resources
			if want := int64(float64(request) / float64(l.MemoryTotal) * float64(l.SwapTotal)); *res.SwapBytes != want {
				r.Errorf("may swap %d, want %d", *res.SwapBytes, want)
			}
			if want := fmt.Sprint(int64(float64(request)+0.9*float64(limit-request)) / 4096 * 4096); res.Unified["memory.high"] != want {
				r.Errorf("slowed down at %s, want %s", res.Unified["memory.high"], want)
			}
		}
		check(64<<20, 128<<20)
		r.resize("p", "100m", "-", "96Mi", "128Mi")
		r.pass(time.Second)
		check(96<<20, 128<<20)
		r.wantTold("p", "100m 96Mi, 0 128Mi")
	})
}

// tightEngine refuses to limit containers.
type tightEngine struct {
	Engine
	tight atomic.Bool
}

func (e *tightEngine) Limit(ctx context.Context, at runtime.Place, r runtime.Resources) error {
	if at.Container != "" && e.tight.Load() {
		return errors.New("in use")
	}
	return e.Engine.Limit(ctx, at, r)
}

// TestResizeOfPod: what a pod has as a whole changes while it runs, and with it what bounds a container that has no limit of
// its own; a restarted brain knows what was granted.
func TestResizeOfPod(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		whole := func(r corev1.ResourceRequirements) func(*corev1.Pod) {
			return func(p *corev1.Pod) { p.Spec.Resources = &r }
		}
		r.pod("p", sizedPod("100m", "-", "10Mi", "-"), whole(needs("200m", "500m", "20Mi", "40Mi")))
		r.pass(time.Second)
		r.wantSizes("p", "0: 102 50000 40", "204 50000 40")
		resize := func(to corev1.ResourceRequirements) {
			p := r.get("p")
			p.Spec.Resources = &to
			if _, err := r.Update(r.Context(), api.Pods, p, api.WriteOptions{Subresource: api.Resize}); err != nil {
				r.Fatal(err)
			}
			r.pass(time.Second)
		}
		told := func(want string) {
			r.Helper()
			st := r.get("p").Status
			got := fmt.Sprint(st.AllocatedResources.Cpu(), " ", st.AllocatedResources.Memory(), ", ", st.Resources.Limits.Cpu(), " ",
				st.Resources.Limits.Memory())
			for _, c := range st.Conditions {
				if c.Type == corev1.PodResizePending || c.Type == corev1.PodResizeInProgress {
					got += fmt.Sprint("; ", c.Type, " ", c.Reason)
				}
			}
			if got != want {
				r.Errorf("told %q, want %q", got, want)
			}
		}
		told("200m 20Mi, 500m 40Mi")
		resize(needs("1", "2", "60Mi", "80Mi"))
		r.wantSizes("p", "0: 102 200000 80", "1024 200000 80")
		told("1 60Mi, 2 80Mi")
		resize(needs("9", "9", "60Mi", "80Mi")) // the board has 4
		told("1 60Mi, 2 80Mi; PodResizePending Infeasible")
		r.begin()
		r.pass(time.Second)
		told("1 60Mi, 2 80Mi; PodResizePending Infeasible")
		r.wantSizes("p", "0: 102 200000 80", "1024 200000 80")
		if held := api.Held(r.get("p")); held.Cpu().String() != "1" {
			t.Errorf("the scheduler counts %s CPUs", held.Cpu())
		}
		resize(needs("100m", "300m", "20Mi", "30Mi"))
		r.wantSizes("p", "0: 102 30000 30", "102 30000 30")
		told("100m 20Mi, 300m 30Mi")
	})
}

// TestResizeWithoutAny: a pod that had no resources as a whole is given some.
func TestResizeWithoutAny(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		r.pod("p", sizedPod("100m", "-", "10Mi", "-"))
		r.pass(time.Second)
		r.wantSizes("p", "0: 102 0 0", "102 0 0")
		p := r.get("p")
		whole := needs("200m", "500m", "20Mi", "40Mi")
		p.Spec.Resources = &whole
		if _, err := r.Update(r.Context(), api.Pods, p, api.WriteOptions{Subresource: api.Resize}); err != nil {
			t.Fatal(err)
		}
		r.pass(time.Second)
		r.wantSizes("p", "0: 102 50000 40", "204 50000 40")
	})
}
