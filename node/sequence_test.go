package node

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/evict"
	"ledge/node/machine"
	"ledge/node/pressure"
)

// A seesaw is a board on which pods fill and drain something, and the rules that hold whatever they do.
type seesaw struct {
	*rig
	playedRecorder
	scarce
	mu      sync.Mutex
	used    map[string]int64
	request map[string]int64 // what counts of it
	spared  map[string]bool
	running map[string]bool
	left    int64 // available when no pod runs
	short   time.Time
	evicted int
}

// playedRecorder is what a seesaw hears of, and passes on.
type playedRecorder = *playedEvents

// scarce is what there may be too little of.
type scarce struct {
	name        corev1.ResourceName
	condition   corev1.NodeConditionType
	line        int64
	least, most int64 // available when no pod runs
	each        int64 // the most that a pod takes
	requested   bool  // requests count
	show        func(b *machine.Sample, left int64)
	take        func(r *rig, p *corev1.Pod, n int64)
}

var ofMemory = scarce{name: pressure.Memory, condition: corev1.NodeMemoryPressure, line: 100 * mi, least: 800 * mi, most: 2400 * mi,
	each: 700 * mi, requested: true,
	show: func(b *machine.Sample, left int64) { b.MemoryAvailable = left },
	take: func(r *rig, p *corev1.Pod, n int64) { r.uses(p, n, 1) }}

// N-6.27
var ofProcesses = scarce{name: pressure.PIDs, condition: corev1.NodePIDPressure, line: 32768 / 20, least: 6000, most: 20000, each: 5000,
	show: func(b *machine.Sample, left int64) { b.PIDUsed = b.PIDMax - left },
	take: func(r *rig, p *corev1.Pod, n int64) { r.uses(p, mi, n) }}

func (s *seesaw) sample(b *machine.Sample, running map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running = running
	left := s.left
	for name := range running {
		left -= s.used[name]
	}
	if s.show(b, left); left < s.line {
		s.short = time.Now()
	}
}

// Annotated hears of an eviction at the moment it is decided.
func (s *seesaw) Annotated(ref corev1.ObjectReference, notes map[string]string, kind, reason, message string) {
	s.playedRecorder.Annotated(ref, notes, kind, reason, message)
	if reason != evict.Reason {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.evicted++
	above := func(name string) int64 { return s.used[name] - s.request[name] }
	if s.spared[ref.Name] { // N-6.30
		s.Errorf("%s may not be evicted", ref.Name)
	}
	if !s.short.Equal(time.Now()) {
		s.Errorf("%s was evicted %v after the board was last seen short", ref.Name, time.Since(s.short))
	}
	for name := range s.running {
		if name == ref.Name || s.spared[name] {
			continue
		}
		if above(name) > 0 && above(name) > above(ref.Name) { // N-6.25
			s.Errorf("%s (%d above its request) was evicted before %s (%d)", ref.Name, above(ref.Name), name, above(name))
		}
	}
}

// stock makes the pods; some ask for memory, some are spared.
func (s *seesaw) stock(rnd *rand.Rand) (pods []*corev1.Pod) {
	for i := range 3 + rnd.IntN(6) {
		name, edits := fmt.Sprintf("p%d", i), []func(*corev1.Pod){}
		s.mu.Lock()
		if rnd.IntN(3) > 0 {
			n := int64(1+rnd.IntN(400)) * mi
			edits = append(edits, asks(fmt.Sprintf("%dMi", n/mi)))
			if s.requested {
				s.request[name] = n
			}
		}
		if s.spared[name] = rnd.IntN(5) == 0; s.spared[name] {
			edits = append(edits, class("system-node-critical"))
		}
		s.mu.Unlock()
		p := s.pod(name, edits...)
		s.take(s.rig, p, 0)
		pods = append(pods, p)
	}
	return pods
}

// play has pods take and give back; the condition has to last as long as it is to.
func (s *seesaw) play(seed uint64, rnd *rand.Rand, transition time.Duration) {
	pods := s.stock(rnd)
	was, since := corev1.ConditionFalse, time.Now()
	for range 60 {
		p := pods[rnd.IntN(len(pods))]
		n := rnd.Int64N(s.each)
		s.mu.Lock()
		s.used[p.Name] = n
		s.mu.Unlock()
		s.take(s.rig, p, n)
		for range 1 + rnd.IntN(20) {
			s.pass(time.Second)
			now := nodeCondition(s.node(), s.condition).Status
			if now == was {
				continue
			}
			if now == corev1.ConditionFalse && time.Since(since) < transition-time.Second {
				s.Errorf("seed %d: the condition ended after %v", seed, time.Since(since))
			}
			was, since = now, time.Now()
		}
	}
}

// TestSeesaw: in whatever sequence pods fill and drain the board, never does one go within its request while one above can (of
// processes: while another has more), or one that is spared, or one when the board is not short; a condition outlasts the shortage by its
// time, and no more.
func TestSeesaw(t *testing.T) { // N-6.18 to N-6.20, N-6.25, N-6.27, N-6.30
	if testing.Short() {
		t.Skip("takes 6 s")
	}
	seeds := 6
	if os.Getenv("LEDGE_LONG") != "" {
		seeds = 300
	}
	for _, what := range []scarce{ofMemory, ofProcesses} {
		total := 0
		for seed := range uint64(seeds) {
			with(t, nil, func(r *rig) {
				const transition = 40 * time.Second
				rnd := rand.New(rand.NewPCG(seed, 6))
				s := &seesaw{rig: r, playedRecorder: r.events, scarce: what, used: map[string]int64{}, request: map[string]int64{},
					spared: map[string]bool{},
					left:   what.least + rnd.Int64N(what.most-what.least)}
				r.measured(s.sample)
				r.cfg.Events = s
				r.cfg.Status.Eviction.Transition = transition
				r.begin()
				s.play(seed, rnd, transition)
				s.mu.Lock()
				total += s.evicted
				for name := range s.spared {
					if s.spared[name] && !s.running[name] {
						t.Errorf("seed %d: %s is gone", seed, name)
					}
				}
				s.mu.Unlock()
				for _, e := range r.events.of(evict.Reason) {
					if !strings.Contains(e, string(what.name)) {
						t.Errorf("seed %d: %s", seed, e)
					}
				}
			})
		}
		if total < seeds {
			t.Errorf("%d pods were evicted for %s in %d sequences: nothing was tried", total, what.name, seeds)
		}
		t.Logf("%d evictions for %s in %d sequences", total, what.name, seeds)
	}
}
