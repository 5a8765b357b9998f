package evict

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"ledge/node/machine"
	"ledge/node/machine/fake"
	"ledge/node/podstate"
	"ledge/node/pressure"
)

const mi = 1 << 20

// shed are pods that eat memory until they have to go, an engine that may be away, and a machine of 4 Gi below them.
type shed struct {
	mu    sync.Mutex
	eats  map[string]int64 // by name, which is the UID
	gone  []string
	away  bool
	takes time.Duration // to end a pod
	told  []string
}

func (s *shed) see() (machine.Sample, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := fake.Board("n")
	out.MemoryAvailable = 1000 * mi
	for _, n := range s.eats {
		out.MemoryAvailable -= n
	}
	return out, nil
}

func (s *shed) Running() bool { s.mu.Lock(); defer s.mu.Unlock(); return !s.away }

func (s *shed) RunningSince(time.Time) bool { return s.Running() }

func (s *shed) Memory(time.Time) (pressure.Reading, bool) { return pressure.Reading{}, false }

func (s *shed) Candidates(pressure.Signal) (out []pressure.Candidate) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, n := range s.eats {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name)}}
		out = append(out, pressure.Candidate{Pod: p, Used: &pressure.Usage{Memory: n}})
	}
	return out
}

func (s *shed) Cgroup(types.UID) string { return "" }

func (s *shed) Claim(uid types.UID, _ podstate.Stop) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.gone = append(s.gone, string(uid))
	return true
}

func (s *shed) Hasten(types.UID, podstate.Stop) {}

func (s *shed) Stop(ctx context.Context, uid types.UID, _ podstate.Stop) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(s.takes):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.eats, string(uid))
	return nil
}

func (s *shed) Unheard(types.UID) <-chan struct{} { return nil }

func (s *shed) Gone(types.UID) bool { return true }

func (s *shed) EventOn(ref corev1.ObjectReference, _, reason, _ string) { s.tell(ref, reason) }

func (s *shed) Annotated(ref corev1.ObjectReference, _ map[string]string, _, reason, _ string) {
	s.tell(ref, reason)
}

func (s *shed) tell(ref corev1.ObjectReference, reason string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.told = append(s.told, reason+" "+ref.Name)
}

func (s *shed) went() []string { s.mu.Lock(); defer s.mu.Unlock(); return slices.Clone(s.gone) }

// with runs fn beside an evictor of the shed.
func (s *shed) with(t *testing.T, fn func(e *Evictor)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		e := New(Config{Policy: pressure.Policy{}.WithDefaults(), Machine: fake.Machine{See: s.see}, Engine: s, Pods: s, Events: s,
			Node: corev1.ObjectReference{Name: "n"}, Changed: func() {}})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- e.Run(ctx) }()
		synctest.Wait()
		fn(e)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestOneAfterTheOther: the pod that uses most goes, and the next one only when that was not enough, and is over.
func TestOneAfterTheOther(t *testing.T) { // N-6.18, N-6.20
	s := &shed{eats: map[string]int64{"small": 10 * mi, "large": 300 * mi, "larger": 900 * mi}, takes: 3 * time.Second}
	s.with(t, func(e *Evictor) {
		time.Sleep(2 * time.Second)
		if got := s.went(); !slices.Equal(got, []string{"larger"}) || !e.Short()[corev1.NodeMemoryPressure] {
			t.Errorf("while the first ends: %q have been told to go, short of %v", got, e.Short())
		}
		time.Sleep(time.Minute)
		if got := s.went(); !slices.Equal(got, []string{"larger"}) {
			t.Errorf("one was enough, and %q went", got)
		}
		if want := []string{"EvictionThresholdMet n", "Evicted larger"}; !slices.Equal(s.told, want) {
			t.Errorf("told %q, want %q", s.told, want)
		}
	})
}

// TestNobodyWhileTheEngineIsAway: who is chosen then could not be stopped, and would go beside whoever frees enough.
func TestNobodyWhileTheEngineIsAway(t *testing.T) { // N-6.20
	s := &shed{eats: map[string]int64{"large": 950 * mi}, away: true}
	s.with(t, func(e *Evictor) {
		time.Sleep(time.Minute + time.Second) // not at the moment of a look: figures that are no newer decide nothing
		if got := s.went(); len(got) > 0 {
			t.Errorf("%q went", got)
		}
		s.mu.Lock()
		s.away = false
		s.mu.Unlock()
		e.Again()
		synctest.Wait() // no time has passed
		if got := s.went(); !slices.Equal(got, []string{"large"}) {
			t.Errorf("the engine is back, and %q went", got)
		}
	})
}

// TestNothingToGlanceAt: a machine that cannot tell its memory alone is not asked between two looks.
func TestNothingToGlanceAt(t *testing.T) {
	s := &shed{}
	e := New(Config{Policy: pressure.Default(), Machine: fake.Machine{See: s.see, Mute: true}, Pods: s})
	if seen, again := e.glance(); len(seen) > 0 || again != pressure.MonitorPeriod {
		t.Errorf("saw %v, again after %s", seen, again)
	}
}
