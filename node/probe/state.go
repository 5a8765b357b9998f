// Package probe asks containers how they are, by their startup, liveness and readiness probes, and runs their lifecycle
// hooks. What counts is decided by a small state machine without effects; asking is one function per kind of probe.
//
// A probe that waits is a timer and nothing else: there is a goroutine only while a container is being asked, so that
// hundreds of probes cost some hundred bytes each.
package probe

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Kind says what a probe decides.
type Kind string

// The kinds, as Kubernetes' events name them.
const (
	Startup   Kind = "Startup"
	Liveness  Kind = "Liveness"
	Readiness Kind = "Readiness"
)

// Result is what is known of a container.
type Result string

// The results.
const (
	Unknown Result = ""
	Success Result = "success"
	Failure Result = "failure"
)

// state is what one probe knows of one instance of a container.
type state struct {
	result Result // what counts
	last   Result // of the last run
	run    int    // how many runs in a row gave last
	held   bool   // the container is to be killed: nothing is asked until there is another one
}

// begin is the state before the first run (N-7.34). A brain that has just been restarted goes on from what it last
// reported of this very instance: known says that it was so then.
func begin(kind Kind, known bool) state {
	switch {
	case kind == Liveness || known:
		return state{result: Success}
	case kind == Readiness:
		return state{result: Failure}
	}
	return state{}
}

// after takes a run's result into account: it counts when there have been enough of it in a row (N-7.35).
func (s state) after(kind Kind, p *corev1.Probe, r Result) state {
	if s.last != r {
		s.last, s.run = r, 0
	}
	s.run++
	if r == Failure && s.run < int(orDefault(p.FailureThreshold, 3)) || r == Success && s.run < int(orDefault(p.SuccessThreshold, 1)) {
		return s
	}
	s.result = r
	if kind != Readiness && r == Failure {
		s.held, s.run = true, 0
	}
	return s
}

// firstRun is when a container is asked for the first time. Readiness is asked at once, since the pod waits for it.
// What may kill the container gives it a period, as Kubernetes' tickers do on the average and never less than the
// delay the pod's author asked for.
func firstRun(kind Kind, p *corev1.Probe, began time.Time) time.Time {
	delay := seconds(p.InitialDelaySeconds)
	if kind != Readiness {
		delay = max(delay, period(p))
	}
	return began.Add(delay)
}

// orDefault fills what a pod of an older API server may lack (N-7.2).
func orDefault(n, otherwise int32) int32 {
	if n <= 0 {
		return otherwise
	}
	return n
}

func seconds(n int32) time.Duration { return time.Duration(n) * time.Second }

func period(p *corev1.Probe) time.Duration  { return seconds(orDefault(p.PeriodSeconds, 10)) }
func timeout(p *corev1.Probe) time.Duration { return seconds(orDefault(p.TimeoutSeconds, 1)) }

func probeOf(kind Kind, c *corev1.Container) *corev1.Probe {
	switch kind {
	case Startup:
		return c.StartupProbe
	case Liveness:
		return c.LivenessProbe
	}
	return c.ReadinessProbe
}
