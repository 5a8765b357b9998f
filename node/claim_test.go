package node

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/node/machine"
	"ledge/node/podstate"
	"ledge/node/pressure"
	"ledge/runtime"
	enginefake "ledge/runtime/fake"
)

// slowRecorder is a board so short of memory that to tell of an eviction takes a second.
type slowRecorder struct{ *playedEvents }

func (s slowRecorder) Annotated(ref corev1.ObjectReference, notes map[string]string, kind, reason, message string) {
	time.Sleep(time.Second)
	s.playedEvents.Annotated(ref, notes, kind, reason, message)
}

// TestEvictedWhateverItDiesOf: from when a pod is to go its end is an eviction, whatever comes before the agent's own signal.
func TestEvictedWhateverItDiesOf(t *testing.T) { // N-6.32
	for name, exit := range map[string]runtime.Exit{
		"for want of memory": {Code: 137, Signal: 9, OOMKilled: true}, "it fails": {Code: 1}, "it is done": {},
	} {
		after := pressure.MonitorPeriod + 500*time.Millisecond
		with(t, map[string]enginefake.Behaviour{"c": {ExitAfter: &after, Exit: exit, IgnoreTERM: true}}, func(r *rig) {
			r.cfg.Events = slowRecorder{r.events}
			r.measured(func(s *machine.Sample, running map[string]bool) {
				if running["eater"] {
					s.MemoryAvailable = 40 * mi
				}
			})
			r.machine.Mute = true // it is told to go at the look of the clock
			r.begin()
			r.uses(r.pod("eater", policy(corev1.RestartPolicyNever)), 300*mi, 1)
			r.pass(after + 2*time.Second)
			r.evicted("eater")
			if m := r.get("eater").Status.Message; !strings.Contains(m, "The node was low on resource: memory.") {
				t.Errorf("%s: message %q", name, m)
			}
			if c := r.get("eater").Status.ContainerStatuses[0].State.Terminated; c == nil || int(c.ExitCode) != exit.Code {
				t.Errorf("%s: the container's own end is %+v", name, c)
			}
		})
	}
}

// TestClaim: the first to ask says why a pod ends. One that has ended by itself is nobody's, even while the API does not
// know; what was decided before it was asked for is decided anew.
func TestClaim(t *testing.T) {
	with(t, nil, func(r *rig) {
		r.begin()
		evicted, terminated := podstate.Stop{Reason: "Evicted"}, podstate.Stop{Reason: "Terminated"}
		running, over := podstate.Output{}, podstate.Output{}
		running.Status.Phase, over.Status.Phase = corev1.PodRunning, corev1.PodFailed

		w := newWorker(r.agent, aPod("first"))
		if !w.finish(podstate.Input{}, running) || !w.mayStop() || !w.claim(evicted) {
			t.Error("one that runs cannot be claimed")
		}
		if w.claim(terminated) || w.mayStop() || w.stop(terminated).Reason != "Evicted" {
			t.Error("claimed twice")
		}
		if w.finish(podstate.Input{}, over) {
			t.Error("an end that does not know of the claim is reported")
		}
		if !w.finish(podstate.Input{Stop: &evicted}, over) {
			t.Error("an end that does is not")
		}

		w = newWorker(r.agent, aPod("second"))
		if !w.finish(podstate.Input{}, over) || w.mayStop() || w.claim(evicted) {
			t.Error("one that has ended can be claimed")
		}
		if w.finish(podstate.Input{}, running); !w.claim(evicted) { // the API would not have it, and now it is restarted
			t.Error("one that runs again cannot be claimed")
		}
	})
}

// TestShutdownOfOneThatExitsWell: a pod that a shutdown ends has not done its work, even if it says 0.
func TestShutdownOfOneThatExitsWell(t *testing.T) { // N-5.27
	with(t, map[string]enginefake.Behaviour{"c": {TermTakes: time.Second}}, func(r *rig) {
		r.begin()
		p := r.pod("p", policy(corev1.RestartPolicyNever))
		r.pass(time.Second)
		stop := podstate.Stop{Reason: "Terminated", Message: "why"}
		if err := r.agent.StopPod(r.Context(), p.UID, stop); err != nil {
			t.Fatal(err)
		}
		if s := r.get("p").Status; s.Phase != corev1.PodFailed || s.Reason != "Terminated" || s.Message != "why" ||
			s.ContainerStatuses[0].State.Terminated.ExitCode != 0 {
			t.Errorf("%+v", s)
		}
	})
}
