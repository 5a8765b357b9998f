package shutdown

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// board is a Node whose pods take as long as they are told to.
type board struct {
	began time.Time

	mu      sync.Mutex
	pods    []*corev1.Pod
	takes   map[string]time.Duration // until a pod has stopped; default at once
	log     []string                 // "20s stop a 10s"
	started map[string]time.Time
	stopped map[string]time.Time
	closed  string
	flushes time.Duration // what Flush takes
}

func newBoard(pods ...*corev1.Pod) *board {
	return &board{began: time.Now(), pods: pods, takes: map[string]time.Duration{}, started: map[string]time.Time{},
		stopped: map[string]time.Time{}}
}

func (b *board) logf(format string, args ...any) {
	b.log = append(b.log, fmt.Sprintf("%s ", time.Since(b.began))+fmt.Sprintf(format, args...))
}

func (b *board) Close(message string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = message
	b.logf("close %q", message)
}

func (b *board) Pods() []*corev1.Pod {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(b.pods),
		func(p *corev1.Pod) bool { return !b.stopped[p.Name].IsZero() && !b.stopped[p.Name].After(time.Now()) })
}

func (b *board) StopPod(ctx context.Context, uid types.UID, grace time.Duration) error {
	name := string(uid)
	b.mu.Lock()
	b.logf("stop %s %s", name, grace)
	if b.started[name].IsZero() {
		b.started[name] = time.Now()
	}
	end := time.Now().Add(b.takes[name])
	if old, ok := b.stopped[name]; !ok || end.Before(old) {
		b.stopped[name] = end
	}
	wait := time.Until(b.stopped[name])
	b.mu.Unlock()
	select {
	case <-time.After(wait):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (b *board) Clear() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.logf("clear")
}

func (b *board) Flush(context.Context) error {
	b.mu.Lock()
	b.logf("flush")
	b.mu.Unlock()
	time.Sleep(b.flushes) // whatever becomes of the context, as fsync does
	return nil
}

func (b *board) lines() []string {
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.log)
}

func wantLog(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// TestRunOrder: admission closes first, stages follow each other, an early end is not waited out, and everything is
// durable after each and at the end (N-5.10, N-5.17, N-5.26, N-5.40, N-5.41).
func TestRunOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(pod("high", 2000000000, 30), pod("low", 0, 30))
		b.takes["low"] = 3 * sec
		res, err := Run(t.Context(), b, Default, Unlimited)
		if err != nil || len(res.Late) != 0 || res.Took != 3*sec {
			t.Errorf("%+v, %v", res, err)
		}
		wantLog(t, b.log, `0s close "node is shutting down"`, "0s stop low 20s", "3s flush", "3s stop high 10s", "3s flush")
	})
}

// TestRunLate: a pod that does not end does not hold up the next stage (N-5.26).
func TestRunLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(pod("high", 2000000000, 30), pod("low", 0, 30))
		b.takes["low"] = time.Hour
		res, err := Run(t.Context(), b, Default, Unlimited)
		if err != nil || len(res.Late) != 1 || res.Late[0].Name != "low" || res.Took != 24*sec {
			t.Errorf("%+v, %v", res, err)
		}
		wantLog(t, b.log, `0s close "node is shutting down"`, "0s stop low 20s", "20s stop high 10s", "24s flush")
	})
}

// TestRunKilled: who is killed with the end of the last stage has a moment to be gone and written down; who is not gone even then is
// not waited for, nor is anybody when there is less time than wanted.
func TestRunKilled(t *testing.T) {
	for _, c := range []struct {
		takes, budget time.Duration
		want          string
	}{
		{10*sec + sec/2, Unlimited, "10.5s flush"},
		{12*sec + 5*time.Millisecond, Unlimited, "12.005s flush"}, // deaf until SIGKILL, which comes 2 s after its signal
		{time.Hour, Unlimited, "14s flush"},
		{10*sec + sec/2, 4 * sec, "4s flush"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBoard(pod("high", 2000000000, 30))
			b.takes["high"] = c.takes
			if res, err := Run(t.Context(), b, Default, c.budget); err != nil || len(res.Late) != 1 {
				t.Errorf("%+v, %v", res, err)
			}
			if got := b.lines(); got[len(got)-1] != c.want {
				t.Errorf("%s: %q, want %s", c.takes, got, c.want)
			}
		})
	}
}

// TestRunHungCard: a card that hangs takes a stage nothing but what is left of its time, and the power-off a few seconds.
func TestRunHungCard(t *testing.T) {
	for takes, want := range map[time.Duration][]string{
		3 * sec:  {"3s flush", "8s stop high 10s", "8s flush"},
		18 * sec: {"18s flush", "20s stop high 10s", "20s flush"},
	} {
		synctest.Test(t, func(t *testing.T) {
			b := newBoard(pod("high", 2000000000, 30), pod("low", 0, 30))
			b.takes["low"], b.flushes = takes, time.Hour
			res, err := Run(t.Context(), b, Default, Unlimited)
			if !errors.Is(err, context.DeadlineExceeded) || len(res.Late) != 0 {
				t.Errorf("%+v, %v", res, err)
			}
			wantLog(t, b.lines(), append([]string{`0s close "node is shutting down"`, "0s stop low 20s"}, want...)...)
			time.Sleep(b.flushes) // nothing is left of it
		})
	}
}

// TestRunKillWait: N-5.25. Grace x 1.5, at least 10 s.
func TestRunKillWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(pod("a", 0, 2), pod("b", 0, 30))
		b.takes["a"], b.takes["b"] = time.Hour, time.Hour
		cfg := Config{ByPodPriority: []Period{{0, 100 * sec}}}
		res, err := Run(t.Context(), b, cfg, Unlimited)
		if err != nil || len(res.Late) != 2 || res.Took != 45*sec {
			t.Errorf("took %s, late %v, %v", res.Took, res.Late, err)
		}
	})
}

// TestRunCancelled: no further pod is touched (N-5.19 with its switch on).
func TestRunCancelled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBoard(pod("high", 2000000000, 30), pod("low", 0, 30))
		b.takes["low"] = 15 * sec
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*sec, func() { cancel(errCancelled) })
		if _, err := Run(ctx, b, Default, Unlimited); !errors.Is(err, errCancelled) {
			t.Errorf("err %v", err)
		}
		if d := time.Since(b.began); d != 5*sec {
			t.Errorf("returned after %s", d)
		}
		wantLog(t, b.log, `0s close "node is shutting down"`, "0s stop low 20s")
	})
}

// TestRunProperties: on a board whose pods take any time at all, the run is never over its budget, every pod is told
// to stop once, and no pod is touched while one of a lower stage still has time.
func TestRunProperties(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 4))
	for range 300 {
		synctest.Test(t, func(t *testing.T) {
			cfg, pods := randomConfig(r), randomPods(r)
			b := newBoard(pods...)
			for _, p := range pods {
				b.takes[p.Name] = time.Duration(r.IntN(40000)) * time.Millisecond
			}
			b.flushes = time.Duration(r.IntN(3)*r.IntN(1500)) * time.Millisecond
			budget := time.Duration(r.IntN(90)) * sec
			res, err := Run(t.Context(), b, cfg, budget)
			if err != nil || res.Took > budget+b.flushes {
				t.Fatalf("took %s of %s: %v", res.Took, budget, err)
			}
			synctest.Wait()
			if len(b.started) != len(pods) || len(b.log) < len(pods)+2 || len(b.log) > len(pods)+2+max(0, len(res.Plan.Stages)-1) {
				t.Fatalf("%d pods, log %q", len(pods), b.log)
			}
			at := b.began
			for i, s := range res.Plan.Stages {
				over := at
				for _, p := range s.Pods {
					if !b.started[p.Name].Equal(at) {
						t.Fatalf("stage %d begins at %s, %s stopped at %s", i, at.Sub(b.began), p.Name, b.started[p.Name].Sub(b.began))
					}
					wait := max(p.Grace*3/2, 10*sec)
					over = later(over, at.Add(min(b.takes[p.Name], wait)))
				}
				over = over.Add(b.flushes)
				if end := at.Add(s.Period); over.After(end) {
					over = end
				}
				at = over
			}
			time.Sleep(b.flushes)
		})
	}
}

func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
