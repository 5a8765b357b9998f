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

	"ledge/node/pressure"
)

// seesaw is a board on which pods fill and drain the memory, and the rules that hold whatever they do.
type seesaw struct {
	*rig
	playedRecorder
	mu      sync.Mutex
	used    map[string]int64
	request map[string]int64
	spared  map[string]bool
	running map[string]bool
	left    int64 // available when no pod runs
	short   time.Time
	evicted int
}

// playedRecorder is what a seesaw hears of, and passes on.
type playedRecorder = *playedEvents

func (s *seesaw) sample(b *Sample, running map[string]bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, b.MemoryAvailable = running, s.left
	for name := range running {
		b.MemoryAvailable -= s.used[name]
	}
	if b.MemoryAvailable < 100*mi {
		s.short = time.Now()
	}
}

// Annotated hears of an eviction at the moment it is decided.
func (s *seesaw) Annotated(ref corev1.ObjectReference, notes map[string]string, kind, reason, message string) {
	s.playedRecorder.Annotated(ref, notes, kind, reason, message)
	if reason != Evicted {
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
			s.Errorf("%s (%d MiB above its request) was evicted before %s (%d)", ref.Name, above(ref.Name)/mi, name, above(name)/mi)
		}
	}
}

// TestSeesaw: in whatever sequence pods fill and drain the board, never does one go within its request while one above can, or
// one that is spared, or one when the board is not short; a condition outlasts the shortage by its time, and no more.
func TestSeesaw(t *testing.T) { // N-6.18 to N-6.20, N-6.25, N-6.30
	seeds := 6
	if os.Getenv("LEDGE_LONG") != "" {
		seeds = 300
	}
	total := 0
	for seed := range uint64(seeds) {
		with(t, nil, func(r *rig) {
			const transition = 40 * time.Second
			rnd := rand.New(rand.NewPCG(seed, 6))
			s := &seesaw{rig: r, playedRecorder: r.events, used: map[string]int64{}, request: map[string]int64{}, spared: map[string]bool{}, left: int64(800+rnd.IntN(1600)) * mi}
			r.measured(s.sample)
			r.cfg.Events = s
			r.cfg.Status.Eviction.Transition = transition
			r.begin()
			var pods []*corev1.Pod
			for i := range 3 + rnd.IntN(6) {
				name, edits := fmt.Sprintf("p%d", i), []func(*corev1.Pod){}
				s.mu.Lock()
				if rnd.IntN(3) > 0 {
					s.request[name] = int64(1+rnd.IntN(400)) * mi
					edits = append(edits, asks(fmt.Sprintf("%dMi", s.request[name]/mi)))
				}
				if s.spared[name] = rnd.IntN(5) == 0; s.spared[name] {
					edits = append(edits, class("system-node-critical"))
				}
				s.mu.Unlock()
				p := r.pod(name, edits...)
				r.uses(p, 0, 1)
				pods = append(pods, p)
			}
			was, since := corev1.ConditionFalse, time.Now()
			for range 60 {
				p := pods[rnd.IntN(len(pods))]
				n := int64(rnd.IntN(700)) * mi
				s.mu.Lock()
				s.used[p.Name] = n
				s.mu.Unlock()
				r.uses(p, n, 1)
				for range 1 + rnd.IntN(20) {
					r.pass(time.Second)
					now := nodeCondition(r.node(), corev1.NodeMemoryPressure).Status
					if now == was {
						continue
					}
					if now == corev1.ConditionFalse && time.Since(since) < transition-time.Second {
						t.Errorf("seed %d: the condition ended after %v", seed, time.Since(since))
					}
					was, since = now, time.Now()
				}
			}
			s.mu.Lock()
			total += s.evicted
			for name := range s.spared {
				if s.spared[name] && !s.running[name] {
					t.Errorf("seed %d: %s is gone", seed, name)
				}
			}
			s.mu.Unlock()
			for _, e := range r.events.of(Evicted) {
				if !strings.Contains(e, string(pressure.Memory)) {
					t.Errorf("seed %d: %s", seed, e)
				}
			}
		})
	}
	if total < seeds {
		t.Errorf("%d pods were evicted in %d sequences: nothing was tried", total, seeds)
	}
	t.Logf("%d evictions in %d sequences", total, seeds)
}
