package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"ledge/api/board"
	"ledge/host"
	"ledge/shutdown"
)

// Conditions of the Node that are ledge's own.
const (
	shutdownInhibited corev1.NodeConditionType = "ShutdownInhibited"
	lowVoltage        corev1.NodeConditionType = "LowVoltage"
)

// conditions say how the board stands with its power: whether a shutdown waits for the pods, and whether the supply sags; and what else
// its owner should know.
func (b *brain) conditions() []corev1.NodeCondition {
	var out []corev1.NodeCondition
	if b.logind == nil || b.logind.Status().Tried { // before it is known, what was said last stays
		out = append(out, lockCondition(b.shutdownReport()))
	}
	if b.given != nil {
		if c, ok := b.given.Condition(); ok {
			out = append(out, c)
		}
	}
	return append(out, voltageCondition(b.voltage.Now()), b.safeModeCondition(), unboundedCondition(b.holds), b.debts.condition(), b.authorityCondition())
}

// lockCondition is the report in a line. Upstream such a lock fails in silence (N-5.39).
func lockCondition(r board.Shutdown) corev1.NodeCondition {
	c := corev1.NodeCondition{Type: shutdownInhibited, Status: corev1.ConditionFalse}
	switch l := r.Lock; {
	case l.WantedSeconds == 0:
		c.Reason, c.Message = "NotConfigured", "shutdownGracePeriod is 0: a shutdown does not wait for the pods"
	case !l.Held || l.Error != "": // a lock that nobody hears logind with holds it up for nothing
		c.Reason, c.Message = "NoLogind", "logind does not hold up a shutdown: "+l.Error
	case l.GrantedSeconds < l.WantedSeconds:
		c.Status, c.Reason = corev1.ConditionTrue, "TooLittleTime"
		c.Message = fmt.Sprintf("logind holds up a shutdown for %d of %d seconds; 'ledge doctor' says why", l.GrantedSeconds, l.WantedSeconds)
	default:
		c.Status, c.Reason = corev1.ConditionTrue, "LogindWaits"
		c.Message = fmt.Sprintf("logind holds up a shutdown for %d seconds", l.GrantedSeconds)
	}
	c.Message += "; shutdowns are heard of from: " + strings.Join(r.Sources, ", ")
	return c
}

func voltageCondition(s shutdown.Sag) corev1.NodeCondition {
	switch s {
	case shutdown.Low:
		return corev1.NodeCondition{Type: lowVoltage, Status: corev1.ConditionTrue, Reason: "SupplySags",
			Message: "the supply voltage was critically low within the last minutes; use a stronger supply or a shorter cable"}
	case shutdown.Steady:
		return corev1.NodeCondition{Type: lowVoltage, Status: corev1.ConditionFalse, Reason: "SupplySteady", Message: "the supply voltage is good"}
	}
	return corev1.NodeCondition{Type: lowVoltage} // no sensor: nothing is said
}

func (b *brain) voltageChanged(low bool) {
	kind, reason := corev1.EventTypeNormal, "SupplySteady"
	if low {
		kind, reason = corev1.EventTypeWarning, "LowVoltage"
	}
	c := voltageCondition(b.voltage.Now())
	b.events.EventOn(b.ref(), kind, reason, c.Message)
}

func (b *brain) lastShutdown() (begun, ended time.Time) {
	last := b.power.Status().Last
	return last.Begun, last.Ended
}

// shutdownProbe is doctor's look at shutdowns: what a running node says of itself, or else what logind would grant.
func (c *command) shutdownProbe(ctx context.Context, root string) host.Probe {
	if c.reachable() != nil {
		return judgeLogind(shutdown.AskLogind(ctx))(shutdown.SystemdRuns())
	}
	var r board.Shutdown
	resp, err := c.raw(ctx, http.MethodGet, board.ShutdownPath, nil, "", nil)
	if err == nil {
		err = errors.Join(json.NewDecoder(resp.Body).Decode(&r), resp.Body.Close())
	}
	if err != nil {
		return host.Probe{Name: shutdownCheck, Err: fmt.Errorf("ask the node: %w", err), Remedy: "look at its log"}
	}
	return judgeLock(r, shutdown.SystemdRuns(), shutdown.DelayFile(root))
}

const (
	shutdownCheck = "orderly shutdown"
	getLogind     = "install and start it (Debian: dbus, systemd; systemctl enable --now dbus systemd-logind); without it 'ledge shutdown' still stops pods in order"
)

// judgeLogind is for a board where no node runs.
func judgeLogind(delay time.Duration, err error) func(systemd bool) host.Probe {
	return func(systemd bool) host.Probe {
		p := host.Probe{Name: shutdownCheck}
		switch {
		case err != nil && systemd:
			p.Err, p.Remedy = fmt.Errorf("no logind: %w", err), getLogind
		case err != nil:
			p.Detail = "no logind: pods are stopped by 'ledge shutdown', the power key and SIGTERM"
		default:
			p.Detail = fmt.Sprintf("logind waits %s; a node raises that to what it needs", delay)
		}
		return p
	}
}

// judgeLock is for a board where a node runs; winner is the file that sets logind's delay.
func judgeLock(r board.Shutdown, systemd bool, winner string) host.Probe {
	p := host.Probe{Name: shutdownCheck}
	switch l := r.Lock; {
	case l.WantedSeconds == 0:
		p.Err = errors.New("a shutdown does not wait for the pods: shutdownGracePeriod is 0")
		p.Remedy = "set shutdownGracePeriod and shutdownGracePeriodCriticalPods in the configuration, such as 30s and 10s"
	case l.Held && l.Error == "" && l.GrantedSeconds < l.WantedSeconds:
		p.Err = fmt.Errorf("logind waits %ds, %ds are wanted: the lowest priorities get no time", l.GrantedSeconds, l.WantedSeconds)
		p.Remedy = "look for InhibitDelayMaxSec in /etc/systemd/logind.conf.d and remove it, then restart ledge"
		if winner != "" && winner != shutdown.LogindDropIn {
			p.Remedy = "remove InhibitDelayMaxSec from " + winner + ", which beats " + shutdown.LogindDropIn + "; then restart ledge"
		}
	case l.Held && l.Error == "":
		p.Detail = fmt.Sprintf("logind waits %ds; shutdowns are heard of from: %s", l.GrantedSeconds, strings.Join(r.Sources, ", "))
	case !systemd:
		p.Detail = "no systemd; shutdowns are heard of from: " + strings.Join(r.Sources, ", ")
	case !l.Unit:
		p.Err = errors.New("the node was not started by systemd: a shutdown does not wait for its pods")
		p.Remedy = "start it by its unit: systemctl enable --now ledge-keeper ledge"
	default:
		p.Err, p.Remedy = errors.New("logind does not hold up a shutdown: "+l.Error), getLogind
	}
	return p
}
